"""Proofs that masked numbers are codes: they hold, are refuted, and tell nothing, by attacks."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.later import later
from tests.unit.secure.test_products import drawn, made, masked
from vflsynth.exceptions import ProtocolError
from vflsynth.secure import membership as membership_module
from vflsynth.secure import ring as ring_module
from vflsynth.secure.membership import PLACES, Codebook, Places, Proofs, halves, weights_of
from vflsynth.secure.products import ProductParty
from vflsynth.secure.ring import Arithmetic, Masks, tensor_of

N, VICTIM = 23, 17
NARROW, WIDE = Arithmetic(32, 0), Arithmetic(64, 0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 300)


def codebook(rng, names="ab"):
    """One state, many, labels, codes alike, zeros: whatever columns can have."""
    return Codebook(
        {
            name: [
                np.zeros((1, 1), np.int64),
                rng.integers(-64, 65, (5, 2)),
                np.eye(3, dtype=np.int64),
                np.full((2, 4), number),
            ]
            for number, name in enumerate(names)
        }
    )


def setting(arithmetic=NARROW, names="ab", seed=0, n_dummies=0):
    rng = np.random.default_rng(seed)
    book = codebook(rng, names)
    return made(drawn(rng, book, N), book, arithmetic, n_dummies=n_dummies)


def ended(parties, server):
    """Whether the proofs of all parties hold, or who ends the run with what words."""
    masked(parties, server)
    zero = {name: np.zeros(party.n_shares, np.int64) for name, party in parties.items()}
    server.totals({name: party.shares(zero[name]) for name, party in parties.items()})


# -- equations -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ring", [np.uint32, np.uint64])
def test_tags_are_those_of_one_number_after_the_other(ring):
    rng = np.random.default_rng(1)
    codes = codebook(rng).codes["b"]
    places, n, bits = Places(codes), 6, 8 * np.dtype(ring).itemsize
    turns = places.turns(rng.integers(0, 2**64, (n, len(codes)), np.uint64))
    masks = rng.integers(0, 2**bits, (n, sum(c.shape[1] for c in codes)), ring)
    weights = rng.integers(0, 2**64, (n, masks.shape[1] * bits // 32), np.uint64)
    tags = places.tags(turns, masks, weights)
    assert tags.shape == (n, len(places)) == (n, 2 + 6 + 4 + 3)
    for record in range(n):
        place, coordinate = 0, 0
        for column, code in enumerate(codes):
            entries = [*code.tolist(), [0] * code.shape[1]]
            for here in range(len(entries)):
                entry = entries[(here - int(turns[record, column])) % len(entries)]
                expected = 0
                for offset, number in enumerate(entry):
                    at = coordinate + offset
                    whole = (number + int(masks[record, at])) % 2**bits
                    for half in range(bits // 32):
                        weight = int(weights[record, at * bits // 32 + half])
                        expected += (whole >> 32 * half) % 2**32 * weight
                assert int(tags[record, place]) == expected % 2**64
                place += 1
            coordinate += code.shape[1]


def test_a_place_stands_for_its_state():
    rng = np.random.default_rng(2)
    places = Places(codebook(rng).codes["a"])
    states = np.stack([rng.integers(0, len(own), 50) for own in places.entries], 1)
    turns = places.turns(rng.integers(0, 2**64, states.shape, np.uint64))
    found = places.turned(states, turns).astype(int)
    sizes = np.array([len(own) for own in places.entries])
    assert ((found - turns.astype(int)) % sizes == states).all()
    values = np.arange(len(places), dtype=np.uint64)[None].repeat(50, 0)
    starts = np.cumsum([0, *sizes[:-1]])
    assert places.at(found, values).tolist() == (starts + found).tolist()


def test_places_are_fewer_than_states_and_zero():
    """The last one is taken, and the one behind it refused, of every column."""
    places = Places(codebook(np.random.default_rng(3)).codes["a"])
    last = np.array([[len(own) - 1 for own in places.entries]], PLACES)
    assert (places.received(tensor_of(last), 1, "it") == last).all()
    for column in range(last.shape[1]):
        beyond = last.copy()
        beyond[0, column] += 1
        with pytest.raises(ProtocolError, match="there are no such"):
            places.received(tensor_of(beyond), 1, "it")


# -- they hold, and are refuted --------------------------------------------------------------------


@pytest.mark.parametrize("arithmetic", [NARROW, WIDE])
@pytest.mark.parametrize("names", ["ab", "abc", *later("abcde")])
@pytest.mark.parametrize("n_dummies", [0, 5])
def test_proofs_of_codes_hold(arithmetic, names, n_dummies):
    ended(*setting(arithmetic, names, n_dummies=n_dummies))


CHANGES = [1, -1, 2**16, 2**31, -(2**20) + 3]


@pytest.mark.parametrize(
    ("arithmetic", "change"),
    [(NARROW, c) for c in CHANGES] + [(WIDE, c) for c in (*CHANGES, 2**32, 2**62)],
)
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_one_number_that_no_code_has_ends_the_run_and_names_its_party(arithmetic, change, names):
    """Of the last coordinate but one: 2, 2, 2, 2 is the only code of its column beside zero."""
    parties, server = setting(arithmetic, names)
    parties[names[-1]].matrix[VICTIM, -2] += change
    with pytest.raises(ProtocolError, match=f"party '{names[-1]}' masked numbers that no record"):
        ended(parties, server)


@pytest.mark.parametrize("is_honest", [True, False])
def test_a_coalition_of_all_but_one_is_caught_by_the_one(is_honest, monkeypatch):
    """A prover that knows a verifier's seed opens to it whatever it likes, and to no other."""
    count = iter(range(10**6))
    monkeypatch.setattr(
        membership_module.secrets, "token_bytes", lambda n: next(count).to_bytes(n, "big")
    )
    parties, server = setting(names="abc")
    evil = parties["a"]
    evil.matrix[VICTIM, -1] += 1000
    honest = evil.mask

    def mask(block):
        sent = honest(block)
        numbers = sent.numbers.numpy().view(np.uint32)
        openings = sent.proof.openings.clone()
        for number, other in enumerate("b" if is_honest else "bc"):
            seed = (3 * block + 1 + number).to_bytes(32, "big")
            tags = evil._proofs._tags(other, "a", block, seed)
            places = Places(evil.codebook.codes["a"])
            at = places.at(sent.proof.places.numpy(), tags).sum(dtype=np.uint64)
            weighed = (halves(numbers) * weights_of(seed, 0, numbers)).sum(dtype=np.uint64)
            left = (int(at) - int(weighed)) % 2**64
            openings[number] = left - 2**64 * (left >= 2**63)
        return replace(sent, proof=sent.proof._replace(openings=openings))

    evil.mask = mask
    if is_honest:
        with pytest.raises(ProtocolError, match="'a' masked numbers"):
            ended(parties, server)
    else:
        ended(parties, server)  # all verifiers are in league: the attack is what it should be


