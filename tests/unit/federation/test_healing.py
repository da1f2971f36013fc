"""What a network may do to frames without ending a run, and who is named when it does end."""

import itertools
import threading
import time
from dataclasses import replace

import pytest

from tests.later import later
from tests.unit.federation.conftest import KEY
from tests.unit.federation.trial import Direct, assert_same
from vflsynth.exceptions import (
    PartyLostError,
    PartyStoppedError,
    RunAbortedError,
    RunInterruptedError,
)
from vflsynth.federation import attempts, limits, participant
from vflsynth.federation.attempts import ServerAttempts, attend, server_node
from vflsynth.federation.exchange import RemoteChannel
from vflsynth.federation.limits import Limits
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.site import Budget
from vflsynth.federation.wire import Frame, Reason, Status, decode, encode
from vflsynth.learning.messages import SumShares
from vflsynth.methods.vflgan.messages import DiscriminatorFeatures, Shape
from vflsynth.protocol.messages import Hello
from vflsynth.splitdefense.messages import BottomOutputs

pytestmark = pytest.mark.usefixtures("short_searches")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(participant, "_PAUSE", 0.0)
    monkeypatch.setattr(attempts, "_PAUSE", 0.0)


class Lossy(Direct):
    """Loses every third frame and every third reply, and brings every frame once more, later."""

    lost = 0

    def __init__(self, node, name):
        super().__init__(node, name)
        self.turn, self.before = itertools.count(), None

    def exchange(self, frame, timeout):
        turn = next(self.turn)
        if turn % 3 == 0:
            Lossy.lost += 1
            raise TimeoutError("the frame is lost")
        if self.before is not None:  # a frame that was overtaken by the next
            late = threading.Thread(target=super().exchange, args=(self.before, timeout))
            late.start()
        reply = super().exchange(frame, timeout)
        self.before = frame
        if turn % 3 == 1:
            Lossy.lost += 1
            raise TimeoutError("the reply is lost")
        return reply


@pytest.mark.parametrize("n_parties", [2, *later(3)])
def test_frames_and_replies_that_are_lost_repeated_or_late_change_nothing(make_trial, n_parties):
    Lossy.lost = 0
    trial = make_trial(n_parties).finish(Lossy)
    assert Lossy.lost > 50
    assert_same(trial, trial.estimator().fit(trial.frames, KEY))
    sent = trial.nodes["party_1"].transcript.to_frame()
    arrived = trial.server.transcript.to_frame()
    both = sent.merge(arrived, on=["message", "sender", "receiver"], suffixes=("", "_there"))
    assert (both["messages"] == both["messages_there"]).all()


def test_a_private_run_over_a_lossy_network_pays_once(make_private_trial):
    budget = Budget(20.0, 1e-3)
    whole = make_private_trial(random_state=None, budget=budget).run().nodes["party_1"].account
    spent = [attempt.entries for attempt in whole.attempts]
    trial = make_private_trial(random_state=None, budget=budget, name="lossy").finish(Lossy)
    *_, again = trial.nodes["party_1"].account.attempts
    assert [again.entries] == spent


def test_the_reason_of_a_party_that_stops_is_sent_again_too(make_private_trial):
    trial = make_private_trial(budget=Budget(0.1, 1e-3)).run(Lossy)
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    assert "PrivacyBudgetError" in str(trial.outcome["server"])


def hello(**changes):
    return encode(Frame("r", 0, (Hello("a", "server", 0, {}),), **changes))


def poll(number):
    return encode(Frame("r", number, status=Status.WAIT))


def test_a_server_acknowledges_what_it_cannot_answer_yet():
    channel = RemoteChannel(["a", "b"], "r", Limits(0.4, 5))
    for data in (hello(), poll(0), hello()):
        reply = decode(channel.exchange("a", data), 1 << 20)
        assert (reply.status, reply.number) == (Status.WAIT, 0)


def test_a_question_for_the_reply_gets_it():
    channel = RemoteChannel(["a"], "r", Limits(60, 60))
    assert decode(channel.exchange("a", hello()), 1 << 20).status is Status.WAIT
    asking = threading.Thread(target=lambda: (channel.gather(Hello, 0), gather_next(channel)))
    asking.start()
    reply = decode(channel.exchange("a", poll(0)), 1 << 20)
    assert reply.request.kind is Shape
    channel.abort(RuntimeError())
    asking.join()


