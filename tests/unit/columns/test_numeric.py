import math

import numpy as np
import pandas as pd
import pytest

from vflsynth.columns import ContinuousTransformer, DatetimeTransformer, IntegerTransformer
from vflsynth.columns.numeric import _frequent_values
from vflsynth.exceptions import (
    ColumnKindError,
    InfiniteValueError,
    ParameterError,
    UnseenValueError,
)


def gain() -> pd.Series:
    """60 zeros, 20 missing, 20 ordinary values."""
    return pd.Series([0.0] * 60 + [np.nan] * 20 + [1.5 * i for i in range(1, 21)], name="gain")


def test_layout_of_a_spiked_column_with_missing_values() -> None:
    transformer = ContinuousTransformer().fit(gain())
    value, state = transformer.spans_
    assert (value.role, value.width, value.activation, value.gate) == ("value", 1, "identity", 1)
    assert (state.role, state.width, state.activation, state.gate) == ("state", 3, "softmax", None)
    assert transformer.spikes_ == (0.0,)
    matrix = transformer.transform(gain())
    np.testing.assert_array_equal(matrix[:60], np.tile([0, 0, 0, 1], (60, 1)))
    np.testing.assert_array_equal(matrix[60:80], np.tile([0, 0, 1, 0], (20, 1)))
    np.testing.assert_array_equal(matrix[80:, 1:], np.tile([1, 0, 0], (20, 1)))
    # Only ordinary values are standardised, so that their slot has mean 0 in every state.
    assert abs(matrix[80:, 0].mean()) < 1e-6
    np.testing.assert_allclose(matrix[80:, 0].std(ddof=1), 1, rtol=1e-6)


def test_spikes_can_be_switched_off() -> None:
    transformer = ContinuousTransformer(spike_share=None).fit(gain().dropna())
    assert transformer.spikes_ == ()
    assert [span.role for span in transformer.spans_] == ["value"]
    assert transformer.spans_[0].gate is None


def test_a_spike_needs_its_share_and_ten_records() -> None:
    column = pd.Series([0.0] * 9 + list(np.linspace(1, 2, 11)))
    assert ContinuousTransformer(spike_share=0.1).fit(column).spikes_ == ()
    column = pd.Series([0.0] * 10 + list(np.linspace(1, 2, 90)))
    assert ContinuousTransformer(spike_share=0.1).fit(column).spikes_ == (0.0,)
    assert ContinuousTransformer(spike_share=0.101).fit(column).spikes_ == ()


def test_frequent_values_against_counting() -> None:
    rng = np.random.default_rng(0)
    for least in (1, 2, 7, 30):
        values = np.sort(rng.zipf(1.7, 200))
        found, counts = np.unique(values, return_counts=True)
        assert _frequent_values(values, least) == found[counts >= least].tolist()


def test_largest_state_wins_and_ordinary_values_are_decoded() -> None:
    transformer = ContinuousTransformer().fit(gain())
    matrix = np.array([[0, 0.4, 0.3, 0.3], [9, 0.3, 0.4, 0.3], [9, 0, 0, 1], [99, 1, 0, 0]])
    decoded = transformer.inverse_transform(matrix.astype(np.float32))
    assert decoded.tolist()[2:] == [0.0, 30.0]  # spike; clipped to the observed maximum
    assert decoded.isna().tolist() == [False, True, False, False]
    assert 1.5 <= decoded[0] <= 30.0


def test_decimals_are_restored_for_generated_values() -> None:
    column = pd.Series([0.1, 0.25, 3.99, 7.0])
    transformer = ContinuousTransformer().fit(column)
    matrix = np.random.default_rng(0).normal(size=(100, 1))
    decoded = transformer.inverse_transform(matrix)
    assert (decoded == decoded.round(2)).all()
    assert decoded.nunique() > 50


def test_whole_steps_are_restored_for_generated_values() -> None:
    transformer = IntegerTransformer().fit(pd.Series([150, 200, 1000]))
    decoded = transformer.inverse_transform(np.random.default_rng(0).normal(size=(100, 1)))
    assert ((decoded - 150) % 50 == 0).all()


def test_dates_stay_dates_for_generated_values() -> None:
    column = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-05", "2020-03-01"]))
    transformer = DatetimeTransformer().fit(column)
    decoded = transformer.inverse_transform(np.random.default_rng(0).normal(size=(100, 1)))
    assert (decoded == decoded.dt.normalize()).all()


