"""Inference in trees of latent attributes against sums over all states."""

import itertools
import math

import pytest
import torch

from vflsynth._random import RandomStreams
from vflsynth.methods.latent_tree.model import states_given
from vflsynth.methods.latent_tree.sampler import LatentTreeSampler
from vflsynth.models.samplers import Known, pick

SIZES = (3, 2, 4, 2)
TREES = {"chain": (-1, 0, 1, 2), "star": (-1, 0, 0, 0), "root in the middle": (1, -1, 1, 0)}


def shares_of(parents, draw):
    found = []
    for node, parent in enumerate(parents):
        rows = () if parent < 0 else (SIZES[parent],)
        table = torch.rand((*rows, SIZES[node]), generator=draw, dtype=torch.float64)
        found.append(table / table.sum(-1, keepdim=True))
    return found


def joint(parents, shares, evidence, record):
    """The probability of every combination of states together with what is known, one by one."""
    table = torch.zeros(SIZES, dtype=torch.float64)
    for states in itertools.product(*map(range, SIZES)):
        p = 1.0
        for node, parent in enumerate(parents):
            own = shares[node] if parent < 0 else shares[node][states[parent]]
            p *= float(own[states[node]])
            if node in evidence:
                p *= math.exp(evidence[node][record % len(evidence[node]), states[node]])
        table[states] = p
    return table


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
@pytest.mark.parametrize("known", [(), (2,), (0, 3), (0, 1, 2, 3)])
def test_states_are_drawn_given_what_is_known(parents, known):
    draw, n_draws = torch.Generator().manual_seed(1), 20_000
    shares = shares_of(parents, draw)
    evidence = {
        node: torch.rand((2, SIZES[node]), generator=draw, dtype=torch.float64).mul(30).neg()
        for node in known
    }
    levels = torch.rand((2 * n_draws, len(SIZES)), generator=draw, dtype=torch.float64)
    states, log_probability = states_given(parents, shares, evidence.items(), levels, n_draws)
    for record, own in enumerate(states.split(n_draws)):
        expected = joint(parents, shares, evidence, record)
        found = log_probability[record % len(log_probability)]
        assert float(found) == pytest.approx(math.log(expected.sum()), abs=1e-9)
        counts = torch.zeros(SIZES, dtype=torch.float64)
        counts.index_put_(tuple(own.T), torch.ones(len(own), dtype=torch.float64), accumulate=True)
        assert float((counts / n_draws - expected / expected.sum()).abs().max()) < 0.015


def test_what_cannot_be_has_no_probability():
    shares = [torch.tensor([0.5, 0.5]).double(), torch.tensor([[1.0, 0.0], [0.3, 0.7]]).double()]
    certain = [(1, torch.tensor([[-math.inf, 0.0], [-math.inf, -math.inf]]).double())]
    states, log_probability = states_given((-1, 0), shares, certain, torch.rand(2, 2).double(), 1)
    assert states[0].tolist() == [1, 1]
    assert log_probability.exp().tolist() == [pytest.approx(0.35), 0.0]


def test_one_row_of_shares_is_that_of_all_places():
    draw = torch.Generator().manual_seed(0)
    shares = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]], dtype=torch.float64)
    places = torch.rand(500, generator=draw, dtype=torch.float64)
    places[:4] = torch.tensor([0.0, 0.25, 0.75, 1.0 - 2.0**-53])
    found = pick(shares, places)
    assert torch.equal(found, pick(shares.expand(500, -1), places))
    slow = [int((shares[0].cumsum(0) <= place).sum().clamp_max(4)) for place in places]
    assert found.tolist() == slow
    assert pick(shares, places[:0]).tolist() == pick(shares[:0], places[:0]).tolist() == []


def sampler():
    """One attribute; bins of a gated number, one of which has nothing and one a single value."""
    number = torch.tensor([[0.5, 0.2, 0.0, 0.1, 0.2], [0.1, 0.0, 0.0, 0.8, 0.1]])
    label = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    ends = torch.tensor([[0.0, 1.0, 3.0, 4.0], [1.0, 3.0, 4.0, 4.0]])
    weights = torch.tensor([0.4, 0.6])
    return LatentTreeSampler([-1], [weights], [number, label], [0, 0], [ends, None], [True, False])


def known_as(lower, upper, value, missing, label):
    states = None if value is None else torch.tensor([[value, missing]])
    labels = None if label is None else torch.tensor([label])
    return Known([states, labels], *torch.tensor([[[lower]], [[upper]]]).double())


@pytest.mark.parametrize(
    ("known", "likelihood"),
    [
        (known_as(0.5, 2.0, True, False, None), [0.5 * 0.5 + 0.2 * 0.5, 0.1 * 0.5]),
        (known_as(-math.inf, math.inf, False, True, None), [0.2, 0.1]),
        (known_as(-math.inf, math.inf, True, False, None), [0.8, 0.9]),
        (known_as(4.0, 4.0, True, False, [False, True]), [0.1 * 0.1, 0.8 * 0.7]),
        (known_as(3.2, 3.4, True, False, None), [0.2, 0.0]),  # nothing there: as the nearest bin
        (known_as(9.0, 9.0, True, False, None), [0.1, 0.8]),
    ],
)
def test_evidence_is_the_share_of_cells_that_goes_with_what_is_known(known, likelihood):
    own = sampler()
    nodes, logs = zip(*own.evidence(own.fits(known)), strict=True)
    assert set(nodes) == {0}
    torch.testing.assert_close(sum(logs).exp(), torch.tensor([likelihood]).double())


def test_nothing_known_is_no_evidence():
    nothing = known_as(-math.inf, math.inf, None, None, None)
    assert sampler().fits(nothing) == {}


def test_columns_are_drawn_within_what_is_known():
    own, n = sampler(), 4_000
    levels = RandomStreams([b"s"]).uniform("levels", 0, (n, 2))[0].double()
    states = torch.zeros(n, 1, dtype=torch.int64)
    known = known_as(0.5, 2.0, True, False, [True, True])
    rows = own.draw_known(states, levels, own.fits(known), n)
    number, there = rows[:, 0], rows[:, 1:3]
    assert torch.equal(there, torch.tensor([1.0, 0.0]).expand(n, 2))
    assert 0.5 <= float(number.min()) < 0.51
    assert 1.99 < float(number.max()) <= 2.0
    assert float((number < 1.0).float().mean()) == pytest.approx(0.25 / 0.35, abs=0.03)
    assert float(rows[:, 3].mean()) == pytest.approx(0.9, abs=0.02)
