"""Rows that are drawn to be chosen among: scores, gradients and chances, against slow code."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from vflsynth._random import RandomStreams
from vflsynth.exceptions import PayloadRejectedError
from vflsynth.methods.gan import resampling
from vflsynth.methods.gan.resampling import descend, draw_features, learn_to_tell
from vflsynth.models import choosing
from vflsynth.models.choosing import Choice, RowScores, chosen_rows, portions, row_features
from vflsynth.networks.layers import MLP, FlatAdam

ONE = [(4, 12, b"one")]
ROWS = pd.DataFrame({"x": np.ones(12)})


def scores_of(party, width=3, n_features=5, hidden=2, times=3):
    streams = RandomStreams([party.encode()])

    def draw(name, *shape):
        return streams.normal(name, 0, shape)[0]

    common = [RandomStreams([b"all"]).normal(name, 0, (hidden,))[0] for name in ("a", "v")]
    own = draw("w", width, n_features), draw("b", n_features), draw("A", n_features, hidden)
    return RowScores(times, *own, *common)


def slow_sum(weights, n):
    """Chances in proportion to weights, none above 1, that add up to n."""
    sure = set()
    while True:
        rest = sum(w for i, w in enumerate(weights) if i not in sure)
        found = [1.0 if i in sure else w * (n - len(sure)) / rest for i, w in enumerate(weights)]
        more = {i for i, chance in enumerate(found) if chance > 1} - sure
        if not more:
            return found
        sure |= more


def slow_chances(scores, columns, n):
    """Odds, of which every part of a column's values gets as much as it has rows."""
    chances = slow_sum([math.exp(s) for s in scores], n)
    for _ in range(20):
        for column in columns:
            for cell in set(column):
                rows = [i for i, own in enumerate(column) if own == cell]
                factor = len(rows) * n / len(scores) / sum(chances[i] for i in rows)
                for i in rows:
                    chances[i] = min(1.0, chances[i] * factor)
    return slow_sum(chances, n)


def slow_choice(chances, n, noise):
    """Rows in a random order, of which stay those in which one of n even steps falls."""
    first, *places = RandomStreams([noise]).uniform("choice", 0, (len(chances) + 1,))[0].tolist()
    stay, passed = [], 0.0
    for i in sorted(range(len(chances)), key=places.__getitem__):
        if any(passed <= step + first < passed + chances[i] for step in range(n)):
            stay.append(i)
        passed += chances[i]
    return sorted(stay)