def test_values_outside_the_fitted_range_encode_and_are_clipped_back() -> None:
    for column in (pd.Series([1.0, 2.0, 4.5]), pd.Series([1, 2, 4])):
        transformer = ContinuousTransformer().fit(column)
        matrix = transformer.transform(column * 10 - 30)
        assert matrix[0, 0] < transformer.transform(column)[0, 0]
        assert transformer.inverse_transform(matrix).tolist() == [
            column.min(),
            column.min(),
            column.max(),
        ]


def test_tolerance_says_where_float32_is_not_enough() -> None:
    assert IntegerTransformer().fit(pd.Series(range(100_000))).tolerance_ == 0
    identifiers = pd.Series([10**11, 10**11 + 1, 2 * 10**11])
    transformer = IntegerTransformer().fit(identifiers)
    decoded = transformer.inverse_transform(transformer.transform(identifiers))
    error = (decoded - identifiers).abs().max()
    assert 0 < error <= transformer.tolerance_ < 20_000


@pytest.mark.parametrize("column", [pd.Series(["1", "2"]), pd.Series([True, False])])
@pytest.mark.parametrize(
    "transformer", [ContinuousTransformer(), IntegerTransformer(), DatetimeTransformer()]
)
def test_other_dtypes_are_refused(transformer: ContinuousTransformer, column: pd.Series) -> None:
    with pytest.raises(ColumnKindError, match=r"pandas\.to_"):
        transformer.fit(column)


def test_fractions_are_not_integers() -> None:
    with pytest.raises(ColumnKindError, match="1 values are not whole") as caught:
        IntegerTransformer().fit(pd.Series([1.0, 0.5, np.nan], index=list("abc"), name="n"))
    assert caught.value.rows == (1,)
    assert caught.value.column == "n"


def test_infinity_is_refused_with_its_rows() -> None:
    for dtype in ("float64", "Float32"):
        column = pd.Series([1.0, np.inf, -np.inf, 2.0], index=list("abcd"), name="x", dtype=dtype)
        with pytest.raises(InfiniteValueError, match="2 infinite") as caught:
            ContinuousTransformer().fit(column)
        assert caught.value.rows == (1, 2)


def test_a_missing_value_needs_one_when_fitted() -> None:
    transformer = ContinuousTransformer().fit(pd.Series([1.0, 2.5]))
    with pytest.raises(UnseenValueError, match="1 rows hold values that did not") as caught:
        transformer.transform(pd.Series([1.0, np.nan]))
    assert caught.value.rows == (1,)


def test_another_value_of_a_constant_column_is_an_error() -> None:
    for column in (pd.Series([3.0] * 20), pd.Series([3.0])):  # a spike; an ordinary value
        transformer = ContinuousTransformer().fit(column)
        assert transformer.width_ == 0
        assert transformer.inverse_transform(np.zeros((2, 0))).tolist() == [3.0, 3.0]
        with pytest.raises(UnseenValueError, match="1 rows hold values that did not"):
            transformer.transform(pd.Series([3.0, 4.0]))


@pytest.mark.parametrize("kept", [0, 12])  # all values are states; the ends are ordinary values
def test_what_became_the_ends_of_a_column_of_states_is_taken_for_them(kept: int) -> None:
    column = pd.Series([10, *np.repeat([14, 15, 16, 17], 40), 19, 20, 21, 23, 24])
    options = {"max_levels": 20, "spike_records": 1} if not kept else {"spike_records": kept}
    transformer = IntegerTransformer(extreme_records=5, **options).fit(column)
    decoded = transformer.inverse_transform(transformer.transform(column))
    inside = column.between(15, 17)
    assert decoded[inside].tolist() == column[inside].tolist()
    assert decoded[column > 17].nunique() == 1


