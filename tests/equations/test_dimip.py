"""DIMIP Algorithm 1, the vCLUB-S bound, and distance correlation, against slow obvious code."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vflsynth._random import HiddenStreams, RandomStreams
from vflsynth.splitdefense import DIMIP, MID, CrossEntropy, DistanceCorrelation
from vflsynth.splitdefense.objectives.base import Batch, Surroundings
from vflsynth.splitdefense.objectives.information import (
    distance_correlation,
    log_likelihood,
    sample_labels,
)
from vflsynth.splitdefense.protections.gradients import Draws
from vflsynth.splitdefense.settings import SplitSettings

SETTINGS = SplitSettings(
    batch_size=20,
    bottom_hidden=(4,),
    intermediate_dim=3,
    bottom_output="linear",
    fusion="concat",
    top_hidden=(5,),
    learning_rate=1e-2,
    betas=(0.9, 0.999),
    n_held_out=0,
    weight_decay=0.0,
)
SHARES = torch.tensor([[0.2, 0.3, 0.5]])


def task_and_batch(member, passive=("b", "c")):
    streams = RandomStreams([b"dimip"])
    parties = ("a", *passive)
    around = Surroundings(SETTINGS, parties, passive, 3, SHARES, (), streams)
    generator = torch.Generator().manual_seed(0)
    features = {p: torch.randn(1, 20, 3, generator=generator).requires_grad_() for p in parties}
    labels = torch.randint(0, 3, (1, 20), generator=generator)
    return member.task([member], around), Batch(
        features, labels, {}, Draws(HiddenStreams(streams.secrets), 0)
    )


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("regularizer", [True, False])
@pytest.mark.parametrize("steps", [1, 3])
def test_gradient_is_that_of_line_11(weight, regularizer, steps):
    """(1 - λ) L_C + λ L_A + λ L_R with L_C at the old top model and L_A, L_R at the new g_ψ."""
    member = DIMIP(weight, steps, regularizer=regularizer, predictor_hidden=(6,))
    task, batch = task_and_batch(member)
    top = copy.deepcopy(task.networks["top"][0])
    found = task.gradients(batch)
    features = {p: f.detach().requires_grad_() for p, f in batch.features.items()}
    loss = F.cross_entropy(top(torch.cat(list(features.values()), -1))[0], batch.labels[0])
    total = (1 - weight) * loss
    random_labels = sample_labels(SHARES, batch)
    for name in ("b", "c"):
        logits = task.networks[f"predictor of {name}"][0](features[name])[0]
        total = total - weight * F.cross_entropy(logits, batch.labels[0])
        if regularizer:
            total = total + weight * F.cross_entropy(logits, random_labels[0])
    expected = dict(zip(features, torch.autograd.grad(total, list(features.values()))))
    (own,) = torch.autograd.grad(
        F.cross_entropy(top(torch.cat(list(batch.features.values()), -1))[0], batch.labels[0]),
        batch.features["a"],
    )
    assert torch.allclose(found["a"], own, atol=1e-6), "the active party's loss is not scaled"
    for name in ("b", "c"):
        assert torch.allclose(found[name], expected[name], atol=1e-6)


@pytest.mark.parametrize("member", [DIMIP(0.0), DistanceCorrelation(0.0)])
def test_without_weight_it_is_plain_split_learning(member):
    plain, batch = task_and_batch(CrossEntropy())
    task, _ = task_and_batch(member)
    for _ in range(3):
        ours, theirs = task.gradients(batch), plain.gradients(batch)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_predictor_ascends_the_likelihood():
    task, batch = task_and_batch(DIMIP(0.5, 5))
    features, predictor = batch.features["b"].detach(), task.networks["predictor of b"][0]
    before = log_likelihood(predictor(features), batch.labels)
    task.update_predictor("b", features, batch.labels)
    assert bool((log_likelihood(predictor(features), batch.labels) > before).all())


def test_random_labels_are_those_of_the_training_set():
    streams = RandomStreams([b"x"])
    labels = torch.zeros(1, 100_000, dtype=torch.long)
    drawn = sample_labels(SHARES, Batch({}, labels, {}, Draws(HiddenStreams(streams.secrets), 0)))
    shares = torch.bincount(drawn[0], minlength=3) / drawn.numel()
    assert shares.numpy() == pytest.approx(SHARES[0].numpy(), abs=0.01)


def test_bound_is_zero_without_and_above_the_information_with_dependence():
    """vCLUB: a discrete channel h -> y whose mutual information is known, at the true g_ψ."""
    generator = torch.Generator().manual_seed(0)
    channel = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    inputs = torch.randint(0, 3, (50_000,), generator=generator)
    labels = torch.multinomial(channel[inputs], 1, generator=generator)[:, 0]
    random_labels = labels[torch.randperm(len(labels), generator=generator)]
    information = np.log(3) + float((channel[0] * channel[0].log()).sum())

    def bound(probabilities):
        logits = probabilities.log().unsqueeze(0)
        first = log_likelihood(logits, labels.unsqueeze(0))
        return float(first - log_likelihood(logits, random_labels.unsqueeze(0)))

    assert bound(channel[inputs]) > information
    assert bound(torch.full((len(labels), 3), 1 / 3)) == pytest.approx(0.0, abs=1e-6)


def test_prior_variant_is_a_divergence():
    task, batch = task_and_batch(DIMIP(0.9, bound="prior"))
    features, labels = batch.features["b"].detach(), batch.labels
    found = float(task.information("b", features, labels, labels).detach())
    predicted = task.networks["predictor of b"][0](features)[0].softmax(-1)
    expected = (predicted * (predicted / SHARES).log()).sum(-1).mean()
    assert found == pytest.approx(float(expected.detach()), rel=1e-5)
    assert found >= 0


def test_distance_correlation_is_the_textbooks():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    y[:, 0] += x[:, 0]

    def centred(sample):
        n = len(sample)
        distances = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                distances[i, j] = np.linalg.norm(sample[i] - sample[j])
        return distances - distances.mean(0) - distances.mean(1)[:, None] + distances.mean()

    a, b = centred(x), centred(y)
    expected = np.sqrt((a * b).mean() / np.sqrt((a * a).mean() * (b * b).mean()))
    found = distance_correlation(*(torch.from_numpy(s).unsqueeze(0) for s in (x, y)))
    assert float(found) == pytest.approx(expected, abs=1e-5)
    itself = torch.from_numpy(x).unsqueeze(0)
    assert float(distance_correlation(itself, 3 * itself + 1)) == pytest.approx(1, abs=1e-5)
    assert float(distance_correlation(itself, torch.zeros_like(itself))) < 0.01


def test_mid_prices_the_information_in_noisy_outputs():
    """Cross-entropy at h + ε, and λ KL(N(h, I) || N(0, I)) of the passive parties."""
    task, batch = task_and_batch(MID(0.3))
    top = copy.deepcopy(task.networks["top"][0])
    found = task.gradients(batch)
    features = {p: f.detach().requires_grad_() for p, f in batch.features.items()}
    noise = {p: batch.draws.normal(f"mid.{p}", (20, 3)) for p in ("b", "c")}
    seen = [features["a"], *(features[p] + noise[p] for p in ("b", "c"))]
    total = F.cross_entropy(top(torch.cat(seen, -1))[0], batch.labels[0])
    standard = torch.distributions.Normal(0.0, 1.0)
    for name in ("b", "c"):
        told = torch.distributions.Normal(features[name], 1.0)
        information = torch.distributions.kl_divergence(told, standard).sum(-1).mean()
        total = total + 0.3 * information
    expected = dict(zip(features, torch.autograd.grad(total, list(features.values()))))
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name])