def test_rows_are_chosen_by_the_score_of_the_documentation(monkeypatch):
    """v · h(a + s_1 + s_2), s_i = sqrt(2) cos(x W_i + b_i) A_i; odds, raked by each column."""
    monkeypatch.setattr(choosing, "_CELL_ROWS", 4)
    of = {name: scores_of(name) for name in ("lab", "clinic")}
    rows = {n: RandomStreams([b"x"]).normal(n, 0, (24, 3))[0] for n in of}
    tables = {n: pd.DataFrame(own.numpy()).round(1) for n, own in rows.items()}
    planned = [(4, 12, b"one"), (2, 12, b"two")]
    choices = [Choice.of(n, s, planned, s.part(rows[n]).numpy(), tables[n]) for n, s in of.items()]
    slow = []
    for i in range(24):
        hidden = [float(a) for a in of["lab"].bias]
        for name, own in of.items():
            for j in range(5):
                angle = sum(float(rows[name][i, k] * own.weight[k, j]) for k in range(3))
                feature = math.sqrt(2) * math.cos(angle + float(own.offset[j]))
                hidden = [h + feature * float(own.first[j, u]) for u, h in enumerate(hidden)]
        slow.append(sum(float(v) * max(h, 0.2 * h) for v, h in zip(of["lab"].last, hidden)))
    expected = []
    for (n, drawn, _), (_, _, noise), start in zip(planned, choices[0].portions, (0, 12)):
        columns = []
        for table in tables.values():
            for _, column in table.iloc[start : start + drawn].items():
                below = [sum(other < own for other in column) for own in column]
                columns.append([count * 3 // drawn for count in below])
        chances = slow_chances(slow[start : start + drawn], columns, n)
        expected += [start + i for i in slow_choice(chances, n, noise)]
    assert len(expected) == 6
    assert chosen_rows(choices).tolist() == expected
    assert chosen_rows(choices[::-1]).tolist() == expected  # whatever the order of the parties
    again = [Choice.from_dict(own.to_dict()) for own in choices]
    assert chosen_rows(again).tolist() == expected
    longer = pd.concat([tables["lab"], tables["lab"].head(3)])
    drawn = [*planned, (1, 3, b"3")]
    more = Choice.of("lab", of["lab"], drawn, np.ones((27, 2), np.float32), longer)
    more.parts[:24] = choices[0].parts
    assert chosen_rows([more, choices[1]]).tolist() == expected  # of those that all drew


def chances(parts, n_kept, n_tries=4000):
    """How often each row is chosen."""
    own = scores_of("lab", hidden=1)
    own = RowScores(3, *(own.weight, own.offset, own.first), torch.zeros(1), torch.ones(1))
    planned = [(n_kept, len(parts), str(k).encode()) for k in range(n_tries)]
    repeated = np.tile(parts, n_tries).astype(np.float32)[:, None]
    rows = chosen_rows([Choice.of("lab", own, planned, repeated, ROWS.iloc[[0] * len(repeated)])])
    assert len(rows) == n_kept * n_tries
    return np.bincount(rows % len(parts), minlength=len(parts)) / n_tries


@pytest.mark.slow
def test_a_constant_score_chooses_uniformly():
    found = chances(np.full(6, 1.5), 2)
    assert np.abs(found - 1 / 3).max() < 4 * math.sqrt(2 / 9 / 4000)


def test_one_of_several_rows_is_chosen_in_proportion_to_its_odds():
    odds = np.array([1.0, 2.0, 5.0])
    found = chances(np.log(odds), 1)
    assert np.abs(found - odds / odds.sum()).max() < 4 * math.sqrt(0.25 / 4000)


def test_of_several_rows_odds_are_chances_as_far_as_none_is_above_one():
    found = chances(np.log([1.0, 1.0, 2.0, 40.0]), 2)
    expected = np.array([0.25, 0.25, 0.5, 1.0])
    assert found[3] == 1
    assert np.abs(found - expected).max() < 4 * math.sqrt(0.25 / 4000)


def test_columns_keep_the_shares_that_they_are_drawn_with():
    """Where scores prefer large values of one label, pairs change and shares do not."""
    rng = np.random.default_rng(0)
    drawn = pd.DataFrame({"x": rng.lognormal(size=8000), "y": rng.choice(list("aab"), 8000)})
    drawn["z"] = drawn["x"].where(rng.random(8000) < 0.8).round(1)
    own = scores_of("lab", hidden=1)
    own = RowScores(4, *(own.weight, own.offset, own.first), torch.zeros(1), torch.ones(1))
    liked = (drawn["x"] > 2) & (drawn["y"] == "b")
    parts = (2.0 * liked + 1.0 * drawn["z"].isna()).to_numpy(np.float32)[:, None]
    stay = chosen_rows([Choice.of("lab", own, [(2000, 8000, b"s")], parts, drawn)])
    kept = drawn.iloc[stay]
    assert len(kept) == 2000
    assert kept.index.is_unique
    for q in (0.1, 0.5, 0.9, 0.98):
        assert (kept["x"] <= drawn["x"].quantile(q)).mean() == pytest.approx(q, abs=0.02)
    assert (kept["y"] == "b").mean() == pytest.approx((drawn["y"] == "b").mean(), abs=0.02)
    assert kept["z"].isna().mean() == pytest.approx(drawn["z"].isna().mean(), abs=0.02)
    assert liked[kept.index].mean() > 1.5 * liked.mean()


@pytest.mark.parametrize("n_columns", [0, 1, 7])
@pytest.mark.parametrize("n", [0, 1, 50, 199, 200])
def test_chances_are_at_most_one_and_add_up_whatever_the_scores(n, n_columns):
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 4, (200, n_columns)).astype(np.uint8)
    for scale in (0.0, 1.0, 1e3):
        scores = (scale * rng.normal(size=200)).astype(np.float32)
        found = choosing._chances(scores, cells, n)
        assert found.sum() == pytest.approx(n, abs=1e-9)
        assert 0 <= found.min() <= found.max() <= 1
        assert len(set(choosing._drawn_by(found, n, b"s").tolist())) == n


@pytest.mark.parametrize(
    "column",
    [
        [3, 1, 2, 2, None],
        ["b", "a", None, "b", "a"],
        [(1, 2), "a", 1, b"x", None],
        [None] * 5,
        pd.to_datetime(["2020-01-02", None, "1950-01-01", "2020-01-01", None]),
    ],
)
def test_equal_values_are_in_one_part_and_missing_ones_in_their_own(column, monkeypatch):
    monkeypatch.setattr(choosing, "_CELL_ROWS", 1)
    column = pd.Series(column)
    found = choosing._cells(column)
    assert (found[column.isna()] == 5).all()
    assert (found[column.notna()] < 5).all()
    values = [value for value in column if value is not None]
    cells = dict(zip(column[column.notna()], found[column.notna()], strict=True))
    assert len(cells) == len(set(cells.values()))
    assert [cells[own] for own in column[column.notna()]] == found[column.notna()].tolist()
    if column.dtype.kind in "fM":
        assert sorted(cells, key=cells.__getitem__) == sorted(cells)
    assert values or not cells


def test_the_gradient_is_that_of_the_log_loss():
    network = MLP(
        (4, 3, 1), bias=True, activate_last=False, streams=RandomStreams([b"a", b"b"]), name="n"
    )
    FlatAdam(network, learning_rate=1.0, betas=(0.9, 0.9))
    rows = RandomStreams([b"c", b"d"]).normal("rows", 0, (10, 4))
    with torch.no_grad():
        descend(network, rows)
    parameters = list(network.parameters())
    found = [own.grad.clone() for own in parameters]
    is_real = torch.tensor([1.0] * 5 + [0.0] * 5).expand(2, 10)
    scores = network(rows)[..., 0]
    loss = F.binary_cross_entropy_with_logits(scores, is_real, reduction="none").mean(1).sum()
    for own, expected in zip(found, torch.autograd.grad(loss, parameters), strict=True):
        torch.testing.assert_close(own, expected)


def test_features_are_of_standardised_records():
    records = RandomStreams([b"x"]).normal("x", 0, (500, 4))[0] * torch.tensor([1.0, 9, 0.1, 0]) + 5
    weight, offset = draw_features(records, RandomStreams([b"s"]), 0)
    spread = records.std(0, correction=0)
    spread[3] = 1.0  # it is always 5
    standard = (records - records.mean(0)) / spread
    drawn = RandomStreams([b"s"])
    angle = standard @ drawn.normal("features", 0, (4, 256))[0] / 2.0
    angle += drawn.uniform("offsets", 0, (256,))[0] * 2 * math.pi
    found = row_features(records, weight, offset)
    torch.testing.assert_close(found, math.sqrt(2) * torch.cos(angle), rtol=0, atol=1e-4)


def told(shift, streams, n=1500):
    """Scores that are learned of one normal column and of drawn rows that are too far right."""
    replicas = len(streams.secrets)
    real, fake = RandomStreams([b"rows"] * replicas).normal("rows", 0, (2, n, 1)).unbind(1)
    features = draw_features(real[0], RandomStreams([b"s"]), 0)
    shown = tuple(row_features(own, *features) for own in (real, fake + shift))
    weights = learn_to_tell({"lab": shown}, streams)["lab"]
    return [RowScores(4, *features, *(w[k] for w in weights)) for k in range(replicas)], fake[0]


def test_rows_that_are_too_far_right_are_chosen_less_often():
    (own,), fake = told(0.7, RandomStreams([b"server"]))
    drawn = fake + 0.7
    same = pd.DataFrame(index=range(1500))  # without columns nothing is raked
    choice = Choice.of("lab", own, [(375, 1500, b"s")], own.part(drawn).numpy(), same)
    assert abs(float(drawn[chosen_rows([choice])].mean())) < 0.25


def test_equal_rows_are_not_told_apart_by_chance():
    rows = RandomStreams([b"x"]).normal("x", 0, (200, 8))
    _, _, last = learn_to_tell({"lab": (rows, rows)}, RandomStreams([b"server"]))["lab"]
    assert not last.any()


def test_a_replica_learns_what_it_learns_alone(monkeypatch):
    monkeypatch.setattr(resampling, "_MOST_STEPS", 200)
    (both, _), _ = told(0.7, RandomStreams([b"server", b"other"]), 300)
    (alone,), _ = told(0.7, RandomStreams([b"server"]), 300)
    torch.testing.assert_close(both.last, alone.last, rtol=1e-3, atol=1e-4)


def test_features_of_other_rows_are_refused():
    rows = torch.zeros(1, 20, 8)
    with pytest.raises(PayloadRejectedError, match="party 'two'"):
        learn_to_tell(
            {"one": (rows, rows), "two": (rows[:, 1:], rows[:, 1:])}, RandomStreams([b"s"])
        )


def test_a_portion_is_bounded_whatever_is_asked_for(monkeypatch):
    assert list(portions(10**9, 1, b"s")) == [(10**9, 10**9, b"s")]
    found = list(portions(100_000, 7, b"s"))
    assert sum(n for n, _, _ in found) == 100_000
    assert all(drawn == 7 * n <= choosing.DRAWN_AT_ONCE for n, drawn, _ in found)
    assert len({secret for _, _, secret in found}) == len(found)
    assert [n for n, _, _ in portions(0, 3, b"s")] == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"portions": [[5, 4, "00"]]},
        {"portions": [[4, 13, "00"]]},
        {"portions": 3},
        {"parts": "?"},
        {"bias": ""},
        {"last": "AAAAAA=="},
        {"parts": "AHwAfA=="},
        {"cells": "AAAA"},
    ],
)
def test_a_choice_that_is_none_is_refused(wrong):
    own = scores_of("lab")
    content = Choice.of("lab", own, ONE, np.zeros((12, 2), np.float32), ROWS).to_dict()
    with pytest.raises((KeyError, TypeError, ValueError)):
        Choice.from_dict(content | wrong)
    other = Choice.of("clinic", own, [(4, 12, b"another")], np.zeros((12, 2), np.float32), ROWS)
    with pytest.raises(ValueError, match="different samples"):
        chosen_rows([Choice.from_dict(content), other])
