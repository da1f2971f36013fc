"""A party whose columns are counted in pairs, with its own and with those of the others.

`PairwiseParty` has the records; `PairwiseLearning` has what was published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, islice

import numpy as np
import torch

from vflsynth.columns import NoisyHistogram
from vflsynth.columns.bins import Bins
from vflsynth.columns.histograms import estimate_n_records
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import Known, Learning, Releasing
from vflsynth.learning.messages import check_distributions
from vflsynth.learning.products import ProductsParty
from vflsynth.methods.latent_tree.model import Codes, Floats
from vflsynth.methods.latent_tree.party import DiscreteColumn, codes_of_records
from vflsynth.methods.latent_tree.sampler import LatentTreeSampler, encoded_bins
from vflsynth.methods.pairwise.column_codes import CODE_NORM, Detail, column_code
from vflsynth.methods.pairwise.messages import ColumnTables, Mixture, StateCodes, codes_of
from vflsynth.methods.pairwise.tilts import CATEGORIES, GATED, LEAST_SHARE, ORDERED, within_states
from vflsynth.models.samplers import RowSampler
from vflsynth.privacy.histograms import exact_tables
from vflsynth.privacy.releases import Grid, Release
from vflsynth.protocol.channel import SERVER, answers, takes
from vflsynth.secure.membership import Codebook

_MOST_TAGS = 10_000_000
"""Of the states of other parties' columns, one of 8 bytes for each record, that a party sends."""

_SINGLE_VALUES = 0.9
"""Share of a column of few values: noise may have merged rare ones."""


class PairwiseParty(ProductsParty):
    """A party that has records: it releases products of its columns, and masks each record's codes.

    Reads its records for two rounds of noisy sums: histograms, and products of codes of all pairs
    of columns. Those of its own columns are released; to those with others' it contributes masked
    codes and shares.
    """

    def products(
        self, columns: Sequence[DiscreteColumn], vectors: Sequence[Codes], grid: Grid | None
    ) -> list[Release]:
        """Release the products of all pairs of the party's own columns, of their states' codes.

        The grid is that of this party's noise, None if there is no pair of columns.
        """
        codes = codes_of_records(self.matched(), self.transformer.histograms_, columns)
        self._vectors, self._states = vectors, np.stack(codes, 1)
        index = list(combinations(range(len(codes)), 2))
        tables = exact_tables(codes, index, [len(column.cells) for column in columns])
        found = []
        for (a, b), table in zip(index, tables, strict=True):
            assert grid is not None, "noise is planned where there are pairs"
            total = (vectors[a].T @ table @ vectors[b]).ravel()
            found.append(grid.release(grid.count(total), rng=self._noise))
        return found

    @takes(StateCodes)
    def take_codes(self, message: StateCodes) -> None:
        """Prepare what goes into products with other parties' columns; states are then dropped.

        ProtocolError if these are no codes of as many columns as all have, or not the party's own.
        """
        terms = self.terms
        what, sizes = f"the server sent party {self.name!r}", message.sizes.tolist()
        total = sum(terms.n_columns.values())
        if len(sizes) != total or not all(0 < size <= terms.width for size in sizes):
            raise ProtocolError(
                f"{what} codes of columns with {sizes} states; expected {total} numbers from 1 to "
                f"{terms.width}"
            )
        codes = iter(codes_of(message, sizes, terms.width))
        book = Codebook({name: [*islice(codes, n)] for name, n in sorted(terms.n_columns.items())})
        if not all(map(np.array_equal, book.codes[self.name], self._vectors)):
            raise ProtocolError(f"{what} codes of its own columns that are not its own")
        self.multiply(self._states, book)
        del self._states


