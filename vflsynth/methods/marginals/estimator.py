"""IndependentSynthesizer and GaussianCopulaSynthesizer: the two yardsticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from vflsynth.mechanisms import Mechanism
from vflsynth.methods.marginals.method import CopulaMethod, IndependentMethod
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.registry import register


@register
@dataclass(repr=False, eq=False, kw_only=True)
class IndependentSynthesizer(BaseSynthesizer):
    """Draw every column independently from its own distribution.

    Whatever does not beat this has learned no relation between columns. Parties exchange nothing
    but what it takes to match records.

    Parameters
    ----------
    {column_kinds, contract, structure, transformer}
    random_state : int, numpy Generator, RandomState or None, default=None
        Seeds the samples; fitting draws nothing.
    privacy : None
        There is no private mode: a mechanism is refused, with the synthesizers that can have it.

    Attributes
    ----------
    {parties_, alignment_, history_, settings_, device_, interrupted_, transcript_}
    privacy_ledger_ : None
        As there is no private mode.

    Notes
    -----
    A column's distribution is the probabilities of its categories, or at most 1000 quantiles of its
    values (see `vflsynth.methods.marginals.method`); no record is kept.

    Privacy: no differential privacy; quantiles are values of single records, though nothing tells
    whose.

    Examples
    --------
    >>> from vflsynth import IndependentSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = IndependentSynthesizer(random_state=0).fit(frames, on="record_id")
    >>> synth.sample(3).shape[0]
    3
    """

    methods: ClassVar = {None: IndependentMethod}

    structure: Literal["exact", "ignore"] = "exact"
    privacy: Mechanism | None = None


@register
class GaussianCopulaSynthesizer(IndependentSynthesizer):
    """Draw columns from their own distributions, tied together by a Gaussian copula.

    Whatever does not beat this is not worth training. The correlations of all columns, also of two
    parties, are computed from masked records (`vflsynth.protocol.messages`), so even this joins
    nothing.

    The parameters and attributes are those of `IndependentSynthesizer`, of which this is the
    version with correlations.

    Notes
    -----
    Every column is mapped to normal scores: a value to that of its mid-rank, a category to that of
    the middle of its part of the unit interval, in the transformer's order of categories. R is the
    Pearson correlation of these scores; synthetic scores are drawn from N(0, R). Where a column has
    few states, this underestimates the correlation of the latent Gaussians.

    Constant columns have no scores.

    Examples
    --------
    >>> from vflsynth import GaussianCopulaSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(500, 2, random_state=0)
    >>> synth = GaussianCopulaSynthesizer(random_state=0).fit(frames, on="record_id")
    >>> table = synth.sample(500)
    >>> bool(table["measure_1"].corr(table["measure_2"]) > 0.4)
    True
    """

    methods: ClassVar = {None: CopulaMethod}
