"""What a server, or a party, can make of the matching when it deviates from the protocol."""

import itertools
import math
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from tests.later import later
from tests.unit.federation.conftest import KEY
from tests.unit.federation.trial import Opened
from vflsynth.exceptions import (
    MisalignedError,
    PartyStoppedError,
    PayloadRejectedError,
    ProtocolError,
    RunAbortedError,
)
from vflsynth.federation import exchange, psi
from vflsynth.federation.matching import Matching, match_blinded
from vflsynth.federation.participant import Rules
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.psi import KeyBlinder
from vflsynth.federation.site import Bounds
from vflsynth.federation.wire import Frame, Request, decode, encode
from vflsynth.methods.vflgan.messages import DiscriminatorGradients, Shape
from vflsynth.protocol.channel import SERVER
from vflsynth.protocol.messages import (
    BlindedKeys,
    CheckpointNotice,
    CommonPositions,
    EncodedSize,
    EncodedSizes,
    Hello,
    KeysToReblind,
    MatchProof,
    MatchProofs,
    ReblindedKeys,
    ReturnedKeys,
    Terms,
)
from vflsynth.run.server_run import Agreed

VICTIM = "party_1"
GUESSES = pd.RangeIndex(99_000, 101_000)
BEFORE = {Hello, BlindedKeys, ReblindedKeys, MatchProof}
"""What may have left when a match is refused."""


class LyingServer:
    """A link to a server that has no other party, and makes the other's part up.

    It has the party blind guesses of keys, and declares all of the party's records matched.
    """

    seal = torch.zeros(32, dtype=torch.uint8)

    def __init__(self):
        self.received, self.recovered = [], None
        self.guesser = KeyBlinder(GUESSES, np.arange(len(GUESSES)), bytes(32))

    def exchange(self, data, timeout):
        frame = decode(data, 1 << 28)
        self.received += frame.messages
        if frame.reason is not None:
            return b""
        (message,) = frame.messages
        kind, step, *answer = self.reply(message)
        return encode(Frame(frame.run, frame.number, tuple(answer), Request(kind, step)))

    def reply(self, message):
        match message:
            case Hello():
                facts, other = message.facts, "party_2"
                terms = {
                    "rows": {VICTIM: facts["rows"], other: len(GUESSES)},
                    "columns": {VICTIM: facts["n_columns"], other: 4},
                    "unlisted": {VICTIM: facts["unlisted"], other: 0},
                    "nonces": {VICTIM: facts["nonce"], other: "00"},
                    "epoch": 0,
                    "key_offset": "10000",
                    "accounts": {},
                    "contracts": dict.fromkeys([VICTIM, other], facts["contract"]),
                }
                return BlindedKeys, 0, Terms(SERVER, VICTIM, 0, terms)
            case BlindedKeys():
                self.blinded = message.points
                guesses = self.guesser.blind()
                return ReblindedKeys, 1, KeysToReblind(SERVER, VICTIM, 1, guesses, self.seal)
            case ReblindedKeys():
                both = {bytes(p): key for p, key in zip(message.points.numpy(), GUESSES)}
                own = self.guesser.reblind(self.blinded)
                self.recovered = [both.get(bytes(p)) for p in own.numpy()]
                everything = torch.arange(len(self.blinded))
                return (
                    MatchProof,
                    0,
                    ReturnedKeys(SERVER, VICTIM, 0, own, self.seal),
                    CommonPositions(SERVER, VICTIM, 0, everything),
                )
            case MatchProof():
                proofs = dict.fromkeys(
                    ["party_1", "party_2"], message.proof.numpy().tobytes().hex()
                )
                return EncodedSize, 0, MatchProofs(SERVER, VICTIM, 0, proofs)
            case EncodedSize():
                widths = {VICTIM: message.encoded_dim, "party_2": 5}
                return Shape, 0, EncodedSizes(SERVER, VICTIM, 0, widths)
        raise AssertionError("the party trains with nobody")


