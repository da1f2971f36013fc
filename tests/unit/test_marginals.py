import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vflsynth.columns import TableTransformer
from vflsynth.methods.marginals.method import (
    Marginal,
    draw_marginals,
    fit_marginals,
    marginal_scores,
)


def _table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    skewed = pd.Series(rng.lognormal(size=n))
    skewed[rng.random(n) < 0.3] = np.nan
    return pd.DataFrame(
        {
            "plain": rng.normal(size=n),
            "with_missing": skewed,
            "zero_inflated": np.where(rng.random(n) < 0.7, 0.0, 1 + rng.exponential(size=n)),
            "category": rng.choice(["a", "b", "c"], size=n, p=[0.7, 0.2, 0.1]),
            "constant": np.full(n, 3),
            "two_values": rng.integers(0, 2, n),
        }
    )


@pytest.fixture(scope="module")
def fitted():
    table = _table(2000, 0)
    transformer = TableTransformer().fit(table)
    encoded = transformer.transform(table)
    return table, transformer, encoded, fit_marginals(encoded, transformer.spans_)


def test_every_column_that_varies_has_one_marginal(fitted):
    assert len(fitted[3]) == 5


def test_scores_are_standard_normal_where_the_column_is_continuous(fitted):
    scores = marginal_scores(fitted[3], fitted[2])
    assert stats.kstest(scores[:, 0], "norm").statistic < 0.01
    assert np.abs(scores.mean(0)).max() < 0.2


def test_drawing_what_scores_stand_for_restores_states_and_nearly_values(fitted):
    table, transformer, encoded, marginals = fitted
    scores = marginal_scores(marginals, encoded).astype(np.float64)
    rows = draw_marginals(marginals, scores, transformer.width_)
    restored = transformer.inverse_transform(rows.astype(np.float32))
    for column in ("category", "constant", "two_values"):
        pd.testing.assert_series_equal(restored[column], table[column])
    pd.testing.assert_series_equal(restored["with_missing"].isna(), table["with_missing"].isna())
    np.testing.assert_allclose(restored["plain"], table["plain"], atol=0.02)


def test_a_number_that_no_record_has_is_never_drawn(fitted):
    table, transformer, encoded, _ = fitted
    marginals = fit_marginals(encoded[table["with_missing"].isna()], transformer.spans_)
    rows = draw_marginals(
        marginals, np.random.default_rng(0).normal(size=(50, 5)), encoded.shape[1]
    )
    assert transformer.inverse_transform(rows.astype(np.float32))["with_missing"].isna().all()


def test_drawn_columns_have_the_distributions_of_the_table(fitted):
    table, transformer, _, marginals = fitted
    scores = np.random.default_rng(1).normal(size=(20_000, len(marginals)))
    drawn = transformer.inverse_transform(
        draw_marginals(marginals, scores, transformer.width_).astype(np.float32)
    )
    for column in ("plain", "zero_inflated"):
        assert stats.ks_2samp(drawn[column], table[column]).statistic < 0.02
    shares = drawn["category"].value_counts(normalize=True)
    expected = table["category"].value_counts(normalize=True)
    assert (shares - expected).abs().max() < 0.015
    assert abs(drawn["with_missing"].isna().mean() - table["with_missing"].isna().mean()) < 0.015


def test_score_rises_with_a_zero_inflated_value(fitted):
    table, _, encoded, marginals = fitted
    scores = marginal_scores(marginals, encoded)[:, 2]
    ordered = table.assign(score=scores).sort_values("zero_inflated")["score"].to_numpy()
    assert (np.diff(ordered) >= -1e-6).all()


def test_json_round_trip(fitted):
    for marginal in fitted[3]:
        assert Marginal.from_dict(json.loads(json.dumps(marginal.to_dict()))) == marginal


def test_keeps_at_most_a_quarter_of_the_values(fitted):
    for marginal in fitted[3]:
        if marginal.quantiles is not None:
            assert len(marginal.quantiles.knots_) <= 2 + 2000 // 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"probabilities": [0.5, 0.2]},
        {"probabilities": [1.5, -0.5]},
        {"value": 0},
    ],
)
def test_refuses_nonsense(wrong):
    right = {"value": None, "first_state": 0, "probabilities": [0.5, 0.5], "quantiles": None}
    Marginal(**right)
    with pytest.raises(ValueError, match=r"probabilities|quantiles"):
        Marginal(**right | wrong)


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any),
    scores=st.lists(st.floats(-40, 40), min_size=1, max_size=20),
)
def test_only_states_that_occur_are_drawn(counts, scores):
    shares = [count / sum(counts) for count in counts]
    rows = np.zeros((len(scores), len(shares)))
    Marginal(None, 0, shares, None).draw_into(np.array(scores), rows)
    assert (rows.sum(1) == 1).all()
    assert not rows[:, np.array(counts) == 0].any()


def test_what_many_records_share_does_not_show_the_next_records_values():
    rng = np.random.default_rng(0)
    pay = rng.permutation(
        np.repeat([9_000.0, *np.round(rng.normal(9_000, 800, 460), 2)], [40] + [1] * 460)
    )
    transformer = TableTransformer(rare_records=5, extreme_records=5).fit(
        pd.DataFrame({"pay": pay})
    )
    marginals = fit_marginals(transformer.transform(pd.DataFrame({"pay": pay})), transformer.spans_)
    rows = draw_marginals(marginals, rng.normal(size=(20_000, 1)), transformer.width_)
    drawn = transformer.inverse_transform(rows.astype(np.float32))["pay"]
    assert 1_400 < (drawn == 9_000.0).sum() < 1_800
    beside = drawn.between(8_990.0, 9_010.0) & (drawn != 9_000.0)
    assert beside.sum() < 2 * 20_000 * ((pay != 9_000.0) & (abs(pay - 9_000.0) <= 10.0)).mean()
