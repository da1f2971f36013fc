"""A latent tree of noisy contingency tables (DPLT)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vflsynth.mechanisms.base import Asked, Cover, Plan, SecureSums
from vflsynth.mechanisms.planning import plan_rounds
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol.channel import SERVER
from vflsynth.registry import register

_COVERS = {
    "LatentTables": Cover("latent tree", noised=True),
    "MaskedStates": Cover("latent tree", noised=False),
    "SumShares": Cover("latent tree", noised=False),
    "LatentTree": Cover("latent tree", noised=True),
}


@dataclass(frozen=True, kw_only=True)
class LatentTreePlan(Plan):
    """Noise of the two rounds of tables, in counts; see `Plan` for the rest.

    `pair_std` is of the tables of all pairs of columns of one party, 0 if there is no such pair;
    `tree_std` of those of pairs of latent attributes, and of latent attribute and column.
    """

    pair_std: float
    tree_std: float


@register
@dataclass(repr=False, eq=False, kw_only=True)
class LatentTree(SecureSums):
    """Noisy tables of counts, of which parties and a server make a tree of latent attributes.

    Part of the budget goes to histograms of the columns; two rounds of tables, of pairs of one
    party's columns and of pairs with a latent attribute, divide the rest evenly. All tables of a
    round have the same noise; those across parties have it of both, and ε counts one of them.

    Parameters
    ----------
    **shared
        See `HistogramMechanism`; `preprocessing_share` is more than 0.

    Notes
    -----
    Source: Tang, Cheng, Su, Chen and Shao 2021 (DPLT). Privacy: as of `PairwiseTables`.

    Departs from the paper in that noise is Gaussian instead of Laplace, under one budget for all
    parties; `DPLTSynthesizer` lists what else.
    """

    name = "latent_tree"

    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> LatentTreePlan:
        """Calibrate the noise by numbers of columns and sizes of groups; see `Mechanism.plan`."""
        self.check()
        groups = asked.groups
        assert groups is not None, "the method says how it groups columns"
        n_latents = sum(len(sizes) for sizes in groups.values())
        rounds = {
            "latent attributes": (
                "contingency tables of {} pairs of columns",
                {party: math.comb(own.total, 2) for party, own in columns.items()},
            ),
            "latent tree": (
                "contingency tables of {} pairs with a latent attribute",
                {party: sum(n for n in sizes if n > 1) for party, sizes in groups.items()}
                | {SERVER: max(1, math.comb(n_latents, 2))},
            ),
        }
        ledger, noise, stds = plan_rounds(
            self,
            columns,
            rounds,
            words="differentially private latent tree (DPLT), with Gaussian noise",
            public=("numbers of states and of latent states",),
        )
        return LatentTreePlan(
            ledger=ledger,
            histogram_noise_multiplier=noise,
            covers=_COVERS,
            pair_std=stds.get("latent attributes", 0.0),
            tree_std=stds["latent tree"],
        )
