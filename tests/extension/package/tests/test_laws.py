"""What vflsynth asks of whatever is added to it."""

import pandas as pd
from vflsynth_example import (
    ComonotoneSynthesizer,
    LargestGap,
    LetterTransformer,
    RatedDPSGD,
    Signs,
)

from vflsynth.mechanisms import Asked, Discriminators
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.testing import (
    column_kind_checks,
    mechanism_checks,
    metric_checks,
    parametrize_with_checks,
    protection_checks,
    synthesizer_checks,
)

COLUMNS = {"lab": ColumnCounts(3), "clinic": ColumnCounts(2)}
ASKED = Asked(n_records=1000, owners=Discriminators.PRIVATE, batch_size=100, epochs=1)


@parametrize_with_checks(
    {
        "synthesizer": synthesizer_checks(ComonotoneSynthesizer()),
        "mechanism": mechanism_checks(
            RatedDPSGD(epsilon=2.0, delta=1e-5, n_records=1000),
            lambda mechanism: mechanism.plan(COLUMNS, ASKED),
        ),
        "letters": column_kind_checks(
            LetterTransformer(), pd.Series(["b", "a", None, "b"], name="x")
        ),
        "metric": metric_checks(LargestGap()),
        "signs": protection_checks(Signs(0.5)),
    }
)
def test_laws(check):
    check()
