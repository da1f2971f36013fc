"""What a protection of cut gradients is, and what it may look at."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._keys import HiddenStreams
from vflsynth.exceptions import TrainingDivergedError
from vflsynth.splitdefense.settings import Part


@dataclass
class Draws:
    """Random draws of one training step, for some of the replicas; nobody else can guess them.

    Parameters
    ----------
    streams : HiddenStreams
        The active party's own. Parties that must get the same noise share a stream.
    step : int
    members : Tensor of int64, shape (member,), or None
        Which replicas; None for all.
    prefix : str, default=""
        In front of every stream's name.
    device : torch.device, default="cpu"
        Where the draws are used.
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
        raise TrainingDivergedError(
            "a cut gradient is not finite. Lower learning_rate; `resume` continues from the last "
            "checkpoint"
        )


def row_norms(gradients: Tensor) -> Tensor:
    """Euclidean norm of each record's gradient, shape (member, batch, 1)."""
    norms: Tensor = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    return norms


def root_mean_square(gradients: Tensor) -> Tensor:
    """Over the batch, shape (member, 1, 1)."""
    return gradients.square().mean((1, 2), keepdim=True).sqrt()