@pytest.mark.parametrize("extreme", [0, 5])
@pytest.mark.parametrize("whole", [True, False])
def test_spikes_that_were_named_are_states_however_few_records_hold_them(
    extreme: int, whole: bool
) -> None:
    values = np.arange(100.0, 400.0) if whole else np.linspace(100.05, 399.95, 300)
    column = pd.Series([*values, -99, -99, 5000, *[None] * 3], dtype="Int64" if whole else "float")
    kind = IntegerTransformer if whole else ContinuousTransformer
    plain = kind(extreme_records=extreme).fit(column.iloc[:300])
    transformer = kind(spikes=(-99, 5000, 7), extreme_records=extreme).fit(column)
    assert transformer.spikes_ == (-99, 5000)
    assert transformer.axis_ == plain.axis_
    for fitted in (transformer, kind.from_dict(transformer.to_dict())):
        matrix = fitted.transform(column)
        decoded = fitted.inverse_transform(matrix)
        assert decoded.iloc[300:303].tolist() == [-99, -99, 5000]
        assert decoded.iloc[303:].isna().all()
        shifted = plain.transform(column.iloc[:300])[:, 0]
        assert np.array_equal(matrix[:300, 0], shifted)
    only = kind(spikes=(-99, 5000), extreme_records=extreme).fit(pd.Series([-99, 5000] * 5))
    assert only.inverse_transform(only.transform(pd.Series([5000, -99]))).tolist() == [5000, -99]
    with pytest.raises(ParameterError, match="a sequence, each a number, got"):
        kind(spikes=("x",)).fit(column)  # type: ignore[arg-type]


def test_rare_values_count_as_the_nearest_and_of_two_as_the_smaller() -> None:
    column = pd.Series([*np.repeat([10, 20, 40], 5), 14, 15, 16, 30, 31, 3, 90])
    options = {"max_levels": 20, "spike_records": 1, "rare_records": 5}
    transformer = IntegerTransformer(**options).fit(column)
    decoded = transformer.inverse_transform(transformer.transform(column))
    assert decoded[15:].tolist() == [10, 10, 20, 20, 40, 10, 40]


def test_dtypes_that_would_lose_values_are_refused_at_transform() -> None:
    integers = ContinuousTransformer().fit(pd.Series([1, 2, 30]))
    with pytest.raises(ColumnKindError, match="float64, but was int64"):
        integers.transform(pd.Series([1.5, 2.5]))
    floats = ContinuousTransformer().fit(pd.Series([1.5, 2.0, 30.0]))
    assert floats.transform(pd.Series([2]))[0] == floats.transform(pd.Series([2.0]))[0]
    naive = DatetimeTransformer().fit(pd.Series(pd.to_datetime(["2020", "2021"])))
    with pytest.raises(ColumnKindError, match="UTC"):
        naive.transform(pd.Series(pd.to_datetime(["2020", "2021"], utc=True)))


def test_floats_from_missing_integers_can_be_integers() -> None:
    transformer = IntegerTransformer().fit(pd.Series([1, 2, 30, None], dtype="Int64"))
    matrix = transformer.transform(pd.Series([1.0, np.nan]))
    assert transformer.inverse_transform(matrix).tolist() == [1, pd.NA]


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, "0.1", True])
def test_spike_share_is_a_share(share: object) -> None:
    with pytest.raises(ParameterError, match="spike_share"):
        ContinuousTransformer(spike_share=share).fit(pd.Series([1.0]))


def test_an_encoder_is_one_of_those_that_are_registered() -> None:
    with pytest.raises(ParameterError, match=r"encoder must be one of .*'standard'.*'minmax'"):
        ContinuousTransformer("minmax").fit(pd.Series([1.0]))


def heavy(n: int = 200) -> np.ndarray:
    """Sorted numbers with long tails on both sides, no two alike."""
    return np.sort(np.random.default_rng(0).standard_t(2, n))


@pytest.mark.parametrize("encoder", ["standard", "quantile", "ranks"])
def test_outermost_values_are_drawn_in_and_do_not_pile_up(encoder: str) -> None:
    values = heavy()
    transformer = ContinuousTransformer(encoder, extreme_records=5).fit(pd.Series(values))
    axis = transformer.axis_
    assert axis is not None
    # By hand: the range ends at means of five values, of which none is more than five times as
    # far from the mean of the next five as the middle one, and is approached from there.
    inner = values[5:10].mean(), values[-10:-5].mean()
    low, high = (
        middle + np.clip(five - middle, -most, most).mean()
        for middle, five in zip(inner, (values[:5], values[-5:]))
        for most in [5.0 * sorted(abs(v - middle) for v in five)[2]]
    )
    assert low == pytest.approx(values[:5].mean())
    assert high < values[-5:].mean()  # one of them dominates
    assert (axis.lower, axis.upper) == pytest.approx((low, high))
    assert transformer.tails_ == pytest.approx(inner)
    wanted = [
        inner[0] - (inner[0] - low) * math.tanh((inner[0] - v) / (inner[0] - low))
        if v < inner[0]
        else inner[1] + (high - inner[1]) * math.tanh((v - inner[1]) / (high - inner[1]))
        if v > inner[1]
        else v
        for v in values
    ]
    coded = transformer._coded(values)
    np.testing.assert_allclose(coded, wanted, atol=1e-12)
    assert (np.diff(coded) > 0).all()
    assert low < coded[0]
    assert coded[-1] < high
    matrix = transformer.transform(pd.Series(values))
    assert (np.diff(matrix[:, 0]) > 0).all()


