import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.columns import TableTransformer
from vflsynth.columns.base import ColumnGrid, decimal_steps, time_steps, whole_steps


def fitted(values, steps=None, precision=0.0):
    values = np.sort(np.asarray(values))
    steps = steps or (decimal_steps() if values.dtype.kind == "f" else whole_steps())
    return ColumnGrid.fit(values, steps, precision)


def test_steps_are_the_round_numbers_wide_ones_first():
    steps = [step for step, _ in decimal_steps()]
    assert steps == sorted(steps, reverse=True)
    assert steps[28:41] == [500, 250, 200, 100, 50, 25, 20, 10, 5, 2.5, 2, 1, 0.5]
    assert all(round(step, decimals) == step for step, decimals in decimal_steps())
    assert [step for step, _ in whole_steps()][-5:] == [25, 20, 10, 5, 2]
    assert [step for step, _ in time_steps("ms")] == [86_400_000, 3_600_000, 900_000, 60_000, 1000]


@pytest.mark.parametrize("step", [0.001, 0.05, 0.1, 0.25, 1.0, 2.5, 100.0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_step_is_found_whatever_a_few_values_are(step, dtype):
    rng = np.random.default_rng(0)
    values = rng.integers(-500, 500, 1000) * step
    values[:40] += step * rng.random(40)
    column = values.astype(dtype).astype(np.float64)
    assert fitted(column, precision=float(np.finfo(dtype).eps)).step == step
    column[40:60] += step / 3  # six in a hundred
    found = fitted(column, precision=float(np.finfo(dtype).eps))
    assert found is None or found.step < step


def test_values_anywhere_have_no_grid():
    assert fitted(np.random.default_rng(0).normal(size=1000)) is None
    assert fitted(np.random.default_rng(0).normal(size=1000) * 1e12) is None
    assert fitted([1.0, 1.0, 2.0]) is None or fitted([1.0, 1.0, 2.0]).step < 1.0


@given(st.lists(st.integers(-(2**62), 2**62), min_size=2), st.sampled_from([2, 10, 250, 86_400]))
def test_the_nearest_place_is_the_nearest(values, step):
    values = np.array(values)
    upper = 2**61 // step * step
    lower = -upper
    found = ColumnGrid(step, 0, lower, upper).nearest(values)
    for value, place in zip(values.tolist(), found.tolist()):
        assert place % step == 0
        assert lower <= place <= upper
        assert 2 * abs(min(max(value, lower), upper) - place) <= step


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
@pytest.mark.parametrize("whole", [False, True])
def test_numbers_that_are_measured_keep_their_significant_digits(digits, whole):
    """They came out with all decimals of the smallest: 1250.3 in a column of 1250 and 83.81."""
    rng = np.random.default_rng(digits)

    def measured(numbers):
        return np.array([float(f"{number:.{digits - 1}e}") for number in numbers])

    numbers = measured(
        rng.choice([-1, 1, 1], 2000) * np.exp(rng.normal(7 if whole else 0, 3, 2000))
    )
    numbers = np.rint(numbers).astype(np.int64) if whole else np.where(numbers == 0, 1, numbers)
    grid = ColumnGrid.of_numbers(np.sort(numbers))
    assert grid.digits == digits
    drawn = np.clip(numbers * rng.uniform(0.9, 1.1, 2000), grid.lower, grid.upper)
    found = grid.nearest(drawn.astype(numbers.dtype))
    large = np.abs(found) > grid.step * 10.0**digits
    assert large.sum() > 300
    np.testing.assert_allclose(measured(found[large]), found[large], rtol=1e-12)
    assert found.dtype == numbers.dtype


def test_round_numbers_of_one_size_have_no_digits_beside_their_step():
    numbers = np.random.default_rng(0).integers(10, 99, 1000) * 100.0
    assert ColumnGrid.of_numbers(np.sort(numbers)).digits == 0
    assert ColumnGrid.of_numbers(np.arange(2, 99)) is None


def test_floats_go_to_decimals_as_they_are_written():
    grid = ColumnGrid(0.1, 1, 8.4, 14.9)
    found = grid.nearest(np.array([-3.0, 8.4, 9.5499, 9.55001, 14.87, 99.0]))
    assert found.tolist() == [8.4, 8.4, 9.5, 9.6, 14.9, 14.9]


@pytest.mark.parametrize("dtype", ["int64", "Int32", "uint64", "float32", "Float64"])
def test_generated_numbers_are_on_the_grid_and_encoded_ones_stay(dtype):
    rng = np.random.default_rng(0)
    values = rng.integers(1, 200, 400) * 50
    values[:8] += [1, 2, 3, 4, 5, 6, 7, 8]
    frame = pd.DataFrame({"price": pd.array(values, dtype)})
    table = TableTransformer().fit(frame)
    encoded = table.transform(frame)
    pd.testing.assert_frame_equal(table.inverse_transform(encoded), frame)
    made = encoded + rng.normal(scale=0.1, size=encoded.shape).astype(np.float32)
    found = table.inverse_transform(made, generated=True)["price"]
    assert found.dtype == frame["price"].dtype
    assert (found.astype("float64") % 50 == 0).all()
    loaded = TableTransformer.from_dict(table.to_dict())
    pd.testing.assert_series_equal(loaded.inverse_transform(made, generated=True)["price"], found)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_generated_times_are_whole_hours_where_nearly_all_are(unit):
    rng = np.random.default_rng(0)
    times = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 9000, 400), "h")
    times = pd.Series(times).dt.as_unit(unit)
    times.iloc[0] += pd.Timedelta("17min")
    table = TableTransformer().fit(times.to_frame("t"))
    encoded = table.transform(times.to_frame("t"))
    made = table.inverse_transform(encoded + np.float32(0.0131), generated=True)["t"]
    assert (made == made.dt.floor("h")).all()
    assert made.dtype == times.dtype
