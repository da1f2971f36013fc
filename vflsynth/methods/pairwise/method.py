"""A mixture of products, fitted to noisy products of all pairs of columns."""

from __future__ import annotations

from collections.abc import Mapping

from vflsynth._random import RandomStreams
from vflsynth.learning.base import AtOnce, Known, Size
from vflsynth.learning.products import ASKED, ProductsMethod, ProductTerms, unit_grid
from vflsynth.methods.pairwise.column_codes import CODE_NORM
from vflsynth.methods.pairwise.mechanism import PairwisePlan
from vflsynth.methods.pairwise.messages import ColumnTables
from vflsynth.methods.pairwise.party import PairwiseLearning, PairwiseParty
from vflsynth.methods.pairwise.product_mixtures import N_SEARCHES
from vflsynth.methods.pairwise.server import PublishPairs
from vflsynth.privacy.releases import Grid
from vflsynth.protocol.channel import Channel
from vflsynth.secure.membership import MOST_STATES

_COPIES = 8
"""Of all products, while the server fits."""

_FINER = 4
"""So many times as many states numbers have at most where noise is little."""


class PairwiseMethod(ProductsMethod):
    """Mixture of products, of noisy sums."""

    party = PairwiseParty
    asks = ASKED | {ColumnTables}

    @property
    def n_columns(self) -> dict[str, int]:
        """How many columns each party has."""
        return {name: own.total for name, own in sorted(self.columns.items())}

    @property
    def n_fine(self) -> int:
        """Most states of a column of numbers where noise is little, whatever there is: public."""
        return int(min(_FINER * self.parameters.n_states, MOST_STATES))

    @property
    def width(self) -> int:
        """Most states of a column, whatever it has: a public number."""
        return int(max(self.n_fine, self.parameters.n_labels)) + 1

    @property
    def n_components(self) -> int:
        """Of the mixture that parties are sent, the mean of several."""
        return int(N_SEARCHES * self.parameters.n_components)

    @property
    def grid(self) -> Grid | None:
        """Of every party's noise; None if there is no pair of columns."""
        plan = self.private_plan
        assert isinstance(plan, PairwisePlan)
        return unit_grid(plan.pair_std * CODE_NORM**2) if plan.pair_std else None

    @property
    def terms(self) -> ProductTerms | None:
        """How products across parties are computed; None if there is one."""
        grid, n_columns = self.grid, self.n_columns
        if grid is None or len(n_columns) == 1:
            return None
        return ProductTerms.of(self.n_records, n_columns, self.width, grid, CODE_NORM**2)

    def learning(self, known: Known) -> PairwiseLearning:
        """Return what says what codes are, and draws a party's columns."""
        return PairwiseLearning(
            known,
            self.parameters.n_states,
            self.n_fine,
            self.parameters.n_labels,
            self.n_columns,
            self.n_components,
            self.grid,
        )

    def algorithm(self, channel: Channel, settings: AtOnce, streams: RandomStreams) -> PublishPairs:
        """Make the exchange, and the server that fits the mixture."""
        return PublishPairs(
            channel,
            self.terms,
            self.n_columns,
            self.width,
            self.n_records,
            self.grid,
            self.parameters.n_components,
            streams,
        )

    def multiply_adds(self, settings: AtOnce, widths: Mapping[str, int]) -> float:
        """Return those of a step of the fit."""
        side = self.width * sum(self.n_columns.values())
        return float(self.n_components * side**2)

    needs_less_memory = "use fewer columns, or lower n_states and n_labels"

    def memory(self, party: PairwiseParty, settings: AtOnce, size: Size) -> int:
        """Estimate the bytes of a party's states and tables, and its share of the server's fit."""
        n_own, n_all = len(party.transformer.histograms_), sum(self.n_columns.values())
        states = sum(min(len(h.counts), self.width) for h in party.transformer.histograms_.values())
        tables = 8 * states**2
        fit = 8 * _COPIES * states**2 * n_all // max(1, n_own)
        own = super().memory(party, settings, size)
        return own + tables + fit + 8 * size.n_records * 4 * n_own
