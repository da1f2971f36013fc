"""Times that pandas reads one by one, and not together."""

import pandas as pd
import pytest

from vflsynth.columns.public import with_public_types
from vflsynth.privacy import PublicSchema


@pytest.mark.parametrize("dtype", ["datetime64[us]", "datetime64[s]", "datetime64[s, UTC]"])
def test_a_year_without_nanoseconds_among_nanoseconds_ends_no_private_run(dtype):
    times = ["2020-01-01T10:00:00.123456789"] * 9
    frame = pd.DataFrame({"t": [*times, "9999-12-31"]})
    typed = with_public_types(frame, PublicSchema(dtypes={"t": dtype}), party="lab")["t"]
    assert typed.dtype == dtype
    assert typed.dt.year.tolist() == [2020] * 9 + [9999]
