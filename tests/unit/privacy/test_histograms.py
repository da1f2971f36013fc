import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.later import later
from vflsynth.columns.bins import Bins
from vflsynth.columns.histograms import (
    LARGEST_SCORE,
    NoisyHistogram,
    _even_stretches,
    estimate_n_records,
    nearest_shares,
    std_of_n_records,
)
from vflsynth.columns.schema import Bounds, Categories
from vflsynth.exceptions import PrivacyParameterError
from vflsynth.privacy import NeighbouringRelation, PublicSchema
from vflsynth.privacy.histograms import (
    exact_histograms,
    first_cells,
    histogram_sensitivity,
    release_divided_histograms,
    release_histograms,
)

ADD, REPLACE = NeighbouringRelation
SCHEMA = PublicSchema(
    dtypes="given",
    bounds={"alcohol": (8, 15), "sugar": (0, 16)},
    categories={"colour": ["red", "white"]},
)
N_BINS = 16
CELLS = {
    "alcohol": Bins.even(Bounds(8, 15), N_BINS),
    "sugar": Bins.first(Bounds(0, 16), N_BINS),
    "colour": Categories(("red", "white")),
}

numbers = st.one_of(st.floats(), st.none(), st.sampled_from([8.0, 15.0, -1e308, 1e308]))
records = st.tuples(numbers, numbers, st.sampled_from(["red", "white", "green", None, 7]))


def encode_frame(frame, histograms):
    return np.concatenate([histograms[name].encode(frame[name]) for name in frame.columns], axis=1)


def frame(rows):
    return pd.DataFrame(rows, columns=["alcohol", "sugar", "colour"], dtype=object)


def vector(rows):
    return np.concatenate(list(exact_histograms(frame(rows), CELLS).values()))


@settings(max_examples=40, deadline=None)
@given(st.lists(records, max_size=8), records)
def test_adding_any_record_moves_the_histograms_by_exactly_the_sensitivity(rows, record):
    moved = np.linalg.norm(vector([*rows, record]) - vector(rows))
    assert moved == pytest.approx(histogram_sensitivity(3, ADD))


@settings(max_examples=40, deadline=None)
@given(st.lists(records, max_size=8), records, records)
def test_replacing_any_record_stays_within_the_sensitivity(rows, record, other):
    moved = np.linalg.norm(vector([*rows, record]) - vector([*rows, other]))
    assert moved <= histogram_sensitivity(3, REPLACE) + 1e-12


def test_the_sensitivity_under_replacement_is_reached():
    moved = np.linalg.norm(vector([(8, 0, "red")]) - vector([(15, 16, "white")]))
    assert moved == pytest.approx(histogram_sensitivity(3, REPLACE))


def test_every_cell_has_noise_of_the_claimed_size():
    """Also the last cell: whether anything is missing is not published for free."""
    table, cells = frame([(10.0, 1.0, "red")])[["alcohol"]], {"alcohol": CELLS["alcohol"]}
    draws = [release_histograms(table, cells, noise_std=5.0)["alcohol"].counts for _ in range(700)]
    stds = np.stack(draws).std(0)
    assert stds.shape == (N_BINS + 1,)
    assert np.allclose(stds, 5.0, rtol=0.15)


def test_columns_without_public_bounds_are_refused():
    with pytest.raises(PrivacyParameterError, match="schema"):
        first_cells(SCHEMA, ["income"], 4)


def slow_projection(counts, total):
    """Nearest non-negative point with the given sum, by bisection on the threshold."""
    low, high = counts.min() - total, counts.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(counts - middle, 0).sum() > total else (low, middle)
        )
    return np.maximum(counts - low, 0)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12))
def test_shares_are_the_nearest_distribution(counts):
    counts = np.array(counts)
    shares = nearest_shares(counts)
    assert shares.sum() == pytest.approx(1.0)
    assert (shares >= 0).all()
    if counts.sum() > 1e-6:
        expected = slow_projection(counts, counts.sum()) / counts.sum()
        np.testing.assert_allclose(shares, expected, atol=1e-6)


