import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.columns.bins import Bins, cell_codes, n_cells
from vflsynth.columns.schema import Bounds, Categories

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.just(pd.NA),
    st.just(pd.NaT),
    st.dates(),
    st.complex_numbers(max_magnitude=10),
    st.binary(max_size=3),
)
ends = st.tuples(st.integers(-(10**9), 10**9), st.integers(1, 10**9)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)
bounds = st.one_of(
    st.builds(lambda e, s: Bounds(float(e[0] * s), float(e[1] * s)), ends, st.floats(1e-9, 1e9)),
    st.builds(lambda e: Bounds(*e, step=1), ends),
    st.builds(lambda e: Bounds(0, (e[1] - e[0]) * 86_400, e[0], 86_400), ends),
    st.builds(
        lambda e, d: Bounds(e[0] / 10**d, e[1] / 10**d, 0, 10.0**-d), ends, st.integers(1, 6)
    ),
    st.sampled_from(
        [Bounds(1e16, 1e16 + 4), Bounds(0, 2**63, -(2**62), 1), Bounds(0.2, 1.9, 0, 1)]
    ),
    st.sampled_from(
        [Bounds(-1.0, 1.0), Bounds(0.0, 1.0), Bounds(-3.0, 0.0), Bounds(-1e149, 1e149)]
    ),
)
bins_of = st.sampled_from([Bins.even, Bins.first])


def slow_codes(bins, numbers):
    """Of every number the last bin that it is in or above, single values before intervals."""
    found = []
    for number in numbers:
        inside = min(max(number, bins.lows[0]), bins.highs[-1])
        points = [k for k in range(len(bins)) if bins.lows[k] == inside == bins.highs[k]]
        above = [k for k in range(len(bins)) if bins.lows[k] <= inside]
        found.append(points[0] if points else above[-1])
    return found


@given(bounds, bins_of, st.integers(1, 40), st.data())
def test_codes_are_those_of_a_slow_search(own, make, n_bins, data):
    bins = make(own, n_bins)
    some = st.sampled_from([*bins.lows.tolist(), *bins.highs.tolist(), *bins.edges.tolist()])
    low, high = float(own.low), float(own.high)
    numbers = data.draw(st.lists(st.one_of(some, st.floats(low, high)), max_size=20))
    if own.step:
        numbers = [own.from_steps(round(own.to_steps(number))) for number in numbers]
    bins = Bins(Bounds(own.low, own.high, 0, own.step), bins.lows, bins.highs)
    codes = bins.codes(pd.Series(numbers, dtype=np.float64))
    assert codes.tolist() == slow_codes(bins, numbers)


@pytest.mark.parametrize(
    "cells", [Bins.even(Bounds(-1.0, 1.0), 7), Bins.first(Bounds(-1.0, 1.0), 4),
              Bins.first(Bounds(-9, 90, 0, 1), 5), Categories(("a", "b", 1, 2.5))]
)  # fmt: skip
@given(values=st.lists(anything, min_size=1, max_size=20), odd=anything)
def test_every_record_is_in_one_cell_whatever_the_others_are(cells, values, odd):
    codes = cell_codes(pd.Series(values, dtype=object), cells)
    assert codes.shape == (len(values),)
    assert ((codes >= 0) & (codes < n_cells(cells))).all()
    beside = cell_codes(pd.Series([*values, odd], dtype=object), cells)
    assert codes.tolist() == beside[:-1].tolist()


def test_even_bins():
    values = pd.Series([-5.0, 0.0, 0.24, 0.25, 0.999, 1.0, 7.0, np.nan, np.inf, -np.inf, "x"])
    codes = cell_codes(values, Bins.even(Bounds(0.0, 1.0), 4))
    assert codes.tolist() == [0, 0, 0, 1, 3, 3, 3, 4, 3, 0, 4]


@given(bounds, bins_of, st.integers(1, 40))
def test_bins_cover_the_bounds_without_gaps(own, make, n_bins):
    """Half a step beyond them where the column has a step; a single value's are half a step."""
    bins = make(own, n_bins)
    edges, half = bins.edges, own.step / 2
    assert len(edges) == len(bins) + 1
    assert (np.diff(edges) >= 0).all()
    first = math.ceil(round(own.low / own.step, 6)) * own.step if own.step else own.low
    assert edges[0] == pytest.approx(first - half, abs=half / 2)
    intervals = bins.lows < bins.highs
    assert np.array_equal(bins.lows[intervals], edges[:-1][intervals])
    assert np.array_equal(bins.highs[intervals], edges[1:][intervals])
    if own.step and own.high < 2**50:
        middles = (edges[:-1] + edges[1:]) / 2
        np.testing.assert_allclose(bins.lows[~intervals], middles[~intervals])


