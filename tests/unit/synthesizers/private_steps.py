"""What tests of private fits share: tables, a fit before its first step, one step by slow code.

The reference computes every record's or pair's gradient by itself, by automatic differentiation.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone

from tests import planted
from vflsynth import (
    DPSGD,
    DPSGDGAN,
    GSWGAN,
    FirstLayer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth._random import secret_from
from vflsynth.exceptions import PrivacyBudgetError
from vflsynth.learning.base import Algorithm, Duration
from vflsynth.methods.gan import critics
from vflsynth.methods.vflgan.method import VFLGAN
from vflsynth.privacy import PublicSchema
from vflsynth.protocol.schedule import PoissonSchedule
from vflsynth.run import local, server_run
from vflsynth.run.local import Options
from vflsynth.run.party_run import PartyRun

SCHEMA = PublicSchema(
    dtypes="given",
    bounds={"age": (0, 100), "income": (0.0, 10.0)},
    categories={"smoker": ("no", "yes"), "grade": (1, 2, 3)},
)
BATCH, WEIGHT = 16, 10.0
NOISE, BOUND, REPLICAS, N_SHARDS = 1.5, 0.3, 40, 3
COMMON = {
    "noise_multiplier": NOISE,
    "delta": 1e-3,
    "public_schema": SCHEMA,
    "preprocessing_share": 0.0,
    "max_grad_norm": BOUND,
}
PRIVACY = {
    "dpsgd": DPSGD(n_records=60, **COMMON),
    "dpsgd_gan": DPSGDGAN(**COMMON),
    "gs_wgan": GSWGAN(n_shards=N_SHARDS, **COMMON),
    "first_layer": FirstLayer(noise_multiplier=NOISE, delta=1e-3, max_grad_norm=BOUND),
}
SMALL = {
    "epochs": 1,
    "batch_size": BATCH,
    "latent_dim": 4,
    "generator_hidden": (8,),
    "random_state": 0,
    "device": "cpu",
    "verbose": 0,
}
CRITIC = {"discriminator_hidden": (6, 5), "discriminator_steps": 2}
GANS = {
    "VFLGAN": (
        VFLGANSynthesizer,
        {"first_part": (6, 5), "shared_hidden": (7,), "discriminator_steps": 1},
    ),
    "VertiGAN": (VertiGANSynthesizer, CRITIC),
    "WGAN-GP": (WGANGPSynthesizer, CRITIC),
}

OF_A_SUM = 1.0 - 2.0**-10
"""A gradient of several terms is clipped to so much of the bound."""


def mechanism(name, **changes):
    """A mechanism of those above, with other parameters."""
    return clone(PRIVACY[name]).set_params(**changes)


def synthesizer(gan, privacy=PRIVACY["dpsgd"], **parameters):
    """A small and short fit."""
    made, of_networks = GANS[gan]
    return made(privacy=privacy, **SMALL | of_networks | parameters)


def rounding(bound):
    """Tolerance of a mean of gradients that are rounded to a grid, about 17 digits of the bound."""
    return 2e-5 + 1e-5 * bound


def make_frames(n=60, seed=5):
    rng = np.random.default_rng(seed)
    return {
        "clinic": pd.DataFrame(
            {
                "age": rng.integers(18, 90, n),
                "smoker": pd.Series(rng.choice(["no", "yes"], n), dtype=object),
            }
        ),
        "bank": pd.DataFrame({"income": rng.gamma(2.0, 1.0, n), "grade": rng.integers(1, 4, n)}),
    }


RECORDS = [
    {"age": 40, "smoker": "no", "income": 2.0, "grade": 1},
    {"age": 10**9, "smoker": "a word that is not public", "income": -1e300, "grade": -7},
    {"age": 0, "smoker": None, "income": float("nan"), "grade": 3},
]


def with_one_more(frames, record):
    """The same tables with a record more, at the end."""
    return {
        name: pd.concat(
            [frame, pd.DataFrame({c: pd.Series([record[c]], dtype=frame[c].dtype) for c in frame})],
            ignore_index=True,
        )
        for name, frame in frames.items()
    }


class Stop(Exception):
    """Ends a fit where training would begin."""


@dataclass
class Session:
    """A fit that is ready to take its first step."""

    nodes: dict[str, PartyRun]
    algorithm: Algorithm
    settings: Any
    plan: Duration

    @property
    def parties(self):
        """What trains, by party."""
        return {name: node.party for name, node in self.nodes.items()}

    @property
    def discriminators(self):
        """By owner, which the server of VFLGAN is one of."""
        owners = dict(self.parties)
        if isinstance(self.algorithm, VFLGAN):
            owners["server"] = self.algorithm.server
        return {name: owner.discriminator for name, owner in owners.items()}


def stopped_before_training(models, frames):
    """The session of a fit that is stopped where training would begin."""

    def stop(*args):
        raise Stop

    first = models[0]
    secrets = [secret_from(model.random_state) for model in models]
    run = first._local_run(first.method(), frames, None, Options(), secrets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_run, "run", stop)
        with pytest.raises(Stop):
            run.run()
    return Session(run.parties, run.algorithm, run.settings, run.duration)


def assert_noise_drowns_the_records(make, frames, quiet=1.0):
    """The same table of two populations, of models made by noise multiplier; not if it is quiet."""
    other = {
        "clinic": pd.DataFrame({"age": [99] * 60, "smoker": ["yes"] * 60}).astype(
            {"smoker": object}
        ),
        "bank": pd.DataFrame({"income": [9.0] * 60, "grade": [3] * 60}),
    }

    def sample(table, noise_multiplier):
        model = make(noise_multiplier)
        noise = torch.Generator().manual_seed(1)
        model._fit_models([model], table, None, Options(), noise=noise)
        return model.sample(50, random_state=3)

    pd.testing.assert_frame_equal(sample(frames, 1e12), sample(other, 1e12))
    assert not sample(frames, quiet).equals(sample(other, quiet))  # so the test could fail


def assert_the_step_after_the_last_is_refused(session):
    """Before any record is read."""
    for step in range(session.plan.steps_per_epoch):
        session.algorithm.step(step)
    for party in session.parties.values():
        party.real = None  # reading would be another error
    with pytest.raises(PrivacyBudgetError, match="spent"):
        session.algorithm.step(session.plan.steps_per_epoch + 1)


def saved_and_loaded(model, path):
    """Check that ledger and samples are kept; the number of records and messages are not."""
    model.save(path)
    loaded = type(model).load(path)
    assert loaded.privacy_ledger_ == model.privacy_ledger_
    pd.testing.assert_frame_equal(
        loaded.sample(20, random_state=0), model.sample(20, random_state=0)
    )
    assert loaded.alignment_ is None
    assert loaded.transcript_ is None
    return loaded


def sessions_of(monkeypatch):
    """Make sessions at their first step; sampling is the same every time, noise is not."""
    monkeypatch.setattr(local, "_entropy", lambda noise: b"sampling" * 4)

    def make(gan, frames, privacy=PRIVACY["dpsgd"], n_models=1, **parameters):
        models = [synthesizer(gan, privacy, **parameters) for _ in range(n_models)]
        return stopped_before_training(models, frames)

    return make


def score(party, record):
    """D of one record, without the bias of the last layer."""
    *hidden, last = party.discriminator.linears
    for linear in hidden:
        record = F.leaky_relu(record @ linear.weight[0] + linear.bias[0, 0], 0.2)
    return (record @ last.weight[0]).sum()


def penalty(party, point):
    point = point.detach().requires_grad_()
    (slope,) = torch.autograd.grad(score(party, point), point, create_graph=True)
    return WEIGHT * (slope.norm() - 1.0).square()


def clipped_sum(party, losses, bound):
    """Sum over losses of their gradients, each clipped."""
    named = dict(party.discriminator.named_parameters())
    total = {name: torch.zeros_like(p) for name, p in named.items()}
    for loss in losses:
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        norm = math.sqrt(sum(g.double().square().sum().item() for g in found if g is not None))
        for name, g in zip(named, found):
            if g is not None:
                total[name] += g * min(1.0, bound / norm)
    return total


def expected_gradients(name, party, bound, step=0):
    schedule = party.schedule
    with torch.no_grad():
        fake = party.fake(step, "discriminator")[0]
        real = party.real(step)[0]
    if name == "dpsgd_gan":
        weights = schedule.interpolation(step)[0]
        mixed = fake + weights * (real - fake)
        pairs = [
            score(party, z) - score(party, x) + penalty(party, m)
            for x, z, m in zip(real, fake, mixed)
        ]
        return {k: g / BATCH for k, g in clipped_sum(party, pairs, OF_A_SUM * bound).items()}
    real = real[: int(schedule.n_real(step)[0])]
    of_fake = clipped_sum(party, [score(party, z) for z in fake], bound)
    weights = schedule.interpolation(step)[0]
    between = fake + weights * (torch.cat([fake[-1:], fake[:-1]]) - fake)
    public = sum(penalty(party, m) for m in between) / BATCH
    named = dict(party.discriminator.named_parameters())
    found = torch.autograd.grad(public, list(named.values()), allow_unused=True)
    of_public = {k: 0.0 if g is None else g for k, g in zip(named, found)}
    of_real = clipped_sum(party, [-score(party, x) for x in real], bound)
    return {k: (of_real[k] + of_fake[k]) / BATCH + of_public[k] for k in of_fake}


def step_of(session):
    """Gradients of every owner's discriminator after the first step."""
    if isinstance(session.algorithm, VFLGAN):
        session.algorithm.update_discriminators(0)
    else:
        for party in session.parties.values():
            party.train_discriminator(1)
    return {
        (owner, name): parameter.grad.clone()
        for owner, network in session.discriminators.items()
        for name, parameter in network.named_parameters()
    }


