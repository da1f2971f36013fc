"""A latent tree of noisy contingency tables (DPLT)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vflsynth.mechanisms.base import Asked, Cover, HistogramMechanism, Plan
from vflsynth.mechanisms.discriminators import SERVER
from vflsynth.mechanisms.planning import (
    audience,
    histogram_event,
    ledger_of,
    releases_of_counts,
    split_budget,
)
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.events import Composition, Sampler
from vflsynth.privacy.histograms import histogram_sensitivity
from vflsynth.privacy.ledger import LedgerEntry
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
class LatentTree(HistogramMechanism):
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
    Source: Tang, Cheng, Su, Chen and Shao 2021 (DPLT).

    Privacy: recipients of the synthetic data are protected, and so are parties from each other,
    whatever they do (`vflsynth.secure.membership`), and from the server, which sees noisy tables
    and uniform numbers (`vflsynth.secure.products`). A party and the server together are not kept
    from other parties' records.

    Departs from the paper in that noise is Gaussian instead of Laplace, under one budget for all
    parties; `DPLTSynthesizer` lists what else.
    """

    name = "latent_tree"
    sampler = Sampler.NONE
    one_release = True
    secure_sums = True
    needs_histograms = True

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
        rounds = {name: (words, n) for name, (words, n) in rounds.items() if sum(n.values())}
        shares = dict.fromkeys(rounds, (1.0 - self.preprocessing_share) / len(rounds))
        shares["preprocessing"] = 1.0 - sum(shares.values())
        noise = split_budget(self, columns, shares)
        histograms = histogram_event(self, columns, noise["preprocessing"])
        entries, stds = [LedgerEntry("preprocessing", histograms)], {}
        for name, (words, numbers) in rounds.items():
            releases = releases_of_counts(self.relation, words, numbers, noise[name])
            entries.append(LedgerEntry(name, Composition(tuple(releases))))
            stds[name] = noise[name] * histogram_sensitivity(sum(numbers.values()), self.relation)
        return LatentTreePlan(
            ledger=ledger_of(
                self,
                columns,
                entries,
                words="differentially private latent tree (DPLT), with Gaussian noise",
                **audience(self, columns),
                public=("numbers of states and of latent states",),
            ),
            histogram_noise_multiplier=noise["preprocessing"],
            covers=_COVERS,
            pair_std=stds.get("latent attributes", 0.0),
            tree_std=stds["latent tree"],
        )
