"""Parties with a whole discriminator, and how mechanisms have it descend.

A descent says what is done with a batch that holds real records. The plain one is here too, so that
a party *has* a descent, whatever the mechanism.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vflsynth.mechanisms import DPSGDPlan, FirstLayerPlan
from vflsynth.mechanisms.first_layer import perturb_gradient
from vflsynth.mechanisms.noisy_descent import NoisyDescent, layer_traces, of_rows
from vflsynth.methods.gan.discriminator import Discriminator
from vflsynth.methods.gan.party import GANParty
from vflsynth.networks import MLP
from vflsynth.privacy.calibration import StepBudget
from vflsynth.privacy.dpsgd import LayerTrace
from vflsynth.protocol.schedule import PoissonSchedule


def penalty_traces(
    network: MLP, trace: Sequence[Tensor], cotangents: Sequence[Tensor], weight: float
) -> list[LayerTrace]:
    """Per-record gradients of ``weight * (||slope||_2 - 1)^2``, slope being the input gradient.

    Trace and cotangents are of the points where the penalty is taken, and of what the slope is the
    gradient of. Returns one trace per layer; biases do not move the slope.
    """
    slopes = network.input_gradient(cotangents)
    norms = torch.linalg.vector_norm(slopes, dim=-1, keepdim=True)
    tiny = torch.finfo(norms.dtype).tiny
    changes = network.push(trace, 2.0 * weight * (norms - 1.0) / norms.clamp_min(tiny) * slopes)
    return [LayerTrace(a, d, has_bias=False) for a, d in zip(changes, cotangents)]


def between_fakes(fake: Tensor, weights: Tensor) -> Tensor:
    """Points between every fake and its neighbour in the batch: where the penalty is evaluated.

    The paper takes them between real and fake records. Here no record is read.
    """
    return torch.lerp(fake, fake.roll(1, 1), weights)


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
    (replica, batch, in), between fakes, where the penalty is taken; `n_real` has shape (replica,).
    Returns the score of fakes and the penalty, (replica,), and the gradients, shaped like `judged`,
    of each row's own score. The last layer's bias is left alone: it adds the same to all scores.
    """
    trace = discriminator.trace(judged)
    cotangents = discriminator.cotangents(trace, torch.ones_like(trace[-1]))
    traces = without_last_bias(layer_traces(discriminator, trace, cotangents))
    _, penalty, _ = discriminator.critic_gradient(mixed, penalty_weight, upstream=mixed[:, :0, :1])
    descent.add(discriminator.layers, traces, n_real)
    fake_score = trace[-1][:, -descent.batch_size :].mean((1, 2))
    return fake_score, penalty, discriminator.input_gradient(cotangents)


def without_last_bias(traces: list[LayerTrace]) -> list[LayerTrace]:
    """Leave out the gradient of the last layer's bias."""
    return [*traces[:-1], replace(traces[-1], has_bias=False)]


class CriticParty(GANParty):
    """A party with a generator and a discriminator that needs nobody else."""

    discriminator: Discriminator
    descent: Critic

    def _new_discriminator(self) -> Discriminator:
        hidden, bias = self.settings.first_part, self.settings.bias
        return Discriminator(self.transformer.width_, hidden, bias=bias, streams=self.streams)

    @torch.no_grad()
    def train_discriminator(self, until: int) -> None:
        """Descend L_{D_i} (Eq. 4), which needs nobody else, for all steps before `until`."""
        for step in range(self.descent.done(self), until):
            score, penalty = self.descent.descend(self, step)
            self.discriminator_optimizer.step()
            self.losses.add(score, penalty)


class Critic:
    """The plain descent of a WGAN-GP's discriminator, and what mechanisms may do otherwise."""

    def start(self, party: CriticParty) -> None:
        """Change what the party was built with."""

    def done(self, party: CriticParty) -> int:
        """Return how many steps were taken."""
        return party.discriminator_optimizer.steps

    def descend(self, party: CriticParty, step: int) -> tuple[Tensor, Tensor]:
        """Set the gradients of one step of D (Eq. 4).

        Returns what the party reports, each (replica,): the Wasserstein estimate, or the mean score
        of fakes, and the penalty.
        """
        return self._of_batch(party, step, party.real(step), party.fake(step, "discriminator"))

    def _of_batch(
        self, party: CriticParty, step: int, real: Tensor, fake: Tensor
    ) -> tuple[Tensor, Tensor]:
        mixed = torch.lerp(fake, real, party.schedule.interpolation(step))
        wasserstein, penalty, _ = party.discriminator.critic_gradient(
            torch.cat([real, fake, mixed], 1), party.settings.gradient_penalty_weight
        )
        return wasserstein, penalty

    def before_generator_step(self, party: CriticParty, step: int) -> None:
        """Do what is to be done before a generator step, and the steps of D that belong to it."""

    def upstream(self, party: CriticParty, fakes: Tensor) -> Tensor:
        """d(-E[D(x~)])/dx~, which the generator learns from."""
        return party.discriminator.fake_gradient(fakes)