def assert_step_is_the_clipped_sum(mechanism, session, bound=BOUND):
    """Of all parties, one record, pair or fake at a time."""
    expected = {
        owner: expected_gradients(mechanism, party, bound)
        for owner, party in session.parties.items()
    }
    for (owner, key), actual in step_of(session).items():
        torch.testing.assert_close(
            actual, expected[owner][key], atol=rounding(bound), rtol=5e-4, msg=f"{owner} {key}"
        )


def noise_of_a_step(make, std):
    """What noise adds to the gradients of sessions that are made alike, in its claimed `std`."""
    noisy = step_of(make())
    with pytest.MonkeyPatch.context() as patch:
        planted.no_noise(patch)
        clean = step_of(make())
    return {owned: (g - clean[owned]).flatten(1) / std for owned, g in noisy.items()}


def assert_one_more_record_moves_no_step_further(make, patch, record, seed):
    """All records in the batch, two tables, the same everything else."""
    planted.no_noise(patch)
    patch.setattr(PoissonSchedule, "_drawn", lambda self, step: [np.arange(self.n_records)])
    frames = make_frames(10, seed)
    sessions = [make(table) for table in (frames, with_one_more(frames, record))]
    before, after = (step_of(session) for session in sessions)
    moved = defaultdict(float)
    for (owner, key), gradient in before.items():
        moved[owner] += (BATCH * (after[owner, key] - gradient)).square().sum().item()
    for owner, square in moved.items():
        assert math.sqrt(square) <= BOUND + 1e-4, owner
    joint = math.sqrt(sum(moved.values()))
    assert 0.05 < joint <= sessions[0].parties["bank"].descent.noisy.plan.sensitivity + 1e-4