def test_a_server_without_the_parties_secret_gets_no_guesses_blinded(make_trial):
    """Before lists were sealed and keys were digests it recovered every key, and had it train."""
    trial, server = make_trial(), LyingServer()
    with pytest.raises(MisalignedError, match="'party_2' has no seal of a holder"):
        PartyNode(trial.job, trial.sites[VICTIM]).run(server)
    assert server.recovered is None
    assert [type(message) for message in server.received] == [Hello, BlindedKeys]


def test_guesses_tell_nothing_even_if_somebody_blinds_them(make_trial, monkeypatch):
    """The second lock: keys are digests under the parties' secret before they are blinded."""
    monkeypatch.setattr(Matching, "_check_seal", lambda *anything: None)
    trial, server = make_trial(), LyingServer()
    with pytest.raises(MisalignedError, match=r"says that 40 records are common; .* 0 are"):
        PartyNode(trial.job, trial.sites[VICTIM]).run(server)
    assert set(server.recovered) == {None}
    # The attack itself works: who has the secret recovers every key.
    server, init = LyingServer(), KeyBlinder.__init__

    def betrayed(self, keys, order, shared, *more):
        init(self, keys, order, shared, *more)
        server.guesser._shared = shared

    monkeypatch.setattr(KeyBlinder, "__init__", betrayed)
    with pytest.raises(MisalignedError):
        PartyNode(trial.job, trial.sites[VICTIM]).run(server)
    assert sorted(server.recovered) == sorted(trial.frames[VICTIM]["record_id"])


def relaying(change, outwards=False):
    """Make links through a server, or from a party if `outwards`, that changes messages."""

    def changed(self, frame):
        messages = tuple(change(self._name, message) for message in frame.messages)
        return replace(frame, messages=messages)

    return type("Relay", (Opened,), {"leaves" if outwards else "arrives": changed})


def only(kind, change, names=(VICTIM,)):
    """Change messages of a kind, to or from some parties."""
    return lambda name, m: change(m) if isinstance(m, kind) and name in names else m


def refused(trial, words, kind=MisalignedError, by=VICTIM):
    """Nobody trains, the party's error says why, and it reaches every other node."""
    assert isinstance(trial.outcome[by], kind), trial.outcome
    assert words in str(trial.outcome[by])
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    for name, node in trial.nodes.items():
        assert sent(node) <= {kind.__name__ for kind in BEFORE}
        if name != by:
            assert isinstance(trial.outcome[name], ProtocolError)


def blaming(trial, kind=MisalignedError):
    """Return the first node that refused."""
    return next(name for name, error in trial.outcome.items() if type(error) is kind)


def sent(node):
    table = node.transcript.to_frame()
    return set(table.loc[table.sender == node.name, "message"])


def truncated(message):
    return replace(message, points=message.points[:1])


def with_guesses(message):
    points = message.points.clone()
    points[1:] = points[0]
    return replace(message, points=points)


@pytest.mark.parametrize(
    ("change", "words", "kind"),
    [
        (truncated, "sent another number of blinded keys than it declared", PayloadRejectedError),
        (with_guesses, "'party_2' has no seal", MisalignedError),
        *later(
            (lambda m: replace(m, points=m.points[0]), "whose points are", PayloadRejectedError),
            (lambda m: replace(m, seal=m.seal[:0]), "'party_2' has no seal", MisalignedError),
        ),
    ],
)
def test_a_list_that_was_changed_on_its_way_is_not_blinded(make_trial, change, words, kind):
    trial = make_trial().run(relaying(only(KeysToReblind, change)))
    refused(trial, words, kind)
    assert sent(trial.nodes[VICTIM]) == {"Hello", "BlindedKeys"}


