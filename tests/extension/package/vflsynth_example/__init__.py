"""One of each that vflsynth does not have, found by name where this package is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pandas as pd
import torch
from torch import Tensor

from vflsynth import IndependentSynthesizer, VertiGANSynthesizer
from vflsynth.columns import CategoricalTransformer
from vflsynth.evaluation import Metric, MetricResult, TableMetric
from vflsynth.evaluation.tables import Tables
from vflsynth.exceptions import ColumnKindError
from vflsynth.extending import Number, RandomStreams
from vflsynth.learning import Algorithm
from vflsynth.learning.messages import MaskedReal
from vflsynth.mechanisms import DPSGD, Asked, DPSGDPlan
from vflsynth.methods.gan.critics import DPSGDCritic
from vflsynth.methods.marginals.messages import CopulaLoadings
from vflsynth.methods.marginals.method import CopulaMethod
from vflsynth.methods.vertigan.method import VertiGANMethod
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol.channel import SERVER, Channel
from vflsynth.registry import register
from vflsynth.splitdefense import Protection
from vflsynth.splitdefense.protections.gradients import Context, check_finite, root_mean_square

__all__ = [
    "ComonotoneSynthesizer",
    "LargestGap",
    "LetterTransformer",
    "RatedDPSGD",
    "RatedSynthesizer",
    "Signs",
]


class Comonotone(Algorithm):
    """One exchange, as for the copula, and the same latent for every column in return."""

    def begin(self) -> None:
        """Give every column the same latent."""
        received = self.channel.gather(MaskedReal, 0)
        self.channel.scatter(
            {
                name: CopulaLoadings(SERVER, name, 0, torch.ones(1, message.records.shape[-1] - 1))
                for name, message in received.items()
            }
        )


class ComonotoneMethod(CopulaMethod):
    """Parties as for the copula; another server."""

    def algorithm(self, channel: Channel, settings: Any, streams: RandomStreams) -> Comonotone:
        """Make the one exchange."""
        return Comonotone(channel)


@register
class ComonotoneSynthesizer(IndependentSynthesizer):
    """Draw columns from their own distributions, so that all of them rise and fall together.

    The parameters and attributes are those of `IndependentSynthesizer`.
    """

    methods: ClassVar = {None: ComonotoneMethod}


@register
@dataclass(repr=False, eq=False, kw_only=True)
class RatedDPSGD(DPSGD):
    """DP-SGD whose discriminators have a learning rate of their own.

    Parameters
    ----------
    discriminator_rate : float, default=1e-3
    """

    name = "rated_dpsgd"
    rules = DPSGD.rules | {"discriminator_rate": Number(0, closed=(False, True))}

    discriminator_rate: float = 1e-3

    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> DPSGDPlan:
        """Calibrate as DP-SGD does."""
        return replace(super().plan(columns, asked), learning_rate=self.discriminator_rate)


class RatedMethod(VertiGANMethod):
    """VertiGAN that can have the mechanism."""

    descents: ClassVar = VertiGANMethod.descents | {RatedDPSGD: DPSGDCritic}


@register
class RatedSynthesizer(VertiGANSynthesizer):
    """VertiGAN that can have the mechanism.

    The parameters and attributes are those of `VertiGANSynthesizer`.
    """

    methods: ClassVar = {
        **dict.fromkeys(VertiGANSynthesizer.methods, RatedMethod),
        RatedDPSGD: RatedMethod,
    }


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
class LargestGap(TableMetric):
    """The largest difference of two columns' shares of missing values."""

    name = "largest_gap"
    declared = Metric(
        name="largest_gap",
        title="Missing values",
        direction="lower",
        minimum=0.0,
        maximum=1.0,
        measures="The largest difference of a column's shares of missing values.",
        baseline="none: real data against themselves have 0",
    )

    def compute(self, tables: Tables) -> MetricResult:
        """Compare column by column."""
        shares = [table.isna().mean() for table in (tables.real, tables.synthetic)]
        gaps = (shares[0] - shares[1]).abs()
        return MetricResult(
            self.declared,
            float(gaps.max()),
            baseline=0.0,
            parts=pd.DataFrame({"column": list(gaps.index), "gap": gaps.to_numpy()}),
            interval_method="none: exact",
        )


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