class PairwiseLearning(Learning):
    """A party that has published histograms and products: it says what codes are, and learns.

    `n_states`, `n_fine` and `n_labels` are the most states of a column of numbers, of one where
    noise is little, and of one of categories, missing values not included; `n_components` those of
    the mixture that the server will send. The grid is that of this party's noise, None if there is
    no pair of columns. `cells` are p(cell | state) of every column, (state, cell), of the
    encoding's cells, by the published histograms.
    """

    mixture: Mixture | None = None

    def __init__(
        self,
        known: Known,
        n_states: int,
        n_fine: int,
        n_labels: int,
        n_columns: Mapping[str, int],
        n_components: int,
        grid: Grid | None,
    ) -> None:
        super().__init__(known)
        histograms = list(known.transformer.histograms_.values())
        self._n_records = estimate_n_records(h.counts for h in histograms)
        detail = detail_of(grid, self._n_records)
        most = n_states
        if detail.is_fine:
            most = min(max(n_states, affordable_states(n_columns, self._n_records)), n_fine)
        self._discrete = [DiscreteColumn.of(h, most, n_labels) for h in histograms]
        self.cells = [column.cells[:, column.encoded] for column in self._discrete]
        self._sizes = [len(column.cells) for column in self._discrete]
        self._shares = [
            state_shares(column, h.shares(), h.missing_share)
            for column, h in zip(self._discrete, histograms, strict=True)
        ]
        few = n_labels if detail.is_fine else 0
        self._kinds = [_kind(h, few) for h in histograms]
        self._vectors = [
            column_code(*own, detail) for own in zip(self._shares, self._kinds, strict=True)
        ]
        self._grid, self._n_components, self._degree = grid, n_components, detail.degree

    def learn(self, records: Releasing) -> None:
        """Have the products of the party's own columns published."""
        self._products = records.release("products", self._discrete, self._vectors, self._grid)

    @answers(ColumnTables)
    def column_tables(self, step: int) -> ColumnTables:
        """Hand over the published products, and what codes are."""
        steps = [np.zeros(0, np.int64), *(release.steps for release in self._products)]
        return ColumnTables(
            self.name,
            SERVER,
            step,
            torch.tensor(np.concatenate(steps)),
            torch.tensor(self._sizes),
            torch.tensor(np.concatenate(self._shares)),
            torch.tensor(self._kinds),
            torch.tensor([code.shape[1] for code in self._vectors]),
            torch.tensor(np.concatenate([code.ravel() for code in self._vectors])),
            torch.tensor([self._n_records], dtype=torch.float64),
        )

    @takes(Mixture)
    def take_mixture(self, message: Mixture) -> None:
        """Take the weights, and p(state | component) of the party's own columns.

        ProtocolError if it is no mixture of as many components as all know, of the party's columns.
        """
        what = f"the server sent party {self.name!r} a mixture"
        expected = (self._n_components, sum(self._sizes))
        if tuple(message.shares.shape) != expected:
            raise ProtocolError(
                f"{what} of shape {tuple(message.shares.shape)}; expected {expected[0]} "
                f"components, and {expected[1]} states of its columns"
            )
        check_distributions(message.weights, f"{what} with weights")
        for part in torch.split(message.shares, self._sizes, 1):
            check_distributions(part, f"{what} with states of a column")
        self.mixture = message

    def samplers(self) -> list[RowSampler]:
        """Put together what the party was sent and what it has: a tree of one latent attribute."""
        assert self.mixture is not None, "the mixture was scattered to all parties"
        weights = self.mixture.weights.double()
        parts = torch.split(self.mixture.shares.double(), self._sizes, 1)
        columns = [  # p(cell | component), shape (component, cell)
            within_states(
                weights, part, torch.tensor(shares), torch.tensor(cells), kind, self._degree
            )
            for part, shares, cells, kind in zip(
                parts, self._shares, self.cells, self._kinds, strict=True
            )
        ]
        histograms = list(self.transformer.histograms_.values())
        sampler = LatentTreeSampler(
            [-1],
            [self.mixture.weights],
            columns,
            [0] * len(histograms),
            [encoded_bins(histogram) for histogram in histograms],
            [histogram.has_missing for histogram in histograms],
        )
        return [sampler]


def detail_of(grid: Grid | None, n_records: float) -> Detail:
    """Return what codes can tell with the noise of sums of so many records' products."""
    return Detail(0.0 if grid is None else grid.noise_std / (n_records * CODE_NORM**2))


def affordable_states(n_columns: Mapping[str, int], n_records: float) -> int:
    """Return how many states a column may have for messages to stay small.

    `n_records` is by published histograms: states are in the saved model, the true number is not.
    """
    others = sum(n_columns.values()) - min(n_columns.values())
    return int(_MOST_TAGS / max(1.0, n_records * others)) - 2  # and two of what no state is


def state_shares(column: DiscreteColumn, cells: Floats, missing: float) -> Floats:
    """Add up a published histogram's shares by state, shape (state,); all are above 0."""
    shares = np.append(cells * (1.0 - missing), missing)
    found = np.bincount(column.states, shares, len(column.cells))
    found = np.maximum(found, LEAST_SHARE)
    normalised: Floats = found / found.sum()
    return normalised


def _kind(histogram: NoisyHistogram, few: int) -> int:
    """Numbers of few values are told apart as labels are: rules may be about single ones."""
    cells, shares = histogram.cells, histogram.shares()
    if not isinstance(cells, Bins):
        return CATEGORIES
    n_cells, single = np.count_nonzero(shares > 0.0), shares[cells.single].sum()
    if n_cells <= few and single >= _SINGLE_VALUES:
        return CATEGORIES
    return GATED if histogram.has_missing else ORDERED
