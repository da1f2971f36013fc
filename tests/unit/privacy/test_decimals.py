"""Decimals of floats: what values need, what noise lets one say, and what it costs."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.columns.schema import Bounds, Categories
from vflsynth.privacy import histograms as decimals_module
from vflsynth.privacy import histograms as histograms_module
from vflsynth.privacy.histograms import (
    MOST_DECIMALS,
    decimals_needed,
    nearly_all_have,
    release_decimals,
    release_divided_histograms,
)

WIDE = Bounds(-1e6, 1e6)
FINER = MOST_DECIMALS + 1


def needed(values, dtype=np.float64, bounds=WIDE):
    return decimals_needed(pd.Series(values, dtype=dtype), bounds).tolist()


@given(st.integers(-(10**7), 10**7), st.integers(0, 9))
def test_a_value_needs_the_decimals_it_is_written_with(digits, exponent):
    written = Decimal(digits).scaleb(-exponent).normalize()
    expected = min(max(0, -written.as_tuple().exponent), FINER)
    expected = expected if digits and abs(written) < 10**6 else -1
    assert needed([float(written)]) == [expected]


def test_types_round_what_is_written():
    written = [0.1, 3.25, 17.125, 2.0]
    assert needed(written, np.float32) == needed(written, "Float64") == [1, 2, 3, 0]
    assert needed([0.1 + 0.2, 1.1 * 3.0]) == [1, 1]  # of arithmetic with what has one
    assert needed([1.0 / 3.0, np.pi]) == [FINER, FINER]


def test_what_tells_nothing():
    """Zero, what counts as an end, and no number."""
    values = [0.0, -0.0, 5.0, 7.5, -np.inf, np.inf, np.nan, -1.0, -3.3]
    assert needed(values, bounds=Bounds(-1.0, 5.0)) == [-1] * 9


@given(
    st.lists(st.floats(width=32), max_size=12),
    st.floats(width=32),
    st.sampled_from(["float32", "float64"]),
)
def test_a_record_moves_one_count(values, odd, dtype):
    """Whatever the others are, and whatever it is."""
    alone = needed(values, dtype)
    assert needed([*values, odd], dtype)[: len(values)] == alone
    assert {*alone} <= {*range(-1, FINER + 1)}


@pytest.mark.parametrize(
    ("shares", "decimals"),
    [
        ([0.0, 0.1, 0.9], 2),
        ([0.01, 0.09, 0.9], 2),
        ([1.0], 0),
        ([0.96, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.04], 0),  # a few are odd
        ([0.8, 0.0, 0.2], 2),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], None),
        ([0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5], None),
    ],
)
def test_the_fewest_that_do_for_nearly_all(shares, decimals):
    counts = 1_000.0 * np.append(shares, np.zeros(FINER + 1 - len(shares)))
    assert nearly_all_have(counts, 0.0) == decimals
    found = [
        nearly_all_have(counts + np.random.default_rng(seed).normal(0.0, 10.0, 8), 10.0)
        for seed in range(200)
    ]
    assert np.mean([one == decimals for one in found]) > 0.95


def test_noise_that_hides_all_records_lets_say_nothing():
    """A column that is rounded too much is worse than one in all digits."""
    rng, counts = np.random.default_rng(0), np.array([0.0, 1.0, 9.0, *np.zeros(5)])
    found = [nearly_all_have(counts + rng.normal(0.0, 100.0, 8), 100.0) for _ in range(2_000)]
    assert np.mean([one is not None for one in found]) < 0.01


def released(values, bounds, dtype=np.float64, noise_std=2.0):
    rng = torch.Generator().manual_seed(0)
    return release_decimals(pd.Series(values, dtype=dtype), bounds, noise_std=noise_std, rng=rng)


def test_the_step_follows_from_noisy_counts_bounds_and_type():
    rng = np.random.default_rng(0)
    tenths, real = rng.integers(1, 99, 500) / 10, rng.normal(5.0, 1.0, 500)
    assert released(tenths, Bounds(0, 10)) == Bounds(0, 10, step=0.1)
    assert released(tenths.round(), Bounds(0, 10)) == Bounds(0, 10, step=1)
    assert released(real, Bounds(0, 10)) == Bounds(0, 10)
    assert released(tenths, Bounds(0, 10), noise_std=400.0) == Bounds(0, 10)  # not visible
    assert released([], Bounds(0, 10)) == Bounds(0, 10)
    # Two places are no grid, and of large numbers a narrow type has nothing but whole ones.
    assert released(np.full(500, 3.0), Bounds(2.5, 4.4)) == Bounds(2.5, 4.4)
    large = rng.integers(1, 10**8, 500).astype(float)
    assert released(large, Bounds(0, 10**8), np.float32) == Bounds(0, 10**8)
    assert released(large, Bounds(0, 10**8)) == Bounds(0, 10**8, step=1)


def test_it_is_at_the_price_of_a_columns_histograms(monkeypatch):
    """Squares of what a record moves, in noise: as much as one release of every column."""
    paid, honest, told = {}, histograms_module.release_histograms, release_decimals

    def histograms(frame, cells, *, noise_std, rng=None):
        for name in frame:
            paid.setdefault(name, []).append(noise_std**-2)
        return honest(frame, cells, noise_std=noise_std, rng=rng)

    def decimals(column, bounds, *, noise_std, rng=None):
        paid.setdefault(column.name, []).append(noise_std**-2)
        return told(column, bounds, noise_std=noise_std, rng=rng)

    monkeypatch.setattr(histograms_module, "release_histograms", histograms)
    monkeypatch.setattr(histograms_module, "release_decimals", decimals)
    frame = pd.DataFrame(
        {"float": [0.5, 1.5], "whole": [1, 2], "stated": [1.0, 2.0], "label": ["u", "v"]}
    )
    monkeypatch.setattr(decimals_module, "nearly_all_have", lambda *_: 1)
    columns = {name: Bounds(0, 9, step=1) for name in ("whole", "stated")}
    columns |= {"float": Bounds(0, 9), "label": Categories(("u", "v"))}
    found = release_divided_histograms(frame, columns, n_bins=4, noise_std=3.0)
    assert {name: len(each) for name, each in paid.items()} == {
        "float": 3,
        "whole": 2,
        "stated": 2,
        "label": 1,
    }
    for each in paid.values():
        assert sum(each) == pytest.approx(1 / 9.0, rel=1e-12)
    assert found["float"].column.step == 0.1


def test_values_with_more_decimals_are_in_the_nearest_bin_and_all_that_is_drawn_is_rounded():
    """Also zero and other single values, which rounding to binary digits must not miss."""
    rng = np.random.default_rng(1)
    values = np.where(rng.random(4_000) < 0.6, 0.57, rng.integers(1, 300, 4_000) / 100)
    values[:40] += 1e-3  # a few have one more
    frame, generator = pd.DataFrame({"x": values}), torch.Generator().manual_seed(1)
    options = {"n_bins": 32, "noise_std": 3.0, "rng": generator}
    histogram = release_divided_histograms(frame, {"x": Bounds(0, 5)}, **options)["x"]
    assert histogram.column == Bounds(0, 5, step=0.01)
    (at,) = np.flatnonzero((histogram.cells.lows == 0.57) & histogram.cells.single)
    assert histogram.counts[at] == pytest.approx(np.sum(values.round(2) == 0.57), abs=30)
