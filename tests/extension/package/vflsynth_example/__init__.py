"""A synthesizer, a kind of columns and a protection that vflsynth does not have."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pandas as pd
import torch
from torch import Tensor

from vflsynth.columns import CategoricalTransformer
from vflsynth.exceptions import ColumnKindError
from vflsynth.protocol import Channel, CopulaLoadings, MaskedRecords
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER
from vflsynth.registry import register
from vflsynth.splitdefense import Protection
from vflsynth.splitdefense.protections.base import Context, check_finite, root_mean_square
from vflsynth.synthesizers import IndependentSynthesizer

__all__ = ["ComonotoneSynthesizer", "LetterTransformer", "Signs"]


@register
class ComonotoneSynthesizer(IndependentSynthesizer):
    """Draw columns from their own distributions, so that all of them rise and fall together.

    The parameters and attributes are those of `IndependentSynthesizer`.
    """

    def _relate(self, channel: Channel) -> None:
        """Give every column the same latent."""
        received = channel.gather(Verb.MASKED_REAL, 0, MaskedRecords)
        channel.scatter(
            Verb.COPULA_LOADINGS,
            {
                name: CopulaLoadings(SERVER, name, 0, torch.ones(1, message.records.shape[-1] - 1))
                for name, message in received.items()
            },
        )


@register
class LetterTransformer(CategoricalTransformer):
    """Categories that are single letters, and nothing else."""

    kind: ClassVar[str] = "letter"

    def fit(self, column: pd.Series[Any], y: object = None) -> Self:
        """Learn which letters there are."""
        for value in column.dropna().unique():
            if not (isinstance(value, str) and len(value) == 1 and value.isalpha()):
                raise ColumnKindError(
                    f"{value!r} is not a letter",
                    fix="declare the column 'categorical'",
                    column=column.name,
                )
        return super().fit(column, y)


@register
class Signs(Protection):
    """Send the signs of the gradients only, all of one size.

    Parameters
    ----------
    scale : float, default=1.0
        That size, in units of the root mean square of the batch's gradient entries.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Replace every entry."""
        check_finite(gradients)
        return gradients.sign() * (self.scale * root_mean_square(gradients))
