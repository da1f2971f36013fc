"""DP-SGD of critics: per-record gradients of scores and of the gradient penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vflsynth.mechanisms.noisy_descent import NoisyDescent, layer_traces, layers_of, zero_gradients
from vflsynth.methods.gan.discriminator import Discriminator
from vflsynth.networks import MLP
from vflsynth.privacy.dpsgd import (
    LayerTrace,
)


def penalty_traces(
    network: MLP, trace: Sequence[Tensor], cotangents: Sequence[Tensor], weight: float
) -> tuple[list[LayerTrace], Tensor]:
    """Per-record gradients of ``weight * (||slope||_2 - 1)^2``, slope being the input gradient.

    Trace and cotangents are of the points where the penalty is taken, and of what the slope is the
    gradient of. Returns one trace per layer (biases do not move the slope), and the derivative,
    (replica, batch, out), with respect to what the cotangents started from.
    """
    slopes = network.input_gradient(cotangents)
    norms = torch.linalg.vector_norm(slopes, dim=-1, keepdim=True)
    tiny = torch.finfo(norms.dtype).tiny
    changes = network.push_through(
        trace, 2.0 * weight * (norms - 1.0) / norms.clamp_min(tiny) * slopes
    )
    traces = [LayerTrace(a, d, has_bias=False) for a, d in zip(changes, cotangents)]
    return traces, changes[-1]


def between_fakes(fake: Tensor, weights: Tensor) -> Tensor:
    """Points between every fake and its neighbour in the batch: where the penalty is evaluated.

    The paper takes them between real and fake records. Here no record is read.
    """
    return torch.lerp(fake, fake.roll(1, 1), weights)


def towards(real: Tensor, fake: Tensor, partners: tuple[Tensor, Tensor]) -> Tensor:
    """Points between every real record and its fake, as `PoissonSchedule.partners` draws them."""
    fakes, weights = partners
    index = fakes.unsqueeze(-1).expand(-1, -1, fake.shape[-1])
    return torch.lerp(fake.gather(1, index), real, weights)


def descend_critic(
    discriminator: Discriminator,
    descent: NoisyDescent,
    judged: Tensor,
    mixed: Tensor,
    n_real: Tensor,
    penalty_weight: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Set the gradients of a whole discriminator: of its penalty, and of its scores by `descent`.

    `judged`, (replica, real and fake, in), are real records or their features, then fakes; `mixed`,
    (replica, batch or real, in), where the penalty is taken, one per row of real records if it is
    taken at records; `n_real` has shape (replica,). Returns the score of fakes and the penalty,
    (replica,), zero if it is taken at records, as its value would be one more release; and the
    gradients, shaped like `judged`, of each row's own score. The bias of the last layer stays at
    its initial value: it adds the same to all scores.
    """
    trace = discriminator.trace(judged)
    cotangents = discriminator.cotangents(trace, torch.ones_like(trace[-1]))
    traces = without_last_bias(layer_traces(discriminator, trace, cotangents))
    if descent.plan.penalty_at_records:
        zero_gradients(discriminator)
        penalty = judged.new_zeros(len(judged))
        between = discriminator.trace(mixed)
        slopes = discriminator.cotangents(between, torch.ones_like(between[-1]))
        penalties, _ = penalty_traces(discriminator, between, slopes, penalty_weight)
        descent.add(layers_of(discriminator), traces, n_real, penalties)
    else:
        _, penalty, _ = discriminator.critic_gradient(
            mixed, penalty_weight, upstream=mixed[:, :0, :1]
        )
        descent.add(layers_of(discriminator), traces, n_real)
    fake_score = trace[-1][:, -descent.batch_size :].mean((1, 2))
    return fake_score, penalty, discriminator.input_gradient(cotangents)


def without_last_bias(traces: list[LayerTrace]) -> list[LayerTrace]:
    """Leave out the gradient of the last layer's bias."""
    return [*traces[:-1], replace(traces[-1], has_bias=False)]
