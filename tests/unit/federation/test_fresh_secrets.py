"""What hides something is drawn anew: in every attempt, job sent again, and table of the name."""

import shutil
from collections import defaultdict
from dataclasses import replace

import pandas as pd
import pytest
import torch

from tests.later import later
from tests.unit.federation.test_every_method import GAN, PARAMETERS, PRIVACY
from vflsynth import _random
from vflsynth.federation.attempts import server_node
from vflsynth.federation.psi import Dummies
from vflsynth.federation.site import Budget
from vflsynth.learning.messages import MaskedFake, MaskedReal
from vflsynth.methods.autoregressive.messages import RecordContexts
from vflsynth.secure import ring

pytestmark = pytest.mark.usefixtures("short_searches")

PRIVATE = [
    ("MixtureSynthesizer", "pairwise_tables", {"intersection_epsilon": 1.0}),
    *later(("VFLGANSynthesizer", "dpsgd", {})),  # keys of streams as without privacy
    *later(("DPLTSynthesizer", "latent_tree", {})),  # sums as those of pairs are
]


@pytest.fixture
def drawn(monkeypatch):
    """Keys of all streams, and texts of all dummies, of the run that goes on."""
    found = set()
    stream, of = _random.key_stream, Dummies.of.__func__

    def noted(key, n_bytes):
        found.add(key)
        return stream(key, n_bytes)

    def noted_dummies(cls, *args):
        made = of(cls, *args)
        found.update(made.texts)
        return made

    monkeypatch.setattr(_random, "key_stream", noted)
    monkeypatch.setattr(ring, "key_stream", noted)
    monkeypatch.setattr(Dummies, "of", classmethod(noted_dummies))
    return found


def keeping(job, site):
    node = server_node(job, site)
    node.transcript.messages = []
    return node


def begin_anew(trial):
    """All that a run goes on from is lost, and the secrets that nodes keep are not."""
    for left in ("checkpoints", "contexts", "encoding.json"):
        for path in trial.folder.glob(f"*/trial/{left}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def change_a_value(trial):
    name = min(trial.frames)
    path = trial.sites[name].table
    frame = pd.read_parquet(path)
    column = next(c for c in frame if c.startswith("measure"))
    frame.loc[3, column] += 1.5
    frame.to_parquet(path)


def three_runs(trial, drawn):
    """Keys and hidden messages of an attempt, the same again, and one with another value."""
    keys, sent = [], []
    for turn in range(3):
        begin_anew(trial)
        if turn == 2:
            change_a_value(trial)
        drawn.clear()
        trial.finish(make_server=keeping)
        keys.append(set(drawn))
        found = defaultdict(list)
        for message in trial.server.transcript.messages:
            hidden = isinstance(message, MaskedReal | MaskedFake | RecordContexts)
            masked = type(message).declared.masked or hidden
            for name, value in message.contents() if masked else ():
                if isinstance(value, torch.Tensor) and value.unique().numel() > 8:
                    place = (type(message).__name__, message.sender, message.receiver, name)
                    found[place].append(value)
        sent.append(found)
    return keys, sent


def check_fresh(keys, sent):
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert keys[one], "nothing was drawn"
        assert not keys[one] & keys[other]
        for place, tensors in sent[one].items():
            for a, b in zip(tensors, sent[other][place], strict=False):
                assert not torch.equal(a, b), place


def test_no_rotation_or_noise_occurs_twice(make_trial, drawn):
    """Nor in the runs of other methods, whose differences are looked at below."""
    trial = make_trial(
        fast=GAN | {"model_selection": "best", "evaluate_every": 1}, random_state=None
    )
    keys, sent = three_runs(trial, drawn)
    check_fresh(keys, sent)
    assert any(place[0] == "MaskedReal" for place in sent[0])


@pytest.mark.parametrize(("method", "mechanism", "more"), PRIVATE)
def test_no_mask_or_dummy_occurs_twice(make_private_trial, drawn, method, mechanism, more):
    trial = make_private_trial(
        privacy=PRIVACY[mechanism] | more,
        parameters=PARAMETERS[method],
        method=method,
        budget=Budget(100.0, 1e-3),
        random_state=None,
    )
    check_fresh(*three_runs(trial, drawn))


def test_the_difference_of_two_runs_tells_no_value(make_trial, drawn):
    """By one rotation it has rank one, and says by how much which column of one record changed."""
    trial = make_trial(method="GaussianCopulaSynthesizer", fast={}, random_state=None)
    keys, (before, again, after) = three_runs(trial, drawn)
    check_fresh(keys, (before, again, after))
    place = next(p for p in before if p[0] == MaskedReal.__name__ and p[1] == min(trial.frames))
    difference = (torch.cat(after[place], 1) - torch.cat(before[place], 1))[0]
    values = torch.linalg.svdvals(difference)
    assert values[1] > 0.1 * values[0]


def test_noise_does_not_cancel_in_the_difference_of_contexts(make_trial, drawn):
    """With one noise it is nearly nothing where nearly all records are as they were."""
    parameters = PARAMETERS["AutoregressiveSynthesizer"]
    trial = make_trial(method="AutoregressiveSynthesizer", fast=parameters, random_state=None)
    keys, (before, again, after) = three_runs(trial, drawn)
    check_fresh(keys, (before, again, after))
    place = next(p for p in before if p[0] == "RecordContexts" and before[p][0].shape[-1])
    difference = again[place][0] - before[place][0]
    settings = trial.server.settings
    # Contexts themselves differ, too: the server learns anew how to make them.
    assert difference.std() > 0.65 * 2**0.5 * settings.noise_std


@pytest.mark.parametrize("own", [None, bytes(range(32))])
def test_what_protects_labels_is_drawn_anew_if_a_run_begins_anew(make_split_trial, own):
    """Noise of gradients follows from the active party's own secret, if its site file has one."""
    trial = make_split_trial(
        parameters={
            "label_privacy": {"class": "RandomizedResponse", "epsilon": 1.5},
            "epochs": 2,
        }
    )
    trial.server_site = replace(trial.server_site, own=own, schedule=None)
    for party in trial.sites:
        trial.change(party, schedule=None)
    secrets = []
    for _ in range(2):
        begin_anew(trial)
        trial.finish()
        secrets.append(trial.server.own)
    assert secrets[0] != secrets[1]
    trial.run()
    assert trial.server.own == secrets[1], "a run that goes on draws as it did"
    trial.job = replace(trial.job, name="another")
    trial.run()
    assert trial.server.own != secrets[1]