def gather_next(channel):
    with pytest.raises(Exception, match="the server stopped"):
        channel.gather(Shape, 0)


def test_who_was_told_why_a_run_was_stopped_is_known():
    channel = RemoteChannel(["a", "b"], "r", Limits(60, 60))
    channel.abort(RuntimeError())
    assert not channel.all_told
    for name in "ab":
        assert not channel.all_told
        data = encode(Frame("r", 0, (Hello(name, "server", 0, {}),)))
        assert decode(channel.exchange(name, data), 1 << 20).reason is not None
    assert channel.all_told


def test_a_question_for_what_was_never_sent_is_refused():
    channel = RemoteChannel(["a"], "r", Limits(60, 60))
    assert "expected frame 0" in decode(channel.exchange("a", poll(3)), 1 << 20).reason.text


def test_a_hello_that_comes_again_late_is_not_a_restart(make_trial):
    """The bytes tell: a process that was restarted has another nonce."""
    kept = []

    class Late(Direct):
        def exchange(self, frame, timeout):
            kept.append(frame)
            if len(kept) > 12:
                decoded = decode(super().exchange(kept[0], timeout), 1 << 28)
                assert decoded.status is Status.WAIT
            return super().exchange(frame, timeout)

    trial = make_trial(1).run(Late)
    assert trial.outcome["server"] is None


def test_a_reply_that_never_comes_ends_in_time(make_trial, monkeypatch):
    monkeypatch.setattr(participant, "GRACE", 0.2)

    class Deaf(Direct):
        deaf = False

        def exchange(self, frame, timeout):
            asked = [type(m) for m in decode(frame, 1 << 28).messages]
            if self._name == "party_1" and (self.deaf or asked == [DiscriminatorFeatures]):
                self.deaf = True
                time.sleep(0.1)  # real links wait, and do not ask again at once
                raise TimeoutError
            return super().exchange(frame, timeout)

    trial = make_trial(exchange_timeout=5.0, setup_timeout=600.0)
    trial.run(Deaf)
    assert isinstance(trial.outcome["server"], PartyLostError)
    assert trial.outcome["server"].party == "party_1"
    assert "party_1" in str(trial.outcome["party_2"])
    assert isinstance(trial.outcome["party_1"], PartyLostError)


# -- runs that begin again ------------------------------------------------------------------------


class Attending:
    """A party that takes part again as often as the job says."""

    def __init__(self, job, site):
        self.job, self.site = job, site

    def run(self, link):
        self.node = attend(self.job, self.site, link, PartyNode)


class Losing(Direct):
    """Has the server give a party up, once, when it answers a kind of message."""

    when = DiscriminatorFeatures
    lost = False

    def exchange(self, frame, timeout):
        kinds = [type(m) for m in decode(frame, 1 << 28).messages]
        if kinds == [self.when] and not Losing.lost:
            Losing.lost = True
            self._node.node.remote.abort(PartyLostError("is gone", fix="x", party=self._name))
        return self._node.exchange(self._name, frame)


def run_again(trial, link=Losing):
    Losing.lost = False
    return trial.run(link, ServerAttempts, Attending)


@pytest.mark.parametrize("n_parties", [1, *later(3)])
def test_a_run_that_begins_again_ends_with_the_bytes_of_one_that_did_not(make_trial, n_parties):
    trial = run_again(make_trial(n_parties, restarts=1))
    assert set(trial.outcome.values()) == {None}
    assert_same(trial, trial.estimator().fit(trial.frames, KEY))


def test_it_does_so_as_often_as_the_job_says(make_trial):
    class Again(Losing):
        def exchange(self, frame, timeout):
            Losing.lost = False
            return super().exchange(frame, timeout)

    trial = run_again(make_trial(restarts=2), Again)
    assert isinstance(trial.outcome["server"], PartyLostError)
    assert len(list(trial.kept("server").glob("report-*"))) == 3


def test_a_split_classifier_begins_again_too(make_split_trial):
    class OfOutputs(Losing):
        when = BottomOutputs

    trial = run_again(make_split_trial(restarts=1), OfOutputs)
    assert set(trial.outcome.values()) == {None}
    assert len(list(trial.kept("server").glob("report-*"))) == 2


