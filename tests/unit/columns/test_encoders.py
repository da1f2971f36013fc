import numpy as np
import pytest
from scipy.stats import norm, rankdata

from vflsynth.columns import NormalScores, Standardizer
from vflsynth.columns.encoders.base import Encoder, encoder_of
from vflsynth.registry import Members

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
@pytest.mark.parametrize("encoder", Members("encoders"))
def test_round_trip_through_float32_stays_within_the_stated_error(name: str, encoder: str) -> None:
    ordered = np.sort(SAMPLES[name])
    fitted = encoder_of(encoder).fit(ordered)
    scaled = fitted.scale(ordered)
    assert (np.diff(scaled) >= 0).all()
    restored = fitted.unscale(scaled.astype(np.float32))
    assert np.abs(restored - ordered).max() <= fitted.error(ordered[0], ordered[-1])
    assert Encoder.from_dict(fitted.to_dict()).to_dict() == fitted.to_dict()


def test_standardizer_has_the_sample_standard_deviation() -> None:
    fitted = Standardizer().fit(np.array([1.0, 3.0]))
    assert (fitted.mean_, fitted.std_) == (2.0, np.sqrt(2.0))


def test_normal_scores_agree_with_ranks() -> None:
    values = np.sort(SAMPLES["skewed"])
    expected = norm.ppf((rankdata(values) - 0.5) / len(values))
    scores = NormalScores().fit(values).scale(values)
    # Between knots, which are four records apart, scores are interpolated; that shows in the tails.
    assert np.abs(scores - expected)[150:-150].max() < 0.02
    assert abs(scores.mean()) < 0.01
    assert abs(scores.std() - 1) < 0.01


def test_normal_scores_of_ties_are_those_of_their_middle_rank() -> None:
    values = np.repeat([1.0, 2.0, 5.0], [10, 60, 30])
    scores = NormalScores().fit(values).scale(np.array([1.0, 2.0, 5.0]))
    np.testing.assert_allclose(scores, norm.ppf([0.05, 0.40, 0.85]))


def test_normal_scores_keep_at_most_a_thousand_knots() -> None:
    fitted = NormalScores().fit(np.sort(RNG.normal(size=100_000)))
    assert len(fitted.knots_) <= 1000
    assert len(NormalScores().fit(np.arange(80.0)).knots_) <= 22


def test_normal_scores_stop_at_the_range() -> None:
    fitted = NormalScores().fit(np.arange(10.0))
    assert fitted.unscale(np.array([-np.inf, -50.0, 50.0, np.inf])).tolist() == [0, 0, 9, 9]
    assert fitted.scale(np.array([-1.0])) == fitted.scale(np.array([0.0]))


def read(kind: type, **learned: object) -> Encoder:
    return Encoder.from_dict(kind().to_dict() | {"learned": learned})


@pytest.mark.parametrize("values", [(0.0, 0.0), (0.0, -1.0), (np.nan, 1.0), (0.0, np.inf)])
def test_impossible_standardizers_are_refused(values: tuple) -> None:
    with pytest.raises(ValueError, match="positive standard deviation"):
        read(Standardizer, mean_=values[0], std_=values[1], zero_=0.0, unit_=1.0)


@pytest.mark.parametrize(
    ("knots", "scores"), [([0.0], [0.0]), ([0.0, 0.0], [0.0, 1.0]), ([0.0, 1.0], [0.0, 1.0, 2.0])]
)
def test_impossible_normal_scores_are_refused(knots: list, scores: list) -> None:
    with pytest.raises(ValueError, match="rise together"):
        read(NormalScores, knots_=knots, scores_=scores)
