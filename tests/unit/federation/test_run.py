"""A run across nodes is the run in one process."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from tests.later import later
from tests.unit.federation.conftest import KEY
from tests.unit.federation.trial import Opened, assert_same
from vflsynth import splitdefense
from vflsynth._artefacts import read_tensors
from vflsynth.exceptions import (
    AccountRewoundError,
    ColumnMismatchError,
    ParameterError,
    PartyStoppedError,
    PrivacyBudgetError,
)
from vflsynth.federation.account import FILE
from vflsynth.federation.active_node import ActiveNode
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.site import Budget
from vflsynth.frames.keys import learn_key_minters
from vflsynth.privacy import PrivacyAccount, PrivacyLedger
from vflsynth.splitdefense.messages import BottomOutputs
from vflsynth.splitdefense.model import TopModel

PAPER = {"gradient_penalty": "paper", "model_selection": "last"}
FEW_BYTES = {"steps_per_exchange": 3, "wire_precision": "int8"}


@pytest.mark.parametrize(
    ("parameters", "n_parties"),
    [
        ({}, 2),
        (FEW_BYTES, 2),
        *later((PAPER, 2), ({}, 3), (PAPER, 3), (FEW_BYTES, 3)),
    ],
)
def test_a_run_over_frames_gives_the_bytes_of_a_run_in_one_process(
    make_trial, n_parties, parameters
):
    trial = make_trial(n_parties, parameters=parameters).finish()
    synth = trial.estimator().fit(trial.frames, KEY)
    assert_same(trial, synth)
    run = trial.report()
    history = synth.history_.drop(columns=["seconds", "chosen"])
    for column in history:
        assert [r[column][0] for r in run["history"]] == history[column].tolist()


STOPS = {"epochs": 12, "patience": 2, "learning_rate": 0.03}


@pytest.mark.parametrize(
    ("method", "n_parties", "options"),
    [
        *later(("SplitNNClassifier", 1, {})),
        ("MarvellClassifier", 2, {}),
        ("SplitNNClassifier", 2, {"n_records": 120, "parameters": STOPS}),
        ("SplitNNClassifier", 1, {"parameters": {"class_weight": "balanced"}, "weighted": True}),
    ],
)
def test_a_split_estimator_too(make_split_trial, method, n_parties, options):
    trial = make_split_trial(n_parties, method=method, **options).finish()
    kind = getattr(splitdefense, method)
    model = kind(**trial.job.parameters, random_state=0, device="cpu")
    model.fit(trial.frames, trial.labels, KEY, sample_weight=trial.weights)
    for name, half in model.parties_.items():
        path = trial.kept(name) / "half"
        ours, theirs = read_tensors(path / "bottom.safetensors"), half.network.state_dict()
        for key, value in theirs.items():
            assert torch.equal(value, ours[key].double()), (name, key)
    top = TopModel.load(trial.kept("server") / "half")
    assert top.calibration == model.top_.calibration
    run = trial.report()
    for column in model.history_.drop(columns=["seconds", "chosen"], errors="ignore"):
        assert [r[column][0] for r in run["history"]] == model.history_[column].tolist()
    if "parameters" in options and "patience" in options["parameters"]:
        assert len(model.history_) < STOPS["epochs"], "it did not stop early"
    for key, value in model.top_.networks["top"].state_dict().items():
        assert torch.equal(value, top.networks["top"].state_dict()[key]), key


def test_a_site_file_names_columns_that_the_table_has(make_split_trial):
    trial = make_split_trial(1, weighted=True)
    for name in ("labels", "sample_weight"):
        site = replace(trial.server_site, **{name: "visit"})
        with pytest.raises(ColumnMismatchError, match=r"no such column.*correct the site file"):
            ActiveNode(trial.job, site)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_classes_that_are_times_are_written(make_split_trial, unit):
    trial = make_split_trial(1, parameters={"epochs": 1})
    days = np.array(["1969-12-31", "2020-02-29"], dtype=f"datetime64[{unit}]")
    table = pd.DataFrame({KEY: trial.labels.index, "label": days[trial.labels]})
    table.to_parquet(trial.server_site.table)
    trial.finish()
    top = TopModel.load(trial.kept("server") / "half")
    assert (top.classes == days).all()


# -- randomised labels ----------------------------------------------------------------------------

RESPONSE = {"parameters": {"label_privacy": {"class": "RandomizedResponse", "epsilon": 1.5}}}


def booked(trial):
    """What the active party's account has, attempt by attempt."""
    return [
        [entry.event.epsilon for entry in attempt.entries] for attempt in trial.account("server")
    ]


