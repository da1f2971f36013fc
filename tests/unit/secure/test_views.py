"""What every role receives is uniform and tells nothing of the records, and the test can fail.

A role is judged by all that it received, and by combinations of it with what it drew itself or
could guess: an honest-but-curious server that guesses all records right must see nothing that fits
better than a wrong guess.
"""

from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from vflsynth.secure import (
    Arithmetic,
    Masks,
    PhaseParty,
    PhaseServer,
    ProductParty,
    ProductServer,
    circle,
)
from vflsynth.secure import phases as phases_module
from vflsynth.secure import ring as ring_module
from vflsynth.secure.ring import column_products, to_ring

N_RUNS = 300
SHIFT = 9
LEAST_P = 1e-6
ANGLES, WIDE = np.dtype(np.uint16), np.dtype(np.uint64)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 40)


def raw(tensor):
    """Elements of a message, whatever their ring."""
    return tensor.numpy().view({2: np.uint16, 4: np.uint32, 8: np.uint64}[tensor.element_size()])


def added(parts, names):
    return np.sum([parts[name] for name in names], axis=0, dtype=next(iter(parts.values())).dtype)


class Seen:
    """What a role received, run by run, with the number of bits that it must have."""

    def __init__(self):
        self.values, self.bits = defaultdict(list), {}

    def add(self, what, elements, n_bits):
        self.values[what].append(np.asarray(elements).ravel().astype(np.uint64))
        self.bits[what] = n_bits

    def bytes_of(self, what):
        """The lowest and the highest eight bits of all numbers, counted."""
        values = np.concatenate(self.values[what])
        assert not (values >> np.uint64(self.bits[what] - 1) >> np.uint64(1)).any(), what
        low, high = values & np.uint64(255), values >> np.uint64(self.bits[what] - 8)
        return [np.bincount(part.astype(np.int64), minlength=256) for part in (low, high)]

    def assert_uniform(self):
        for what in self.values:
            for counts in self.bytes_of(what):
                assert counts.sum() > 1000, what
                assert chisquare(counts).pvalue > LEAST_P, what

    def assert_alike(self, other):
        assert self.values.keys() == other.values.keys()
        for what in self.values:
            for one, two in zip(self.bytes_of(what), other.bytes_of(what), strict=True):
                table = np.stack([one, two])[:, one + two > 0]
                assert chi2_contingency(table).pvalue > LEAST_P, what


# -- products --------------------------------------------------------------------------------------

N, WIDTH = 25, 4


def nobody():
    """Nobody has any of the categories, at any of the parties."""
    return {name: np.zeros((N, WIDTH), np.int64) for name in "abc"}


def everybody():
    """Everybody has the same category, and numbers as large as can be."""
    return {name: np.tile([1, 0, 2**20, -(2**20)], (N, 1)) for name in "abc"}


def server_of_products(matrices):
    seen = Seen()
    arithmetic = Arithmetic.of(2.0**30, SHIFT)
    top = np.uint64(2**arithmetic.n_bits - 1)
    names, widths = list(matrices), dict.fromkeys(matrices, WIDTH)
    for run in range(N_RUNS):
        secret = b"products %d" % run
        parties = {
            name: ProductParty(name, matrix, widths, secret, arithmetic)
            for name, matrix in matrices.items()
        }
        server = ProductServer(widths, N, arithmetic)
        masked = defaultdict(list)
        for block in range(len(server.blocks)):
            sent = {name: party.mask(block) for name, party in parties.items()}
            server.add(block, sent)
            for name in names:
                masked[name].append(raw(sent[name]))
        for name in names:
            seen.add(f"masked {name}", np.concatenate(masked[name]), 32)
            seen.add(f"blocks of {name}", masked[name][0] - masked[name][1], 32)
        seen.add("two parties", masked["a"][0] - masked["b"][0], 32)
        joined = {name: np.concatenate(masked[name]) for name in names}
        noise = np.zeros(2 * WIDTH * WIDTH, np.int64)
        shares = {name: raw(party.shares(noise)) for name, party in parties.items()}
        for name in names:
            seen.add(f"shares of {name}", shares[name], arithmetic.n_bits)
            for place, (first, second) in enumerate(parties[name].pairs):
                guess = to_ring(matrices[first], arithmetic.ring)
                if name == second:  # its correction is -M_i^T Y_j
                    guess = joined[first] - guess
                product = arithmetic.in_steps(column_products(guess, joined[second])).ravel()
                share = shares[name][place * WIDTH**2 :][: WIDTH**2]
                what = f"shares of {name} for {first} and {second}, guessed"
                seen.add(what, (share + product) & top, arithmetic.n_bits)
    return seen


# -- phases ----------------------------------------------------------------------------------------

FREQUENCIES = 3


def at_rest():
    return {name: np.zeros((N, FREQUENCIES), ANGLES) for name in "abc"}


def turned():
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 2**14, (N, FREQUENCIES), ANGLES) for name in "abc"}


