"""GAFM Algorithm 1, line by line, against automatic differentiation of the equations."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from vflsynth._random import HiddenStreams, RandomStreams
from vflsynth.splitdefense import GAFM
from vflsynth.splitdefense.objectives.base import Batch, Surroundings
from vflsynth.splitdefense.protections.gradients import Draws
from vflsynth.splitdefense.settings import SplitSettings

SETTINGS = SplitSettings(
    batch_size=12,
    bottom_hidden=(4,),
    intermediate_dim=1,
    bottom_output="sigmoid",
    fusion="mean",
    top_hidden=(3,),
    learning_rate=1e-2,
    betas=(0.9, 0.999),
    n_held_out=0,
    weight_decay=0.0,
)


TWO = (GAFM(), GAFM(0.3, penalty_weight=2.0))


def task_and_batch(parties=("a", "b"), members=TWO, seed=0):
    streams = RandomStreams([bytes([i]) for i in range(len(members))])
    shares = torch.full((len(members), 2), 0.5)
    around = Surroundings(SETTINGS, parties, parties, 2, shares, (), streams)
    generator = torch.Generator().manual_seed(seed)
    shape = (len(members), SETTINGS.batch_size)
    features = {p: torch.rand(*shape, 1, generator=generator).requires_grad_() for p in parties}
    labels = (torch.rand(shape, generator=generator) < 0.4).long()
    return members[0].task(members, around), Batch(
        features, labels, {}, Draws(HiddenStreams(streams.secrets), 0)
    )


def unit(gradients):
    return torch.stack([g / g.norm() for g in gradients])


def test_gradient_is_that_of_line_9():
    """f_Norm(∇L_GAN) + γ f_Norm(∇L_penalty), at D and G after their steps."""
    task, batch = task_and_batch()
    found = task.gradients(batch)
    fused = torch.stack([f.detach() for f in batch.features.values()]).mean(0).requires_grad_()
    adversarial = -task.discriminator(task.generator(fused).sigmoid()).mean((1, 2)).sum()
    draws = batch.draws.uniform("gafm.pseudo_labels", (12, 1))
    u = draws * torch.tensor([0.05, 0.3]).view(2, 1, 1)
    pseudo_labels = torch.where(batch.labels.unsqueeze(-1) == 1, 0.5 + u, 0.5 - u)
    penalty = F.binary_cross_entropy(fused, pseudo_labels, reduction="none").mean((1, 2)).sum()
    first, second = (unit(torch.autograd.grad(loss, fused)[0]) for loss in (adversarial, penalty))
    weight = torch.tensor([1.0, 2.0]).view(2, 1, 1)
    for gradient in found.values():
        assert torch.allclose(gradient, first + weight * second, atol=1e-5)


def test_discriminator_ascends_then_is_clipped():
    task, batch = task_and_batch(members=(GAFM(weight_clip=100.0, label_noise_std=0.0),))
    before = copy.deepcopy(task.discriminator)
    fused = torch.stack([f.detach() for f in batch.features.values()]).mean(0)
    labels = batch.labels.float().unsqueeze(-1)
    predictions = task.generator(fused).sigmoid().detach()
    loss = before(labels).mean() - before(predictions).mean()
    expected = torch.autograd.grad(loss, list(before.parameters()))
    task.update_discriminator(labels, fused)
    for old, new, gradient in zip(before.parameters(), task.discriminator.parameters(), expected):
        matters = gradient.abs() > 1e-6  # that of the last bias is zero
        moved = (new - old).detach().sign()  # Adam's first step has the sign of the gradient
        assert torch.equal(moved[matters], gradient[matters].sign())

    clipped, batch = task_and_batch(members=(GAFM(weight_clip=0.1), GAFM(weight_clip=0.02)))
    clipped.gradients(batch)
    for parameter in clipped.discriminator.parameters():
        # 0.1 and 0.02 as float32, which is what weights are clipped to
        assert parameter[0].detach().abs().max() <= torch.tensor(0.1)
        assert parameter[1].detach().abs().max() <= torch.tensor(0.02)


def test_generator_descends():
    task, batch = task_and_batch()
    fused = torch.stack([f.detach() for f in batch.features.values()]).mean(0)
    before = task.adversarial_loss(fused).detach()
    task.update_generator(fused)
    assert bool((task.adversarial_loss(fused) < before).all())


@pytest.mark.parametrize(
    ("member", "length"),
    [
        (GAFM(penalty_weight=0.0), 1.0),
        (GAFM(gan_weight=0.0), 1.0),
        (GAFM(gan_weight=0, penalty_weight=3.0), 3.0),
    ],
)
def test_ablations_are_one_unit_gradient(member, length):
    task, batch = task_and_batch(members=(member,))
    (gradient, _) = task.gradients(batch).values()
    assert float(gradient.norm()) == pytest.approx(length, rel=1e-4)


def test_absent_party_gets_no_gradient():
    task, batch = task_and_batch(members=(GAFM(),))
    batch.present["b"] = torch.zeros(1, 1, 1)
    found = task.gradients(batch)
    assert float(found["b"].abs().max()) == 0.0
    assert float(found["a"].abs().max()) > 0.0
