"""One distribution per column, as a party keeps and saves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.methods.marginals.distributions import Marginal, draw_marginals
from vflsynth.models.samplers import RowSampler
from vflsynth.registry import register


@register
class MarginalSampler(RowSampler):
    """One marginal distribution per column, perhaps tied together by a Gaussian copula.

    Parameters
    ----------
    marginals : sequence of Marginal
    loadings : Tensor, shape (latent, column), optional
        Columns of unit length: ``latent @ loadings`` are the columns' normal scores, and over all
        parties they have the correlations of the copula. None draws scores independently.
    width : int
        Columns of the encoded row.
    """

    kind = "marginals"

    def __init__(
        self, marginals: Sequence[Marginal], loadings: Tensor | None, *, width: int
    ) -> None:
        if loadings is not None and loadings.shape[1] != len(marginals):
            raise ValueError(f"{len(marginals)} columns, but loadings of {loadings.shape[1]}")
        self.marginals, self.loadings, self.width = tuple(marginals), loadings, width

    @property
    def latent_dim(self) -> int:
        """Number of columns of all parties, or 0."""
        return 0 if self.loadings is None else self.loadings.shape[0]

    def draw(self, latent: Tensor, streams: RandomStreams, index: int) -> Tensor:
        """Draw scores, and look up the quantiles they stand for."""
        if self.loadings is None:
            scores = streams.normal("scores", index, (latent.shape[1], len(self.marginals)))
        else:
            scores = latent.double() @ self.loadings.double()
        rows = draw_marginals(self.marginals, scores[0].double().numpy(), self.width)
        return torch.tensor(rows.astype(np.float32))

    def to_dict(self) -> dict[str, Any]:
        """Return the marginals."""
        return {"marginals": [m.to_dict() for m in self.marginals], "width": self.width}

    def tensors(self) -> dict[str, Tensor]:
        """Return the loadings, if there are any."""
        return {} if self.loadings is None else {"loadings": self.loadings}

    @classmethod
    def restore(
        cls,
        content: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        spans: Sequence[OutputSpan],
        device: torch.device | str,
    ) -> Self:
        """Undo `to_dict` and `tensors`."""
        marginals = [Marginal.from_dict(m) for m in content["marginals"]]
        loadings = tensors.get("loadings")
        return cls(marginals, None if loadings is None else loadings.cpu(), width=content["width"])
