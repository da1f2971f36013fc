"""Discriminators (Wasserstein critics, all of them) and their losses, with all derivatives.

A discriminator is a whole one, or a local one cut in two parts.

All take a batch as real, fake and interpolated records stacked in this order, in one pass.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.networks.layers import MLP, Linear, Slope

_TINY = torch.finfo(torch.float32).tiny

_FLAT = 1e-8
"""Squared slopes below this one have no direction: rounding would make it an arbitrary one."""


@functools.lru_cache(maxsize=16)
def critic_upstream(
    n_replicas: int, batch: int, device: torch.device, dtype: torch.dtype, *, n_mixed: int = 0
) -> Tensor:
    """Make the derivative of a critic's loss ``E[D(x~)] - E[D(x)]`` with respect to its scores.

    Shape (replica, 2 * batch + n_mixed, 1): -1/batch for the real records, 1/batch for the fake
    ones that follow, and ones for interpolated ones: their slope is that of the score. Shared
    between calls: not to be changed in place.
    """
    blocks = (-1.0 / batch, batch), (1.0 / batch, batch), (1.0, n_mixed)
    made = [torch.full((n_replicas, n, 1), x, device=device, dtype=dtype) for x, n in blocks]
    return torch.cat(made, 1)


def wasserstein_estimate(scores: Tensor, upstream: Tensor) -> Tensor:
    """Estimate ``E[D(x)] - E[D(x~)]`` per replica; the critic's loss is its negative.

    Scores and their derivative, of `critic_upstream`, are of real records, then of fake ones,
    (replica, 2 * batch, 1); or a linear critic's weight and its gradient. Source: VFLGAN Eq. 3 and
    the definition of L below Eq. 9.
    """
    zero, _ = _constants(scores.device, scores.dtype)
    return torch.baddbmm(zero, upstream.mT, scores, beta=0, alpha=-1).view(-1)


def slope_penalty(
    gradients: Tensor, weight: float, *, one_sided: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute ``E[(||gradient||_2 - 1)^2]`` per replica, and `weight` times its derivative.

    Gradients are those of a critic's inputs, (replica, batch, feature). The penalty is without the
    weight. The derivative is zero where a gradient vanishes, as automatic differentiation has it.
    `one_sided`, norms below one cost nothing.

    Source: the penalty of VFLGAN Eq. 3. An operation with a Python number first makes a tensor of
    it, which takes as long as the operation: factors go where the operation has a place for them.
    """
    norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    zero, one = _constants(gradients.device, gradients.dtype)
    excess, batch = norms - one, gradients.shape[1]
    if one_sided:
        excess.clamp_min_(0.0)
    penalty = torch.baddbmm(zero, excess.mT, excess, beta=0, alpha=1.0 / batch).view(-1)
    return penalty, gradients * _pull(norms, excess, weight)


def _pull(norms: Tensor, excess: Tensor, weight: float) -> Tensor:
    """Return what slopes of these norms are to be multiplied by for the penalty's derivative."""
    zero, _ = _constants(norms.device, norms.dtype)
    return torch.addcdiv(zero, excess, norms.clamp_min_(_TINY), value=2.0 * weight / norms.shape[1])


