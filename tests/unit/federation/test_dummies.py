"""Dummies across processes: what the server counts, and that nothing else changes."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests import planted
from tests.later import later
from tests.unit.federation.conftest import KEY
from tests.unit.federation.test_matching_attacks import relaying
from tests.unit.federation.test_private import TREE, in_one_process
from tests.unit.federation.trial import Opened, assert_same
from vflsynth.exceptions import MisalignedError, NoOverlapError, PayloadRejectedError
from vflsynth.federation import trail
from vflsynth.federation.psi import Dummies, n_copies, n_dummies
from vflsynth.federation.site import Bounds, Budget
from vflsynth.learning.messages import MaskedStates, SumShares
from vflsynth.privacy.padding import Padding
from vflsynth.protocol.messages import CommonPositions, EncodedSize

pytestmark = pytest.mark.usefixtures("short_searches")

HIDDEN = {"intersection_epsilon": 1.0}
N = 40


def hiding(more):
    """A trial's options, with the number of common records hidden."""
    return more | {"privacy": more.get("privacy", {}) | HIDDEN, "budget": Budget(9.0, 1e-3)}


@pytest.mark.parametrize(
    ("more", "n_parties"),
    [(TREE, 2), *later(({}, 3))],
    ids=["tree", "pairs"],
)
def test_the_server_counts_dummies_too_and_the_model_is_the_same_to_the_bit(
    make_private_trial, monkeypatch, more, n_parties
):
    monkeypatch.setattr(Padding, "draw", lambda padding, secret: 3)
    trial = make_private_trial(n_parties, **hiding(more))
    with monkeypatch.context() as patch:
        planted.no_noise(patch)
        planted.same_masks(patch)
        trial.finish()
        synth = in_one_process(trial).fit(trial.frames, "record_id")
        assert_same(trial, synth)
        synth.set_params(privacy__intersection_epsilon=None).fit(trial.frames, "record_id")
    assert_same(trial, synth)
    found = trial.report()
    padding = trial.nodes["party_1"].method.padding(n_parties)
    assert found["alignment"]["n_matched"] == N + 3
    assert found["alignment"]["most_dummies"] == padding.largest
    assert f"plus 0 to {padding.largest} dummies" in str(found["privacy"]["ledger"])
    points = n_copies(n_parties) * (N + n_dummies(padding, n_parties))
    for kind, rows in (("BlindedKeys", points), ("MaskedStates", N + 3)):
        messages = [m for m in found["arrived"] if m["message"] == kind]
        assert messages, kind
        assert all(f"({rows}, " in m["contents"] for m in messages), kind
    for name in trial.sites:
        (matched,) = [r for r in trail.lines(trial.folder / name) if r["event"] == "matched"]
        assert matched["details"]["records"] == N


BY_HISTOGRAMS = "ColumnTables", "StateCodes", "SumShares", "Mixture"
"""How many numbers they have is what noisy histograms say."""


def shown(message):
    """What a report says of a message; of masked codes without how many numbers a record has."""
    if message["message"] == "MaskedStates":
        return re.sub(r", \d+\)", ")", message["contents"])
    return message["contents"]


def test_the_server_sees_the_same_of_a_record_more_and_a_dummy_less(
    make_private_trial, monkeypatch
):
    """What the distribution of the sum of both hides, nothing else betrays."""
    views = {}
    for number in (0, 1):
        monkeypatch.setattr(Padding, "draw", lambda padding, secret, n=number: 5 + n)
        trial = make_private_trial(**hiding({}))
        trial.job = replace(trial.job, name=f"run-{number}")
        if number:  # the person is another one at party 2, and nobody in common
            frame = trial.frames["party_2"].copy()
            frame.loc[frame.index[7], KEY] = 99_999
            frame.to_parquet(trial.sites["party_2"].table)
        trial.finish()
        found = trial.report()
        ledger = found["privacy"]["ledger"]
        rows = [
            (m["message"], m["sender"], shown(m), m["messages"])
            for m in found["left"] + found["arrived"]
            if m["message"] not in BY_HISTOGRAMS
        ]
        views[number] = found["alignment"], sorted(rows), ledger
    assert views[0] == views[1]


