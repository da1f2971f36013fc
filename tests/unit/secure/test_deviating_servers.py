"""What a server gains by deviating from secure sums: nothing about records; so says the page."""

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.unit.secure.test_products import drawn, masked
from tests.unit.secure.test_products import made as made_products
from tests.unit.secure.test_rotations import ANGLES, made
from vflsynth.exceptions import ProtocolError
from vflsynth.secure import (
    BITS,
    Arithmetic,
    Codebook,
    Masks,
    ProductParty,
    RotationParty,
    RotationServer,
)
from vflsynth.secure import rotations as rotations_module
from vflsynth.secure.ring import column_products

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
        honest = rotations_module._add
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                rotations_module,
                "_add",
                lambda sums, values, windows: honest(sums, values * weights[:, None], windows),
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
    """A server that lets records of one party count at half as many frequencies."""
    totals = []
    for run in range(200):
        parties = {
            name: RotationParty(name, own, list(angles), b"run %d" % run, ARITHMETIC, width=width)
            for (name, own), width in zip(angles.items(), (K, K // 2), strict=True)
        }
        found = np.zeros(2 * K, np.int64)
        for party in parties.values():
            for block in range(2):
                party.mask(block)
            found += party.shares(np.zeros(2 * K, np.int64)).numpy()
        totals.append(found % 2**ARITHMETIC.n_bits)
    return np.stack(totals)


def test_parties_that_are_told_different_widths_have_no_mask_in_common():
    for population in (0, 1):
        angles = {name: np.full((N, K), 9_000 * population, ANGLES) for name in "ab"}
        found = sums_of_disagreeing_parties(angles)
        for eight in (found & 255, found >> (ARITHMETIC.n_bits - 8)):
            counts = np.bincount(eight.ravel(), minlength=256)
            assert chisquare(counts).pvalue > LEAST_P


def test_products_take_codes_and_seeds_from_the_server_and_answer_once():
    """What else it could tell changes nothing that they send: see `test_membership`."""
    codebook = Codebook({name: [np.eye(3, dtype=np.int64)] for name in "ab"})
    states = drawn(np.random.default_rng(2), codebook, N)
    parties, server = made_products(states, codebook, Arithmetic.of(1000.0, 0))
    masked(parties, server)
    zero = np.zeros(9, np.int64)
    for party in parties.values():
        party.shares(zero)
        with pytest.raises(ProtocolError, match="twice"):
            party.shares(zero)
        with pytest.raises(ProtocolError, match="was asked for block 0"):
            party.mask(0)
        assert {name for name in dir(party) if not name.startswith("_")} == {
            "arithmetic",
            "check",
            "codebook",
            "mask",
            "matrix",
            "n_shares",
            "name",
            "pairs",
            "shares",
        }


def products_of_disagreeing_parties(state):
    """A server that tells b that codes of a are a hundred times as large, and multiplies."""
    codes, totals = {name: [np.eye(3, dtype=np.int64)] for name in "ab"}, []
    states = {name: np.full((N, 1), state) for name in "ab"}
    for run in range(200):
        asked = states, Codebook(codes), Arithmetic(32, 0), b"run %d" % run
        told = states, Codebook(codes | {"a": [100 * codes["a"][0]]}), *asked[2:]
        (parties, server), (deceived, other) = made_products(*asked), made_products(*told)
        masked(parties, server)
        masked(deceived, other)
        numbers = [
            np.concatenate(of.sent, 0).view(np.uint32) for of in (parties["a"], deceived["b"])
        ]
        shares = [of.shares(np.zeros(9, np.int64)) for of in (parties["a"], deceived["b"])]
        products = column_products(*numbers).ravel().astype(np.int64)
        totals.append((products + sum(share.numpy() for share in shares)) % 2**32)
    return np.stack(totals)


def is_uniform(totals):
    eights = totals & 255, totals >> 24
    counts = [np.bincount(eight.ravel(), minlength=256) for eight in eights]
    return all(chisquare(count).pvalue > LEAST_P for count in counts)


@pytest.fixture
def keeping(monkeypatch):
    """Parties that remember what they sent."""
    honest = ProductParty.mask

    def mask(self, block):
        found = honest(self, block)
        self.sent = [*getattr(self, "sent", []), found.numbers.numpy()]
        return found

    monkeypatch.setattr(ProductParty, "mask", mask)


@pytest.mark.parametrize("state", [0, 2])
def test_parties_that_are_told_different_codes_have_no_mask_in_common(state, keeping):
    assert is_uniform(products_of_disagreeing_parties(state))


def test_the_same_masks_for_different_codes_would_tell(keeping, monkeypatch):
    monkeypatch.setattr(Codebook, "digest", "the same")
    assert not is_uniform(products_of_disagreeing_parties(2))
