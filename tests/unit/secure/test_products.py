"""Noisy products of masked matrices: to the bit those of numpy, and refused by name otherwise."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.later import later
from vflsynth.exceptions import ProtocolError
from vflsynth.secure import ring as ring_module
from vflsynth.secure.membership import Codebook
from vflsynth.secure.products import ProductParty, ProductServer, product_blocks
from vflsynth.secure.ring import Arithmetic


def drawn(rng, codebook, n):
    """States of all parties' records."""
    return {
        name: np.stack([rng.integers(0, len(code), n) for code in codes], 1)
        for name, codes in codebook.codes.items()
    }


def one_hot(sizes):
    return [np.eye(size, dtype=np.int64) for size in sizes]


def made(states, codebook, arithmetic, secret=b"secret", n_dummies=0):
    n_records = len(next(iter(states.values()))) + n_dummies
    n_columns = {name: len(codes) for name, codes in codebook.codes.items()}
    largest = max(len(code) for codes in codebook.codes.values() for code in codes)
    blocks = product_blocks(n_records, n_columns, largest)
    parties = {
        name: ProductParty(name, own, codebook, secret, arithmetic, blocks)
        for name, own in states.items()
    }
    return parties, ProductServer(codebook, arithmetic, blocks)


def noises(parties, rng, largest=50):
    return {name: rng.integers(-largest, largest, p.n_shares) for name, p in parties.items()}


def masked(parties, server):
    """All blocks of records, and what parties are told after them."""
    for block in range(len(server.blocks)):
        server.add(block, {name: party.mask(block) for name, party in parties.items()})
    for name, challenge in server.verification.challenges().items():
        parties[name].check(challenge)


def ran(parties, server, noise):
    masked(parties, server)
    return server.totals({name: party.shares(noise[name]) for name, party in parties.items()})


def of_pair(party, noise, pair):
    widths = party.codebook.widths
    sizes = [widths[a] * widths[b] for a, b in party.pairs]
    parts = np.split(noise, np.cumsum(sizes)[:-1])
    return parts[party.pairs.index(pair)].reshape([widths[end] for end in pair])


def products_of(states, codebook, pair):
    one, other = (codebook.encode(end, states[end]) for end in pair)
    return one.T @ other


@pytest.mark.parametrize("n_parties", [2, 3, *later(5)])
@pytest.mark.parametrize("largest", [1000.0, 2.0**31])
@pytest.mark.parametrize("shift", [0, 7])
def test_totals_are_clear_products_and_both_noises_to_the_bit(
    n_parties, largest, shift, monkeypatch
):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 64)
    rng = np.random.default_rng(n_parties)
    names = [f"party {i}" for i in range(n_parties)]
    codebook = Codebook({n: one_hot([2 + i, 3][: 1 + i % 2]) for i, n in enumerate(names)})
    states = drawn(rng, codebook, 61)
    parties, server = made(states, codebook, Arithmetic.of(largest, shift))
    assert len(server.blocks) > 1
    noise = noises(parties, rng)
    totals = ran(parties, server, noise)
    assert list(totals) == list(itertools.combinations(sorted(names), 2))
    for (a, b), total in totals.items():
        both = [of_pair(parties[end], noise[end], (a, b)) for end in (a, b)]
        clear = (products_of(states, codebook, (a, b)) << shift) + both[0] + both[1]
        assert total.tolist() == clear.tolist()


def test_whole_numbers_of_either_sign():
    rng = np.random.default_rng(1)
    codebook = Codebook({name: [rng.integers(-1000, 1000, (7, 3))] for name in "ab"})
    states = drawn(rng, codebook, 40)
    parties, server = made(states, codebook, Arithmetic.of(4e7, 0))
    found = ran(parties, server, {name: np.zeros(9, np.int64) for name in "ab"})["a", "b"]
    assert found.tolist() == products_of(states, codebook, ("a", "b")).tolist()


def test_names_that_look_like_labels():
    rng = np.random.default_rng(2)
    codebook = Codebook({name: one_hot([2]) for name in ("a", "a|0", "0|a", "1")})
    states = drawn(rng, codebook, 9)
    parties, server = made(states, codebook, Arithmetic.of(100, 0))
    noise = {name: np.zeros(12, np.int64) for name in parties}
    for pair, total in ran(parties, server, noise).items():
        assert total.tolist() == products_of(states, codebook, pair).tolist()


# -- what must not be ------------------------------------------------------------------------------


@pytest.fixture
def pair():
    codebook = Codebook({name: one_hot([3]) for name in "ab"})
    states = drawn(np.random.default_rng(3), codebook, 9)
    return made(states, codebook, Arithmetic.of(100, 0))


WRONG = [
    None,
    torch.zeros(0),
    torch.zeros((9, 2), dtype=torch.int32),
    torch.zeros((9, 3), dtype=torch.int64),
    torch.zeros((8, 3), dtype=torch.int32),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_masked_matrix_that_is_missing_or_wrong_names_its_party(pair, wrong):
    parties, server = pair
    sent = {name: party.mask(0) for name, party in parties.items()}
    if wrong is None:
        del sent["b"]
    else:
        sent["b"] = replace(sent["b"], numbers=wrong)
    with pytest.raises(ProtocolError, match="party 'b' sent a masked matrix"):
        server.add(0, sent)


@pytest.mark.parametrize("wrong", [None, torch.zeros(8, dtype=torch.int64), torch.zeros(9)])
def test_shares_that_are_missing_or_wrong_name_their_party(pair, wrong):
    parties, server = pair
    masked(parties, server)
    sent = {"a": parties["a"].shares(np.zeros(9, np.int64))}
    sent |= {} if wrong is None else {"b": wrong}
    with pytest.raises(ProtocolError, match="party 'b' sent shares"):
        server.totals(sent)


def test_a_mask_is_used_once(pair):
    parties, server = pair
    party = parties["a"]
    with pytest.raises(ProtocolError, match="party 'a' was asked for block 1"):
        party.mask(1)
    with pytest.raises(ProtocolError, match="party 'a' was asked to go on before"):
        party.shares(np.zeros(9, np.int64))
    server.add(0, {name: own.mask(0) for name, own in parties.items()})
    with pytest.raises(ProtocolError, match="party 'a' was asked for block 0"):
        party.mask(0)
    party.check(server.verification.challenges()["a"])
    party.shares(np.zeros(9, np.int64))
    with pytest.raises(ProtocolError, match="or twice"):
        party.shares(np.zeros(9, np.int64))


@pytest.mark.parametrize("n_dummies", [1, *later(8, 70)])
def test_dummies_change_no_bit_of_the_products(monkeypatch, n_dummies):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 64)
    rng = np.random.default_rng(n_dummies)
    codebook, arithmetic = Codebook({name: one_hot([3, 4]) for name in "abc"}), Arithmetic(32, 3)
    states = drawn(rng, codebook, 61)
    parties, server = made(states, codebook, arithmetic)
    noise = noises(parties, rng)
    without = ran(parties, server, noise)
    totals = ran(*made(states, codebook, arithmetic, n_dummies=n_dummies), noise)
    assert {pair: t.tolist() for pair, t in totals.items()} == {
        pair: t.tolist() for pair, t in without.items()
    }
