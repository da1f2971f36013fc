"""What every role receives is uniform and tells nothing of the records, and the test can fail.

A role is judged by all that it received, and by combinations of it with what it drew itself or
could guess: an honest-but-curious server that guesses all records right must see nothing that fits
better than a wrong guess.
"""

import re
from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from vflsynth.secure import ring as ring_module
from vflsynth.secure.membership import Codebook, weights_of
from vflsynth.secure.products import ProductParty, ProductServer
from vflsynth.secure.ring import Arithmetic, Masks, column_products, to_ring

N_RUNS = 70
SHIFT = 9
LEAST_P = 1e-6
WIDE = np.dtype(np.uint64)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 160)


def raw(tensor):
    """Elements of a message, whatever their ring."""
    return tensor.numpy().view(
        {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[tensor.element_size()]
    )


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
        low, high = values & np.uint64(255), values >> np.uint64(self.bits[what] - 8)
        return [np.bincount(part.astype(np.int64), minlength=256) for part in (low, high)]

    def oddest(self):
        """The p-value of the numbers that are least like uniform ones, and what they are."""
        found = []
        for what, parts in self.values.items():
            values, n_bits = np.concatenate(parts), self.bits[what]
            assert len(values) > 1000, what
            if (values >> np.uint64(n_bits - 1) >> np.uint64(1)).any():
                found.append((0.0, what))
            else:
                found.extend((chisquare(counts).pvalue, what) for counts in self.bytes_of(what))
        return min(found)

    def assert_alike(self, other):
        assert self.values.keys() == other.values.keys()
        for what in self.values:
            for one, two in zip(self.bytes_of(what), other.bytes_of(what), strict=True):
                table = np.stack([one, two])[:, one + two > 0]
                assert chi2_contingency(table).pvalue > LEAST_P, what


N, WIDTH, CODES = 25, 4, 255


def codes():
    """So many that there are 256 places, zero included, and every place is a byte."""
    drawn = np.random.default_rng(0).integers(-(2**20), 2**20, (CODES, WIDTH))
    drawn[0] = 1, 0, 2**20, -(2**20)
    return drawn


def nobody():
    """Nobody has any of the categories, at any of the parties: all records are zero."""
    return {name: np.zeros((0, 1), np.int64) for name in "abc"}


def everybody():
    """Everybody has the same category, and numbers as large as can be."""
    return {name: np.zeros((N, 1), np.int64) for name in "abc"}


def proved(seen, parties, sent, block, numbers, before):
    """What proofs say, and what a server makes of them that guesses all records and turns right."""
    rows = parties["a"]._blocks[block]
    n_rows = rows.stop - rows.start
    entries = {}
    for prover, party in parties.items():
        own = party._proofs
        turns = own._turns(prover, block)
        order = (np.arange(CODES + 1) - turns.astype(int)) % (CODES + 1)
        masks = numbers[prover] - to_ring(party.matrix[rows], np.dtype(np.uint32))
        guessed = to_ring(own._places[prover].entries[0][order], masks.dtype) + masks[:, None]
        entries[prover] = guessed.astype(WIDE)
        places = raw(sent[prover].proof.places)
        seen.add("places", places, 8)
        if block:
            n = min(n_rows, len(before["places", prover]))
            seen.add("places of blocks", (places[:n] - before["places", prover][:n]) % 256, 8)
        before["places", prover] = places
    left = {}
    for verifier in parties:
        provers = [name for name in parties if name != verifier]
        proof = sent[verifier].proof
        tags = raw(proof.tags).reshape(n_rows, 2, CODES + 1)
        seen.add("tags", tags, 64)
        for number, prover in enumerate(provers):
            rank = list(parties).index(prover)
            weights = weights_of(bytes(proof.seed.numpy()), rank, numbers[prover])
            weighed = (entries[prover] * weights[:, None]).sum(2, dtype=WIDE)
            left[verifier, prover] = tags[:, number] - weighed
            seen.add("tags, guessed", left[verifier, prover], 64)
            if block:
                n = min(n_rows, len(before[verifier, prover]))
                of_blocks = left[verifier, prover][:n] - before[verifier, prover][:n]
                seen.add("tags of blocks, guessed", of_blocks, 64)
            before[verifier, prover] = left[verifier, prover]
            others = [name for name in parties if name != prover]
            seen.add("openings", raw(sent[prover].proof.openings)[others.index(verifier)], 64)
    for prover in parties:
        one, other = (left[name, prover] for name in parties if name != prover)
        seen.add("tags of two verifiers, guessed", one - other, 64)


def server_of_products(states, n_runs):
    seen = Seen()
    arithmetic = Arithmetic.of(2.0**30, SHIFT)
    top = np.uint64(2**arithmetic.n_bits - 1)
    names, codebook = list(states), Codebook({name: [codes()] for name in states})
    blocks = [slice(0, 9), slice(9, 18), slice(18, N)]
    for run in range(n_runs):
        secret = b"products %d" % run
        parties = {
            name: ProductParty(name, own, codebook, secret, arithmetic, blocks)
            for name, own in states.items()
        }
        server = ProductServer(codebook, arithmetic, blocks)
        masked, before = defaultdict(list), {}
        for block in range(len(blocks)):
            sent = {name: party.mask(block) for name, party in parties.items()}
            server.add(block, sent)
            numbers = {name: raw(own.numbers) for name, own in sent.items()}
            proved(seen, parties, sent, block, numbers, before)
            for name in names:
                masked[name].append(numbers[name])
        for name, challenge in server.verification.challenges().items():
            parties[name].check(challenge)
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
                guess = to_ring(parties[first].matrix, arithmetic.ring)
                if name == second:  # its correction is -M_i^T Y_j
                    guess = joined[first] - guess
                product = arithmetic.in_steps(column_products(guess, joined[second])).ravel()
                share = shares[name][place * WIDTH**2 :][: WIDTH**2]
                what = f"shares of {name} for {first} and {second}, guessed"
                seen.add(what, (share + product) & top, arithmetic.n_bits)
    return seen


TABLES = nobody, everybody


def test_everything_received_is_uniform_whatever_the_records_are():
    one, other = (server_of_products(table(), N_RUNS) for table in TABLES)
    assert min(one.oddest(), other.oddest())[0] > LEAST_P
    one.assert_alike(other)


# -- planted bugs ----------------------------------------------------------------------------------


def labelled_without(patch, word):
    honest = Masks.draw

    def draw(self, label, *rest):
        drawn = honest(self, label, *rest)
        return np.zeros_like(drawn) if word in label else drawn

    patch.setattr(Masks, "draw", draw)


def labelled(patch, change):
    honest = Masks.draw
    patch.setattr(Masks, "draw", lambda self, label, *rest: honest(self, change(label), *rest))


def plant_no_mask(patch):
    labelled_without(patch, "matrix")


def plant_a_party_without_mask(patch):
    labelled_without(patch, "matrix|1")


def plant_one_mask_for_all_blocks(patch):
    labelled(patch, lambda label: re.sub(r"(matrix\|\d)\|\d+", r"\1", label))


def plant_no_turns(patch):
    labelled_without(patch, "turns")


def plant_one_turn_for_all_blocks(patch):
    labelled(patch, lambda label: re.sub(r"(turns\|\d)\|\d+", r"\1", label))


def plant_no_pads(patch):
    labelled_without(patch, "pads")


def plant_one_pad_for_all_blocks(patch):
    labelled(patch, lambda label: re.sub(r"(pads\|\d\|\d)\|\d+", r"\1", label))


def plant_one_pad_for_all_verifiers(patch):
    labelled(patch, lambda label: re.sub(r"pads\|\d", "pads", label))


def plant_one_mask_for_all_parties(patch):
    labelled(patch, lambda label: re.sub(r"matrix\|\d", "matrix", label))


def plant_no_part_of_zero(patch):
    labelled_without(patch, "products")


def plant_bits_that_tell_how_often_shares_went_around(patch):
    honest = Arithmetic.share

    def share(self, units, zero, noise):
        return honest(Arithmetic(64, self.shift), units, zero, noise)

    patch.setattr(Arithmetic, "share", share)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        plant_no_mask,
        plant_a_party_without_mask,
        plant_one_mask_for_all_blocks,
        plant_one_mask_for_all_parties,
        plant_no_turns,
        plant_one_turn_for_all_blocks,
        plant_no_pads,
        plant_one_pad_for_all_blocks,
        plant_one_pad_for_all_verifiers,
        plant_no_part_of_zero,
        plant_bits_that_tell_how_often_shares_went_around,
    ],
)
def test_what_is_not_hidden_is_noticed(plant, monkeypatch):
    """By one of the two tables at least: some bugs show nothing of records that are all zero."""
    plant(monkeypatch)
    assert any(server_of_products(table(), N_RUNS).oddest()[0] <= LEAST_P for table in TABLES)