def roles_of_phases(angles):
    """What the server received, and what parties did, alone and all but one in league."""
    server_saw, parties_saw = Seen(), Seen()
    arithmetic = Arithmetic.of(2.0**30, SHIFT)
    top = np.uint64(2**arithmetic.n_bits - 1)
    names, points = list(angles), circle()
    for run in range(N_RUNS):
        secret = b"phases %d" % run
        parties = {n: PhaseParty(n, a, names, secret, arithmetic) for n, a in angles.items()}
        server = PhaseServer(names, N, FREQUENCIES, arithmetic)
        guessed = {name: np.zeros((2, FREQUENCIES), np.uint32) for name in names}
        before = None
        for block, rows in enumerate(server.blocks):
            sent = {name: party.mask(block) for name, party in parties.items()}
            masked = {name: raw(message) for name, message in sent.items()}
            for name in names:
                server_saw.add(f"masked {name}", masked[name], 16)
                server_saw.add(f"masked but {name}", added(masked, set(names) - {name}), 16)
            joint = added(masked, names)
            server_saw.add("all masked", joint, 16)
            if before is not None:
                server_saw.add("blocks", joint - before[: len(joint)], 16)
            before = joint
            parts = {}
            for name, opening in server.open(block, sent).items():
                shape = 2, *joint.shape
                parts[name] = (
                    raw(opening.opened)
                    if opening.opened.numel()
                    else phases_module._expand(opening.seed, shape, arithmetic.ring, name)
                )
                parties[name].take(block, opening)
            for name in names:
                parties_saw.add(f"opened or drawn at {name}", parts[name], 32)
                parties_saw.add(f"all but {name}", added(parts, set(names) - {name}), 32)
            # Whoever guesses all angles right knows the masks.
            masks = joint - added({name: own[rows] for name, own in angles.items()}, names)
            real, imaginary = (
                to_ring(p[masks], arithmetic.ring) for p in (points.real, points.imag)
            )
            for name, (x, y) in parts.items():
                guessed[name][0] += (x * real + y * imaginary).sum(0, dtype=np.uint32)
                guessed[name][1] += (y * real - x * imaginary).sum(0, dtype=np.uint32)
        noise = np.zeros(2 * FREQUENCIES, np.int64)
        shares = {name: raw(party.shares(noise)) for name, party in parties.items()}
        for name in names:
            left = shares[name] - arithmetic.in_steps(guessed[name]).ravel()
            server_saw.add(f"shares of {name}", shares[name], arithmetic.n_bits)
            server_saw.add(f"shares of {name}, guessed", left & top, arithmetic.n_bits)
            others = added(shares, set(names) - {name})
            server_saw.add(f"shares but of {name}", others & top, arithmetic.n_bits)
    return server_saw, parties_saw


def server_of_phases(angles):
    return roles_of_phases(angles)[0]


def parties_of_phases(angles):
    return roles_of_phases(angles)[1]


TABLES = {
    server_of_products: (nobody, everybody),
    server_of_phases: (at_rest, turned),
    parties_of_phases: (at_rest, turned),
}


@pytest.mark.parametrize("role", TABLES)
def test_everything_received_is_uniform_whatever_the_records_are(role):
    one, other = (role(table()) for table in TABLES[role])
    one.assert_uniform()
    other.assert_uniform()
    one.assert_alike(other)


# -- planted bugs ----------------------------------------------------------------------------------


def without(patch, label):
    honest = Masks.draw

    def draw(self, asked, shape, ring):
        drawn = honest(self, asked, shape, ring)
        return np.zeros_like(drawn) if asked.startswith(label) else drawn

    patch.setattr(Masks, "draw", draw)


def labelled(patch, change):
    honest = Masks.draw
    patch.setattr(
        Masks, "draw", lambda self, label, shape, ring: honest(self, change(label), shape, ring)
    )


def plant_no_mask(patch):
    without(patch, "matrix")


def plant_a_party_without_mask(patch):
    without(patch, "matrix|1")


def plant_one_mask_for_all_blocks(patch):
    labelled(patch, lambda label: label.rsplit("|", 1)[0] if label[0] in "mj" else label)


def plant_one_mask_for_all_parties(patch):
    labelled(patch, lambda label: "matrix|" + label[9:] if label[0] == "m" else label)


def plant_no_part_of_zero(patch):
    def zero_share(self, label, n_parts, part, shape, ring=WIDE):
        return np.zeros(shape, ring)

    patch.setattr(Masks, "zero_share", zero_share)


def plant_bits_that_tell_how_often_shares_went_around(patch):
    honest = Arithmetic.share

    def share(self, units, zero, noise):
        return honest(Arithmetic(WIDE, self.shift), units, zero, noise)

    patch.setattr(Arithmetic, "share", share)


def plant_no_joint_mask(patch):
    without(patch, "joint")


def plant_seeds_that_stand_for_nothing(patch):
    without(patch, "points")


def plant_equal_seeds(patch):
    patch.setattr(phases_module.os, "urandom", bytes)


@pytest.mark.parametrize(
    ("role", "plant"),
    [
        (server_of_products, plant_no_mask),
        (server_of_products, plant_a_party_without_mask),
        (server_of_products, plant_one_mask_for_all_blocks),
        (server_of_products, plant_one_mask_for_all_parties),
        (server_of_products, plant_no_part_of_zero),
        (server_of_products, plant_bits_that_tell_how_often_shares_went_around),
        (server_of_phases, plant_no_joint_mask),
        (server_of_phases, plant_one_mask_for_all_blocks),
        (server_of_phases, plant_no_part_of_zero),
        (server_of_phases, plant_bits_that_tell_how_often_shares_went_around),
        (parties_of_phases, plant_seeds_that_stand_for_nothing),
        (parties_of_phases, plant_equal_seeds),
    ],
)
def test_what_is_not_hidden_is_noticed(role, plant, monkeypatch):
    """By one of the two tables at least: some bugs show nothing of records that are all zero."""
    plant(monkeypatch)
    found = [role(table()) for table in TABLES[role]]

    def judge():
        for seen in found:
            seen.assert_uniform()

    with pytest.raises(AssertionError):
        judge()