def test_mean_and_std_of_a_quiet_histogram_are_those_of_the_column():
    rng = np.random.default_rng(0)
    bins = Bins.even(Bounds(8, 15), 64)
    values = pd.DataFrame({"alcohol": rng.normal(11.0, 0.9, 20_000).clip(8, 15)})
    released = release_histograms(values, {"alcohol": bins}, noise_std=1e-6)["alcohol"]
    mean, std = released.mean_and_std()
    assert mean == pytest.approx(values["alcohol"].mean(), abs=0.01)
    assert std == pytest.approx(values["alcohol"].std(), rel=0.02)


def test_constant_column_has_a_positive_scale():
    counts = np.zeros(5)
    counts[2] = 100.0
    mean, std = NoisyHistogram(Bounds(0.0, 4.0), counts, 0.0).mean_and_std()
    assert mean == 2.5
    assert std == pytest.approx(1.0 / math.sqrt(12.0))


@settings(max_examples=40, deadline=None)
@given(st.lists(records, min_size=1, max_size=8), st.floats(0.01, 1000.0), st.integers(0, 99))
def test_encoding_is_finite_and_bounded_whatever_the_records(rows, noise_std, seed):
    """The random features' sensitivity and the decoder both rest on it."""
    table = frame(rows)
    released = release_histograms(
        table,
        CELLS,
        noise_std=noise_std,
        rng=torch.Generator().manual_seed(seed),
    )
    encoded = encode_frame(table, released)
    assert encoded.shape == (len(rows), sum(h.encoded_dim for h in released.values()))
    assert np.abs(encoded).max() <= LARGEST_SCORE


def test_encoding_uses_published_statistics_only():
    """The same row is encoded the same way beside any other rows."""
    released = {
        "alcohol": NoisyHistogram(Bounds(8, 15), np.array([5.0, 60.0, 9.0, 1.0, 40.0]), 1.0),
        "colour": NoisyHistogram(Categories(("red", "white")), np.array([9.0, 20.0, 0.3]), 1.0),
    }
    first = pd.DataFrame({"alcohol": [9.0, 14.0], "colour": ["red", "white"]})
    second = pd.DataFrame({"alcohol": [9.0, None], "colour": ["red", "blue"]})
    one, other = encode_frame(first, released), encode_frame(second, released)
    assert np.array_equal(one[0], other[0])
    assert one.shape == (2, 2 + 2)
    assert other[1].tolist() == [0.0, 1.0, 0.0, 0.0]


def test_scores_are_inverted_within_the_bounds():
    histogram = NoisyHistogram(Bounds(8, 15), np.array([5.0, 60.0, 9.0, 1.0, 0.0]), 1.0)
    values = pd.Series([8.0, 10.0, 11.5])
    scores = histogram.encode(values)[:, 0]
    np.testing.assert_allclose(histogram.decode_numeric(scores), values, rtol=1e-12)
    assert histogram.decode_numeric(np.array([-100.0, 100.0])).tolist() == [8.0, 15.0]


def test_missing_values_must_stand_out_of_the_noise():
    def histogram(missing, noise_std):
        return NoisyHistogram(Bounds(0, 1), np.array([50.0, 50.0, missing]), noise_std)

    assert histogram(25.0, 1.0).has_missing
    assert histogram(25.0, 1.0).missing_share == pytest.approx(0.2)
    assert not histogram(2.9, 1.0).has_missing
    assert histogram(2.9, 1.0).missing_share == 0.0
    assert not histogram(0.0, 0.0).has_missing


def test_number_of_records_from_noisy_counts():
    rows = frame([(10.0, 1.0, "red"), (12.0, None, "white")] * 50)
    estimates = [
        estimate_n_records(histogram.counts for histogram in released.values())
        for released in (release_histograms(rows, CELLS, noise_std=5.0) for _ in range(300))
    ]
    # Inverse-variance weights: one over the number of cells, of a cell's precision.
    n_cells = [len(CELLS[name]) + 1 for name in ("alcohol", "sugar")]
    expected_std = 5.0 / math.sqrt(sum(1.0 / n for n in n_cells) + 1.0 / 3.0)
    assert np.mean(estimates) == pytest.approx(100.0, abs=5 * expected_std / 300**0.5)
    assert np.std(estimates) == pytest.approx(expected_std, rel=0.2)
    assert estimate_n_records([np.full(3, -9.0)]) == 1.0
    released = release_histograms(rows, CELLS, noise_std=5.0).values()
    assert std_of_n_records(released) == pytest.approx(expected_std, rel=1e-12)


