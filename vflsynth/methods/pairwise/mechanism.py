"""Noisy products of all pairs of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vflsynth.mechanisms.base import Asked, Cover, Plan, SecureSums
from vflsynth.mechanisms.planning import plan_rounds
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.histograms import product_sensitivity
from vflsynth.protocol.channel import SERVER
from vflsynth.registry import register

_NOISED = {"ColumnTables": True, "MaskedStates": False, "SumShares": False, "Mixture": True}


@dataclass(frozen=True, kw_only=True)
class PairwisePlan(Plan):
    """Noise of the sums of products of all pairs, of a norm of at most 1; 0 if there is no pair."""

    pair_std: float


@register
@dataclass(repr=False, eq=False, kw_only=True)
class PairwiseTables(SecureSums):
    """Noisy tables of every pair of columns, within and across parties.

    Part of the budget goes to histograms of the columns, which say how values are merged into a few
    states, and what vector stands for each; the rest to one round of sums of products of these, for
    all pairs of columns, with the same noise. Products across parties have that of both, and ε
    counts one of them.

    Parameters
    ----------
    **shared
        See `HistogramMechanism`.
    preprocessing_share : float, default=0.4
        Of the budget, for histograms, more than 0: where a column has few bins, a detector sees
        these first, and relations are between them.

    Notes
    -----
    Source: measurements of two-way marginals with equal noise, as AIM makes them (McKenna, Mullins,
    Sheldon and Miklau 2022), of all pairs instead of chosen ones, and of what a mixture of products
    can learn of them (`pairwise.column_codes`): of labels all, of numbers normal scores
    and their squares, or of 32 states the weights of four knots between them where noise is little.

    Privacy: recipients of the synthetic data are protected, and so are parties from each other,
    whatever they do (`vflsynth.secure.membership`), and from the server, which sees noisy tables
    and uniform numbers (`vflsynth.secure.products`). A party and the server together are not kept
    from other parties' records.
    """

    name = "pairwise_tables"

    preprocessing_share: float = 0.4

    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> PairwisePlan:
        """Calibrate the noise by numbers of columns; see `Mechanism.plan`."""
        self.check()
        own = {party: math.comb(counts.total, 2) for party, counts in columns.items()}
        n_pairs = math.comb(sum(counts.total for counts in columns.values()), 2)
        words = "products of codes of {} pairs of columns"
        numbers = own | {SERVER: n_pairs - sum(own.values())}
        ledger, noise, stds = plan_rounds(
            self,
            columns,
            {"pairs": (words, numbers)},
            words="noisy products of all pairs of columns (one-shot)",
            public=("numbers of states and of components",),
            sensitivity_of=product_sensitivity,
        )
        last = ledger.entries[-1].purpose  # of one column there are histograms and no pairs
        return PairwisePlan(
            ledger=ledger,
            histogram_noise_multiplier=noise,
            covers={name: Cover(last, noised) for name, noised in _NOISED.items()},
            pair_std=stds.get("pairs", 0.0),
        )
