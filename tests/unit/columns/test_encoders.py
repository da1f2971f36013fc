import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, rankdata

from vflsynth import DPLTSynthesizer, LatentTree, TableTransformer
from vflsynth.columns import Bounds, Log, NoisyHistogram, NormalScores, PublicSchema, Standardizer
from vflsynth.columns.bins import Bins
from vflsynth.columns.encoders import Encoder, Ranks, encoder_of
from vflsynth.exceptions import ColumnKindError, ParameterError

RNG = np.random.default_rng(0)


def test_standardizer_has_the_sample_standard_deviation() -> None:
    fitted = Standardizer().fit(np.array([1.0, 3.0]))
    assert (fitted.mean_, fitted.std_) == (2.0, np.sqrt(2.0))


def test_normal_scores_agree_with_ranks() -> None:
    values = np.sort(RNG.lognormal(0, 2, 3000))
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


def test_outermost_atoms_end_where_a_quarter_of_a_record_is_left() -> None:
    ranks = Ranks().fit(np.repeat([1.0, 2.0, 5.0], [10, 60, 30]))
    np.testing.assert_allclose(norm.cdf(ranks.lower_), [0.0025, 0.1, 0.7])
    np.testing.assert_allclose(norm.cdf(ranks.upper_), [0.1, 0.7, 0.9975])


def test_what_fewer_records_hold_than_the_least_is_no_atom_though_all_values_are_listed() -> None:
    ordered = np.repeat([1.0, 2.0, 5.0], [50, 3, 47])
    drawn = norm.ppf(np.linspace(0.001, 0.999, 999))
    assert (Ranks().fit(ordered).unscale(drawn) == 2.0).sum() == 30
    least = Ranks().fit(ordered, least=5)
    assert not (least.unscale(drawn) == 2.0).any()
    assert not least.keeps_values
    assert (least.unscale(drawn) == 1.0).sum() == 500  # as many as hold it


def test_what_is_in_the_middle_of_two_atoms_is_the_lower_one() -> None:
    ranks = Ranks().fit(np.repeat([1.0, 2.0, 5.0], 30))
    assert ranks.decoded(np.array([1.4, 1.5, 1.6, 3.5, 3.6])).tolist() == [1, 1, 2, 2, 5]


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
    with pytest.raises(ValueError, match="knots must rise, and scores must not fall"):
        read(NormalScores, knots_=knots, lower_=scores, upper_=scores)


def test_impossible_cycles_are_refused() -> None:
    knots = {"knots_": [0.0, 1.0], "lower_": [0.0, 1.0], "upper_": [0.0, 1.0]}
    with pytest.raises(ValueError, match="ends of a cycle's cells must rise"):
        read(Ranks, **knots, cycle_=[7.0, 0.0, 0.0, 0.5, 0.5, 1.0])


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("hours", [False, True])
def test_what_is_drawn_is_as_rarely_at_night_or_on_a_sunday_as_records_are(
    unit: str, hours: bool
) -> None:
    """Between quantiles of times all hours were drawn alike, and all days of the week."""
    days = pd.bdate_range("2022-01-03", "2024-06-28", unit=unit)
    times = pd.Series(days[RNG.integers(0, len(days), 4000)], name="visit")
    if hours:
        times += pd.to_timedelta(RNG.integers(8 * 60, 18 * 60, 4000), "min").as_unit(unit)
    coder = TableTransformer(continuous="ranks", rare_records=10, extreme_records=10)
    matrix = coder.fit(times.to_frame()).transform(times.to_frame())
    scores = norm.ppf(np.linspace(0.0005, 0.9995, 5000)).astype(np.float32)[:, None]
    drawn = coder.inverse_transform(scores, generated=True)["visit"]
    assert (drawn.dt.day_of_week > 4).mean() < 0.01
    assert ((drawn.dt.hour < 8) | (drawn.dt.hour > 18)).mean() < (0.01 if hours else 1.1)
    assert (drawn == drawn.dt.floor("min" if hours else "D")).all()
    again = coder.inverse_transform(matrix)["visit"]
    inside = times.between(times.quantile(0.01), times.quantile(0.99))
    off = (again - times)[inside].abs().max()
    assert off <= pd.Timedelta(coder.transformers_["visit"].tolerance_, unit)


INCOME = pd.DataFrame(
    {
        "income": np.random.default_rng(0).lognormal(10.0, 1.5, 500).round(2),
        "age": np.random.default_rng(1).integers(18, 90, 500),
        "job": np.random.default_rng(2).choice(["nurse", "cook"], 500),
    }
)


def test_one_column_has_its_logarithms_standardised() -> None:
    table = TableTransformer(encoders={"income": Log()}, continuous="standard").fit(INCOME)
    bent = np.log1p(INCOME["income"])
    expected = (bent - bent.mean()) / bent.std(ddof=1)
    matrix = table.transform(INCOME)
    np.testing.assert_allclose(matrix[:, 0], expected, rtol=1e-6, atol=1e-6)
    plain = TableTransformer(continuous="standard").fit(INCOME).transform(INCOME)
    np.testing.assert_array_equal(matrix[:, 1:], plain[:, 1:])
    pd.testing.assert_frame_equal(table.inverse_transform(matrix), INCOME)