def wide_column(n=5_000):
    """Values around 3 with deviation 0.5 between public bounds 0 and 100."""
    return pd.DataFrame({"sugar": np.random.default_rng(2).normal(3.0, 0.5, n)})


def test_bins_fit_a_column_between_wide_bounds():
    schema = PublicSchema(dtypes="given", bounds={"sugar": (0.0, 100.0)})
    options = {"noise_std": 10.0, "rng": torch.Generator().manual_seed(0)}
    column = wide_column()
    released = [
        release_divided_histograms(column, schema, n_bins=32, **options)["sugar"] for _ in range(21)
    ]
    divided = sorted(released, key=lambda histogram: histogram.cells.edges[-1])[10]
    assert divided.column == Bounds(0.0, 100.0)
    assert divided.noise_std == pytest.approx(10.0 / 0.56**0.5)  # .04 are for decimals
    assert divided.cells.edges[0] >= 0.0
    assert divided.cells.edges[-1] < 10.0  # the values are in two of the first bins; one more
    assert len(divided.cells) > 32  # and there they are divided
    mean, std = divided.mean_and_std()
    assert mean == pytest.approx(3.0, abs=0.1)
    even = {"sugar": Bins.even(Bounds(0.0, 100.0), 32)}  # which is why:
    wide = release_histograms(column, even, **options)["sugar"]
    assert wide.mean_and_std()[1] - 0.5 > 4.0 * abs(std - 0.5)


def spiked(n=4_000):
    """Nine in ten have no gains, most work 40 hours, and a test's lowest result is below 12."""
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "gains": np.where(rng.random(n) < 0.9, 0, rng.integers(1_000, 30_000, n)),
            "hours": np.where(rng.random(n) < 0.5, 40, rng.integers(1, 90, n)),
            "result": np.where(rng.random(n) < 0.7, 12.0, rng.gamma(2.0, 300.0, n) + 12.0),
        }
    )


SPIKED = {
    "gains": Bounds(0, 100_000, 0, 1),
    "hours": Bounds(0, 168, 0, 1),
    "result": Bounds(12, 5_000),
}


@pytest.mark.parametrize(("column", "value"), [("gains", 0.0), ("hours", 40.0), ("result", 12.0)])
def test_a_spike_is_a_bin_of_its_own(column, value):
    """Neither rounded nor spread over values that nobody has, in encoding and decoding."""
    frame, rng = spiked()[[column]], torch.Generator().manual_seed(1)
    released = release_divided_histograms(frame, SPIKED, n_bins=32, noise_std=5.0, rng=rng)[column]
    (at,) = np.flatnonzero((released.cells.lows == value) & (released.cells.highs == value))
    real = float((frame[column] == value).mean())
    assert released.shares()[at] == pytest.approx(real, abs=0.02)
    scores = released.encode(frame[column])[:, 0].astype(np.float32)
    decoded = released.decode_numeric(scores.astype(np.float64))
    assert np.mean(np.rint(decoded) == value if SPIKED[column].step else decoded == value) == (
        pytest.approx(real, abs=0.001)
    )


def test_bins_without_any_visible_value_divide_the_public_bounds():
    counts = np.array([2.9e9, -3e9, 1e9, 0.0, 1e12])  # the last one are missing values
    bins = NoisyHistogram(Bounds(0.0, 100.0), counts, 1e9).divided()
    assert bins.edges.tolist() == [0.0, 25.0, 50.0, 75.0, 100.0]
    counts[2] = 3.1e9
    bins = NoisyHistogram(Bounds(0.0, 100.0), counts, 1e9).divided()
    assert bins.edges.tolist() == [25.0, 50.0, 75.0, 100.0]  # nothing is worth a bin
    counts[:4] = [2.9e9, 2.5e9, -1e9, 0.0]
    bins = NoisyHistogram(Bounds(0.0, 100.0), counts, 1e9).divided()
    assert bins.edges.tolist() == [0.0, 50.0, 75.0]  # two are visible, and worth a bin, together


