"""Examples run with fewer trees and steps than their readers': what these find is not shown.

A plugin of the tests of docstrings (``-p tests.documentation.examples``) and of pages.
"""

import pytest

from vflsynth.adversary import RandomForest
from vflsynth.evaluation import train_test
from vflsynth.methods.autoregressive import server
from vflsynth.methods.gan import sampler
from vflsynth.models import party_model
from vflsynth.splitdefense.leakage import attacks, columns, labels

SHORT = {
    (attacks, "_FINE_TUNING_STEPS"): 20,
    (attacks, "_STEPS"): 20,
    (columns, "_STEPS"): 30,
    (columns, "_TREES"): 5,
    (labels, "_MATCHING_STEPS"): 30,
    (labels, "_STARTS"): 1,
    (server, "_CRITIC_HIDDEN"): 32,
    (server, "_CRITIC_OUT"): 16,
    (server, "_PATIENCE"): 10,
    (sampler, "CALIBRATION_ROWS"): 2048,
    (party_model, "SAMPLE_BLOCK"): 256,
    (RandomForest.__init__, "__defaults__"): (50, 3, 0),
}


@pytest.fixture(autouse=True)
def small_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train little."""
    usual = train_test._forest
    monkeypatch.setattr(train_test, "_forest", lambda *how: usual(*how).set_params(n_estimators=20))
    for (owner, name), value in SHORT.items():
        monkeypatch.setattr(owner, name, value)
