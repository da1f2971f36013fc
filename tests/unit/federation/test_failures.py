"""Whatever goes wrong, every node ends soon, with an error that says who, when and what to do."""

import threading
import time
from contextlib import suppress
from dataclasses import replace

import pandas as pd
import pytest
import torch

from tests.later import later
from tests.unit.federation.trial import Clock, Dead, Direct, Opened
from vflsynth.exceptions import (
    ArtefactError,
    MisalignedError,
    NoCommonCheckpointError,
    NoOverlapError,
    PartyLostError,
    PartyStoppedError,
    PayloadRejectedError,
    ProtocolError,
    ProtocolMismatchError,
    RunAbortedError,
    SharedColumnError,
)
from vflsynth.federation import matching
from vflsynth.federation.exchange import RemoteChannel
from vflsynth.federation.limits import Limits
from vflsynth.federation.participant import Rules
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.wire import PROTOCOL, Frame, Request, Status, decode, encode
from vflsynth.learning.messages import MaskedReal
from vflsynth.methods.vflgan.messages import (
    DiscriminatorFeatures,
    DiscriminatorGradients,
    Shape,
)
from vflsynth.protocol.messages import BlindedKeys, EncodedSize, Hello, KeyList

STEP = 5
TIMEOUT = 600.0


def tampering(change, step=STEP):
    """Make links on which party 1's frame with a discriminator step is not what it should be."""

    class Tampering(Direct):
        def exchange(self, data, timeout):
            frame = decode(data, 1 << 28)
            kinds = [(type(message), message.step) for message in frame.messages]
            if self._name == "party_1" and kinds == [(DiscriminatorFeatures, step)]:
                data = change(self, frame)
            return super().exchange(data, timeout)

    return Tampering


def is_killed(link, frame):
    link.outwait()
    raise Dead


def hangs(link, frame):
    link.outwait()
    return encode(frame)


def saying(**changes):
    """Have the message say something else, which may follow from what it says."""

    def change(link, frame):
        (message,) = frame.messages
        said = {name: new(message) for name, new in changes.items()}
        return encode(replace(frame, messages=(replace(message, **said),)))

    return change


def is_of_another_version(link, frame):
    data = bytearray(encode(frame))
    data[4] += 1
    return bytes(data)


wrong_shape = saying(features=lambda m: m.features[..., :-1])
not_finite = saying(features=lambda m: m.features * float("nan"))
in_anothers_name = saying(sender=lambda m: "party_2")
skips_a_step = saying(step=lambda m: m.step + 1)


def restarts(link, frame):
    return encode(replace(frame, number=0))


def is_of_another_batch(link, frame):
    return encode(replace(frame, tag="0" * 16))


def is_too_large(link, frame):
    return encode(frame) + bytes(1 << 17)


def is_a_pickle(link, frame):
    return b"\x80\x04cos\nsystem\n(S'true'\ntR."


@pytest.fixture
def make_failing_trial(make_trial):
    return lambda **job: make_trial(
        **{"exchange_timeout": TIMEOUT, "max_frame_bytes": 1 << 17} | job
    )


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (is_killed, PartyLostError, "no DiscriminatorFeatures within 600 s from 'party_1'"),
        (wrong_shape, PayloadRejectedError, "of shape (1, 48, 7); expected (1, 48, 8)"),
        (restarts, PartyLostError, "restarted"),
        (is_of_another_batch, MisalignedError, "different records, batches or latents"),
        *later(  # as one above ends
            (is_a_pickle, PayloadRejectedError, "not a frame"),
            (is_of_another_version, ProtocolMismatchError, f"version {PROTOCOL + 1}"),
            (in_anothers_name, PayloadRejectedError, "from 'party_2'"),
            (hangs, PartyLostError, "no DiscriminatorFeatures within 600 s from 'party_1'"),
            (not_finite, PayloadRejectedError, "not finite"),
            (is_too_large, PayloadRejectedError, "larger than 131,072"),
            (skips_a_step, PayloadRejectedError, "of step 6"),
        ),
    ],
)
def test_every_node_ends_in_an_error_that_says_who_when_and_what_next(
    make_failing_trial, change, kind, words
):
    trial = make_failing_trial()
    started = time.monotonic()
    trial.run(tampering(change))
    assert time.monotonic() - started < TIMEOUT  # nobody waits longer than for what is over
    error = trial.outcome["server"]
    assert isinstance(error, kind)
    assert words in str(error)
    assert "party_1" in str(error)
    assert f"{STEP}" in str(error)
    assert "Next:" in str(error)
    other = trial.outcome["party_2"]
    assert isinstance(other, RunAbortedError)
    assert words in str(other)
    assert "party_1" in str(other)
    assert "Next:" in str(other)
    if change is not is_killed:
        assert isinstance(trial.outcome["party_1"], ProtocolError)
        assert "Next:" in str(trial.outcome["party_1"])