def steepest(slopes: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Compute squared slopes, and where features go by a step of length one along each slope.

    `slopes` are ``J J^T upstream``, J being the derivative of the features with respect to the
    records, and `upstream` that of the score with respect to the features, both (replica, batch,
    feature), so that its slope at the record is ``J^T upstream``. Directions are zero where there
    is next to no slope.
    """
    squared = (slopes * upstream).sum(-1, keepdim=True).clamp_min_(0.0)
    return squared, torch.where(squared > _FLAT, slopes * squared.rsqrt(), 0.0)


def directional_penalty(
    gradients: Tensor, directions: Tensor, weight: float
) -> tuple[Tensor, Tensor]:
    """Compute ``E[max(0, <gradient, direction> - 1)^2]`` and `weight` times its derivative.

    Both are as of the one-sided `slope_penalty`, which they are along directions that `steepest`
    found at these gradients, (replica, batch, feature).
    """
    excess = ((gradients * directions).sum(-1, keepdim=True) - 1.0).clamp_min_(0.0)
    return excess.square().mean((1, 2)), directions * excess.mul(2.0 * weight / excess.shape[1])


@functools.lru_cache(maxsize=16)
def _constants(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Zero and one."""
    return torch.zeros((), device=device, dtype=dtype), torch.ones((), device=device, dtype=dtype)


Penalty: TypeAlias = Literal["end_to_end", "layerwise", "paper"]
PENALTIES: tuple[str, ...] = get_args(Penalty)


class Judged(NamedTuple):
    """What a party makes of a batch before it knows how steep the others' records are.

    `cotangents`, one per layer of `trace`, are of the rows that have scores, then of interpolated
    records: of the slope that is the party's own, if there is one, and of the shared critic's slope
    at joint records, ``J^T c``, if `c` was given. `changes`, of `MLP.push`, are of these two:
    of the penalty's derivative for the first, of ``J^T c`` for the second. `squared` is
    ``||J^T c||^2``, (replica, batch, 1). `losses` are the two terms of L_{D_i}, (replica,).
    """

    trace: list[Tensor]
    cotangents: list[Tensor]
    changes: list[Tensor]
    squared: Tensor
    losses: tuple[Tensor, Tensor]


class LocalDiscriminator(nn.Module):
    """D_i of one party: the first part up to the intermediate features, the second part to a score.

    Layer sizes of `first_part` end with the width of the intermediate features. Without
    `second_part`, the private head, it is that of VFLGAN-base (§5.1.2). For `penalty`,
    "end_to_end", "layerwise" or "paper", see `judge`.

    Source: VFLGAN Eq. 11 and Fig. 11. LeakyReLU also follows the last layer of the first part.
    """

    def __init__(
        self,
        in_dim: int,
        first_part: Sequence[int],
        *,
        bias: bool,
        second_part: bool,
        penalty: Penalty,
        streams: RandomStreams,
    ) -> None:
        super().__init__()
        self.penalty = penalty
        self.first_part = MLP(
            [in_dim, *first_part], bias=bias, activate_last=True, streams=streams, name="first_part"
        )
        self.second_part = (
            Linear(first_part[-1], 1, bias=bias, streams=streams, name="second_part")
            if second_part
            else None
        )

    def judge(
        self,
        trace: list[Tensor],
        cut_gradients: Tensor,
        penalty_weight: float,
        upstream: Tensor | None = None,
        shared: Tensor | None = None,
    ) -> Judged:
        """Go back through D_i for all terms of L_{D_i} + L_{D_s} at once, and set the head's part.

        `trace`, each (replica, 3 * batch, dim), is of `first_part`, for real, fake and interpolated
        records. `cut_gradients`, (replica, 2 * batch, feature), are dL_{D_s}/df for real and fake
        records. Interpolated ones have none: the shared critic's slope is constant around them.
        `upstream`, (replica, judged, 1), is the derivative of L_{D_i} with respect to the head's
        scores of the rows before the interpolated ones, by default `critic_upstream`; without such
        rows it is empty, and the gradient is that of the penalty alone. `shared`, (replica, batch,
        feature), is the derivative c_i of D_s with respect to the features of interpolated records,
        if the slope at joint records is penalised.

        Source: VFLGAN Eqs. 8, 14 and 15. The penalty ``"paper"`` is Eq. 8's: the slope of the whole
        D_i, none without a head. ``"end_to_end"`` adds the slope of the shared critic with respect
        to the joint record, of which `settle` learns the rest. ``"layerwise"`` is the reference
        code's: the slope of the *sum* of all intermediate features with respect to the record, plus
        that of the head with respect to the features, which is ``(||w|| - 1)^2`` because the head
        is linear.

        ``"end_to_end"`` is one-sided (WGAN-LP: Petzka, Fischer and Lukovnikov 2018): slopes of at
        most one cost nothing. With a penalty of small slopes too, a critic that takes fakes for
        real cannot turn without one: on tables of few columns D_1 .. D_M stay turned against D_s,
        the generators' gradients cancel, and nothing is learned.
        """
        first, head = self.first_part, self.second_part
        replicas, rows, _ = cut_gradients.shape
        mixed = trace[-1][:, rows:]
        wasserstein = penalty = mixed.new_zeros(replicas)
        if head is not None:
            weight = head.weight
            if upstream is None:
                upstream = critic_upstream(replicas, rows // 2, mixed.device, mixed.dtype)
            assert weight.grad is not None
            # Its bias has no gradient: it adds the same to real and fake scores.
            torch.bmm(trace[-1][:, :rows].mT, upstream, out=weight.grad)
            wasserstein = wasserstein_estimate(weight, weight.grad)
            cut_gradients = torch.baddbmm(cut_gradients, upstream, weight.mT)
        # One sweep for all: at this size the number of operations is the time.
        sweep, own = [cut_gradients], None
        whole = self.penalty != "layerwise"  # the slope of all of D_i, not that of each part
        if not whole:
            own = torch.ones_like(mixed)
        elif head is not None:
            own = head.weight.mT.expand_as(mixed)
        if own is not None:
            sweep.append(own)
        if shared is not None:
            sweep.append(shared)
        if len(sweep) == 3:  # interpolated records go back twice
            trace = [trace[0], *(torch.cat([t, t[:, rows:]], 1) for t in trace[1:])]
        elif len(sweep) == 1:
            trace = [outputs[:, :rows] for outputs in trace]
        cotangents = first.cotangents(trace, torch.cat(sweep, 1))
        change = first.input_gradient([cotangents[0][:, rows:]])
        n_own = 0 if own is None else own.shape[1]
        squared = change[:, n_own:].square().sum(-1, keepdim=True)
        if n_own:
            penalty, pulled = slope_penalty(
                change[:, :n_own], penalty_weight, one_sided=self.penalty == "end_to_end"
            )
            change = pulled if shared is None else torch.cat([pulled, change[:, n_own:]], 1)
        changes = first.push(trace, change) if len(sweep) > 1 else []
        if head is not None:
            assert weight.grad is not None
            if whole:  # the head is one more layer of D_i
                weight.grad.add_(changes[-1][:, :n_own].sum(1).unsqueeze(-1))
            else:
                of_head, pulled = slope_penalty(weight.mT, penalty_weight)
                weight.grad.add_(pulled.mT)
                penalty = penalty + of_head
        return Judged(trace, cotangents, changes, squared, (wasserstein, penalty))

    def settle(
        self, judged: Judged, others: Tensor | None = None, weight: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Set the gradients of the first part, from what `judge` found, which is used up.

        `others`, (replica, batch, 1), are squared norms of the shared critic's slope with respect
        to the other parties' records, and `weight` is that of the penalty on it. Returns the two
        terms of L_{D_i}, (replica,): the Wasserstein estimate, zero without a second part, and the
        penalty, without its weight.
        """
        if others is not None:
            norms = (judged.squared + others).sqrt_()
            _, one = _constants(norms.device, norms.dtype)
            pull = _pull(norms, (norms - one).clamp_min_(0.0), weight)
            for cotangents in judged.cotangents:
                cotangents[:, -pull.shape[1] :].mul_(pull)
        self.first_part.write_gradient(judged.trace, judged.cotangents, judged.changes)
        return judged.losses

    def fake_gradient(self, trace: Sequence[Tensor], cut_gradients: Tensor) -> Tensor:
        """dL_G/dx~ for a batch of fakes (Eq. 17), shape (replica, batch, encoded)."""
        if self.second_part is not None:
            cut_gradients = cut_gradients - self.second_part.weight.mT / cut_gradients.shape[1]
        first = self.first_part
        return first.input_gradient(first.cotangents(trace, cut_gradients))


class Discriminator(MLP):
    """A discriminator in one piece: of WGAN-GP, of a party of VertiGAN, or VFLGAN's shared one."""

    def __init__(
        self,
        in_dim: int,
        hidden: Sequence[int],
        *,
        bias: bool,
        streams: RandomStreams,
        name: str = "discriminator",
    ) -> None:
        super().__init__(
            [in_dim, *hidden, 1], bias=bias, activate_last=False, streams=streams, name=name
        )

    def critic_gradient(
        self, features: Tensor, penalty_weight: float, upstream: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Set the gradients of the critic's loss (Eqs. 3, 8, 13) and return those of the inputs.

        Features, (replica, 3 * batch, in), are real, fake and interpolated records, or their
        intermediate features; `upstream` is as in `LocalDiscriminator.judge`. Returns the
        Wasserstein estimate and the penalty, (replica,), and the loss's gradients, (replica, 2 *
        batch, in), for real and fake inputs; they are zero at the interpolated ones.
        """
        judged, rows = self.judge(features, upstream)
        penalty, change = slope_penalty(judged.gradient[:, rows:], penalty_weight)
        return self.settle(judged, rows, change), penalty, judged.gradient[:, :rows]

    def judge(self, features: Tensor, upstream: Tensor | None = None) -> tuple[Slope, int]:
        """Score inputs and pull back: the loss from real and fake scores, ones from all others.

        Returns the slope of all inputs, and how many of them come before the interpolated ones.
        """
        if upstream is None:
            replicas, batch = features.shape[0], features.shape[1] // 3
            device, dtype, rows = features.device, features.dtype, 2 * batch
            seeds = critic_upstream(replicas, batch, device, dtype, n_mixed=batch)
        else:
            rows = upstream.shape[1]
            seeds = F.pad(upstream, (0, 0, 0, features.shape[1] - rows), value=1.0)
        trace = self.trace(features)
        cotangents = self.cotangents(trace, seeds)
        return Slope(trace, cotangents, self.input_gradient(cotangents)), rows

    def settle(self, judged: Slope, rows: int, change: Tensor) -> Tensor:
        """Set the gradients of the loss; return the Wasserstein estimate per replica.

        `change` is the derivative of the penalty with respect to the slopes at interpolated inputs,
        (replica, batch, in); the rest is from `judge`.
        """
        trace, cotangents = judged.trace, judged.cotangents
        self.write_gradient(trace, cotangents, self.push(trace, change))
        return wasserstein_estimate(trace[-1][:, :rows], cotangents[-1][:, :rows])

    def fake_gradient(self, features: Tensor) -> Tensor:
        """d(-E[D(x~)])/dx~ (Eq. 3; of D_s, Eq. 17), shape (replica, batch, in)."""
        trace = self.trace(features)
        upstream = torch.full_like(trace[-1], -1.0 / features.shape[1])
        return self.input_gradient(self.cotangents(trace, upstream))
