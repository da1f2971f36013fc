"""MixtureSynthesizer: a mixture of products, from noisy products of all pairs of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from vflsynth.methods.pairwise.mechanism import PairwiseTables
from vflsynth.methods.pairwise.method import PairwiseMethod
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.registry import Number, Rule, register
from vflsynth.secure.membership import MOST_STATES


@register
@dataclass(repr=False, eq=False, kw_only=True)
class MixtureSynthesizer(BaseSynthesizer):
    """Mixture of products, fitted to noisy sums of products of all pairs of columns of all parties.

    Columns are discretised, products of every two of them are added up with noise, within a party
    and across parties, and a server fits mixtures to all these sums in which columns are
    independent given the component; their mean is the model. A component is drawn alike by all
    parties, everything else by each on its own.

    Parameters
    ----------
    privacy : PairwiseTables
        Required, though the signature has None, with which `fit` raises.
    n_states : int, default=8
        Most states of a column of numbers, of which bins are merged to roughly equal mass; where
        noise is little, up to four times as many (`pairwise.column_codes`), as far as
        proofs of what parties mask take no more than 80 MB. A column's values are drawn as its
        histogram has them within states.
    n_labels : int, default=16
        Most states of a column of categories; the rarest labels share one, and are drawn alike
        whatever else a record has. Where noise is little, numbers of no more values count as
        categories: rules may be about single ones.
    n_components : int, default=128
        Of each of the four mixtures, searched from different starts, whose mean is the model.
    {column_kinds, contract, transformer}
    random_state : int, numpy Generator, RandomState or None, default=None
        Seeds the samples and the start of the fit; never the noise.

    Attributes
    ----------
    {parties_, alignment_, history_, settings_, device_, interrupted_, transcript_, privacy_ledger_}

    Notes
    -----
    Privacy: ε of `privacy` bounds what the synthetic table reveals about one record, with all sums
    of all parties counted. Server and parties see nothing else of other parties' records
    (`vflsynth.secure.products`). Noise comes from the operating system whatever `random_state` is,
    so that two fits differ and each spends the whole budget anew.

    Rows of a sample are not independent of each other: columns' levels are drawn evenly
    (`vflsynth.models.LatentTreeSampler`), so that a table's shares are closer to the model's than
    those of as many independent rows. Columns whose fitted relations do not predict what was held
    out of the sums are independent of all others.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vflsynth import MixtureSynthesizer
    >>> from vflsynth.methods.pairwise.mechanism import PairwiseTables
    >>> from vflsynth.privacy import PublicSchema
    >>> x = np.arange(500) % 10
    >>> frames = {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"big": x > 4})}
    >>> schema = PublicSchema({"x": (0, 10)}, {"big": (False, True)}, dtypes="given")
    >>> privacy = PairwiseTables(epsilon=10, delta=1e-3, public_schema=schema)
    >>> synth = MixtureSynthesizer(privacy=privacy, n_components=8, random_state=0).fit(frames)
    >>> table = synth.sample(500)
    >>> bool(table["x"].corr(table["big"]) > 0.5)
    True
    """

    methods: ClassVar = {PairwiseTables: PairwiseMethod}

    _rules: ClassVar[Mapping[str, Rule]] = {
        "n_states": Number(2, MOST_STATES, whole=True),
        "n_labels": Number(2, MOST_STATES, whole=True),
        "n_components": Number(1, whole=True),
    }

    privacy: PairwiseTables | None = None
    n_states: int = 8
    n_labels: int = 16
    n_components: int = 128
