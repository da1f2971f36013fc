"""GAFM's margin of noisy labels."""

import pytest

from vflsynth.exceptions import ParameterError
from vflsynth.splitdefense import GAFMClassifier


@pytest.mark.parametrize("margin", ["auto", 0.6, -0.1])
def test_other_margins_are_refused(margin, tables):
    frames, y = tables
    with pytest.raises(ParameterError, match=r"GAFM: pseudo_label_margin must be"):
        GAFMClassifier(active="bank", pseudo_label_margin=margin).fit(frames, y, on="id")