class OfShares(Losing):
    when = SumShares


def test_a_private_run_does_so_if_the_job_says_so_and_pays_again(make_private_trial):
    trial = run_again(make_private_trial(restarts=1, budget=Budget(20.0, 1e-3)), OfShares)
    assert set(trial.outcome.values()) == {None}
    for name in trial.sites:
        first, again = trial.nodes[name].node.account.attempts
        assert len(first.entries) == len(again.entries) > 0


def test_else_a_private_run_stops(make_private_trial):
    trial = make_private_trial(budget=Budget(20.0, 1e-3))
    trial.job = replace(trial.job, restarts=None)
    assert trial.job.most_restarts == 0
    run_again(trial, OfShares)
    assert isinstance(trial.outcome["server"], PartyLostError)


def test_a_server_cannot_have_a_party_begin_again_for_ever(make_trial):
    """Each beginning blinds the party's keys anew, and another party's keys once."""
    hellos = []

    class Insatiable:
        def exchange(self, frame, timeout):
            asked = decode(frame, 1 << 28)
            if asked.reason is not None:
                return b""
            hellos.append(asked)
            reason = Reason("PartyLostError", "is gone", "party_2", 0)
            return encode(Frame(asked.run, 0, status=Status.AGAIN, reason=reason))

    trial = make_trial(restarts=2)
    with pytest.raises(RunInterruptedError):
        attend(trial.job, trial.sites["party_1"], Insatiable(), PartyNode)
    assert len(hellos) == 3
    assert len({hello.messages[0].facts["nonce"] for hello in hellos}) == 3


def test_frames_of_another_attempt_are_told_to_begin_again():
    channel = RemoteChannel(["a"], "r", Limits(0.4, 5))
    before = encode(Frame("r", 7, (Hello("a", "server", 0, {}),), attempt="of before"))
    for data in (before, encode(Frame("r", 7, status=Status.WAIT, attempt="of before"))):
        reply = decode(channel.exchange("a", data), 1 << 20)
        assert reply.status is Status.AGAIN
        assert reply.reason.error == "RunInterruptedError"
    assert channel.failure is None
    assert decode(channel.exchange("a", hello()), 1 << 20).status is Status.WAIT


def test_a_hello_of_a_former_attempt_that_comes_late_is_not_taken():
    channel = RemoteChannel(["a"], "r", Limits(0.4, 5))
    channel.exchange("a", hello())
    following = RemoteChannel(["a"], "r", Limits(0.4, 5))
    following.gone = channel.greeted
    assert decode(following.exchange("a", hello()), 1 << 20).status is Status.AGAIN
    new = encode(Frame("r", 0, (Hello("a", "server", 0, {"nonce": "new"}),)))
    assert decode(following.exchange("a", new), 1 << 20).status is Status.WAIT


def test_a_node_that_was_stopped_blames_nobody(monkeypatch):
    pause = limits.Pause(1.0)
    assert pause.overslept() == 0.0
    now = limits.perf_counter()
    monkeypatch.setattr(limits, "perf_counter", lambda: now + 31.0)
    assert pause.overslept() == pytest.approx(30.0, abs=1.0)


def test_what_a_party_says_while_a_run_is_interrupted_is_heard(make_trial):
    trial = make_trial(restarts=1)
    server = ServerAttempts(trial.job, trial.server_site)
    server.node.remote.abort(PartyLostError("is gone", fix="x", party="party_2"))
    reason = Reason("ArtefactError", "its disk is full", "party_1", 0)
    server.exchange("party_1", encode(Frame("trial", 0, status=Status.ABORT, reason=reason)))
    with pytest.raises(PartyStoppedError, match="its disk is full"):
        server.run()


def test_a_job_that_is_stopped_between_two_attempts_has_no_other(make_trial, monkeypatch):
    trial = make_trial(restarts=1, setup_timeout=5.0)
    server = ServerAttempts(trial.job, trial.server_site)
    server.node.remote.abort(PartyLostError("is gone", fix="x", party="party_2"))

    def made_while_stopped(job, site):
        server.stop(RunAbortedError("FLARE aborted the job", fix="x"))
        return server_node(job, site)

    monkeypatch.setattr(attempts, "server_node", made_while_stopped)
    with pytest.raises(RunAbortedError, match="FLARE aborted the job"):
        server.run()
