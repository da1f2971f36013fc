"""DP-SGD in the hands of one owner of parameters, party or server alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflsynth.mechanisms.dpsgd import DPSGDPlan
from vflsynth.networks import MLP
from vflsynth.privacy.calibration import StepBudget
from vflsynth.privacy.dpsgd import (
    LayerTrace,
    clip_factors,
    clipped_gradient_sum,
    gradient_grid,
    noisy_mean,
    per_example_norms,
    rounded_gradient_sum,
)

Layer = tuple[Tensor, Tensor | None]
"""Weight and bias."""


class NoisyDescent:
    """Adds to a loss's gradient what depends on real records: clipped per record, and noisy.

    A discriminator's loss is ``E[F(x~)] - E[F(x)]`` plus a penalty, F being the sum of all scores
    that a record gets. Each owner of parameters clips its own part of every record's gradient.
    `batch_size` is the number of fakes, and (expected) of real records: sample rate times a public
    number. `noise` is for tests only.

    Source: Abadi et al. 2016, Algorithm 1, for the real records. Fakes need no privacy, being
    computed from earlier releases, but are clipped alike: if only the real records' gradients were,
    the two would not cancel where the distributions are equal.
    """

    def __init__(
        self, plan: DPSGDPlan, batch_size: int, noise: torch.Generator | None = None
    ) -> None:
        self.plan, self.batch_size, self._noise = plan, batch_size, noise
        self.grid = gradient_grid(plan.noise_multiplier * plan.sensitivity, plan.max_grad_norm)
        self.budget = StepBudget(plan.steps)

    def add(self, layers: Sequence[Layer], traces: Sequence[LayerTrace], n_real: Tensor) -> None:
        """Add the gradient of ``E[F(x~)] - E[F(x)]`` to the layers' ``.grad``.

        `layers` are (weight, bias), the bias changed too if the trace says that it has one.
        `traces`, one per layer, are of `n_real` real records per replica and then `batch_size`
        fakes, with respect to each record's own F; rows between them do not count.
        """
        rows = traces[0].inputs.shape[1] - self.batch_size
        real = [of_rows(trace, slice(None, rows), -1.0) for trace in traces]
        fake = [of_rows(trace, slice(rows, None)) for trace in traces]
        counted = torch.arange(rows, device=n_real.device) < n_real.unsqueeze(1)
        self.release(layers, [real], counted)
        factors = clip_factors(per_example_norms(fake), self.plan.max_grad_norm)
        for layer, sums in zip(layers, clipped_gradient_sum(fake, factors), strict=True):
            for parameter, at_fakes in zip(layer, sums):
                if at_fakes is not None:
                    assert parameter is not None
                    assert parameter.grad is not None
                    parameter.grad += at_fakes / self.batch_size

    def release(
        self,
        layers: Sequence[Layer],
        terms: Sequence[Sequence[LayerTrace]],
        counted: Tensor | None = None,
    ) -> None:
        """Add the noisy mean of clipped per-record gradients to the layers' ``.grad``.

        A record's gradient is the sum of `terms`, each of one trace per layer; `counted`, bool of
        shape (replica, batch), says which rows are records.
        """
        for layer, means in zip(layers, self.means(terms, counted), strict=True):
            for parameter, mean in zip(layer, means):
                if mean is not None:
                    assert parameter is not None
                    assert parameter.grad is not None
                    parameter.grad += mean.to(parameter.grad)

    def means(
        self, terms: Sequence[Sequence[LayerTrace]], counted: Tensor | None = None
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Return the noisy mean of clipped per-record gradients, as of `release`, layer by layer.

        In float64, on the CPU, of the shapes of `rounded_gradient_sum`.
        """
        sums = rounded_gradient_sum(terms, self.plan.max_grad_norm, self.grid, counted)
        totals = [total for layer in sums for total in layer if total is not None]
        flat = torch.cat([total.flatten() for total in totals])  # one draw of noise for all
        noisy = noisy_mean(flat, self.grid, expected_batch_size=self.batch_size, rng=self._noise)
        parts = torch.split(noisy, [total.numel() for total in totals])
        found = iter(part.view_as(total) for part, total in zip(parts, totals, strict=True))
        return [(next(found), None if bias is None else next(found)) for _, bias in sums]


def of_rows(trace: LayerTrace, rows: slice, factor: float = 1.0) -> LayerTrace:
    """Take some records' part of a trace, with the gradients of `factor` times their score."""
    return LayerTrace(
        trace.inputs[:, rows], factor * trace.output_gradients[:, rows], trace.has_bias
    )


def layer_traces(
    network: MLP, trace: Sequence[Tensor], cotangents: Sequence[Tensor]
) -> list[LayerTrace]:
    """Per-layer inputs and output gradients, from which per-record gradients follow."""
    return [
        LayerTrace(inputs, cotangent, linear.bias is not None)
        for linear, inputs, cotangent in zip(network.linears, trace, cotangents)
    ]
