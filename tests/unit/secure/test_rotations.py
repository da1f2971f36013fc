"""Noisy sums of random features: to the bit those of slow code, and within the sensitivity."""

import math

import numpy as np
import pytest
import torch

from vflsynth.exceptions import ProtocolError
from vflsynth.secure import (
    BITS,
    Arithmetic,
    Masks,
    RotationParty,
    RotationServer,
    Turning,
    angles_of,
    blocks_of,
    bytes_per_angle,
    largest_product,
    points,
    turns_of,
    unit,
)
from vflsynth.secure import ring as ring_module

ANGLES = np.dtype(np.uint16)


def n_factors(n_parties):
    """A single party divides its angles in two."""
    return max(2, n_parties)


LARGEST = {24: 1e6, 32: 2.0**30, 64: 2.0**40}


def made(angles, arithmetic, secret=b"secret", n_dummies=0):
    names = list(angles)
    n_records, n_frequencies = angles[names[0]].shape
    parties = {
        name: RotationParty(name, own, names, secret, arithmetic, n_dummies)
        for name, own in angles.items()
    }
    return parties, RotationServer(names, n_records + n_dummies, n_frequencies, arithmetic)


def ran(parties, server, noise):
    for block in range(len(server.blocks)):
        server.add(block, {name: party.mask(block) for name, party in parties.items()})
    return server.totals({name: party.shares(noise[name]) for name, party in parties.items()})


def dithered(angles, secret):
    """All parties' angles with their dithers; a single party's is divided in two."""
    names, shape = sorted(angles), next(iter(angles.values())).shape
    masks, label = Masks(secret), f"{shape[1]} frequencies|dithers"
    if len(names) == 1:
        dither = masks.draw(label, shape, ANGLES)
        return [angles[names[0]] + dither, -dither]
    return [
        angles[name] + masks.zero_share(label, len(names), rank, shape, ANGLES)
        for rank, name in enumerate(names)
    ]


def clear(angles, secret=b"secret"):
    """Python integers, one record after the other."""
    turned = [a.astype(int) // 256 for a in dithered(angles, secret)]
    of = [(int(z.real), int(z.imag)) for z in points(len(angles))]
    total = [[0, 0] for _ in range(turned[0].shape[1])]
    for row in range(len(turned[0])):
        for k, sums in enumerate(total):
            real, imaginary = 1, 0
            for own in turned:
                c, d = of[own[row, k]]
                real, imaginary = real * c - imaginary * d, real * d + imaginary * c
            sums[0] += real
            sums[1] += imaginary
    return np.array(total).T.ravel()


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shift", [0, 9])
def test_totals_are_clear_sums_and_all_noises_to_the_bit(n_parties, bits, shift, monkeypatch):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 48)
    rng = np.random.default_rng(n_parties)
    angles = {f"p{i}": rng.integers(0, 2**16, (29, 4), ANGLES) for i in range(n_parties)}
    arithmetic = Arithmetic.of(LARGEST[bits], shift, BITS)
    assert arithmetic.bits == bits
    parties, server = made(angles, arithmetic)
    assert len(server.blocks) == {1: 0, 2: 6, 3: 6, 5: 5}[n_parties]
    noise = {name: rng.integers(-99, 99, 8) for name in parties}
    expected = (clear(angles) << shift) + sum(noise.values())
    assert ran(parties, server, noise).tolist() == expected.tolist()


@pytest.mark.parametrize("n_parties", [1, 2, 4, 5])
def test_the_sum_is_that_of_cosines_and_sines(n_parties):
    rng = np.random.default_rng(0)
    projections = [torch.from_numpy(rng.normal(0, 5, (500, 30))) for _ in range(n_parties)]
    angles = {f"p{i}": angles_of(p) for i, p in enumerate(projections)}
    parties, server = made(angles, Arithmetic.of(2.0**40, 0, BITS))
    found = ran(parties, server, {name: np.zeros(60, np.int64) for name in parties})
    joint = torch.stack(projections).sum(0)
    expected = torch.cat([joint.cos().sum(0), joint.sin().sum(0)]).numpy()
    # What a product's square is above that of its mean, half in either part.
    of = points(n_parties)
    squares = np.mean(np.abs(of) ** 2) ** n_factors(n_parties) / unit(n_parties) ** 2
    std = math.sqrt(500 * (squares - 1.0) / 2)
    assert std < 2.5
    errors = found / unit(n_parties) - expected
    assert np.abs(errors).max() < 5 * std
    assert 0.7 * std < errors.std() < 1.3 * std


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5, 7])
def test_no_record_counts_more_than_the_sensitivity_whatever_the_dithers(n_parties):
    found = points(n_parties)
    assert set((found.real % 1.0).tolist()) == set((found.imag % 1.0).tolist()) == {0.0}
    squares = (found.real**2 + found.imag**2).astype(int).tolist()
    product = max(squares) ** n_factors(n_parties)
    assert product <= largest_product(n_parties) ** 2 < 1.002 * product


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5])
def test_rounding_is_dithered(n_parties):
    """Over all dithers a record counts what its angle says, to a thousandth and a half."""
    of = points(n_parties)[turns_of(np.arange(2**16, dtype=ANGLES))]
    factors = np.fft.fft(of) / 2**16
    # The mean of a product whose angles have uniform dithers that add up to zero.
    means = 2**16 * np.fft.ifft(factors ** n_factors(n_parties)) / unit(n_parties)
    exact = np.exp(2j * np.pi * np.arange(2**16) / 2**16)
    assert np.abs(means - exact).max() < 1.5e-3
    terms = np.abs(factors) ** n_factors(n_parties) / unit(n_parties)
    terms[1] = 0.0
    assert terms.max() < 1 / 4000
    assert terms.sum() < 1.4e-3
    assert terms[[*range(7), *range(-6, 0)]].max() < 2e-6
    assert unit(n_parties) / largest_product(n_parties) > 0.86
    rng = np.random.default_rng(n_parties)
    dithers = rng.integers(0, 2**16, (n_factors(n_parties), 200_000))
    dithers[0] -= dithers.sum(0)
    angle = np.zeros_like(dithers)
    angle[:2, :] = [[777], [40_000]]
    counted = np.prod(of[(angle + dithers) % 2**16], axis=0)
    assert abs(counted.mean() / unit(n_parties) - exact[40_777]) < 5e-3