def test_a_column_of_few_values_has_a_bin_for_each():
    bins = Bins.even(Bounds(1, 16, 0, 1), 32)
    assert bins.lows.tolist() == bins.highs.tolist() == list(range(1, 17))
    assert bins.codes(pd.Series([0, 1, 2, 16, 99])).tolist() == [0, 0, 1, 15, 15]


def test_bins_become_finer_towards_zero():
    bins = Bins.first(Bounds(0, 100_000, 0, 1), 4)
    assert bins.lows[0] == bins.highs[0] == 0.0
    assert bins.lows[-1] == pytest.approx(75_000, abs=1)
    widths = (bins.highs - bins.lows)[:-4]
    assert (widths <= np.maximum(1.0, 2 * bins.lows[:-4])).all()  # about as wide as far away
    beside = Bins.first(Bounds(-8.0, 4.0), 3)
    assert beside.lows[beside.lows == beside.highs].tolist() == [-8.0, 0.0, 4.0]
    far = Bins.first(Bounds(18, 100, 0, 1), 41)
    assert len(far) == 41  # of 83 values


@given(bounds, bins_of, st.integers(1, 40), st.integers(0, 99))
def test_what_is_in_a_bin_counts_in_it(own, make, n_bins, seed):
    bins = make(own, n_bins)
    rng = np.random.default_rng(seed)
    codes = rng.integers(len(bins), size=50)
    drawn = bins.lows[codes] + (bins.highs - bins.lows)[codes] * rng.random(50)
    if own.step:
        if own.high >= 2**50:
            return
        drawn = own.step * np.rint(drawn / own.step)
    plain = Bins(Bounds(own.low, own.high, 0, own.step), bins.lows, bins.highs)
    wide = (bins.highs - bins.lows)[codes] > 1e-12 * np.abs(drawn)
    found = plain.codes(pd.Series(drawn))
    assert np.mean((found == codes) | ~wide) > 0.9  # the rest by rounding, beside the edge
    assert (np.abs(found - codes)[wide] <= 1).all()


@pytest.mark.parametrize(
    ("lows", "highs"),
    [([], []), ([0.0, 1.0], [1.5, 2.0]), ([1.0], [0.0]), ([0.0, np.nan], [1.0, 2.0]),
     ([0.0], [np.inf])],
)  # fmt: skip
def test_what_is_no_bins(lows, highs):
    with pytest.raises(ValueError, match="finite ends, in ascending order"):
        Bins(Bounds(0.0, 2.0), np.array(lows), np.array(highs))


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(["no", "yes", None, "maybe"], dtype=object),
        pd.Series(["no", "yes", None, "maybe"], dtype="string"),
        pd.Series(["no", "yes", None, "maybe"], dtype="category"),
    ],
)
def test_categorical_cells(values):
    assert cell_codes(values, Categories(("no", "yes"))).tolist() == [0, 1, 2, 2]


def test_categorical_cells_of_what_cannot_be_a_category():
    values = pd.Series(["a", ["a"], {1: 2}, (1, ["a"]), (1, 2)], dtype=object)
    assert cell_codes(values, Categories(("a",))).tolist() == [0, 1, 1, 1, 1]
    assert cell_codes(values, Categories(((1, 2), (3, 4)))).tolist() == [2, 2, 2, 2, 0]


def test_categorical_cells_of_numbers():
    values = pd.Series([3, 4, None, 9], dtype="Int64")
    assert cell_codes(values, Categories((4, 3))).tolist() == [1, 0, 2, 2]


@pytest.mark.parametrize("far", [np.inf, -np.inf, 1e308])
def test_a_number_far_away_is_in_the_last_bin_and_nobody_is_warned(far):
    """Of a column with decimals, whose numbers are counted in steps; warnings are errors here."""
    column = pd.Series([0.1, 0.2, far])
    found = Bins.even(Bounds(0.0, 1.0, step=0.1), 4).codes(column).tolist()
    assert found == [0, 0, 3 if far > 0 else 0]