def first_layer_noise(gradients, first):
    """The noise of parties' first layers in its claimed deviation (Eqs. 20, 21); others have none.

    Gradients of a step are by owner and parameter, of which `first` begins those of first layers.
    """
    noisy = gradients()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critics, "perturb_gradient", lambda parts, *a, **k: parts)
        raw = gradients()
    found = {}
    for (owner, name), gradient in noisy.items():
        if owner == "server" or not name.startswith(first):
            torch.testing.assert_close(gradient, raw[owner, name], rtol=0.0, atol=0.0)
            continue
        whole = [raw[owner, f"{first}.{part}"].flatten(1) for part in ("weight", "bias")]
        norm = torch.cat(whole, 1).norm(dim=1).view(-1, 1, 1)
        clipped = raw[owner, name] / (norm / BOUND).clamp_min(1.0)
        found[owner, name] = ((gradient - clipped) / (2 * NOISE * BOUND)).flatten(1)
    return found


def assert_noise_is_claimed(found, silent=()):
    """Independent and of deviation 1, of every parameter (replica, coordinate) but the silent."""
    rows = []
    for key, noise in found.items():  # (replica, coordinate)
        if key in silent:
            assert not noise.any(), key
            continue
        n = noise.numel()
        assert abs(noise.std().item() - 1.0) < 6.0 / math.sqrt(2 * n), key
        assert abs(noise.mean().item()) < 6.0 / math.sqrt(n), key
        rows.append(noise)
    together = torch.cat(rows, 1)
    correlation = torch.corrcoef(together.T) - torch.eye(together.shape[1])
    assert correlation.abs().max() < 5.5 / math.sqrt(len(together))
    between = torch.corrcoef(together) - torch.eye(len(together))
    assert between.abs().max() < 6.5 / math.sqrt(together.shape[1])
