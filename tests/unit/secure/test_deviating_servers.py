"""What a server gains by deviating from secure sums: nothing about records; so says the page."""

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.unit.secure.test_rotations import ANGLES, made
from vflsynth.exceptions import ProtocolError
from vflsynth.secure import (
    BITS,
    Arithmetic,
    Masks,
    ProductParty,
    ProductServer,
    RotationParty,
    RotationServer,
)
from vflsynth.secure import rotations as rotations_module

N, K, VICTIM = 30, 8, 17
N_RUNS, LEAST_P = 60, 1e-6
ARITHMETIC = Arithmetic.of(4e6, 0, BITS)


class Deviating(RotationServer):
    """Counts records otherwise than once: with `weights`, whole numbers, one for each."""

    def __init__(self, *arguments, weights):
        super().__init__(*arguments)
        self._weights = np.asarray(weights)

    def add(self, block, sent):
        weights = self._weights[self.blocks[block]].astype(np.uint32)
        honest = rotations_module._added
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                rotations_module, "_added", lambda values: honest(values * weights[:, None])
            )
            super().add(block, sent)


ONE = np.eye(N, dtype=int)[VICTIM]
HONEST = np.ones(N, int)
STRATEGIES = {
    "the victim enlarged, and no other": 1000 * ONE,
    "the victim alone": ONE,
    "all but the victim": HONEST - ONE,
    "the victim twice": HONEST + ONE,
    "the first half": np.arange(N) < N // 2,
    "nobody": 0 * HONEST,
}


def angles_in(n_parties):
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 2**16, (N, K)).astype(ANGLES) for name in "abc"[:n_parties]}


def errors_of_attack(n_parties, weights, noise=0.0):
    """In 2^16ths of a turn, of the victim's joint angles as the total tells them, run by run."""
    angles, rng = angles_in(n_parties), np.random.default_rng(1)
    joint = sum(own[VICTIM].astype(int) for own in angles.values())
    found = []
    for run in range(N_RUNS):
        parties, _ = made(angles, ARITHMETIC, secret=b"run %d" % run)
        server = Deviating(list(angles), N, K, ARITHMETIC, weights=weights)
        for block in range(len(server.blocks)):
            server.add(block, {name: party.mask(block) for name, party in parties.items()})
        drawn = {name: rng.normal(0, noise, 2 * K).astype(np.int64) for name in parties}
        total = server.totals({name: p.shares(drawn[name]) for name, p in parties.items()})
        seen = np.angle(total[:K] + 1j * total[K:]) / (2 * np.pi) * 2**16
        found.append((seen - joint).astype(int) % 2**16)
    return np.stack(found)


def tells_nothing(errors):
    counts = np.bincount(errors.ravel() // 2**12, minlength=16)
    return chisquare(counts).pvalue > LEAST_P


@pytest.mark.parametrize("n_parties", [2, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_server_that_counts_a_record_otherwise_learns_nothing_of_it(n_parties, strategy):
    """Not even where parties add no noise at all: what it left out, masks of it do not cancel.

    Sums whose points the server shared among the parties gave the joint angles of an enlarged
    record to six degrees, with twenty times the noise of a fit.
    """
    assert tells_nothing(errors_of_attack(n_parties, STRATEGIES[strategy]))


def test_the_attack_reads_the_angles_where_points_have_no_masks(monkeypatch):
    honest = Masks.draw

    def draw(self, label, shape, ring, start=0):
        drawn = honest(self, label, shape, ring, start)
        return np.zeros_like(drawn) if "points" in label else drawn

    monkeypatch.setattr(Masks, "draw", draw)
    errors = errors_of_attack(2, STRATEGIES["the victim enlarged, and no other"], noise=2000.0)
    assert not tells_nothing(errors)
    assert np.minimum(errors, 2**16 - errors).max() < 2**16 / 30


@pytest.mark.parametrize("n_parties", [2, 3])
def test_what_parties_send_does_not_depend_on_the_server(n_parties):
    """They take nothing, and answer in one order: all that a server can do is to go on or not."""
    angles = angles_in(n_parties)
    for party in made(angles, ARITHMETIC)[0].values():
        assert {name for name in dir(party) if not name.startswith("_")} == {
            "angles",
            "arithmetic",
            "mask",
            "name",
            "shares",
        }
        party.mask(0)
        for block in (0, 2, -1, 10**6):
            with pytest.raises(ProtocolError, match=f"was asked for block {block}"):
                party.mask(block)
        with pytest.raises(ProtocolError, match="before it had sent all records"):
            party.shares(np.zeros(2 * K, np.int64))


def sums_of_disagreeing_parties(angles):
    """A server that asks one party for half as many features as the other one."""
    totals = []
    for run in range(200):
        parties = {
            name: RotationParty(name, own[:, :of], list(angles), b"run %d" % run, ARITHMETIC)
            for (name, own), of in zip(angles.items(), (K, K // 2), strict=True)
        }
        found = np.zeros((2, K // 2), np.int64)
        for party in parties.values():
            for block in range(2):
                party.mask(block)
            share = party.shares(np.zeros(2 * len(party.angles[0]), np.int64)).numpy()
            found += share.reshape(2, -1)[:, : K // 2]
        totals.append(found % 2**ARITHMETIC.n_bits)
    return np.stack(totals)


def test_parties_that_are_asked_for_different_features_have_no_mask_in_common():
    for population in (0, 1):
        angles = {name: np.full((N, K), 9_000 * population, ANGLES) for name in "ab"}
        found = sums_of_disagreeing_parties(angles)
        for eight in (found & 255, found >> (ARITHMETIC.n_bits - 8)):
            counts = np.bincount(eight.ravel(), minlength=256)
            assert chisquare(counts).pvalue > LEAST_P


def test_products_take_nothing_from_the_server_and_answer_once():
    rng = np.random.default_rng(2)
    matrices = {name: rng.integers(0, 2, (N, 3)) for name in "ab"}
    widths, arithmetic = dict.fromkeys(matrices, 3), Arithmetic.of(1000.0, 0)
    parties = {n: ProductParty(n, m, widths, b"secret", arithmetic) for n, m in matrices.items()}
    server = ProductServer(widths, N, arithmetic)
    for block in range(len(server.blocks)):
        for party in parties.values():
            party.mask(block)
    zero = np.zeros(9, np.int64)
    for party in parties.values():
        party.shares(zero)
        with pytest.raises(ProtocolError, match="twice"):
            party.shares(zero)
        with pytest.raises(ProtocolError, match="was asked for block 0"):
            party.mask(0)
        assert not hasattr(party, "take")