def test_another_attempt_has_other_dummies_and_tags_and_goes_on(make_private_trial, monkeypatch):
    drawn, honest = [], Padding.draw
    monkeypatch.setattr(
        Padding, "draw", lambda padding, secret: drawn.append(secret) or honest(padding, secret)
    )
    tags = []

    class Dying(Opened):
        def leaves(self, frame):
            if any(isinstance(m, EncodedSize) for m in frame.messages):
                tags.append(frame.tag)
            if any(isinstance(m, SumShares) for m in frame.messages):
                raise RuntimeError("a crash")
            return frame

    trial = make_private_trial(**hiding({}))
    trial.run(Dying)
    assert None not in trial.outcome.values()
    first, drawn[:] = set(drawn), []
    trial.finish()
    assert not first & set(drawn)
    trial.run(Dying)
    assert len(tags) == 4
    assert len(set(tags)) == 2  # equal at the parties, and another one in another attempt


def test_three_parties_notice_that_a_dummy_is_missing(make_private_trial, monkeypatch):
    """Left out alike everywhere, both points of it, by a server that guessed which they are."""
    monkeypatch.setattr(Padding, "draw", lambda padding, secret: 3)
    trial = make_private_trial(3, **hiding({}))

    def without_a_dummy(name, message):
        if not isinstance(message, CommonPositions):
            return message
        blinder = trial.nodes[name].matching._blinder
        of = blinder._order[message.positions] % blinder._n
        kept = torch.from_numpy(of != len(blinder._keys))
        assert len(kept) - kept.sum() == 2
        return replace(message, positions=message.positions[kept])

    trial.run(relaying(without_a_dummy))
    errors = [str(e) for e in trial.outcome.values() if isinstance(e, MisalignedError)]
    assert errors
    assert all("the dummies that the server says are common are not" in e for e in errors)


def test_parties_with_nothing_in_common_stop_though_dummies_are(make_private_trial, monkeypatch):
    monkeypatch.setattr(Padding, "draw", lambda padding, secret: 3)
    trial = make_private_trial(**hiding({}))
    frame = trial.frames["party_2"].assign(**{KEY: np.arange(N) + 90_000})
    frame.to_parquet(trial.sites["party_2"].table)
    trial.run()
    assert isinstance(trial.outcome["party_1"], NoOverlapError)
    assert not {m["message"] for m in trial.report()["arrived"]} & {
        kind.__name__ for kind in (MaskedStates, EncodedSize)
    }


@pytest.mark.parametrize("least", [N + 1, N + 2])
@pytest.mark.parametrize("n_dummies", [1, 2])
def test_a_refusal_tells_no_more_than_the_server_counts(
    make_private_trial, monkeypatch, n_dummies, least
):
    """Forty records and a dummy, or one fewer and two: `least_matched` treats them alike."""
    monkeypatch.setattr(Padding, "draw", lambda padding, secret: n_dummies)
    trial = make_private_trial(**hiding({}))
    trial.change("party_1", bounds=Bounds(least_matched=least))
    frame = trial.frames["party_2"]
    lost = np.arange(len(frame)) < n_dummies - 1
    frame.assign(**{KEY: frame[KEY].mask(lost, 90_000)}).to_parquet(trial.sites["party_2"].table)
    trial.run()
    refused = isinstance(trial.outcome["party_1"], PayloadRejectedError)
    assert refused == (least == N + 2), trial.outcome


def test_every_group_shares_its_dummies_and_no_list_tells_how_many():
    padding, names = Padding.of_groups(1.0, 1e-2, 3), ["a", "b", "c"]
    made = {name: Dummies.of(padding, name, names, b"session") for name in names}
    lists = {name: set(own.texts) for name, own in made.items()}
    assert {len(own) for own in lists.values()} == {n_dummies(padding, 3)} == {3 * padding.largest}
    everybody = set.intersection(*lists.values())
    assert everybody == set(made["a"].texts[: made["a"].n_common])
    assert len({own.n_common for own in made.values()}) == 1
    assert all(
        0 <= len(lists[a] & lists[b] - everybody) <= padding.largest for a, b in ("ab", "bc")
    )
    again = Dummies.of(padding, "a", names, b"another")
    assert not set(again.texts) & lists["a"]


def test_a_server_that_counts_again_and_again_is_refused(make_private_trial):
    """The mean of many attempts would tell how many records are common, whatever their dummies."""

    def stop(name, message):
        if isinstance(message, CommonPositions):
            raise RuntimeError("the server has counted, and stops")
        return message

    trial = make_private_trial(**hiding({}))
    trial.change("party_2", bounds=Bounds(most_counts=2))
    for attempt in range(3):
        trial.job = replace(trial.job, name=f"attempt-{attempt}")
        trial.run(relaying(stop))
    assert isinstance(trial.outcome["party_2"], PayloadRejectedError)
    assert "in 2 attempts" in str(trial.outcome["party_2"])
    assert {m["message"] for m in trial.report("party_2")["left"]} == {"Hello"}