@pytest.mark.slow
def test_three_parties_know_who_is_odd(make_failing_trial):
    trial = make_failing_trial(n_parties=3).run(tampering(is_of_another_batch))
    assert trial.outcome["server"].party == "party_1"


def test_the_reports_of_a_failed_run_say_how_it_ended(make_failing_trial):
    trial = make_failing_trial().run(tampering(not_finite))
    for name in ("server", "party_1", "party_2"):
        assert "not finite" in trial.report(name)["outcome"]


# -- before training ------------------------------------------------------------------------------


def test_another_secret(make_trial):
    trial = make_trial()
    trial.change("party_2", shared=bytes(32))
    trial.run()
    assert isinstance(trial.outcome["server"], MisalignedError)
    for error in trial.outcome.values():
        assert "different shared secrets" in str(error)
        assert "every site's file" in str(error)


def test_another_version_of_the_package(make_trial, monkeypatch):
    facts = matching.Matching.facts

    def old(self, *arguments):
        found = facts(self, *arguments)
        return found | {"vflsynth": "0.0.1"} if self.name == "party_1" else found

    monkeypatch.setattr(matching.Matching, "facts", old)
    trial = make_trial().run()
    for error in trial.outcome.values():
        assert "party 'party_1': runs vflsynth 0.0.1" in str(error)
        assert "pip install" in str(error)


def change_table(trial, change):
    """Change the table of party_2."""
    path = trial.sites["party_2"].table
    change(pd.read_parquet(path)).to_parquet(path)


def test_a_column_of_two_parties_is_found_without_its_name(make_trial):
    trial = make_trial()
    column = trial.frames["party_1"].columns[1]
    change_table(trial, lambda table: table.rename(columns={table.columns[1]: column}))
    trial.run()
    assert isinstance(trial.outcome["server"], SharedColumnError)
    assert column not in str(trial.outcome["server"])


def test_no_common_record(make_trial):
    trial = make_trial()
    change_table(trial, lambda table: table.assign(record_id=table["record_id"] + 10**6))
    trial.run()
    assert isinstance(trial.outcome["server"], NoOverlapError)


def test_a_party_with_an_unusable_table_stops_everybody_and_shows_no_value(make_trial):
    trial = make_trial()
    change_table(trial, lambda table: table.assign(shout=float("inf")))
    trial.run()
    assert "shout" in str(trial.outcome["party_2"])
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    for name in ("server", "party_1"):
        assert "InfiniteValueError" in str(trial.outcome[name])
        assert "shout" not in str(trial.outcome[name])


def test_a_party_that_never_joins(make_trial):
    class Absent(PartyNode):
        def run(self, link):
            if self.name == "party_1":
                link.outwait()
                raise Dead
            super().run(link)

    trial = make_trial().run(make_party=Absent)
    error = trial.outcome["server"]
    assert isinstance(error, PartyLostError)
    assert "no Hello within 600 s from 'party_1'" in str(error)
    assert isinstance(trial.outcome["party_2"], RunAbortedError)


def test_a_server_that_is_gone(make_trial, monkeypatch):
    clock = Clock()
    clock.sleep = lambda seconds: setattr(clock, "ahead", clock.ahead + seconds)
    monkeypatch.setattr("vflsynth.federation.participant.time", clock)

    class Gone(Direct):
        def exchange(self, frame, timeout):
            raise TimeoutError

    trial = make_trial(setup_timeout=1.0).run(Gone)
    error = trial.outcome["party_1"]
    assert isinstance(error, PartyLostError)
    assert "no reply from the server to Hello within 11 s" in str(error)
    assert "start the same job again" in str(error)


# -- what a party may be asked --------------------------------------------------------------------


def test_a_party_answers_no_step_twice_and_none_that_is_not_planned():
    rules = Rules({Hello: 1, DiscriminatorFeatures: 3})
    for kind, step in [(Hello, 0), *((DiscriminatorFeatures, i) for i in range(3))]:
        rules.check(Request(kind, step))
    for kind, step in [
        (Hello, 0),
        (DiscriminatorFeatures, 2),
        (DiscriminatorFeatures, 3),
        (KeyList, 0),
        (MaskedReal, 0),
    ]:
        with pytest.raises(ProtocolError, match=f"asked for {kind.__name__} of step {step}"):
            rules.check(Request(kind, step))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (KeyList, "unknown kind 'KeyList'"),
        (MaskedReal, "asked for MaskedReal of step 0, which is not part of this run"),
        (BlindedKeys, "asked for BlindedKeys of step 0"),
    ],
)
def test_a_server_that_asks_for_what_was_not_agreed_is_refused(make_trial, kind, words):
    class Curious(Opened):
        def arrives(self, frame):
            if frame.request is not None and frame.request.kind is EncodedSize:
                return replace(frame, request=Request(kind, 0))
            return frame

    trial = make_trial().run(Curious)
    assert words in str(trial.outcome["party_1"])
    assert isinstance(trial.outcome["server"], PartyStoppedError)


