"""What a protection of cut gradients is, and those that look at no label.

They are the baselines of Marvell and DIMIP, after Fu et al. 2022.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._random import HiddenStreams
from vflsynth.exceptions import TrainingDivergedError
from vflsynth.registry import Number, register
from vflsynth.splitdefense.settings import Part


@dataclass
class Draws:
    """Random draws of one training step, for some of the replicas; nobody else can guess them.

    `streams` are the active party's own; parties that must get the same noise share one. `members`
    says which replicas, int64 of shape (member,), None for all; a `prefix` stands in front of every
    stream's name.
    """

    streams: HiddenStreams
    step: int
    members: Tensor | None = None
    prefix: str = ""
    device: torch.device | str = "cpu"

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Draw standard normals, shape (member, *shape)."""
        return self._of(self.streams.normal(self.prefix + name, self.step, shape))

    def uniform(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Draw uniforms from [0, 1], shape (member, *shape)."""
        return self._of(self.streams.uniform(self.prefix + name, self.step, shape))

    def laplace(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Draw Laplace variables of scale 1, shape (member, *shape)."""
        # Numbers are odd multiples of 2^-53, so that no logarithm is of zero.
        drawn = self.streams.uniform(self.prefix + name, self.step, shape)
        return self._of([-np.sign(u - 0.5) * np.log1p(-2.0 * np.abs(u - 0.5)) for u in drawn])

    def within(self, label: str) -> Draws:
        """Draws of another purpose: independent of these."""
        return replace(self, prefix=f"{self.prefix}{label}.")

    def _of(self, drawn: Sequence[npt.NDArray[np.float64]]) -> Tensor:
        found = torch.tensor(np.stack(drawn), dtype=torch.float32).to(self.device)
        return found if self.members is None else found[self.members]


@dataclass
class Context:
    """What a protection knows besides the gradients.

    Parameters
    ----------
    labels : Tensor of int64, shape (member, batch)
        As trained on, after a label transform.
    n_classes : int
    draws : Draws
    memory : dict of str to Tensor
        What this protection left for itself at earlier steps, per party. Part of checkpoints.
    log : dict of str to Tensor
        Values of shape (member,) for the history, written by the protection.
    """

    labels: Tensor
    n_classes: int
    draws: Draws
    memory: dict[str, Tensor] = field(default_factory=dict)
    log: dict[str, Tensor] = field(default_factory=dict)


class Protection(Part):
    """Changes one party's cut gradients before they are sent.

    Notes
    -----
    Sees the clean gradients and the labels: it runs at the active party. Scales are relative to the
    gradients of the batch, so that they mean the same whatever the loss's reduction and however far
    training has come; the papers' absolute scales mean nothing without both.
    """

    registry_group = "protections"

    binary_only = False
    """Whether it is undefined for more than two classes."""

    @abstractmethod
    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Return what is sent instead.

        Parameters
        ----------
        gradients : Tensor, shape (member, batch, feature)
            Clean cut gradients, one row per record.
        context : Context

        Returns
        -------
        Tensor, shape (member, batch, feature)
        """


def check_finite(gradients: Tensor) -> None:
    """Refuse gradients that are not finite: no noise can be scaled to them."""
    if not bool(torch.isfinite(gradients.sum())):
        raise TrainingDivergedError("a cut gradient is not finite. Lower learning_rate")


def row_norms(gradients: Tensor) -> Tensor:
    """Euclidean norm of each record's gradient, shape (member, batch, 1)."""
    norms: Tensor = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    return norms


def root_mean_square(gradients: Tensor) -> Tensor:
    """Over the batch, shape (member, 1, 1)."""
    return gradients.square().mean((1, 2), keepdim=True).sqrt()


_FRACTION = Number(0, 1)


@register
@dataclass(repr=False, eq=False)
class GradientCompression(Protection):
    """Keep the entries of largest magnitude in the batch; send zero for the others.

    Parameters
    ----------
    keep : float, default=0.1
        Share of the batch's entries that is sent, in [0, 1]. 0 sends nothing.

    Notes
    -----
    Source: "GC" of DIMIP §5.1. The reference code keeps one entry too few and fails at ``keep=0``.
    """

    _rules: ClassVar = {"keep": _FRACTION}

    keep: float = 0.1

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Zero all entries but the largest."""
        check_finite(gradients)
        return gradients * _largest(gradients.abs(), self.keep)


@register
@dataclass(repr=False, eq=False)
class DiscreteSGD(Protection):
    """Round every entry to one of a few levels.

    Parameters
    ----------
    levels : int, default=1
        Levels on each side of zero.
    bound : float, default=2.0
        The outermost level, in root mean squares of the batch's entries; what lies beyond is cut
        off.
    noise_scale : float, default=0.0
        Scale of Laplace noise added after rounding, in the same unit.

    Notes
    -----
    Source: "DSGD" of DIMIP §5.1, which adds noise; the code of Fu et al. has neither noise nor a
    cut.
    """

    _rules: ClassVar = {
        "levels": Number(1, whole=True),
        "bound": Number(0, closed=(False, True)),
        "noise_scale": Number(0),
    }

    levels: int = 1
    bound: float = 2.0
    noise_scale: float = 0.0

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Round, cut off, add noise."""
        check_finite(gradients)
        unit = root_mean_square(gradients)
        interval = (self.bound / self.levels * unit).clamp_min(torch.finfo(gradients.dtype).tiny)
        rounded = (gradients / interval).round().clamp(-self.levels, self.levels) * interval
        if self.noise_scale:
            noise = context.draws.laplace("discrete_sgd", tuple(gradients.shape[1:]))
            rounded = rounded + noise * (self.noise_scale * unit)
        return rounded


@register
@dataclass(repr=False, eq=False)
class PPDL(Protection):
    """Send noisy, cut-off versions of a random selection of entries.

    Parameters
    ----------
    fraction : float, default=0.1
        Largest share of the entries that is sent, in [0, 1].
    noise_scale : float, default=0.2
        Scale of the Laplace noise of what is sent; the selection uses twice as much.
    threshold : float, default=0.02
        Entries whose noisy magnitude is below are not sent.
    clip : float, default=1.0
        Entries are cut off at this magnitude before and after the noise.

    Notes
    -----
    Source: "PPDL" of DIMIP §5.1: the sparse vector technique of Shokri and Shmatikov 2015. The last
    three parameters are in root mean squares of the batch's entries. The reference code derives
    noise from a privacy budget such that hundreds of times the signal is added, and returns
    untouched gradients when too few entries pass; here what does not pass is zero, always. Noise
    of threshold, selection and release are as 1 : 2 : 1 here, and as 1 : 2 : 4 by its budgets.
    """

    _rules: ClassVar = {
        "fraction": _FRACTION,
        "noise_scale": Number(0),
        "threshold": Number(0),
        "clip": Number(0, closed=(False, True)),
    }

    fraction: float = 0.1
    noise_scale: float = 0.2
    threshold: float = 0.02
    clip: float = 1.0

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Select, cut off, add noise."""
        check_finite(gradients)
        draws, shape = context.draws, tuple(gradients.shape[1:])
        unit = root_mean_square(gradients)
        limit = self.clip * unit
        cut = gradients.clamp(-limit, limit)
        selection_noise = draws.laplace("ppdl.selection", shape)
        bar = unit * (self.threshold + self.noise_scale * draws.laplace("ppdl.threshold", (1, 1)))
        passes = cut.abs() + selection_noise * (2.0 * self.noise_scale * unit) >= bar
        # Entries are tried in random order until enough have passed.
        order = draws.uniform("ppdl.order", shape)
        chosen = _largest((1.0 + order) * passes, self.fraction) * passes
        noisy = cut + draws.laplace("ppdl.release", shape) * (self.noise_scale * unit)
        return noisy.clamp(-limit, limit) * chosen


def _largest(values: Tensor, share: float) -> Tensor:
    """1 for that share of each replica's entries with the largest values, 0 for the others."""
    flat = values.flatten(1)
    count = int(share * flat.shape[1] + 1e-9)
    kept = torch.zeros_like(flat)
    kept.scatter_(1, flat.topk(count, 1).indices, 1.0)
    return kept.view_as(values)


@register
@dataclass(repr=False, eq=False)
class Isotropic(Protection):
    """Gaussian noise of the same variance in every direction.

    Parameters
    ----------
    power_scale : float, default=25.0
        Expected squared norm of the noise, in units of the batch's largest squared gradient norm.

    Notes
    -----
    Source: Marvell §4 ("iso"), whose t is `power_scale`; its code's ``ratio`` is the square root.
    """

    _rules: ClassVar = {"power_scale": Number(0)}

    power_scale: float = 25.0

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Add N(0, t max‖g‖² / d · I)."""
        check_finite(gradients)
        largest = row_norms(gradients).amax(1, keepdim=True)
        noise = context.draws.normal("isotropic", tuple(gradients.shape[1:]))
        return gradients + noise * (largest * math.sqrt(self.power_scale / gradients.shape[-1]))


@register
class MaxNorm(Protection):
    """Noise along each gradient that gives all the expected norm of the largest one.

    Notes
    -----
    Source: Marvell §4.1 ("max_norm"). Hides the norm on average, and leaves the direction as it is.
    Our figure for its norm leak is far below that of GAFM's table 1, which is what gradients give
    *before* the noise; see ``benchmarks/split_defences.py``.
    """

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Multiply g by ``1 + ξ sqrt(max‖g‖²/‖g‖² - 1)``."""
        check_finite(gradients)
        squares = gradients.square().sum(-1, keepdim=True)
        largest = squares.amax(1, keepdim=True)
        # A zero gradient has no direction to put noise on, and stays zero.
        spread = (largest / squares.clamp_min(1e-38) - 1.0).clamp_min(0.0).sqrt()
        noise = context.draws.normal("max_norm", (gradients.shape[1], 1))
        return gradients * (1.0 + noise * spread * (squares > 0))


@register
@dataclass(repr=False, eq=False)
class NoisyGradient(Protection):
    """Independent noise on every entry.

    Parameters
    ----------
    scale : float, default=1.0
        Scale of the Laplace noise in units of the root mean square of the batch's gradient entries.

    Notes
    -----
    Source: the baseline "NG" of DIMIP §5.1, after Fu et al. 2022; theirs is in absolute units.
    """

    _rules: ClassVar = {"scale": Number(0)}

    scale: float = 1.0

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Add the noise."""
        check_finite(gradients)
        noise = context.draws.laplace("noisy_gradient", tuple(gradients.shape[1:]))
        return gradients + noise * (self.scale * root_mean_square(gradients))
