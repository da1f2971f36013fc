"""Small jobs to try."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from tests.smaller import narrow
from tests.unit.federation.trial import Clock, Trial
from vflsynth._random import derive, secret_from
from vflsynth.datasets import make_party_frames
from vflsynth.federation.job import Job
from vflsynth.federation.site import Budget
from vflsynth.privacy import PublicSchema

pytest.importorskip("nacl.bindings", reason="needs the extra 'flare'")

KEY = "record_id"
FAST = {
    "model_selection": "best",
    "epochs": 4,
    "batch_size": 16,
    "latent_dim": 4,
    "generator_hidden": [8, 8],
    "first_part": [8],
    "shared_hidden": [8],
    "discriminator_steps": 2,
}
JOB_TEXT = 'name = "j"\nparties = ["clinic", "lab"]\non = "id"\n[parameters]\nepochs = 1\n'
SITE_TEXT = 'party = "lab"\ntable = "lab.csv"\nfolder = "lab-folder"\n'
# What all trials' jobs say.
JOB = {
    "name": "trial",
    "on": KEY,
    "exchange_timeout": 600.0,
    "setup_timeout": 600.0,
    "restarts": 0,
    "checkpoint_every": 2,
}


@pytest.fixture(autouse=True, scope="module")
def _rough_shares(rough_shares):
    """Runs are compared with each other, and with one in this process."""


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """The server's clock can be moved on."""
    monkeypatch.setattr("vflsynth.federation.exchange.time", Clock())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A job and one of its sites, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB_TEXT)
    (tmp_path / "lab.toml").write_text(SITE_TEXT)
    return tmp_path


def trial_in(
    folder,
    n_parties=2,
    *,
    parameters=None,
    random_state=0,
    n_records=40,
    n_unmatched=0,
    fast=FAST,
    kinds=("measure", "count", "group"),
    **job,
):
    """Make a trial of a fast VFLGAN over columns of some kinds, with some of the job changed."""
    frames = make_party_frames(n_records, n_parties, random_state=2, n_unmatched=n_unmatched)
    if kinds is not None:
        frames = narrow(frames, *kinds)
    content = {"parties": sorted(frames), "parameters": fast | (parameters or {})}
    root = None if random_state is None else secret_from(random_state)
    return Trial(folder, frames, Job.from_dict(JOB | content | job), root)


@pytest.fixture
def make_trial(tmp_path):
    """Make a trial, see `trial_in`, in this test's folder."""
    return partial(trial_in, tmp_path)


@pytest.fixture
def make_private_trial(tmp_path):
    """Make a trial of a small private run, with some of privacy's parameters changed."""

    def make(n_parties=2, *, privacy=None, parameters=None, budget=_BUDGET, random_state=0, **job):
        chosen = {"mechanism": "pairwise_tables", "epsilon": 2.0, "delta": 1e-3} | (privacy or {})
        at_once = chosen["mechanism"] == "pairwise_tables"
        frames = narrow(make_party_frames(40, n_parties, random_state=2), *_PRIVATE)
        if parameters is None:
            gan = {"epochs": 2, "batch_size": 16, "generator_hidden": [8], "latent_dim": 4}
            parameters = {"n_components": 4} if at_once else gan
        if chosen["mechanism"] != "first_layer":
            chosen.setdefault("n_bins", 4)
        content = {
            "parties": sorted(frames),
            "method": "MixtureSynthesizer" if at_once else "VFLGANSynthesizer",
            "parameters": parameters | {"privacy": chosen},
            "checkpoint_every": 1,
        }
        root = None if random_state is None else secret_from(random_state)
        trial = Trial(tmp_path, frames, Job.from_dict(JOB | content | job), root)
        trial.schema = PublicSchema(
            {c: (-3, 12) for table in frames.values() for c in table if c[:3] in ("mea", "cou")},
            {c: values for name in frames for c, values in _categories(name)},
            dtypes="given",
        )
        for name in frames:
            trial.change(name, budget=budget, schema=trial.schema)
        return trial

    return make


_BUDGET = Budget(3.0, 1e-3)
_PRIVATE = ("measure", "count", "flag", "group")


def _categories(party):
    number = party.split("_")[1]
    yield f"flag_{number}", (False, True)
    yield f"group_{number}", ("north", "east", "south", "west", "none")


@pytest.fixture
def make_split_trial(tmp_path):
    """Make a trial of a fast split classifier, whose server has the labels."""

    def make(
        n_parties=2,
        *,
        method="SplitNNClassifier",
        parameters=None,
        n_records=60,
        weighted=False,
        **job,
    ):
        frames = make_party_frames(n_records, n_parties + 1, random_state=2)
        *passive, last = frames
        labels = (frames[last].iloc[:, -1].rank() > n_records / 2).astype(int)
        table = pd.DataFrame({KEY: frames.pop(last)[KEY], "label": labels})
        if weighted:
            table["visits"] = np.arange(n_records) % 4
        given = {"epochs": 4, "batch_size": 16, "monitor": False} | (parameters or {})
        content = {"parties": passive, "method": method, "parameters": given}
        root = secret_from(0)
        trial = Trial(tmp_path, frames, Job.from_dict(JOB | content | job), root)
        table.to_parquet(tmp_path / "labels.parquet")
        trial.server_site = replace(
            next(iter(trial.sites.values())),
            party="server",
            folder=tmp_path / "server",
            table=tmp_path / "labels.parquet",
            labels="label",
            sample_weight="visits" if weighted else None,
            own=derive(root, "active party"),
        )
        trial.labels = table.set_index(KEY)["label"]
        trial.weights = table["visits"] if weighted else None
        return trial

    return make
