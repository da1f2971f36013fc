"""Label privacy at sites: what leaves the label holder is made of responses, not of labels."""

import shutil

import pandas as pd
import pytest

from tests.later import later
from tests.unit.federation.trial import Direct
from vflsynth.federation.wire import decode
from vflsynth.splitdefense.messages import BottomGradients
from vflsynth.testing.noninterference import Tape, difference, files_within

PRIVATE = {
    "label_privacy": {"class": "RandomizedResponse", "epsilon": 1.5},
    "classes": [0, 1],
    "epochs": 2,
}


def change_one(labels):
    return labels.where(labels.index != 7, 1 - labels)


def one_of_a_new_class(labels):
    return labels.where(labels.index != 7, 3)


def one_missing(labels):
    return labels.astype("Int64").where(labels.index != 7)


class Recorded(Direct):
    """A link that keeps what the parties are sent."""

    def exchange(self, frame, timeout):
        reply = super().exchange(frame, timeout)
        self.replies.setdefault(self._name, []).append(reply)
        return reply


def seen(trial, labels, tape):
    table = pd.read_parquet(trial.server_site.table)
    table.assign(label=labels(table["label"])).to_parquet(trial.server_site.table)
    Recorded.replies = {}
    with tape.running():
        trial.run(Recorded)
    found = {f"how {name} ends": repr(error) for name, error in trial.outcome.items()}
    for name, replies in Recorded.replies.items():
        found[f"sizes of replies to {name}"] = [len(reply) for reply in replies]
        found[f"told to {name}"] = [
            (message.step, [tensor.tolist() for _, tensor in message.contents()])
            for reply in replies
            for message in decode(reply, 1 << 28).messages
            if isinstance(message, BottomGradients)
        ]
        assert len(found[f"told to {name}"]) > 4
    for name in trial.outcome:
        half = trial.kept(name) / "half"
        found |= {f"{name}/{file}": content for file, content in files_within(half).items()}
        shutil.rmtree(trial.folder / name)
    return found


@pytest.mark.filterwarnings("default::vflsynth.exceptions.OwnTableWarning")
@pytest.mark.parametrize("other", [change_one, one_of_a_new_class, *later(one_missing)])
def test_nothing_but_responses_shows_of_a_label(make_split_trial, other):
    tape = Tape()
    one = seen(make_split_trial(parameters=PRIVATE), lambda labels: labels, tape)
    assert {one[f"how {name} ends"] for name in ("party_1", "party_2", "server")} == {"None"}
    found = seen(make_split_trial(parameters=PRIVATE), other, Tape(tape))
    assert difference(one, found) == ""


def test_a_class_that_nobody_stated_shows(make_split_trial):
    """The check can fail: one record's label adds an output to the top model."""
    unstated = {name: value for name, value in PRIVATE.items() if name != "classes"}
    one = seen(make_split_trial(parameters=unstated), lambda labels: labels, tape := Tape())
    found = seen(make_split_trial(parameters=unstated), one_of_a_new_class, Tape(tape))
    assert difference(one, found) != ""
