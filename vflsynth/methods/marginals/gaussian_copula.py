"""GaussianCopulaSynthesizer: what correlations alone can do, the second yardstick."""

from __future__ import annotations

from typing import ClassVar

from vflsynth.methods.marginals.independent import IndependentSynthesizer
from vflsynth.methods.marginals.method import CopulaMethod
from vflsynth.registry import register


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
