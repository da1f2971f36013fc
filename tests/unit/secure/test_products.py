"""Noisy products of masked matrices: to the bit those of numpy, and refused by name otherwise."""

import numpy as np
import pytest
import torch

from vflsynth.exceptions import ProtocolError
from vflsynth.secure import Arithmetic, ProductParty, ProductServer, pairs_of
from vflsynth.secure import ring as ring_module


def one_hot(rng, n, sizes):
    codes = [rng.integers(0, size, n) for size in sizes]
    return np.concatenate([np.eye(size, dtype=np.int64)[c] for c, size in zip(codes, sizes)], 1)


def made(matrices, arithmetic, secret=b"secret"):
    widths = {name: matrix.shape[1] for name, matrix in matrices.items()}
    n_records = len(next(iter(matrices.values())))
    parties = {
        name: ProductParty(name, matrix, widths, secret, arithmetic)
        for name, matrix in matrices.items()
    }
    return parties, ProductServer(widths, n_records, arithmetic)


def noises(parties, rng, largest=50):
    return {
        name: rng.integers(
            -largest,
            largest,
            sum(p.widths[a] * p.widths[b] for a, b in p.pairs),
        )
        for name, p in parties.items()
    }


def ran(parties, server, noise):
    for block in range(len(server.blocks)):
        server.add(block, {name: party.mask(block) for name, party in parties.items()})
    return server.totals({name: party.shares(noise[name]) for name, party in parties.items()})


def of_pair(party, noise, pair):
    sizes = [party.widths[a] * party.widths[b] for a, b in party.pairs]
    parts = np.split(noise, np.cumsum(sizes)[:-1])
    return parts[party.pairs.index(pair)].reshape([party.widths[end] for end in pair])


@pytest.mark.parametrize("n_parties", [2, 3, 5])
@pytest.mark.parametrize("largest", [1000.0, 2.0**31])
@pytest.mark.parametrize("shift", [0, 7])
def test_totals_are_clear_products_and_both_noises_to_the_bit(
    n_parties, largest, shift, monkeypatch
):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 64)
    rng = np.random.default_rng(n_parties)
    names = [f"party {i}" for i in range(n_parties)]
    matrices = {name: one_hot(rng, 61, [2 + i, 3][: 1 + i % 2]) for i, name in enumerate(names)}
    parties, server = made(matrices, Arithmetic.of(largest, shift))
    assert len(server.blocks) > 1
    noise = noises(parties, rng)
    totals = ran(parties, server, noise)
    assert list(totals) == pairs_of(names)
    for (a, b), total in totals.items():
        both = [of_pair(parties[end], noise[end], (a, b)) for end in (a, b)]
        clear = (matrices[a].T @ matrices[b] << shift) + both[0] + both[1]
        assert total.tolist() == clear.tolist()


def test_whole_numbers_of_either_sign(monkeypatch):
    rng = np.random.default_rng(1)
    matrices = {name: rng.integers(-1000, 1000, (40, 3)) for name in "ab"}
    parties, server = made(matrices, Arithmetic.of(4e7, 0))
    noise = {name: np.zeros(9, np.int64) for name in "ab"}
    assert (
        ran(parties, server, noise)["a", "b"].tolist() == (matrices["a"].T @ matrices["b"]).tolist()
    )


def test_names_that_look_like_labels():
    rng = np.random.default_rng(2)
    matrices = {name: one_hot(rng, 9, [2]) for name in ("a", "a|0", "0|a", "1")}
    parties, server = made(matrices, Arithmetic.of(100, 0))
    noise = {name: np.zeros(12, np.int64) for name in parties}
    for (a, b), total in ran(parties, server, noise).items():
        assert total.tolist() == (matrices[a].T @ matrices[b]).tolist()


# -- what must not be ------------------------------------------------------------------------------


@pytest.fixture
def pair():
    rng = np.random.default_rng(3)
    return made({name: one_hot(rng, 9, [3]) for name in "ab"}, Arithmetic.of(100, 0))


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
    sent = {"a": parties["a"].mask(0)} | ({} if wrong is None else {"b": wrong})
    with pytest.raises(ProtocolError, match="party 'b' sent a masked matrix"):
        server.add(0, sent)


@pytest.mark.parametrize("wrong", [None, torch.zeros(8, dtype=torch.int64), torch.zeros(9)])
def test_shares_that_are_missing_or_wrong_name_their_party(pair, wrong):
    parties, server = pair
    server.add(0, {name: party.mask(0) for name, party in parties.items()})
    sent = {"a": parties["a"].shares(np.zeros(9, np.int64))}
    sent |= {} if wrong is None else {"b": wrong}
    with pytest.raises(ProtocolError, match="party 'b' sent shares"):
        server.totals(sent)


def test_a_mask_is_used_once(pair):
    party = pair[0]["a"]
    with pytest.raises(ProtocolError, match="party 'a' was asked for block 1"):
        party.mask(1)
    with pytest.raises(ProtocolError, match="party 'a' was asked for its shares before"):
        party.shares(np.zeros(9, np.int64))
    party.mask(0)
    with pytest.raises(ProtocolError, match="party 'a' was asked for block 0"):
        party.mask(0)
    party.shares(np.zeros(9, np.int64))
    with pytest.raises(ProtocolError, match="or twice"):
        party.shares(np.zeros(9, np.int64))


@pytest.mark.parametrize("n_dummies", [1, 8, 70])
def test_dummies_change_no_bit_of_the_products(monkeypatch, n_dummies):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 64)
    rng = np.random.default_rng(n_dummies)
    matrices = {name: one_hot(rng, 61, [3, 4]) for name in "abc"}
    widths, arithmetic = dict.fromkeys(matrices, 7), Arithmetic.of(1000.0, 3)
    parties, server = made(matrices, arithmetic)
    noise = noises(parties, rng)
    without = ran(parties, server, noise)
    padded = {
        name: ProductParty(name, matrix, widths, b"secret", arithmetic, n_dummies)
        for name, matrix in matrices.items()
    }
    totals = ran(padded, ProductServer(widths, 61 + n_dummies, arithmetic), noise)
    assert {pair: t.tolist() for pair, t in totals.items()} == {
        pair: t.tolist() for pair, t in without.items()
    }
