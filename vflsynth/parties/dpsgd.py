"""DP-SGD in the hands of one owner of parameters, party or server alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflsynth.networks import MLP
from vflsynth.privacy import StepBudget
from vflsynth.privacy.dpsgd import (
    LayerTrace,
    clip_factors,
    clipped_gradient_sum,
    noisy_mean,
    per_example_norms,
)

Layer = tuple[Tensor, Tensor | None]
"""Weight and bias."""


@dataclass(frozen=True, slots=True)
class DPSGDSettings:
    """What all owners of discriminator parameters agree on.

    Parameters
    ----------
    max_grad_norm : float
        C, of each owner's part of a record's gradient.
    sensitivity : float
        Of all owners' clipped sums together, under the neighbouring relation in force.
    noise_multiplier : float
        Noise standard deviation over `sensitivity`, in every coordinate of every owner.
    steps : int
        That the budget pays for.
    learning_rate : float
        Of the discriminators.
    """

    max_grad_norm: float
    sensitivity: float
    noise_multiplier: float
    steps: int
    learning_rate: float


class NoisyDescent:
    """Adds to a loss's gradient the part of real and fake records: the former clipped and noisy.

    A discriminator's loss is ``E[F(x~)] - E[F(x)]`` plus a penalty, F being the sum of all scores
    that a record gets. Each owner of parameters clips its own part of every record's gradient of F.

    Parameters
    ----------
    settings : DPSGDSettings
    batch_size : int
        Number of fakes, and expected number of real records: sample rate times a public number.
    noise : torch.Generator, optional
        For tests only; see `vflsynth.privacy.noise`.

    Notes
    -----
    Source: Abadi et al. 2016, Algorithm 1, for the real records. Fakes need no privacy, being
    computed from earlier releases, but are clipped alike: if only the real records' gradients were,
    the two would not cancel where the distributions are equal.
    """

    def __init__(
        self, settings: DPSGDSettings, batch_size: int, noise: torch.Generator | None = None
    ) -> None:
        self.settings, self.batch_size, self._noise = settings, batch_size, noise
        self.budget = StepBudget(settings.steps)

    def add(self, layers: Sequence[Layer], traces: Sequence[LayerTrace], n_real: Tensor) -> None:
        """Add the gradient of ``E[F(x~)] - E[F(x)]`` to the layers' ``.grad``.

        Parameters
        ----------
        layers : sequence of (weight, bias)
            Every one is changed, in its bias too if the trace says that it has one.
        traces : sequence of LayerTrace
            One per layer, of real records and then `batch_size` fakes, with respect to each
            record's own F.
        n_real : Tensor, shape (replica,)
            Real records; the rows between them and the fakes do not count.
        """
        settings = self.settings
        factors = clip_factors(per_example_norms(traces), settings.max_grad_norm)
        rows = torch.arange(factors.shape[1], device=factors.device)
        real = clipped_gradient_sum(traces, factors * (rows < n_real.unsqueeze(1)))
        fake = clipped_gradient_sum(traces, factors * (rows >= len(rows) - self.batch_size))
        for layer, of_real, of_fakes in zip(layers, real, fake, strict=True):
            for parameter, total, at_fakes in zip(layer, of_real, of_fakes):
                if total is None or at_fakes is None:
                    continue
                assert parameter is not None
                assert parameter.grad is not None
                parameter.grad += at_fakes / self.batch_size
                parameter.grad -= noisy_mean(
                    total,
                    sensitivity=settings.sensitivity,
                    noise_multiplier=settings.noise_multiplier,
                    expected_batch_size=self.batch_size,
                    rng=self._noise,
                )


def layers_of(network: MLP) -> list[Layer]:
    """Weights and biases of a network, first layer first."""
    return list(network.layers)


def layer_traces(
    network: MLP, trace: Sequence[Tensor], cotangents: Sequence[Tensor]
) -> list[LayerTrace]:
    """Per-layer inputs and output gradients, from which per-record gradients follow."""
    return [
        LayerTrace(inputs, cotangent, linear.bias is not None)
        for linear, inputs, cotangent in zip(network.linears, trace, cotangents)
    ]


def between_fakes(fake: Tensor, weights: Tensor) -> Tensor:
    """Points between every fake and its neighbour in the batch: where the penalty is evaluated.

    The paper takes them between real and fake records. Here no record is read.
    """
    return torch.lerp(fake, fake.roll(1, 1), weights)
