import numpy as np
import pytest
from scipy.stats import norm, rankdata

from vflsynth.columns.scaling import SCALERS, NormalScores, Ranks, Standardizer

RNG = np.random.default_rng(0)
SAMPLES = {
    "normal": RNG.normal(5, 2, 3000),
    "skewed": RNG.lognormal(0, 2, 3000),
    "ties": RNG.integers(0, 12, 3000).astype(float),
    "two": np.array([0.0, 1.0]),
    "close": np.array([1.0, np.nextafter(1.0, 2.0)]),
    "far apart": 10.0 ** RNG.uniform(-300, 90, 3000),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("scaler", SCALERS)
def test_round_trip_through_float32_stays_within_the_stated_error(name: str, scaler: str) -> None:
    ordered = np.sort(SAMPLES[name])
    fitted = SCALERS[scaler].fit(ordered)
    scaled = fitted.scale(ordered)
    assert (np.diff(scaled) >= 0).all()
    restored = fitted.unscale(scaled.astype(np.float32))
    assert np.abs(restored - ordered).max() <= fitted.error(ordered[0], ordered[-1])
    assert SCALERS[scaler](**fitted.to_dict()) == fitted


def test_standardizer_has_the_sample_standard_deviation() -> None:
    assert Standardizer.fit(np.array([1.0, 3.0])) == Standardizer(mean=2.0, std=np.sqrt(2.0))


def test_normal_scores_agree_with_ranks() -> None:
    values = np.sort(SAMPLES["skewed"])
    expected = norm.ppf((rankdata(values) - 0.5) / len(values))
    scores = NormalScores.fit(values).scale(values)
    # Between knots, which are four records apart, scores are interpolated; that shows in the tails.
    assert np.abs(scores - expected)[150:-150].max() < 0.02
    assert abs(scores.mean()) < 0.01
    assert abs(scores.std() - 1) < 0.01


def test_normal_scores_of_ties_are_those_of_their_middle_rank() -> None:
    values = np.repeat([1.0, 2.0, 5.0], [10, 60, 30])
    scores = NormalScores.fit(values).scale(np.array([1.0, 2.0, 5.0]))
    np.testing.assert_allclose(scores, norm.ppf([0.05, 0.40, 0.85]))


def test_normal_scores_keep_at_most_a_thousand_knots() -> None:
    fitted = NormalScores.fit(np.sort(RNG.normal(size=100_000)))
    assert len(fitted.knots) <= 1000
    assert len(NormalScores.fit(np.arange(80.0)).knots) <= 22


def test_normal_scores_stop_at_the_range() -> None:
    fitted = NormalScores.fit(np.arange(10.0))
    assert fitted.unscale(np.array([-np.inf, -50.0, 50.0, np.inf])).tolist() == [0, 0, 9, 9]
    assert fitted.scale(np.array([-1.0])) == fitted.scale(np.array([0.0]))


def test_outermost_atoms_end_where_a_quarter_of_a_record_is_left() -> None:
    ranks = Ranks.fit(np.repeat([1.0, 2.0, 5.0], [10, 60, 30]))
    np.testing.assert_allclose(norm.cdf(ranks.lower), [0.0025, 0.1, 0.7])
    np.testing.assert_allclose(norm.cdf(ranks.upper), [0.1, 0.7, 0.9975])


def test_what_fewer_records_hold_than_the_least_is_no_atom_though_all_values_are_listed() -> None:
    ordered = np.repeat([1.0, 2.0, 5.0], [50, 3, 47])
    drawn = norm.ppf(np.linspace(0.001, 0.999, 999))
    assert (Ranks.fit(ordered).unscale(drawn) == 2.0).sum() == 30
    least = Ranks.fit(ordered, least=5)
    assert not (least.unscale(drawn) == 2.0).any()
    assert not least.has_atoms_only
    assert (least.unscale(drawn) == 1.0).sum() == 500  # as many as hold it


def test_what_is_in_the_middle_of_two_atoms_is_the_lower_one() -> None:
    ranks = Ranks.fit(np.repeat([1.0, 2.0, 5.0], 30))
    assert ranks.decoded(np.array([1.4, 1.5, 1.6, 3.5, 3.6])).tolist() == [1, 1, 2, 2, 5]


@pytest.mark.parametrize("values", [(0.0, 0.0), (0.0, -1.0), (np.nan, 1.0), (0.0, np.inf)])
def test_impossible_standardizers_are_refused(values: tuple) -> None:
    with pytest.raises(ValueError, match="positive standard deviation"):
        Standardizer(*values)


@pytest.mark.parametrize(
    ("knots", "scores"), [([0.0], [0.0]), ([0.0, 0.0], [0.0, 1.0]), ([0.0, 1.0], [0.0, 1.0, 2.0])]
)
def test_impossible_normal_scores_are_refused(knots: list, scores: list) -> None:
    with pytest.raises(ValueError, match="rise together"):
        NormalScores(knots, scores)
