"""What is asked of a column, in the column's own type."""

import numpy as np
import pandas as pd
import pytest

from vflsynth.columns.wanted import Domain, Range, wanted_of


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "Float32", "float[pyarrow]"])
def test_decimals_are_those_of_the_type(dtype):
    """3.31 as a float32 is not 3.31 as a float64, and both are what somebody means by it."""
    column = pd.Series([3.3, 3.31, 3.32, None], dtype=dtype)

    def satisfied(condition):
        wanted = wanted_of(Domain(column.dtype), condition, column="ph", party="lab")
        return wanted.satisfied(column).tolist()

    assert satisfied(3.31) == [False, True, False, False]
    assert satisfied([3.3, 3.31]) == [True, True, False, False]
    assert satisfied(Range(low=3.31)) == [False, True, True, False]
    assert satisfied(Range(high=3.31)) == [True, True, False, False]
    assert satisfied(Range(low=-1e300, high=1e300)) == [True, True, True, False]
    assert satisfied(np.float32(3.31)) == [False, dtype != "float64", False, False]