class FirstLayerNoise:
    """Clips and perturbs the gradient of one layer, weight and bias as one vector.

    `vflsynth.mechanisms.first_layer` says how, and what that does not protect. Made as all descents
    of mechanisms are; `noise` is for tests only, see `vflsynth.privacy.noise`.
    """

    def __init__(
        self, plan: FirstLayerPlan, batch_size: int, noise: torch.Generator | None = None
    ) -> None:
        self.plan, self._noise = plan, noise
        self.budget = StepBudget(plan.steps)

    def perturb(self, layer: Sequence[Tensor | None]) -> None:
        """Replace a layer's gradient."""
        raw = [p.grad for p in layer if p is not None and p.grad is not None]
        noisy = perturb_gradient(
            raw, self.plan.max_grad_norm, self.plan.noise_multiplier, rng=self._noise
        )
        for gradient, replaced_by in zip(raw, noisy):
            gradient.copy_(replaced_by)


class FirstLayerCritic(FirstLayerNoise, Critic):
    """The plain descent, with a perturbed first layer."""

    def descend(self, party: CriticParty, step: int) -> tuple[Tensor, Tensor]:
        """Pay for the step, then set the gradients."""
        self.budget.take()
        losses = super().descend(party, step)
        self.perturb(party.discriminator.layers[0])
        return losses


class DPSGDDescent:
    """What descents by DP-SGD have in common: noise, and the mechanism's learning rate."""

    def __init__(
        self, plan: DPSGDPlan, batch_size: int, noise: torch.Generator | None = None
    ) -> None:
        self.noisy = NoisyDescent(plan, batch_size, noise)

    def start(self, party: GANParty) -> None:
        """Give the discriminator the mechanism's learning rate."""
        party.discriminator_optimizer.learning_rate = self.noisy.plan.learning_rate


class DPSGDCritic(DPSGDDescent, Critic):
    """DP-SGD on all parameters of a discriminator, Poisson batches; `noise` is for tests only.

    Source: Abadi et al. 2016, Algorithm 1. Jiang et al. 2023 have DP-SGD in every party of VertiGAN
    as well, without public code. Alone, such a party is WGAN-GP with DP-SGD.

    Privacy: all that leaves the party, gradients of fakes and reports, is computed from its
    discriminator as released. All parties draw the same batches, so a record moves all their
    releases of a step at once: their joint sensitivity counts.
    """

    def descend(self, party: CriticParty, step: int) -> tuple[Tensor, Tensor]:
        """Pay for the step, then set the gradients."""
        self.noisy.budget.take()
        schedule = party.schedule
        assert isinstance(schedule, PoissonSchedule)
        real, fake = party.real(step), party.fake(step, "discriminator")
        mixed = between_fakes(fake, schedule.interpolation(step))
        judged, weight = torch.cat([real, fake], 1), party.settings.gradient_penalty_weight
        fake_score, penalty, _ = descend_critic(
            party.discriminator, self.noisy, judged, mixed, schedule.n_real(step), weight
        )
        return fake_score, penalty


class DPSGDGANCritic(DPSGDCritic):
    """WGAN-GP as DPSGD-GAN trains it: one clipped gradient per *pair* of a real and a fake record.

    The gradient of ``D(x~) - D(x) + λ (|slope of D between x and x~| - 1)²`` is clipped as a whole.
    For the source, and what departs from it, see `DPSGDGAN`.

    Differs from `DPSGDCritic` in three things: the gradient of the fake and of the penalty is part
    of what is clipped and noisy, though neither needs to be; the batch has a fixed size, drawn
    without replacement, accounted for under replace-one; record and fake of a pair meet by their
    place in the batch, which is drawn and follows from nothing about the record.
    """

    def descend(self, party: CriticParty, step: int) -> tuple[Tensor, Tensor]:
        """Pay for the step, then set the gradients."""
        self.noisy.budget.take()
        discriminator, batch = party.discriminator, party.settings.batch_size
        real, fake = party.real(step), party.fake(step, "discriminator")
        mixed = torch.lerp(fake, real, party.schedule.interpolation(step))
        trace = discriminator.trace(torch.cat([real, fake, mixed], 1))
        cotangents = discriminator.cotangents(trace, torch.ones_like(trace[-1]))
        judged = without_last_bias(layer_traces(discriminator, trace, cotangents))
        penalties = penalty_traces(
            discriminator,
            [outputs[:, 2 * batch :] for outputs in trace],
            [cotangent[:, 2 * batch :] for cotangent in cotangents],
            party.settings.gradient_penalty_weight,
        )
        terms = [
            [of_rows(layer, slice(None, batch), -1.0) for layer in judged],
            [of_rows(layer, slice(batch, 2 * batch)) for layer in judged],
            penalties,
        ]
        party.discriminator_optimizer.gradient.zero_()
        self.noisy.release(discriminator.layers, terms)
        fake_score = trace[-1][:, batch : 2 * batch].mean((1, 2))
        return fake_score, torch.zeros_like(fake_score)