@pytest.mark.parametrize(
    ("noise_std", "share", "most"), [(5.0, 0.95, 1.0), *later((40.0, 0.9, 3.0))]
)
def test_far_bins_that_noise_fills_do_not_widen_a_column(noise_std, share, most):
    """One bin in 740 is above three deviations by chance: of all columns of a fit some are."""
    schema = PublicSchema(dtypes="given", bounds={"sugar": (-100.0, 100.0)})
    rng, column = torch.Generator().manual_seed(0), wide_column(1_000)
    stds = []
    for _ in range(200):
        options = {"n_bins": 128, "noise_std": noise_std, "rng": rng}
        released = release_divided_histograms(column, schema, **options)["sugar"]
        stds.append(released.mean_and_std()[1])
    # Of a real .5. Of 1,500 draws with much noise, 110 are beyond 5.
    assert np.quantile(stds, share) < most


def test_a_column_that_fills_its_bounds_is_found_in_all_of_them():
    """None of its first bins is visible alone: 32 have 21 records each, with a noise of 20."""
    ages = pd.DataFrame({"age": np.arange(668) % 72 + 18})
    schema, rng = {"age": Bounds(18, 90, step=1)}, torch.Generator().manual_seed(0)
    off, n_bins = [], []
    for _ in range(40):
        options = {"n_bins": 32, "noise_std": 13.0, "rng": rng}
        histogram = release_divided_histograms(ages, schema, **options)["age"]
        real = np.clip((histogram.cells.edges[1:] - 17.5) / 72.0, 0.0, 1.0)
        off.append(abs(np.cumsum(histogram.shares()) - real).max())
        off[-1] = max(off[-1], (histogram.cells.lows[histogram.shares() > 0.0][0] - 18.0) / 72.0)
        n_bins.append(np.count_nonzero(histogram.shares()))
    assert np.mean(off) < 0.135
    assert np.mean(n_bins) > 5.0


def test_ends_that_noise_explains_are_empty():
    counts = np.array([5.0, -4.0, 2.0, 40.0, 30.0, -3.0, 7.0, 0.0])  # the last are missing
    histogram = NoisyHistogram(Bounds(0.0, 7.0), counts, 10.0)
    assert np.flatnonzero(histogram.shares()).tolist() == [3, 4]
    quiet = NoisyHistogram(Bounds(0.0, 7.0), counts, 1.0)
    assert np.flatnonzero(quiet.shares()).tolist() == [0, 2, 3, 4, 6]
    labels = NoisyHistogram(Categories(tuple("abcdefg")), counts, 10.0)
    assert np.flatnonzero(labels.shares()).tolist() == [0, 2, 3, 4, 6]  # these have no ends
    counts = np.array([300.0, 450.0, 0.0, 25.0, -3.0, 25.0, 0.0, 0.0])
    far = NoisyHistogram(Bounds(0.0, 7.0), counts, 10.0)  # 25 in two bins: noise; 47 in four: no
    assert np.flatnonzero(far.shares()).tolist() == [0, 1, 3]
    drowned = NoisyHistogram(Bounds(0.0, 7.0), counts, 1_000.0)
    assert drowned.shares().sum() == pytest.approx(1.0)


def test_what_is_worth_a_bin():
    """Five standard deviations: alone, with neighbours, or as a part of one that has more."""
    counts = np.array([0.0, 31.0, 260.0, 31.0, 31.0, 31.0, -20.0, 0.0, 0.0, 0.0])
    bins = NoisyHistogram(Bounds(0.0, 9.0), counts, 10.0).divided()
    halves = np.linspace(2.0, 3.0, 6).tolist()  # 260 are five times 50
    # From one bin before the first of 30; three neighbours have 93 > 50 together; one bin more.
    assert bins.edges.tolist() == [0.0, *halves, 6.0, 7.0]
    counts[6] = 9.0  # as dense as these three, for all one can see: 102 are two times 50
    bins = NoisyHistogram(Bounds(0.0, 9.0), counts, 10.0).divided()
    assert bins.edges.tolist() == [0.0, *halves, 5.0, 7.0]