def test_another_state_than_the_own_is_as_good_as_a_made_up_record():
    parties, server = setting()
    own = parties["a"]
    own._proofs._states[VICTIM, 1] = (own._proofs._states[VICTIM, 1] + 1) % 5
    own.matrix[VICTIM, 1:3] = own.codebook.codes["a"][1][own._proofs._states[VICTIM, 1]]
    ended(parties, server)


@pytest.mark.parametrize("field", ["places", "openings"])
def test_a_wrong_place_or_opening_is_refuted(field):
    parties, server = setting()
    honest = parties["a"]._proofs.prove

    def prove(block):
        proof = honest(block)
        if block:
            return proof
        wrong = getattr(proof, field).clone()
        wrong.view(-1)[1 if field == "places" else 0] += 1
        if field == "places":
            wrong[:, 1] %= 6
        return proof._replace(**{field: wrong})

    parties["a"]._proofs.prove = prove
    with pytest.raises(ProtocolError, match="party 'a' masked numbers"):
        ended(parties, server)


WRONG = {
    "places": [torch.zeros((9, 3), dtype=torch.int16), torch.full((9, 4), 9, dtype=torch.int16)],
    "openings": [torch.zeros(2, dtype=torch.int64), torch.zeros(1)],
    "tags": [torch.zeros((9, 14), dtype=torch.int64), torch.zeros((9, 15))],
    "seed": [torch.zeros(31, dtype=torch.uint8)],
    "seal": [torch.zeros(33, dtype=torch.uint8)],
}