def test_angles_are_rounded_to_the_nearest_of_65536_and_turns_of_256():
    turns = torch.tensor([0.0, 1.0, 0.5, -0.25, 3.25, 1 / 65536, 1.6 / 65536], dtype=torch.float64)
    found = angles_of(turns * 2 * math.pi)
    assert found.tolist() == [0, 0, 2**15, 3 * 2**14, 2**14, 1, 2]
    assert turns_of(found).tolist() == [0, 0, 128, 192, 64, 0, 0]
    assert turns_of(np.array([255, 256, 65279, 65280], ANGLES)).tolist() == [0, 1, 254, 255]
    for bad in (math.nan, math.inf):
        with pytest.raises(ProtocolError, match="not finite"):
            angles_of(torch.tensor([bad]))


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5])
@pytest.mark.parametrize("bits", BITS)
def test_parties_send_the_bytes_that_are_stated_evenly(n_parties, bits, monkeypatch):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 60)
    rng = np.random.default_rng(0)
    angles = {f"p{i}": rng.integers(0, 2**16, (90, 2), ANGLES) for i in range(n_parties)}
    parties, server = made(angles, Arithmetic.of(LARGEST[bits], 0, BITS))
    for party in parties.values():
        sent = [party.mask(block) for block in range(len(server.blocks))]
        size = sum(turning.points.nbytes + turning.turns.nbytes for turning in sent)
        assert size == pytest.approx(180 * bytes_per_angle(n_parties, bits), abs=1e-6)


@pytest.mark.parametrize("n_records", [1, 2, 7, 400])
@pytest.mark.parametrize("n_parties", [2, 3, 5])
def test_blocks_are_all_records_once_and_as_many_for_every_party(n_records, n_parties, monkeypatch):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 60)
    blocks = blocks_of(n_parties, n_records, 3)
    assert len(blocks) % n_parties == 0
    assert [row for block in blocks for row in range(n_records)[block]] == list(range(n_records))
    assert max(block.stop - block.start for block in blocks) <= 10


# -- what must not be ------------------------------------------------------------------------------


@pytest.fixture
def pair():
    rng = np.random.default_rng(3)
    angles = {name: rng.integers(0, 2**16, (6, 2), ANGLES) for name in "ab"}
    return made(angles, Arithmetic.of(1e6, 0, BITS))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: None, "masked points: nothing"),
        (lambda t: Turning(t.points[..., 1:], t.turns), "masked points"),
        (lambda t: Turning(t.points.int(), t.turns), "masked points"),
        (lambda t: Turning(t.points, t.turns[1:]), "turns"),
        (lambda t: Turning(t.points, t.turns.int()), "turns"),
        (lambda t: Turning(torch.zeros((2, 3, 2, 3), dtype=torch.uint8), t.turns), "masked points"),
    ],
)
def test_what_is_missing_or_wrong_names_its_party(pair, change, says):
    parties, server = pair
    sent = {name: party.mask(0) for name, party in parties.items()}
    sent["b"] = change(sent["b"])
    with pytest.raises(ProtocolError, match=f"party 'b' sent {says}"):
        server.add(0, {name: turning for name, turning in sent.items() if turning is not None})


@pytest.mark.parametrize("wrong", [None, torch.zeros(3, dtype=torch.int64), torch.zeros(4)])
def test_shares_that_are_missing_or_wrong_name_their_party(pair, wrong):
    server = pair[1]
    sent = {"a": torch.zeros(4, dtype=torch.int64)} | ({} if wrong is None else {"b": wrong})
    with pytest.raises(ProtocolError, match="party 'b' sent shares"):
        server.totals(sent)


def test_a_mask_is_used_once(pair):
    party = pair[0]["a"]
    zero = np.zeros(4, np.int64)
    with pytest.raises(ProtocolError, match="party 'a' was asked for block 1"):
        party.mask(1)
    party.mask(0)
    for step in (0, 2):
        with pytest.raises(ProtocolError, match="party 'a' was asked for block"):
            party.mask(step)
    with pytest.raises(ProtocolError, match="before it had sent all records"):
        party.shares(zero)
    party.mask(1)
    with pytest.raises(ProtocolError, match="party 'a' was asked for block 2"):
        party.mask(2)
    party.shares(zero)
    with pytest.raises(ProtocolError, match="or twice"):
        party.shares(zero)


@pytest.mark.parametrize("n_parties", [2, 3])
@pytest.mark.parametrize("n_dummies", [1, 8, 30])
def test_dummies_change_no_bit_of_the_sums(monkeypatch, n_parties, n_dummies):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 36)  # six records a block: some have both
    rng = np.random.default_rng(n_dummies)
    angles = {name: rng.integers(0, 2**16, (20, 3)).astype(ANGLES) for name in "abc"[:n_parties]}
    noise = {name: rng.integers(-9, 9, 6) for name in angles}
    arithmetic = Arithmetic.of(1e6, 0, BITS)
    parties, server = made(angles, arithmetic, n_dummies=n_dummies)
    expected = clear(angles) + sum(noise.values())
    assert ran(parties, server, noise).tolist() == expected.tolist()
