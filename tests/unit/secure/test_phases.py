"""Noisy sums of random features: to the bit those of slow code, and within the sensitivity."""

import math

import numpy as np
import pytest
import torch

from vflsynth.exceptions import ProtocolError
from vflsynth.secure import (
    RADIUS,
    Arithmetic,
    Masks,
    PhaseParty,
    PhaseServer,
    angles_of,
    circle,
    unit,
)
from vflsynth.secure import ring as ring_module
from vflsynth.secure.phases import Opening

ANGLES = np.dtype(np.uint16)


def made(angles, arithmetic, secret=b"secret"):
    names = list(angles)
    n_records, n_frequencies = angles[names[0]].shape
    parties = {
        name: PhaseParty(name, own, names, secret, arithmetic) for name, own in angles.items()
    }
    return parties, PhaseServer(names, n_records, n_frequencies, arithmetic)


def ran(parties, server, noise):
    for block in range(len(server.blocks)):
        openings = server.open(block, {name: p.mask(block) for name, p in parties.items()})
        for name, party in parties.items():
            party.take(block, openings[name])
    return server.totals({name: party.shares(noise[name]) for name, party in parties.items()})


def clear(angles, blocks, secret):
    """Python integers, one record after the other."""
    joint = sum(a.astype(int) for a in angles.values())
    points = [(int(z.real), int(z.imag)) for z in circle()]
    total = [[0, 0] for _ in range(joint.shape[1])]
    for number, block in enumerate(blocks):
        rows = joint[block]
        masks = Masks(secret).draw(f"joint angles|{number}", rows.shape, ANGLES)
        for row, mask in zip(rows.tolist(), masks.tolist(), strict=True):
            for k, (angle, shift) in enumerate(zip(row, mask, strict=True)):
                a, b = points[(angle + shift) % 2**16]
                c, d = points[shift]
                total[k][0] += a * c + b * d
                total[k][1] += b * c - a * d
    return np.array(total).T.ravel()


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5])
@pytest.mark.parametrize("largest", [1e7, 2.0**31])
@pytest.mark.parametrize("shift", [0, 9])
def test_totals_are_clear_sums_and_all_noises_to_the_bit(n_parties, largest, shift, monkeypatch):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 48)
    rng = np.random.default_rng(n_parties)
    angles = {f"p{i}": rng.integers(0, 2**16, (29, 4), ANGLES) for i in range(n_parties)}
    parties, server = made(angles, Arithmetic.of(largest, shift))
    assert len(server.blocks) == 5
    noise = {name: rng.integers(-99, 99, 8) for name in parties}
    expected = (clear(angles, server.blocks, b"secret") << shift) + sum(noise.values())
    assert ran(parties, server, noise).tolist() == expected.tolist()


@pytest.mark.parametrize("n_parties", [1, 2, 4])
def test_the_sum_is_that_of_cosines_and_sines(n_parties):
    rng = np.random.default_rng(0)
    projections = [torch.from_numpy(rng.normal(0, 5, (500, 30))) for _ in range(n_parties)]
    angles = {f"p{i}": angles_of(p) for i, p in enumerate(projections)}
    parties, server = made(angles, Arithmetic.of(1e7, 0))
    found = ran(parties, server, {name: np.zeros(60, np.int64) for name in parties}) / unit()
    joint = torch.stack(projections).sum(0)
    expected = torch.cat([joint.cos().sum(0), joint.sin().sum(0)]).numpy()
    # Each factor is rounded by at most 1/2 in either part: their variances add up.
    std = math.sqrt(500 * 2 * (2 / 12)) / RADIUS / math.sqrt(2)
    assert np.abs(found - expected).max() < 5 * std
    assert (found - expected).std() < 1.3 * std


def test_no_record_counts_more_than_the_sensitivity_whatever_the_masks():
    points = circle()
    assert np.abs(points).max() <= RADIUS
    assert np.abs(points).max() > RADIUS - 0.1
    assert set((points.real % 1.0).tolist()) == {0.0}
    rng = np.random.default_rng(1)
    for angle in (0, 1, 2**14, 40_000):
        masks = rng.integers(0, 2**16, 100_000)
        counted = points[(angle + masks) % 2**16] * np.conj(points[masks])
        assert np.abs(counted).max() <= RADIUS**2


