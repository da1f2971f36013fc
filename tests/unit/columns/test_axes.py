from dataclasses import asdict

import numpy as np
import pytest

from vflsynth.columns.arrays import FloatAxis, IntegerAxis, axis_from_dict

DOUBLE = np.dtype(np.float64)


def float_axis(values: list[float], dtype: np.dtype = DOUBLE) -> FloatAxis:
    return FloatAxis.fit(np.sort(np.array(values, dtype=dtype)).astype(np.float64), dtype)


def integer_axis(values: list[int], dtype: type = np.int64) -> IntegerAxis:
    return IntegerAxis.fit(np.sort(np.array(values, dtype=dtype)), np.dtype(dtype))


@pytest.mark.parametrize(
    ("values", "decimals"),
    [
        ([1.0, 2.0], 0),
        ([0.1, 0.25], 2),
        ([1e-12, 0.0], 12),
        ([1e-18, 0.0], 18),
        ([1e-19, 0.0], None),
        ([1 / 3, 0.5], None),
        ([1e15, 0.5], None),
        ([*range(2000), 0.125], 3),
    ],
)
def test_decimals(values: list[float], decimals: int | None) -> None:
    assert float_axis(values).decimals == decimals


def test_decimals_of_narrow_floats_are_those_a_person_typed() -> None:
    assert float_axis([0.1, 0.25], np.dtype(np.float32)).decimals == 2
    assert float_axis([0.1, 0.25], np.dtype(np.float16)).decimals == 2


def test_coordinates_off_grid_and_range_are_rounded_and_clipped() -> None:
    axis = float_axis([0.5, 1.25, 2.0])
    values = axis.from_coordinates(np.array([-9.0, 0.754, 1.9999, 9.0]))
    assert values.tolist() == [0.5, 0.75, 2.0, 2.0]


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300])
def test_extreme_magnitudes_have_coordinates_that_can_be_squared(scale: float) -> None:
    values = np.arange(5) * scale
    axis = float_axis(values.tolist())
    coordinates = axis.to_coordinates(values)
    assert 1e-10 < coordinates.std() < 1e10
    np.testing.assert_array_equal(axis.from_coordinates(coordinates), values)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([7], 0),
        ([7, 7], 0),
        ([100, 250, -50], 150),
        ([0, 2**62, 2**63 - 1], 1),
        ([-(2**63), 0], 2**63),
    ],
)
def test_step(values: list[int], step: int) -> None:
    assert integer_axis(values).step == step


def test_step_of_a_long_column_is_found_across_blocks() -> None:
    assert integer_axis([*range(0, 100_000, 10), 99_995]).step == 5


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([-(2**63), -1, 0, 2**63 - 1], np.int64),
        ([0, 1, 2**63, 2**64 - 1], np.uint64),
        ([2**64 - 3, 2**64 - 1], np.uint64),
        ([2**62, 2**62 + 1], np.int64),
    ],
)
def test_the_whole_range_of_64_bits(values: list[int], dtype: type) -> None:
    axis = integer_axis(values, dtype)
    array = np.array(values, dtype=dtype)
    coordinates = axis.to_coordinates(array)
    assert (np.diff(coordinates) >= 0).all()
    decoded = axis.from_coordinates(np.r_[-np.inf, coordinates, np.inf])
    assert decoded.dtype == dtype
    assert decoded[[0, -1]].tolist() == [values[0], values[-1]]
    for value, original in zip(decoded[1:-1].tolist(), values):
        assert abs(value - original) <= axis.error(0.0)


def test_differences_are_exact_where_values_are_far_from_zero() -> None:
    axis = integer_axis([2**62, 2**62 + 1, 2**62 + 2**20])
    assert axis.to_coordinates(np.array([2**62 + 1])).tolist() == [1.0]
    assert axis.to_coordinates(np.array([2**62 - 3])).tolist() == [-3.0]


def test_errors_are_zero_only_below_half_a_step() -> None:
    axis = integer_axis([0, 50, 1000])
    assert axis.error(0.49) == 0.0
    assert axis.error(0.5) == 50.0
    axis = float_axis([0.0, 0.1, 5.0])
    assert axis.error(0.048) == 0.0
    assert axis.error(0.05) >= 0.1


@pytest.mark.parametrize("axis", [float_axis([0.1, 5e-324]), integer_axis([0, 2**63 - 1])])
def test_axes_survive_as_dictionaries(axis: FloatAxis | IntegerAxis) -> None:
    assert axis_from_dict(asdict(axis)) == axis


@pytest.mark.parametrize(
    "change",
    [{"lower": 9.0}, {"upper": float("nan")}, {"decimals": 40}, {"relative_precision": -1.0}],
)
def test_impossible_float_axes_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match="not a"):
        axis_from_dict(asdict(float_axis([0.0, 1.0])) | change)


@pytest.mark.parametrize("change", [{"lower": 9}, {"upper": 2**63}, {"step": -1}, {"step": 3}])
def test_impossible_integer_axes_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match="not a"):
        axis_from_dict(asdict(integer_axis([0, 2])) | change)