# -- exchanges ------------------------------------------------------------------------------------


def hello(number=0, run="r", **tag):
    message = Hello("a", "server", 0, {})
    return encode(Frame(run, number, (message,), **tag))


def in_thread(work):
    found = []

    def caught():
        with suppress(ProtocolError):
            found.append(work())

    thread = threading.Thread(target=caught, daemon=True)
    thread.start()
    return thread, found


def test_a_frame_that_is_sent_again_gets_the_same_reply_and_is_computed_once():
    channel = RemoteChannel(["a"], "r", Limits(60, 60))
    first, one = in_thread(lambda: channel.exchange("a", hello()))
    channel.gather(Hello, 0)
    again, two = in_thread(lambda: channel.exchange("a", hello()))
    channel.scatter({"a": DiscriminatorGradients("server", "a", 1, torch.ones(1, 1, 2))})
    asking, _ = in_thread(lambda: channel.gather(Shape, 0))
    first.join()
    again.join()
    third = channel.exchange("a", hello())
    assert one[0] == two[0] == third
    reply = decode(third, 1 << 20)
    assert reply.request == Request(Shape, 0)
    assert len(reply.messages) == 1
    channel.abort(RuntimeError())
    asking.join()


def test_a_process_left_over_from_another_run_does_not_stop_this_one():
    channel = RemoteChannel(["a"], "r", Limits(60, 60))
    reply = decode(channel.exchange("a", hello(run="old")), 1 << 20)
    assert reply.status is Status.ABORT
    assert "belongs to run 'old'; this is run 'r'" in reply.reason.text
    _, found = in_thread(lambda: channel.exchange("a", hello()))
    assert channel.gather(Hello, 0)
    assert not found


def test_somebody_who_is_no_party_is_refused_and_stops_nobody():
    channel = RemoteChannel(["a"], "r", Limits(60, 60))
    assert "not one of the parties" in decode(channel.exchange("x", hello()), 1 << 20).reason.text
    in_thread(lambda: channel.exchange("a", hello()))
    assert channel.gather(Hello, 0)


def test_nobody_waits_for_ever_for_a_server_that_computes_for_ever(monkeypatch):
    monkeypatch.setattr("vflsynth.federation.exchange.GRACE", 0.2)
    channel = RemoteChannel(["a"], "r", Limits(0.2, 0.2))
    while (reply := decode(channel.exchange("a", hello()), 1 << 20)).status is Status.WAIT:
        pass
    assert "did not finish the step in time" in reply.reason.text


# -- going on -------------------------------------------------------------------------------------


KILLED_LATER = tampering(is_killed, step=10)
"""In epoch 4 of 4: there is a checkpoint of epoch 2."""


def half(trial):
    return {
        (name, key): value.numpy().tobytes()
        for name in trial.sites
        for key, value in trial.half(name).sampler.tensors().items()
    }


@pytest.mark.parametrize("random_state", [0, *later(None)])
def test_a_resumed_run_ends_with_the_bytes_of_one_that_was_never_interrupted(
    make_trial, random_state
):
    trial = make_trial(random_state=random_state).run(KILLED_LATER)
    assert isinstance(trial.outcome["server"], PartyLostError)
    nodes = ("server", "party_1", "party_2")
    saved = [trial.kept(name) / "checkpoints" for name in nodes]
    assert [[p.name for p in folder.iterdir()] for folder in saved] == [["epoch-000002"]] * 3
    trial.finish()
    resumed = half(trial)
    for folder in saved:  # start again
        for path in list(folder.iterdir()):
            path.rename(trial.folder / f"away-{folder.parent.parent.name}-{path.name}")
    trial.finish()
    # Whoever begins anew has new secrets, unless a random state stands for them.
    assert (half(trial) == resumed) == (random_state is not None)
    reports = sorted(p.name for p in trial.kept("party_1").glob("report-*"))
    assert reports == ["report-001.json", "report-002.json", "report-003.json"]


def test_a_changed_table_is_not_continued(make_trial):
    trial = make_trial().run(KILLED_LATER)
    table = pd.read_parquet(trial.sites["party_2"].table)
    table.iloc[0, 1] += 1
    table.to_parquet(trial.sites["party_2"].table)
    trial.run()
    assert isinstance(trial.outcome["party_2"], ArtefactError)
    assert "records was" in str(trial.outcome["party_2"])
    assert isinstance(trial.outcome["server"], PartyStoppedError)


def test_checkpoints_that_one_node_lost(make_trial):
    trial = make_trial(checkpoint_every=1).run(KILLED_LATER)
    for path in (trial.kept("party_2") / "checkpoints").iterdir():
        path.rename(trial.folder / path.name)
    trial.run()
    error = trial.outcome["server"]
    assert isinstance(error, NoCommonCheckpointError)
    assert "'party_2': []" in str(error)
