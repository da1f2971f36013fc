"""What vflsynth asks of whatever is added to it."""

import pandas as pd
from vflsynth_example import ComonotoneSynthesizer, LetterTransformer, Signs

from vflsynth.testing import (
    column_kind_checks,
    parametrize_with_checks,
    protection_checks,
    synthesizer_checks,
)


@parametrize_with_checks(
    {
        "synthesizer": synthesizer_checks(ComonotoneSynthesizer()),
        "letters": column_kind_checks(
            LetterTransformer(), pd.Series(["b", "a", None, "b"], name="x")
        ),
        "signs": protection_checks(Signs(0.5)),
    }
)
def test_laws(check):
    check()