@pytest.mark.parametrize("angle", [0, 1, 777, 2**14, 2**15, 60_001])
def test_rounding_is_dithered(angle):
    """Over all masks a record counts what its angle says, to 1 / (6 F²)."""
    points = circle()
    masks = np.arange(2**16)
    counted = np.mean(points[(angle + masks) % 2**16] * np.conj(points[masks])) / unit()
    assert abs(counted - np.exp(2j * np.pi * angle / 2**16)) < 1 / (5 * RADIUS**2)
    assert unit() / RADIUS**2 > 0.98


def test_angles_are_rounded_to_the_nearest_of_65536():
    turns = torch.tensor([0.0, 1.0, 0.5, -0.25, 3.25, 1 / 65536, 1.6 / 65536], dtype=torch.float64)
    found = angles_of(turns * 2 * math.pi)
    assert found.tolist() == [0, 0, 2**15, 3 * 2**14, 2**14, 1, 2]
    for bad in (math.nan, math.inf):
        with pytest.raises(ProtocolError, match="not finite"):
            angles_of(torch.tensor([bad]))


# -- what must not be ------------------------------------------------------------------------------


@pytest.fixture
def pair():
    rng = np.random.default_rng(3)
    angles = {name: rng.integers(0, 2**16, (6, 2), ANGLES) for name in "ab"}
    return made(angles, Arithmetic.of(1e6, 0))


@pytest.mark.parametrize(
    "wrong", [None, torch.zeros((5, 2), dtype=torch.int16), torch.zeros((6, 2), dtype=torch.int32)]
)
def test_masked_angles_that_are_missing_or_wrong_name_their_party(pair, wrong):
    parties, server = pair
    sent = {"a": parties["a"].mask(0)} | ({} if wrong is None else {"b": wrong})
    with pytest.raises(ProtocolError, match="party 'b' sent masked angles"):
        server.open(0, sent)


def test_openings_that_are_wrong_are_refused(pair):
    parties, server = pair
    openings = server.open(0, {name: party.mask(0) for name, party in parties.items()})
    with pytest.raises(ProtocolError, match="the server opened block 0 to party 'a'"):
        parties["a"].take(0, openings["b"])
    with pytest.raises(ProtocolError, match="the server sent party 'b' a seed"):
        parties["b"].take(0, openings["a"])
    seed = Opening(openings["b"].seed[:31], openings["b"].opened)
    with pytest.raises(ProtocolError, match="expected 32 bytes"):
        parties["b"].take(0, seed)
    with pytest.raises(ProtocolError, match="block 1, which it did not send"):
        parties["a"].take(1, openings["a"])


@pytest.mark.parametrize("wrong", [None, torch.zeros(3, dtype=torch.int64), torch.zeros(4)])
def test_shares_that_are_missing_or_wrong_name_their_party(pair, wrong):
    server = pair[1]
    sent = {"a": torch.zeros(4, dtype=torch.int64)} | ({} if wrong is None else {"b": wrong})
    with pytest.raises(ProtocolError, match="party 'b' sent shares"):
        server.totals(sent)


def test_a_mask_is_used_once(pair):
    parties, server = pair
    with pytest.raises(ProtocolError, match="party 'a' was asked for block 1"):
        parties["a"].mask(1)
    sent = {name: party.mask(0) for name, party in parties.items()}
    for step in (0, 1):
        with pytest.raises(ProtocolError, match="party 'a' was asked for block"):
            parties["a"].mask(step)
    with pytest.raises(ProtocolError, match="before all records were answered"):
        parties["a"].shares(np.zeros(4, np.int64))
    parties["a"].take(0, server.open(0, sent)["a"])
    parties["a"].shares(np.zeros(4, np.int64))
    with pytest.raises(ProtocolError, match="or twice"):
        parties["a"].shares(np.zeros(4, np.int64))


@pytest.mark.parametrize("n_parties", [1, 2, 3])
@pytest.mark.parametrize("n_dummies", [1, 8, 30])
def test_dummies_change_no_bit_of_the_sums(monkeypatch, n_parties, n_dummies):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 36)  # six records a block: some have both
    rng = np.random.default_rng(n_dummies)
    names = "abc"[:n_parties]
    angles = {name: rng.integers(0, 2**16, (20, 3)).astype(ANGLES) for name in names}
    noise = {name: rng.integers(-9, 9, 6) for name in names}
    arithmetic = Arithmetic.of(RADIUS**2 * 50, 0)
    without = ran(*made(angles, arithmetic), noise)
    parties = {
        name: PhaseParty(name, own, list(names), b"secret", arithmetic, n_dummies)
        for name, own in angles.items()
    }
    server = PhaseServer(list(names), 20 + n_dummies, 3, arithmetic)
    assert ran(parties, server, noise).tolist() == without.tolist()