def _denser(counts, widths, first, last, noise_std):
    """Slowly: part what differs most from a mean over all, in deviations, first by one cut."""
    apart = {}
    for start, end in combinations(range(first, last + 1), 2):
        share = np.sum(widths[start:end]) / np.sum(widths[first:last])
        off = np.sum(counts[start:end]) - share * np.sum(counts[first:last])
        noise = (end - start) * (1 - share) ** 2 + (last - first - end + start) * share**2
        apart[start, end] = abs(off) / (noise_std * noise**0.5) if end - start < last - first else 0
    cuts = [pair for pair in apart if pair[0] == first]
    within = [pair for pair in apart if first < pair[0] and pair[1] < last]
    for pairs, least in ((cuts, 3.0), (within, 5.0)):
        best = max(pairs, key=apart.get, default=None)
        if best is not None and apart[best] > least:
            places = sorted({first, *best, last})
            sides = zip(places, places[1:])
            return [own for side in sides for own in _denser(counts, widths, *side, noise_std)]
    return [(first, last)]


@pytest.mark.parametrize(("seed", "more"), [(seed, 60.0) for seed in range(4)] + [(4, 0.0)])
def test_stretches_are_parted_where_density_changes(seed, more):
    rng = np.random.default_rng(seed)
    counts, widths = rng.normal(size=40) * 10.0 + more * (np.arange(40) > 25), rng.random(40) + 0.5
    found = _even_stretches(counts, widths, 3, 38, 10.0)
    assert found == _denser(counts, widths, 3, 38, 10.0)
    assert (len(found) > 1) == (more > 0.0)


def test_a_few_bins_amid_many_are_parted_from_both_sides():
    """No single cut tells them from an even density: either side has its share of what is more."""
    counts = np.random.default_rng(0).normal(size=60) * 10.0
    counts[29:31] += 90.0
    counts[[2, 57]] += 30.0
    found = _even_stretches(counts, np.ones(60), 0, 60, 10.0)
    assert (29, 31) in found
    assert found == _denser(counts, np.ones(60), 0, 60, 10.0)


def test_bounds_that_are_a_rounding_apart():
    bounds = Bounds(1e16, 1e16 + 4)
    counts = np.r_[np.zeros(len(Bins.even(bounds, 8))), 0.0]
    counts[0] = 100.0
    bins = NoisyHistogram(bounds, counts, 1.0, Bins.even(bounds, 8)).divided()
    assert bounds.low <= bins.edges[0] < bins.edges[-1] <= bounds.high


def test_categories_of_two_rounds_are_averaged_to_the_noise_of_one():
    schema = PublicSchema(dtypes="given", categories={"k": tuple(range(2_000))})
    frame = pd.DataFrame({"k": np.zeros(500, dtype=int)})
    rng = torch.Generator().manual_seed(0)
    released = release_divided_histograms(frame, schema, n_bins=4, noise_std=3.0, rng=rng)["k"]
    assert released.noise_std == 3.0
    assert released.counts[1:].std() == pytest.approx(3.0, rel=0.1)
    assert released.counts[0] == pytest.approx(500.0, abs=15.0)


def test_categories_that_nobody_visibly_has_are_not_encoded():
    histogram = NoisyHistogram(
        Categories(("a", "b", "c", "d")), np.array([40.0, 2.9, -4.0, 3.1, 1.0]), noise_std=3.0
    )
    assert histogram.visible.tolist() == [0, 3]
    assert histogram.encoded_dim == 2
    encoded = histogram.encode(pd.Series(["a", "b", "c", "d", None]))
    assert encoded.tolist() == [[1, 0], [0, 0], [0, 0], [0, 1], [0, 0]]
    drowned = NoisyHistogram(histogram.column, -np.ones(5), noise_std=3.0)
    assert drowned.visible.tolist() == [0, 1, 2, 3]  # something must be drawn