@pytest.mark.parametrize("dtype", ["int64", "UInt32", "float32", "Float64"])
def test_logarithms_are_those_of_the_numbers_whatever_the_type_counts_from(dtype: str) -> None:
    numbers = pd.Series([-1000, -50, 0, 50, 100, 5000][1 if dtype != "UInt32" else 2 :]).abs()
    frame = pd.DataFrame({"x": numbers.astype(dtype)})
    encoder = Log(linear=10.0)
    table = TableTransformer({"x": "continuous"}, encoders={"x": encoder}, spike_share=None)
    scaled = table.fit(frame).transform(frame)[:, 0]
    bent = np.log1p(numbers / 10.0)
    np.testing.assert_allclose(scaled, (bent - bent.mean()) / bent.std(ddof=1), rtol=1e-5)


def test_published_histograms_tell_the_logarithms_mean_and_standard_deviation() -> None:
    """Of numbers that are spread evenly along the curve within bins, against a large sample."""
    counts = np.array([10.0, 40.0, 30.0, 0.0])
    edges = np.array([0.0, 10.0, 100.0, 5000.0])
    bins = Bins(Bounds(0, 5000), edges[:-1], edges[1:])
    histogram = NoisyHistogram(Bounds(0, 5000), counts, 0.0, bins, curve=Log())
    rng = np.random.default_rng(0)
    bent = np.log1p(edges)
    bin_of = rng.choice(3, 400_000, p=counts[:3] / counts.sum())
    sample = rng.uniform(bent[bin_of], bent[bin_of + 1])
    mean, std = histogram.mean_and_std()
    assert mean == pytest.approx(sample.mean(), abs=0.01)
    assert std == pytest.approx(sample.std(), abs=0.01)


def test_a_private_fit_has_logarithms_of_one_column() -> None:
    schema = PublicSchema(
        {"income": (0, 1e6), "age": (0, 120)}, {"job": ["nurse", "cook"]}, dtypes="given"
    )
    synth = DPLTSynthesizer(
        privacy=LatentTree(noise_multiplier=1.0, delta=1e-5, public_schema=schema),
        transformer=TableTransformer(encoders={"income": "log"}),
        random_state=0,
    ).fit({"tax": INCOME[["income"]], "clinic": INCOME[["age", "job"]]})
    encoding = synth.parties_["tax"].transformer
    histogram = encoding.histograms_["income"]
    assert histogram.curve == Log()
    mean, std = histogram.mean_and_std()
    score = encoding.transform(pd.DataFrame({"income": [50_000.0]}))[0, 0]
    assert score == pytest.approx((np.log1p(50_000.0) - mean) / std, rel=1e-6)
    drawn = synth.sample(2000)["income"]
    assert 0.2 < drawn.median() / INCOME["income"].median() < 5.0


@pytest.mark.parametrize(
    ("encoders", "words"),
    [
        ({"job": "log"}, r"column 'job'.*kind 'categorical' have none.*Fix"),
        ({"wage": "log"}, r"column 'wage'.*no such column.*Fix: use one of"),
        ({"income": "logs"}, r"encoders\['income'\] must be one of .*'log'.*got 'logs'"),
        ({"income": Log(-1.0)}, r"Log: linear must be a number > 0, got -1.0"),
        (["income"], "encoders must be None or a mapping of column labels"),
    ],
)
def test_an_encoder_that_cannot_be_is_refused_by_name(encoders: object, words: str) -> None:
    with pytest.raises((ColumnKindError, ParameterError), match=words):
        TableTransformer(encoders=encoders).fit(INCOME)


def test_normal_scores_of_one_value_give_it_back():
    # Noise can leave one bin of a histogram, and what is drawn of it is one value.
    scores = NormalScores().fit(np.full(50, 3.5))
    assert np.allclose(scores.scale(np.array([3.5])), 0.0)
    assert np.allclose(scores.unscale(np.array([-4.0, 0.0, 4.0])), 3.5)
    again = Encoder.from_dict(scores.to_dict())
    assert np.allclose(again.unscale(np.array([0.3])), 3.5)


def test_long_tails_keep_what_many_records_share_and_show_none_of_those_beside_it():
    rng = np.random.default_rng(0)
    pay = np.sort([*[9_000.0] * 40, *np.round(np.exp(rng.normal(9, 1.5, 460)), 2)])
    fitted = encoder_of("auto").fit(pay, least=5)
    drawn = fitted.unscale(rng.normal(size=20_000))
    assert 1_400 < (drawn == 9_000.0).sum() < 1_800
    beside = (abs(drawn - 9_000.0) < 100.0) & (drawn != 9_000.0)
    assert beside.sum() < 20_000 * 3 * ((abs(pay - 9_000.0) < 100.0) & (pay != 9_000.0)).mean()
