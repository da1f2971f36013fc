"""Values that pandas reads one by one otherwise than together."""

import pandas as pd
import pytest

from vflsynth.columns.public import with_public_types
from vflsynth.exceptions import OwnTableWarning
from vflsynth.privacy import PublicSchema


@pytest.mark.parametrize("dtype", ["datetime64[us]", "datetime64[s]", "datetime64[s, UTC]"])
def test_a_year_without_nanoseconds_among_nanoseconds_ends_no_private_run(dtype):
    times = ["2020-01-01T10:00:00.123456789"] * 9
    frame = pd.DataFrame({"t": [*times, "9999-12-31"]})
    typed = with_public_types(frame, PublicSchema(dtypes={"t": dtype}), party="lab")["t"]
    assert typed.dtype == dtype
    assert typed.dt.year.tolist() == [2020] * 9 + [9999]


@pytest.mark.parametrize("number", [7, 7.5])
@pytest.mark.parametrize("dtype", ["datetime64[s]", "datetime64[s, UTC]", "timedelta64[s]"])
def test_numbers_are_no_times_whatever_one_record_has(dtype, number):
    for last in (number, None, "a word"):
        frame = pd.DataFrame({"t": [number] * 3 + [last]})
        with pytest.warns(OwnTableWarning):
            typed = with_public_types(frame, PublicSchema(dtypes={"t": dtype}), party="lab")["t"]
        assert typed.isna().all()
        assert typed.dtype == dtype


def test_a_blank_among_large_whole_numbers_ends_no_private_run():
    pytest.importorskip("pyarrow")
    large = [2**60 + i for i in range(5)]
    frame = pd.DataFrame({"n": pd.Series([*large, None], dtype=object)})
    typed = with_public_types(frame, PublicSchema(dtypes={"n": "int64[pyarrow]"}))["n"]
    assert typed.tolist()[:5] == large
    assert typed.isna().sum() == 1