def stopping(kind, at):
    """A link that ends when a party is about to send a message, and what was booked till then."""

    class Stopping(Opened):
        seen: ClassVar = []

        def leaves(self, frame):
            for message in frame.messages:
                if isinstance(message, kind):
                    path = self._node.folder.parent / FILE
                    self.seen.append(len(PrivacyAccount(path).attempts))
                    if message.step == at:
                        raise RuntimeError
            return frame

    return Stopping


def test_randomised_labels_are_booked_before_gradients_are_made_of_them(make_split_trial):
    trial = make_split_trial(**RESPONSE)
    trial.server_site = replace(trial.server_site, budget=Budget(4.0, 1e-5))
    link = stopping(BottomOutputs, None)
    trial.finish(link)
    assert set(link.seen) == {1}
    assert booked(trial) == [[1.5]]
    found = trial.report()["privacy"]
    assert PrivacyLedger.from_dict(found["ledger"]).epsilon() == 1.5
    assert found["all runs of this folder"]["epsilon"] == 1.5
    trial.job = replace(trial.job, name="another")
    trial.run()
    assert booked(trial) == [[1.5], [1.5]]
    trial.job = replace(trial.job, name="a third")
    trial.run()
    assert isinstance(trial.outcome["server"], PrivacyBudgetError)
    assert "from epsilon 3 to 4.5" in str(trial.outcome["server"])
    assert booked(trial) == [[1.5], [1.5]]
    (trial.folder / "server" / FILE).unlink()
    trial.run()
    assert isinstance(trial.outcome["server"], AccountRewoundError)


def test_labels_of_a_run_that_goes_on_are_booked_once_and_of_one_that_begins_anew_again(
    make_split_trial,
):
    trial = make_split_trial(**RESPONSE)
    trial.run(stopping(BottomOutputs, 1))
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    assert booked(trial) == [[1.5]]
    trial.run(stopping(BottomOutputs, 13))  # in the last epoch: a checkpoint is there
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    assert booked(trial) == [[1.5], [1.5]]
    trial.finish()
    assert booked(trial) == [[1.5], [1.5]]


def test_a_budget_without_randomised_labels_is_refused(make_split_trial):
    trial = make_split_trial()
    trial.server_site = replace(trial.server_site, budget=Budget(4.0, 1e-5))
    with pytest.raises(ParameterError, match="no label_privacy among its parameters"):
        ActiveNode(trial.job, trial.server_site)


# -- tables larger than memory --------------------------------------------------------------------


def test_parties_keep_the_same_records_of_tables_that_they_do_not_read_whole(
    make_trial, monkeypatch
):
    trial = make_trial(
        n_records=300, n_unmatched=30, max_records=100, parameters={"epochs": 1, "batch_size": 64}
    )
    with monkeypatch.context() as whole:
        whole.delattr("vflsynth.federation.party_node.read_table")
        trial.finish()
    common = [node.matching.notice().common_keys for node in trial.nodes.values()]
    assert common[0].equals(common[1])
    assert 70 < len(common[0]) < 100, "as many as all have of what each keeps"
    for name, node in trial.nodes.items():
        kept, whole_table = node.table.frame, trial.frames[name]
        assert len(kept) == 100
        assert set(kept[KEY]) < set(whole_table[KEY])
        run = trial.report(name)
        assert run["kept"] == {"records": 100, "of": len(whole_table)}
        assert run["job"]["max_records"] == 100
    (name, site), *_ = trial.sites.items()
    others = [PartyNode(replace(trial.job, name=f"other{i}"), site) for i in range(4)]
    assert len({frozenset(node.table.frame[KEY]) for node in others}) == 4
    assert any(node.table.frame[KEY].max() < node.table.keys.max() for node in others)
    minter = learn_key_minters({name: pd.Index(trial.frames[name][KEY])})[name]
    assert all(node.minter == minter for node in others), "keys that are not kept are not minted"


def test_the_holder_of_labels_keeps_the_same_records_too(make_split_trial):
    trial = make_split_trial(1, n_records=90, max_records=40, parameters={"epochs": 1}).finish()
    (node,) = trial.nodes.values()
    assert len(node.matching.notice().common_keys) == 40, "all have the same 90 keys"
    labels = trial.server.holder_run.seat.frame
    assert set(labels[KEY]) == set(node.table.frame[KEY])


def test_a_private_job_keeps_all_records(make_private_trial):
    with pytest.raises(ParameterError, match="privacy does not go with max_records"):
        make_private_trial(max_records=20).job.method_for_node()