def test_what_no_frame_could_say_is_common_is_refused_before_a_key_is_blinded():
    """33 million rows of two parties in 256 MiB; of more parties every key is two points."""
    asked = []

    class Nobody:
        def gather(self, kind, step):
            asked.append(kind)
            raise AssertionError("a party was asked")

    for n_parties, most in [(2, 33_291_776), (3, 16_645_888)]:
        hellos = {name: Hello(name, SERVER, 0, {"rows": most + 1}) for name in "abc"[:n_parties]}
        with pytest.raises(PayloadRejectedError, match=r"'a'.*max_frame_bytes = \d+"):
            match_blinded(Nobody(), hellos, "id", None, 1 << 28)
        assert not asked
        hellos["b"] = Hello("b", SERVER, 0, {"rows": most})  # what is common is in all lists
        with pytest.raises(AssertionError, match="was asked"):
            match_blinded(Nobody(), hellos, "id", None, 1 << 28)
        asked.clear()


# -- lists in parts -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*that fewer than 5 records hold")
@pytest.mark.parametrize("n_parties", [3, *later(2)])
def test_lists_in_parts_match_as_lists_in_one_do(make_trial, n_parties, monkeypatch):
    """Lists of different lengths: the shorter ones end with empty parts."""
    trial = make_trial(n_parties)
    kept = {name: frame[3 * i :] for i, (name, frame) in enumerate(trial.frames.items())}
    for name, frame in kept.items():
        frame.to_parquet(trial.sites[name].table)
    common = set.intersection(*(set(frame[KEY]) for frame in kept.values()))
    found = {}
    for part in (1 << 16, 7):
        monkeypatch.setattr(psi, "_PART", part)
        trial.finish()
        report = trial.server.alignment
        counts = trial.nodes[VICTIM].transcript.to_frame().set_index("message")["messages"]
        found[part] = str(report)
        n_parts = -(-40 * (1 if n_parties == 2 else 2) // part)
        assert counts["BlindedKeys"] == n_parts
        assert counts["ReblindedKeys"] == n_parts * (n_parties - 1)
        assert report.n_matched == len(common)
    assert len(set(found.values())) == 1


def test_a_part_has_one_place_in_its_list(make_trial, monkeypatch):
    monkeypatch.setattr(psi, "_PART", 20)
    seen = []

    def the_first_again(message):
        seen.append(message)
        return replace(message, points=seen[0].points, seal=seen[0].seal)

    trial = make_trial().run(relaying(only(KeysToReblind, the_first_again)))
    refused(trial, "'party_2' has no seal")
    assert len(seen) == 2


def test_parts_are_asked_for_in_order_and_all_leave_before_another_is_blinded(
    make_trial, monkeypatch
):
    monkeypatch.setattr(psi, "_PART", 20)
    parties = matchings(make_trial(), ["party_1", "party_2"])
    first = parties["party_2"].blind(0)
    with pytest.raises(ProtocolError, match="part 0 of its keys, or again"):
        parties["party_2"].blind(0)
    parties["party_1"].blind(0)
    early = KeysToReblind(SERVER, "party_1", 1, first.points, first.seal)
    with pytest.raises(ProtocolError, match="keys of turn 1, or again"):
        parties["party_1"].reblind(early)
    parties["party_1"].blind(1)
    rules = Rules(parties["party_1"].steps)
    rules.check(Request(BlindedKeys, 1))
    with pytest.raises(ProtocolError, match="BlindedKeys of step 2"):
        rules.check(Request(BlindedKeys, 2))
    parties["party_1"].reblind(early)


def test_progress_extends_the_deadline(make_trial, monkeypatch):
    """A party takes half of what the server waits for each part; all of them take longer.

    Time passes only where the party blinds.
    """
    monkeypatch.setattr(psi, "_PART", 7)
    clock, blind = Standing(), KeyBlinder.blind
    monkeypatch.setattr(exchange, "time", clock)

    def slowly(self, part):
        if self is trial.nodes[VICTIM].matching._blinder:
            clock.now += 0.5 * trial.job.setup_timeout
        return blind(self, part)

    monkeypatch.setattr(KeyBlinder, "blind", slowly)
    trial = make_trial(setup_timeout=100.0)
    trial.finish()
    assert clock.now == 6 * 50.0


class Standing:
    """A clock that a test moves, and nothing else."""

    now = 0.0

    def monotonic(self):
        return self.now


def test_a_blinded_list_does_not_show_which_points_a_key_became():
    """Half of all numbers are of the curve's twist, and stay there whatever they are blinded by."""
    prime = 2**255 - 19

    def of_curve(points):
        numbers = [int.from_bytes(bytes(point), "little") for point in points.numpy()]
        return [pow(u**3 + 486662 * u**2 + u, prime // 2, prime) == 1 for u in numbers]

    blinders = [KeyBlinder(pd.RangeIndex(80), np.arange(80), bytes(32)) for _ in range(2)]
    first, second = (blinder.blind() for blinder in blinders)
    assert all(of_curve(first))
    both = blinders[1].reblind(first)
    assert torch.equal(both, blinders[0].reblind(second))
    small = torch.zeros(3, 32, dtype=torch.uint8)
    with pytest.raises(ProtocolError, match="not points of the curve"):
        blinders[0].reblind(small)


def test_common_points_are_found_in_an_order_of_their_own():
    rng = np.random.default_rng(0)
    points = rng.integers(0, 2, (60, 32)).astype(np.uint8)
    points[:, :29] = 0  # many zero bytes, also at the end
    lists = {"a": points[:40], "b": points[20:], "c": np.concatenate([points[10:30]] * 2)}
    found = psi.common_positions({name: torch.tensor(own) for name, own in lists.items()})
    common = set.intersection(*({bytes(p) for p in own} for own in lists.values()))
    for name, places in found.items():
        assert [bytes(lists[name][i]) for i in places] == sorted(common)
    assert not len(psi.common_positions({"a": torch.tensor(points), "b": torch.empty(0, 32)})["a"])


def test_a_list_of_an_earlier_run_is_not_blinded(make_trial):
    kept = []

    def the_first_again(message):
        kept.append(message)
        return kept[0]

    link, trial = relaying(only(KeysToReblind, the_first_again)), make_trial()
    trial.finish(link)
    refused(trial.run(link), "'party_2' has no seal")


def test_a_party_does_not_blind_its_own_list_again(make_trial):
    """The server gives it its own list, with its own seal, as one of others."""
    own = []

    def its_own(message):
        return replace(message, points=own[0].points, seal=own[0].seal)

    class GivingBack(relaying(only(KeysToReblind, its_own))):
        def leaves(self, frame):
            if self._name == VICTIM:
                own.extend(m for m in frame.messages if isinstance(m, BlindedKeys))
            return frame

    refused(make_trial(3).run(GivingBack), "has no seal")


def test_a_seal_is_of_one_owner_and_of_one_turn(make_trial):
    """A holder of the secret made all of these, and none is what the party is to blind next."""
    names = ["party_1", "party_2", "party_3"]
    parties = matchings(make_trial(3), names)
    own, before, odd = (parties[name].blind(0) for name in ("party_1", "party_3", "party_2"))

    def told(message, step):
        return KeysToReblind(SERVER, "party_1", step, message.points, message.seal)

    with pytest.raises(MisalignedError, match="'party_3' has no seal"):
        parties["party_1"].reblind(told(own, 1))  # its own list
    with pytest.raises(MisalignedError, match="'party_3' has no seal"):
        parties["party_1"].reblind(told(odd, 1))  # the next party's
    parties["party_1"].reblind(told(before, 1))
    with pytest.raises(MisalignedError, match="'party_2' has no seal"):
        parties["party_1"].reblind(told(odd, 2))  # which party_3 did not blind


def test_a_party_blinds_one_list_in_a_turn(make_trial):
    """Of two that are blinded with one secret the server could compare points."""
    parties = matchings(make_trial(3), ["party_1", "party_2", "party_3"])
    parties["party_1"].blind(0)
    sent = parties["party_3"].blind(0)
    once = KeysToReblind(SERVER, "party_1", 1, sent.points, sent.seal)
    parties["party_1"].reblind(once)
    with pytest.raises(ProtocolError, match="was sent keys of turn 1, or again"):
        parties["party_1"].reblind(once)


def matchings(trial, names):
    """Make the parties' sides of a matching that has begun, without a server."""
    frames = {name: trial.frames[name].set_index(KEY) for name in names}
    rows = {name: len(frame) for name, frame in frames.items()}
    agreed = Agreed(
        rows=rows,
        columns=dict.fromkeys(names, 1),
        unlisted=dict.fromkeys(names, 0),
        nonces=dict.fromkeys(names, "00"),
        epoch=0,
        key_offset=0,
        accounts={},
        contracts={},
    )
    found = {}
    for name, frame in frames.items():
        found[name] = Matching(name, frame.index, frame.columns, bytes(32), Bounds())
        found[name].begin(agreed, names, "job")
    return found


def everything(message):
    return replace(message, positions=torch.arange(30))


def fewer(message):
    return replace(message, positions=message.positions[1:])


@pytest.mark.parametrize("change", [everything, fewer])
def test_two_parties_find_the_common_records_by_themselves(make_trial, change):
    trial = make_trial()
    for name, frame in trial.frames.items():
        (frame[:30] if name == VICTIM else frame[10:]).to_parquet(trial.sites[name].table)
    trial.run(relaying(only(CommonPositions, change, trial.sites)))
    assert {type(e) for n, e in trial.outcome.items() if n != "server"} <= {
        MisalignedError,
        RunAbortedError,
    }
    refused(trial, "by the lists that the parties sealed", by=blaming(trial))


def test_three_parties_prove_to_each_other_what_they_were_told(make_trial):
    """A server that guessed which points are of one key, and tells one party another match."""
    trial = make_trial(3)

    def without_a_key(message):
        blinder = trial.nodes[VICTIM].matching._blinder
        of_key = blinder._order[message.positions] % len(blinder._keys)
        return replace(message, positions=message.positions[torch.from_numpy(of_key != of_key[0])])

    trial.run(relaying(only(CommonPositions, without_a_key)))
    refused(trial, "no proof from", by=blaming(trial))


@pytest.mark.parametrize(
    "left_out",
    [slice(0, 1), *later(slice(0, 40), slice(1, None))],
    ids=["one", "half", "all but one"],
)
def test_a_server_that_leaves_points_out_alike_at_three_parties_is_noticed(make_trial, left_out):
    """Every key is two points, and the server cannot tell which."""

    def fewer_alike(message):
        kept = torch.ones(len(message.positions), dtype=torch.bool)
        kept[left_out] = False
        return replace(message, positions=message.positions[kept])

    trial = make_trial(3)
    trial.run(relaying(only(CommonPositions, fewer_alike, trial.sites)))
    words = "of a key that is 2 points only some are said to be common"
    refused(trial, words, by=blaming(trial))


def test_both_points_of_a_key_are_left_out_by_chance_only():
    """As often as C(n, k) / C(2n, 2k) says, for all n and k; else it is noticed."""
    keys, rng = pd.RangeIndex(3), np.random.default_rng(0)
    for n_left in (1, 2):
        blinder = KeyBlinder(keys, rng.permutation(6), bytes(32), copies=2)
        unnoticed = 0
        for out in itertools.combinations(range(6), 2 * n_left):
            with suppress(MisalignedError):
                common, _ = blinder.common(torch.tensor([i for i in range(6) if i not in out]))
                assert len(common) == 3 - n_left
                unnoticed += 1
        assert unnoticed / math.comb(6, 2 * n_left) == math.comb(3, n_left) / math.comb(
            6, 2 * n_left
        )


def test_no_two_points_of_a_list_are_alike_or_say_which_key_they_are():
    """The points of a key are as different as those of two keys, before and after blinding."""
    shared, n = bytes(32), 20
    blinder = KeyBlinder(pd.RangeIndex(n), np.arange(2 * n), shared, copies=2)
    own = blinder.blind()
    assert len({bytes(point) for point in own.numpy()}) == 2 * n
    once = KeyBlinder(pd.RangeIndex(n), np.arange(n), shared)
    assert len(once.blind()) == n


@pytest.mark.filterwarnings("ignore:.*that fewer than 5 records hold")
@pytest.mark.parametrize("n_parties", [2, *later(3)])
def test_a_site_bounds_how_few_records_are_trained_on(make_trial, n_parties):
    trial = make_trial(n_parties)
    trial.change(VICTIM, bounds=Bounds(least_matched=41))
    refused(
        trial.run(), "fewer records are common than the 41 of a site file", PayloadRejectedError
    )


def test_terms_that_differ_between_parties_are_noticed(make_trial):
    """By the numbers of columns joint noise is calibrated: a server cannot misstate them."""

    def misstate(message):
        columns = message.terms["columns"] | {"party_2": 1}
        return replace(message, terms=message.terms | {"columns": columns})

    trial = make_trial().run(relaying(only(Terms, misstate)))
    assert any("has no seal" in str(error) for error in trial.outcome.values())
    assert not any("EncodedSize" in sent(node) for node in trial.nodes.values())


def test_terms_about_other_parties_are_refused(make_trial):
    def with_another(message):
        terms = {
            k: v | {"x": v[VICTIM]} if isinstance(v, dict) and v else v
            for k, v in message.terms.items()
        }
        return replace(message, terms=terms)

    trial = make_trial().run(relaying(only(Terms, with_another)))
    refused(trial, "terms are about party_1, party_2, x", ProtocolError)


def test_a_server_cannot_have_checkpoints_deleted(make_trial):
    """It tells all parties alike to start anew; they have finished."""
    trial = make_trial(checkpoint_every=1).run()
    folder = trial.kept(VICTIM) / "checkpoints"
    before = sorted(path.name for path in folder.iterdir())
    assert before == ["epoch-000003", "epoch-000004"]

    def from_the_start(message):
        return replace(message, terms=message.terms | {"epoch": 0})

    trial.run(relaying(only(Terms, from_the_start, trial.sites)))
    words = "has a checkpoint of epoch 4, and the server would go on from"
    refused(trial, words, ProtocolError, by=blaming(trial, ProtocolError))
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("of", "request_", "words"),
    [
        (BlindedKeys, (EncodedSize, 0), "asked for EncodedSize of step 0"),
        (ReblindedKeys, (ReblindedKeys, 1), "asked for ReblindedKeys of step 1"),
        (ReblindedKeys, (Shape, 0), "asked for Shape of step 0"),
        *later((ReblindedKeys, (ReblindedKeys, 2), "asked for ReblindedKeys of step 2")),
    ],
)
def test_a_server_that_skips_or_repeats_is_refused(make_trial, of, request_, words):
    class Skipping(Opened):
        def leaves(self, frame):
            self.sent = {type(message) for message in frame.messages}
            return frame

        def arrives(self, frame):
            if self._name == VICTIM and of in self.sent:
                return replace(frame, messages=(), request=Request(*request_))
            return frame

    refused(make_trial().run(Skipping), words, ProtocolError)


def test_what_comes_once_is_taken_once(make_trial):
    class Repeating(Opened):
        def arrives(self, frame):
            once = [m for m in frame.messages if isinstance(m, Terms) and self._name == VICTIM]
            return replace(frame, messages=(*frame.messages, *once))

    refused(make_trial().run(Repeating), "the server sent Terms twice", ProtocolError)


@pytest.mark.parametrize(
    "early",
    [
        DiscriminatorGradients(SERVER, VICTIM, 0, torch.zeros(1, 4, 2)),
        CheckpointNotice(SERVER, VICTIM, 1),
    ],
)
def test_what_is_of_training_is_refused_by_name_before_there_are_networks(make_trial, early):
    class Early(Opened):
        def arrives(self, frame):
            told = self._name == VICTIM and any(isinstance(m, Terms) for m in frame.messages)
            return replace(frame, messages=(*frame.messages, *[early][:told]))

    words = f"{type(early).__name__} before party 'party_1' was told to build its networks"
    refused(make_trial().run(Early), words, ProtocolError)


@pytest.mark.parametrize("width", ["x", None, 1.5, -4, 10**30])
def test_a_number_of_encoded_columns_is_one(make_trial, width):
    def other(message):
        return replace(message, widths=message.widths | {"party_2": width})

    error = make_trial().run(relaying(only(EncodedSizes, other))).outcome[VICTIM]
    assert isinstance(error, ProtocolError)
    assert "the server says that parties have {'party_1': " in str(error)


# -- a party that has the secret, and deviates ----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("key_offset", "abc"), ("key_offset", ""), ("checkpoints", ["x"]), ("checkpoints", [[1]])],
)
def test_a_hello_that_cannot_be_read_is_refused_by_name(make_trial, name, value):
    class Odd(Opened):
        def leaves(self, frame):
            said = [replace(m, facts=m.facts | {name: value}) for m in frame.messages[:1]]
            is_hello = self._name == VICTIM and frame.number == 0 and said
            return replace(frame, messages=tuple(said)) if is_hello else frame

    error = make_trial().run(Odd).outcome["server"]
    assert isinstance(error, PayloadRejectedError)
    assert f"party 'party_1': its hello says {name} = " in str(error)


def test_a_party_that_brings_more_keys_than_it_declared(make_trial):
    def more(message):
        return replace(message, points=message.points.repeat(3, 1))

    trial = make_trial().run(relaying(only(BlindedKeys, more), outwards=True))
    assert isinstance(trial.outcome["server"], PayloadRejectedError)
    assert "than it declared" in str(trial.outcome["server"])


def test_a_site_bounds_how_many_guesses_another_party_may_bring(make_trial):
    trial = make_trial()
    trial.change(VICTIM, bounds=Bounds(most_rows=39))
    trial.run()
    refused(trial, "declares 40 rows; a site file agrees to match at most 39", PayloadRejectedError)
    assert sent(trial.nodes[VICTIM]) == {"Hello"}  # not a point left it


def test_a_passive_party_bounds_what_the_active_one_brings(make_split_trial):
    """The active party is the server and has the secret: the number of its keys is all there is."""
    trial = make_split_trial(1, parameters={"epochs": 1})
    trial.change(VICTIM, bounds=Bounds(most_rows=59))
    trial.run()
    refused(trial, "party 'active': declares 60 rows", PayloadRejectedError)
    assert sent(trial.nodes[VICTIM]) == {"Hello"}
    trial.change(VICTIM, bounds=Bounds(most_rows=60))
    trial.finish()


def test_a_party_that_blinds_falsely_cannot_prove_records_that_it_does_not_have(
    make_trial, monkeypatch
):
    """It sends its own points back as the other's, so that all records seem to be common."""
    trial = make_trial()
    frame = trial.frames["party_2"]
    frame[KEY] = frame[KEY] + 20  # half of the records are common
    frame.to_parquet(trial.sites["party_2"].table)
    blinded_by = KeyBlinder.reblind

    class Cheat(Matching):
        def reblinded(self, step):
            twice = blinded_by(self._blinder, self._blinder.blind())
            self._reblinded[step] = twice
            return super().reblinded(step)

    def matching(name, *arguments):
        return (Cheat if name == "party_2" else Matching)(name, *arguments)

    monkeypatch.setattr("vflsynth.federation.party_node.Matching", matching)
    trial.run()
    assert all(error is not None for error in trial.outcome.values())
    assert not any("EncodedSize" in sent(node) for node in trial.nodes.values())