@pytest.mark.parametrize("encoder", ["standard", "log", "quantile", "ranks"])
def test_of_the_outermost_values_nothing_is_kept_but_where_they_end(encoder: str) -> None:
    # The mean of the second five is 12, three of them are above it. The last are 3, 5, 8, 18 and
    # for 48, as 40 is five times 8, 40 from there; and 2, 5, 9, 13 and for 70, 45: together 74.
    tail, other = (
        np.array([10.0, 11.0, *three, *five])
        for three, five in (
            ([12.5, 12.8, 13.7], [15.0, 17.0, 20.0, 30.0, 60.0]),
            ([12.2, 13.0, 13.8], [14.0, 17.0, 21.0, 25.0, 82.0]),
        )
    )
    values, others = (
        np.concatenate([-own[::-1], np.linspace(-9.0, 9.0, 180), own]) for own in (tail, other)
    )
    found = [
        ContinuousTransformer(encoder, extreme_records=5).fit(pd.Series(v)).to_dict()
        for v in (values, others)
    ]
    assert plain(found[0]) == plain(found[1])


@pytest.mark.parametrize("kind", [ContinuousTransformer, IntegerTransformer, DatetimeTransformer])
@pytest.mark.parametrize("n_equal", [0, 4])  # four others at the end may be alike
@pytest.mark.parametrize(("sign", "extreme_records"), [(-1, 5), (1, 5), (1, 2), (1, 4), (1, 6)])
def test_no_end_tells_a_value_that_dominates_it(
    kind: type, n_equal: int, sign: int, extreme_records: int
) -> None:
    """Five times a plain mean of a fortune and four incomes is the fortune, within a thousandth."""
    rng = np.random.default_rng(0)
    others = np.sort(rng.integers(20_000, 90_000, 300))
    others[:n_equal], others[len(others) - n_equal :] = 20_000, 90_000

    def ends(fortune: int) -> tuple[object, ...]:
        values = pd.Series([*(sign * others), sign * fortune])
        if kind is DatetimeTransformer:
            values = pd.Timestamp("2000-01-01") + pd.to_timedelta(values, unit="h")
        elif kind is ContinuousTransformer:
            values = values.astype("float64")
        axis = kind(extreme_records=extreme_records).fit(values).axis_
        return axis.lower, axis.upper

    assert ends(800_000) == ends(2_000_000) == ends(10_000_000)


def plain(content: object) -> object:
    """Return what a transformer says, numbers rounded to what a sum's rounding leaves."""
    if isinstance(content, dict):
        return {k: plain(v) for k, v in content.items()}
    if isinstance(content, list | tuple):
        return [plain(v) for v in content]
    return round(content, 9) if isinstance(content, float) else content


def test_a_value_that_many_hold_is_not_drawn_in() -> None:
    column = pd.Series([*range(40), *[50] * 5, 60, 61, 62])
    transformer = IntegerTransformer(extreme_records=5, spike_share=None).fit(column)
    decoded = transformer.inverse_transform(transformer.transform(column))
    assert decoded[5:45].tolist() == column[5:45].tolist()
    assert decoded[45:].tolist() == [57] * 3  # the mean of the last five, two of them 50
    assert decoded[:5].tolist() == [3, 3, 3, 4, 4]  # 7 less 5 tanh(v / 5), v of 7 to 3


def test_a_frequent_end_keeps_its_value_and_those_beside_it_are_drawn_in() -> None:
    rng = np.random.default_rng(0)
    column = pd.Series([0.0] * 60 + rng.exponential(size=140).tolist())
    transformer = ContinuousTransformer(extreme_records=5).fit(column)
    assert transformer.spikes_ == (0.0,)
    decoded = transformer.inverse_transform(transformer.transform(column)).to_numpy()
    assert (decoded[:60] == 0.0).all()
    ordinary = decoded[60:]
    assert len(np.unique(ordinary)) == 140
    assert (np.argsort(ordinary) == np.argsort(column[60:])).all()