@pytest.mark.parametrize(("field", "wrong"), [(f, w) for f, own in WRONG.items() for w in own])
def test_what_cannot_be_a_proof_names_its_party(field, wrong):
    parties, server = setting()
    sent = {name: party.mask(0) for name, party in parties.items()}
    if wrong.dim() == 2:
        rows = len(sent["b"].proof.places)
        wrong = wrong[:1].repeat(rows, 1)
    sent["b"] = replace(sent["b"], proof=sent["b"].proof._replace(**{field: wrong}))
    with pytest.raises(ProtocolError, match="party 'b' sent"):
        server.add(0, sent)


# -- a verifier that deviates ----------------------------------------------------------------------


def told_by_whether_the_run_ends(state, wanted):
    """A verifier whose tags are wrong at all places but that of one state of the victim."""
    parties, server = setting()
    evil, column = parties["b"]._proofs, 1
    parties["a"]._proofs._states[VICTIM, column] = state
    parties["a"].matrix[VICTIM, 1:3] = parties["a"].codebook.codes["a"][column][state]
    honest, rows = evil._tags, parties["a"]._blocks
    (block,) = (b for b, own in enumerate(rows) if own.start <= VICTIM < own.stop)
    place = VICTIM - rows[block].start

    def tags(verifier, prover, of, seed):
        found = honest(verifier, prover, of, seed)
        if (verifier, prover, of) == ("b", "a", block):
            right = (wanted + int(evil._turns("a", block)[place, column])) % 6
            others = [2 + here for here in range(6) if here != right]  # after those of column 0
            found[place, others] += np.uint64(1)
        return found

    evil._tags = tags
    try:
        ended(parties, server)
    except ProtocolError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("state", range(5))
def test_wrong_tags_end_the_run_whatever_the_state_is(state):
    words = {told_by_whether_the_run_ends(state, wanted) for wanted in range(5)}
    assert len(words) == 1
    assert words.pop().startswith("party 'b' sent other tags of the records of 'a'")


def test_without_the_prover_s_look_the_run_s_end_tells_the_state(monkeypatch):
    monkeypatch.setattr(Proofs, "check", lambda self, challenge: None)
    for state in range(5):
        told = [not told_by_whether_the_run_ends(state, wanted) for wanted in range(5)]
        assert [wanted for wanted in range(5) if told[wanted]] == [state]


# -- a server that deviates ------------------------------------------------------------------------


def guesses_that_fit(seed):
    """A server tells the verifier other codes of one column, and tries all states of a record.

    What the tags of the places leave then is a sum of weights, which it knows, times differences of
    codes, which it chose; all other records it knows.
    """
    rng = np.random.default_rng(seed)
    book = codebook(rng)
    told = Codebook({"a": [c.copy() for c in book.codes["a"]], "b": book.codes["b"]})
    told.codes["a"][1][:, 0] += np.arange(5)
    states = drawn(rng, book, N)
    parties, server = made(states, book, NARROW)
    deceived, _ = made(states, told, NARROW)
    fits = np.ones(5, bool)
    for block, rows in enumerate(server.blocks):
        sent, other = parties["a"].mask(block), deceived["b"].mask(block)
        places = Places(book.codes["a"])
        tags = other.proof.tags.numpy().view(np.uint64)
        at = places.at(sent.proof.places.numpy(), tags).sum(dtype=np.uint64)
        numbers = sent.numbers.numpy().view(np.uint32)
        weights = weights_of(bytes(other.proof.seed.numpy()), 0, numbers)
        weighed = (halves(numbers) * weights).sum(dtype=np.uint64)
        left = (int(at) - int(sent.proof.openings[0]) - int(weighed)) % 2**64
        for guess in range(5):
            tried = states["a"][rows, 1].copy()
            if rows.start <= VICTIM < rows.stop:
                tried[VICTIM - rows.start] = guess
            # Differences of numbers modulo 2^32, of which none goes around but by chance.
            expected = int((weights[:, 1] * tried.astype(np.uint64)).sum(dtype=np.uint64))
            fits[guess] &= left == expected
    return fits, states["a"][VICTIM, 1]


def test_a_server_that_tells_others_codes_learns_nothing():
    for seed in range(20):
        assert not guesses_that_fit(seed)[0].any()


def test_it_reads_a_record_where_masks_do_not_depend_on_codes(monkeypatch):
    monkeypatch.setattr(Codebook, "digest", "the same")
    for seed in range(20):
        fits, state = guesses_that_fit(seed)
        assert fits.tolist() == (np.arange(5) == state).tolist()


