"""DPLTSynthesizer: a latent tree over discretised columns, from noisy tables of counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from vflsynth.methods.latent_tree.mechanism import LatentTree
from vflsynth.methods.latent_tree.method import LatentTreeMethod
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.registry import Number, Rule, register
from vflsynth.secure.membership import MOST_STATES


@register
@dataclass(repr=False, eq=False, kw_only=True)
class DPLTSynthesizer(BaseSynthesizer):
    """Differentially private latent tree, after DPLT (Tang et al. 2021): the discrete baseline.

    Every party discretises its columns, puts those that tell most about each other into groups and
    makes one latent attribute of each group. A server ties all parties' latent attributes together
    in a tree. Columns are drawn independently given the latent attribute of their group.

    Parameters
    ----------
    privacy : LatentTree
        Required, though the signature has None, with which `fit` raises. Its
        ``preprocessing_share`` of the budget goes to histograms (see ``n_bins``), and the rest
        evenly to the two rounds of tables, within each of which all tables have the same noise.
    group_size : int, default=3
        Most columns of a group, at most 4.
    n_states : int, default=8
        Most states of a discretised column; bins are merged to roughly equal mass, and rare
        categories share one.
    n_latent_states : int, default=8
        States of a latent attribute.
    {column_kinds, contract, transformer}
    random_state : int, numpy Generator, RandomState or None, default=None
        Seeds the samples and the starts of expectation maximisation; never the noise.

    Attributes
    ----------
    {parties_, alignment_, history_, settings_, device_, interrupted_, transcript_, privacy_ledger_}

    Notes
    -----
    Source: Tang, Cheng, Su, Chen and Shao, "Differentially Private Publication of Vertically
    Partitioned Data" (TDSC 2021), of which no code is public; written from its idea, with other
    parts. Noise is Gaussian instead of Laplace, under one budget for all parties. Groups come from
    noisy tables of all pairs of a party's columns; a group's latent classes are fitted by
    expectation maximisation to those tables, and a record's latent attribute is its most probable
    class. The tree is the maximum spanning tree by noisy mutual information.

    Privacy: ε of `privacy` bounds what the synthetic table reveals about one record, with all
    tables of all parties counted; the ledger lists them. Server and parties see nothing else of
    other parties' records (`vflsynth.secure.products`). Noise comes from the operating system
    whatever `random_state` is, so that two fits differ and each spends the whole budget anew.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vflsynth import DPLTSynthesizer
    >>> from vflsynth.methods.latent_tree.mechanism import LatentTree
    >>> from vflsynth.privacy import PublicSchema
    >>> x = np.arange(500) % 10
    >>> frames = {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"big": x > 4})}
    >>> schema = PublicSchema({"x": (0, 10)}, {"big": (False, True)}, dtypes="given")
    >>> privacy = LatentTree(epsilon=10, delta=1e-3, public_schema=schema)
    >>> synth = DPLTSynthesizer(privacy=privacy, random_state=0).fit(frames)
    >>> table = synth.sample(500)
    >>> bool(table["x"].corr(table["big"]) > 0.5)
    True
    """

    methods: ClassVar = {LatentTree: LatentTreeMethod}

    _rules: ClassVar[Mapping[str, Rule]] = {
        "group_size": Number(1, 4, whole=True),
        "n_states": Number(2, MOST_STATES, whole=True),
        "n_latent_states": Number(2, MOST_STATES, whole=True),
    }

    privacy: LatentTree | None = None
    group_size: int = 3
    n_states: int = 8
    n_latent_states: int = 8
