"""Noisy sums of random features: to the bit those of slow code, and within the sensitivity."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from vflsynth.exceptions import ProtocolError
from vflsynth.secure import (
    BITS,
    Arithmetic,
    Masks,
    RotationParty,
    RotationServer,
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


def made(angles, arithmetic, secret=b"secret", n_dummies=0, width=None):
    names = list(angles)
    n_records, n_frequencies = angles[names[0]].shape
    parties = {
        name: RotationParty(name, own, names, secret, arithmetic, n_dummies, width)
        for name, own in angles.items()
    }
    n_records += n_dummies
    return parties, RotationServer(names, n_records, n_frequencies, arithmetic, width)


def ran(parties, server, noise):
    for block in range(len(server.blocks)):
        server.add(block, {name: party.mask(block) for name, party in parties.items()})
    return server.totals({name: party.shares(noise[name]) for name, party in parties.items()})


def places(shape, secret, width):
    """Every record's frequencies, (record, width)."""
    n_records, n_frequencies = shape
    label = f"{width} of {n_frequencies} frequencies|windows"
    firsts = Masks(secret).draw(label, (n_records,), np.dtype(np.uint64)) % n_frequencies
    firsts = firsts * (width < n_frequencies)
    return (firsts[:, None] + np.arange(width, dtype=np.uint64)) % n_frequencies


def dithered(angles, secret, width):
    """All parties' angles where they count, with dithers; a single party's is divided in two."""
    names, shape = sorted(angles), next(iter(angles.values())).shape
    masks, label = Masks(secret), f"{width} of {shape[1]} frequencies|dithers"
    columns = places(shape, secret, width).astype(int)
    counted = {name: np.take_along_axis(own, columns, 1) for name, own in angles.items()}
    if len(names) == 1:
        dither = masks.draw(label, columns.shape, ANGLES)
        return [counted[names[0]] + dither, -dither]
    return [
        counted[name] + masks.zero_share(label, len(names), rank, columns.shape, ANGLES)
        for rank, name in enumerate(names)
    ]


def clear(angles, secret=b"secret", width=None):
    """Python integers, one record after the other."""
    shape = next(iter(angles.values())).shape
    width = width or shape[1]
    turned = [a.astype(int) // 256 for a in dithered(angles, secret, width)]
    columns = places(shape, secret, width).tolist()
    of = [(int(z.real), int(z.imag)) for z in points(len(angles))]
    total = [[0, 0] for _ in range(shape[1])]
    for row, own in enumerate(columns):
        for k, column in enumerate(own):
            real, imaginary = 1, 0
            for turns in turned:
                c, d = of[turns[row, k]]
                real, imaginary = real * c - imaginary * d, real * d + imaginary * c
            total[column][0] += real
            total[column][1] += imaginary
    return np.array(total).T.ravel()


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("shift", "width"), [(0, None), (9, None), (9, 3), (0, 1)])
def test_totals_are_clear_sums_and_all_noises_to_the_bit(
    n_parties, bits, shift, width, monkeypatch
):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 48)
    rng = np.random.default_rng(n_parties)
    angles = {f"p{i}": rng.integers(0, 2**16, (29, 4), ANGLES) for i in range(n_parties)}
    arithmetic = Arithmetic.of(LARGEST[bits], shift, BITS)
    assert arithmetic.bits == bits
    width = None if n_parties == 1 else width
    parties, server = made(angles, arithmetic, width=width)
    assert width or len(server.blocks) == {1: 0, 2: 6, 3: 6, 5: 5}[n_parties]
    noise = {name: rng.integers(-99, 99, 8) for name in parties}
    expected = (clear(angles, width=width) << shift) + sum(noise.values())
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
        (lambda t: replace(t, points=t.points[..., 1:]), "masked points"),
        (lambda t: replace(t, points=t.points.int()), "masked points"),
        (lambda t: replace(t, turns=t.turns[1:]), "turns"),
        (lambda t: replace(t, turns=t.turns.int()), "turns"),
        (
            lambda t: replace(t, points=torch.zeros((2, 3, 2, 3), dtype=torch.uint8)),
            "masked points",
        ),
        (lambda t: replace(t, windows=t.windows[1:]), "windows"),
        (lambda t: replace(t, windows=t.windows + 2), "windows that are none"),
        (lambda t: replace(t, windows=t.windows - 1), "windows that are none"),
        (lambda t: replace(t, windows=t.windows + torch.tensor([1, 0, 0]).int()), "windows that a"),
    ],
)
def test_what_is_missing_or_wrong_names_its_party(pair, change, says):
    parties, server = pair
    sent = {name: party.mask(0) for name, party in parties.items()}
    sent["b"] = change(sent["b"])
    with pytest.raises(ProtocolError, match=f"party 'b' sent {says}"):
        server.add(0, {name: turning for name, turning in sent.items() if turning is not None})


@pytest.mark.parametrize("name", ["a", "b"])
def test_of_two_parties_with_other_windows_both_are_named(pair, name):
    """Either may be the one that deviates."""
    parties, server = pair
    sent = {name: party.mask(0) for name, party in parties.items()}
    sent[name] = replace(sent[name], windows=sent[name].windows + 1)
    with pytest.raises(ProtocolError, match=r"party 'a' and party 'b' sent other windows .* Fix: "):
        server.add(0, sent)


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
@pytest.mark.parametrize("width", [None, 2])
def test_dummies_change_no_bit_of_the_sums(monkeypatch, n_parties, n_dummies, width):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 36)  # six records a block: some have both
    rng = np.random.default_rng(n_dummies)
    angles = {name: rng.integers(0, 2**16, (20, 3)).astype(ANGLES) for name in "abc"[:n_parties]}
    noise = {name: rng.integers(-9, 9, 6) for name in angles}
    arithmetic = Arithmetic.of(1e6, 0, BITS)
    parties, server = made(angles, arithmetic, n_dummies=n_dummies, width=width)
    expected = clear(angles, width=width) + sum(noise.values())
    assert ran(parties, server, noise).tolist() == expected.tolist()


def test_windows_are_drawn_evenly_and_sorted_so_that_their_records_are_not_seen():
    angles = {name: np.zeros((4_000, 8), ANGLES) for name in "ab"}
    parties, server = made(angles, Arithmetic.of(1e6, 0, BITS), width=3)
    sent = [
        torch.cat([party.mask(block).windows for block in range(len(server.blocks))])
        for party in parties.values()
    ]
    assert torch.equal(*sent)
    assert (sent[0].diff() >= 0).all()
    assert chisquare(np.bincount(sent[0], minlength=8)).pvalue > 1e-6
    drawn = parties["a"]._drawn_windows(4_000, 8, 3)
    assert np.corrcoef(drawn[1:], drawn[:-1])[0, 1] == pytest.approx(0.0, abs=0.1)


def test_one_record_more_leaves_the_others_windows_and_dithers():
    """So that the sums of neighbouring tables differ by what the one record adds."""
    rng = np.random.default_rng(0)
    angles = {name: rng.integers(0, 2**16, (20, 8), ANGLES) for name in "ab"}
    fewer = {name: own[:19] for name, own in angles.items()}
    none = {name: np.zeros(16, np.int64) for name in "ab"}
    one, other = (
        ran(*made(of, Arithmetic.of(1e6, 0, BITS), width=3), none) for of in (angles, fewer)
    )
    moved = (one - other).reshape(2, 8)
    assert np.count_nonzero(moved.any(0)) == 3
    assert 0.9 * 3 * 149**2 < np.sum(moved**2) <= 3 * 149**2