@pytest.mark.parametrize("changed", ["seeds", "seals", "digests"])
def test_a_server_that_changes_what_it_relays_ends_the_run(changed):
    parties, server = setting(names="abc")
    for block in range(len(server.blocks)):
        server.add(block, {name: party.mask(block) for name, party in parties.items()})
    challenge = server.verification.challenges()["a"]
    wrong = getattr(challenge, changed).clone()
    wrong[-1, -1] ^= 1
    says = "other tags" if changed == "digests" else "does not bear its seal"
    with pytest.raises(ProtocolError, match=says):
        parties["a"].check(challenge._replace(**{changed: wrong}))
    with pytest.raises(ProtocolError, match="before it was told of its verifiers"):
        parties["a"].shares(np.zeros(parties["a"].n_shares, np.int64))
    for of in (0, 1):  # another verifier's, and another block's
        swapped = {name: getattr(challenge, name).flip(of) for name in ("seeds", "seals")}
        with pytest.raises(ProtocolError, match="does not bear its seal"):
            parties["a"].check(challenge._replace(**swapped))


def test_seeds_are_told_after_all_records_were_sent():
    parties, server = setting()
    server.add(0, {name: party.mask(0) for name, party in parties.items()})
    assert len(server.blocks) > 1
    with pytest.raises(ProtocolError, match="before it had sent all records"):
        parties["a"].check(server.verification.challenges()["a"])


@pytest.mark.parametrize(
    "other",
    [
        {"arithmetic": WIDE},
        {"arithmetic": Arithmetic(32, 1)},
        {"blocks": [slice(0, 11), slice(11, N)]},
        {"codebook": Codebook({name: [np.eye(2, dtype=np.int64)] for name in "ab"})},
    ],
)
def test_parties_that_are_told_other_terms_have_other_masks(other):
    told = {
        "codebook": Codebook({name: [np.eye(3, dtype=np.int64)] for name in "ab"}),
        "arithmetic": NARROW,
        "blocks": [slice(0, N)],
    }
    states = np.zeros((N, 1), np.int64)
    one, two = (
        ProductParty("a", states, of["codebook"], b"secret", of["arithmetic"], of["blocks"])
        for of in (told, told | other)
    )
    own, others = (party._mask("a", 0).astype(np.uint32)[:11, :2] for party in (one, two))
    assert (own != others).mean() > 0.9
    assert one._proofs._seal("b", 0, b"seed") != two._proofs._seal("b", 0, b"seed")


def test_memory_of_tags_does_not_grow_with_states():
    rng, n, size = np.random.default_rng(3), 3_000, 100
    places = Places([np.eye(size, dtype=np.int64)])
    turns = places.turns(rng.integers(0, 2**64, (n, 1), np.uint64))
    masks = rng.integers(0, 2**32, (n, size), np.uint32)
    weights = rng.integers(0, 2**64, (n, size), np.uint64)
    tracemalloc.start()
    places.tags(turns, masks, weights)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e6 + 8 * n * size  # all entries at once were 17 times the tags


def test_seeds_are_new_in_every_block_and_run():
    seeds = []
    for _ in range(3):
        parties, server = setting()
        for block in range(len(server.blocks)):
            seeds += [bytes(party.mask(block).proof.seed.numpy()) for party in parties.values()]
    assert len(set(seeds)) == len(seeds) > 6


def test_pads_turns_and_masks_have_labels_of_their_own(monkeypatch):
    labels, honest = [], Masks.draw

    def draw(self, label, shape, *ring):
        if not label.startswith("weights"):
            labels.append((label, tuple(shape), *ring))
        return honest(self, label, shape, *ring)

    monkeypatch.setattr(Masks, "draw", draw)
    ended(*setting(names="abc"))
    kinds = dict.fromkeys(labels)
    assert len({label for label, *_ in kinds}) == len(kinds)
    assert {label.split("|")[0] for label, *_ in kinds} == {"matrix", "turns", "pads", "products"}


def test_soundness_is_that_of_the_odd_part_of_what_is_wrong():
    """With weights of 8 bits and numbers of 4 the bound is 2^-5, and is met by 2^3, say."""
    rng, n = np.random.default_rng(5), 200_000
    weights = rng.integers(0, 2**8, n)
    for wrong in (1, 2, 8, -8, 5, 12):
        passed = (weights * wrong % 2**8 == 0).mean()
        assert passed <= 2**-5 * 1.1
    assert (membership_module.WIDE.itemsize, membership_module.HALF.itemsize) == (8, 4)
