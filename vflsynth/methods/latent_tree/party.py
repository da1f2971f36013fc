"""A party of a differentially private latent tree: its columns in groups, one latent each.

`LatentTreeParty` has the records; `LatentTreeLearning` has what was published.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsynth.columns import Bounds, NoisyHistogram
from vflsynth.columns.bins import cell_codes
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import Known, Learning, Releasing
from vflsynth.learning.messages import check_distributions
from vflsynth.learning.products import ProductsParty, one_hot_codes
from vflsynth.methods.latent_tree.mechanism import LatentTreePlan
from vflsynth.methods.latent_tree.messages import LatentTables, LatentTree
from vflsynth.methods.latent_tree.model import (
    Codes,
    Floats,
    LatentClasses,
    conditional_shares,
    group_columns,
    group_distribution,
    information_of,
    merge_cells,
    pairs_of_one_party,
    top_down,
)
from vflsynth.methods.latent_tree.sampler import LatentTreeSampler, encoded_bins
from vflsynth.models.samplers import RowSampler
from vflsynth.privacy.histograms import exact_tables, release_tables
from vflsynth.privacy.releases import Release
from vflsynth.protocol.channel import SERVER, answers, takes


@dataclass(frozen=True)
class DiscreteColumn:
    """How the cells of a published histogram are merged into a few states.

    `states` are those of every cell; missing values are the last cell, with a state of their own if
    they are visible above the noise. `cells` are p(cell | state), (state, cell); `encoded` the
    cells that the encoding has, in its order.
    """

    states: Codes
    cells: Floats
    encoded: Codes

    @classmethod
    def of(cls, histogram: NoisyHistogram, n_states: int, n_labels: int) -> DiscreteColumn:
        """Merge by the published shares alone, numbers to `n_states`, categories to `n_labels`."""
        ordered, missing = isinstance(histogram.column, Bounds), histogram.has_missing
        shares = np.append(histogram.shares(), 0.0)
        encoded = np.arange(len(shares) - 1) if ordered else histogram.visible
        shares[np.setdiff1d(np.arange(len(shares)), encoded)] = 0.0
        most = n_states if ordered else n_labels
        states = merge_cells(shares[:-1], most, ordered=ordered)
        # A missing value that nobody sees counts as any state: it is in one cell all the same.
        states = np.append(states, states.max() + 1 if missing else 0)
        if missing:
            shares[-1], encoded = 1.0, np.append(encoded, len(shares) - 1)
        cells = np.zeros((states.max() + 1, len(states)))
        cells[states, np.arange(len(states))] = shares
        cells[cells.sum(1) == 0.0] = shares  # a state that only noise can bring about
        return cls(states, cells / cells.sum(1, keepdims=True), encoded)


def codes_of_records(
    frame: pd.DataFrame,
    histograms: Mapping[Hashable, NoisyHistogram],
    columns: Sequence[DiscreteColumn],
) -> list[Codes]:
    """Find the state of every record in each column."""
    return [
        column.states[cell_codes(frame[label], histogram.cells)]
        for column, (label, histogram) in zip(columns, histograms.items(), strict=True)
    ]


@dataclass(frozen=True)
class LatentAttribute:
    """A function of the columns of a group, which published tables determine.

    Of so many states; without classes it is the group's only column.
    """

    group: tuple[int, ...]
    size: int
    classes: LatentClasses | None = None

    def of_records(self, codes: Sequence[Codes]) -> Codes:
        """Return every record's state, from those of all columns."""
        if self.classes is None:
            return codes[self.group[0]]
        return self.classes.assign(np.stack([codes[column] for column in self.group], 1))


class LatentTreeParty(ProductsParty):
    """A party that has records: it releases noisy tables, and masks each record's attributes.

    Reads its records for three rounds of noisy tables: histograms, pairs of its own columns, and
    pairs of a latent attribute and a column or another latent attribute. A latent attribute is a
    function of one record's columns which the first two rounds determine. Tables of its own are
    released; to those with other parties' attributes it contributes masked states and shares.
    """

    plan: LatentTreePlan
    """The noise of its own tables."""

    def pair_tables(self, columns: Sequence[DiscreteColumn]) -> list[Release]:
        """Release the tables of all pairs of columns."""
        self._codes = codes_of_records(self.matched(), self.transformer.histograms_, columns)
        pairs, sizes = combinations(range(len(columns)), 2), [len(c.cells) for c in columns]
        std = self.plan.pair_std
        return release_tables(self._codes, pairs, sizes, noise_std=std, rng=self._noise)

    def latent_tables(
        self, latents: Sequence[LatentAttribute], columns: Sequence[DiscreteColumn]
    ) -> list[Release]:
        """Release tables of every latent attribute and the columns that it is made of."""
        self._latents = [latent.of_records(self._codes) for latent in latents]
        sizes = [*(latent.size for latent in latents), *(len(c.cells) for c in columns)]
        pairs = [
            (number, len(latents) + column)
            for number, latent in enumerate(latents)
            if latent.classes is not None
            for column in latent.group
        ]
        codes, std = [*self._latents, *self._codes], self.plan.tree_std
        return release_tables(codes, pairs, sizes, noise_std=std, rng=self._noise)

    def attribute_tables(self, latents: Sequence[LatentAttribute]) -> list[Release]:
        """Release tables of pairs of latent attributes; prepare those with other parties'."""
        codes, terms = self._latents, self.terms
        del self._latents, self._codes
        pairs = pairs_of_one_party(len(codes), len(terms.n_columns))
        tables = exact_tables(codes, pairs, [own.size for own in latents])
        if len(terms.n_columns) > 1:
            self.multiply(np.stack(codes, 1), one_hot_codes(terms))
        grid = terms.grid
        return [grid.release(grid.count(table.ravel()), rng=self._noise) for table in tables]


class LatentTreeLearning(Learning):
    """A party that has published tables: it makes groups and latent attributes of them.

    `group_sizes` are those of its groups of columns; `width` is the most states of a latent
    attribute of any party; `n_states` are the most of a discretised column, `n_latent_states` those
    of a latent attribute. `rng` is for the starts of expectation maximisation.

    Afterwards `columns` has p(cell | latent attribute of the column's group), (latent state, cell),
    of every column and the encoding's cells, and `group_of` the group of each.
    """

    columns: list[Floats]
    group_of: list[int]
    structure: LatentTree | None = None

    def __init__(
        self,
        known: Known,
        group_sizes: list[int],
        n_groups: Mapping[str, int],
        width: int,
        n_states: int,
        n_latent_states: int,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(known)
        self._group_sizes, self._n_groups, self._width = group_sizes, n_groups, width
        self._n_states, self._n_latent_states, self._rng = n_states, n_latent_states, rng

    def learn(self, records: Releasing) -> None:
        """Have tables published, make groups and latent attributes, and have theirs published."""
        histograms = self.transformer.histograms_.values()
        discrete = [DiscreteColumn.of(h, self._n_states, self._n_states) for h in histograms]
        index = list(combinations(range(len(discrete)), 2))
        tables = [release.values for release in records.release("pair_tables", discrete)]
        pairs = dict(zip(index, tables, strict=True))
        groups = group_columns(information_of(pairs, len(discrete)), self._group_sizes)
        latents = []
        for group in groups:
            if len(group) == 1:
                latents.append(LatentAttribute(group, len(discrete[group[0]].cells)))
                continue
            distribution = group_distribution(pairs, group)
            classes = LatentClasses.fit(distribution, self._n_latent_states, self._rng)
            latents.append(LatentAttribute(group, len(classes.shares), classes))
        self._sizes = [latent.size for latent in latents]
        self.columns = [column.cells[:, column.encoded] for column in discrete]
        self.group_of = [0] * len(discrete)
        published = iter(records.release("latent_tables", latents, discrete))
        for number, latent in enumerate(latents):
            for column in latent.group:
                self.group_of[column] = number
                if latent.classes is not None:
                    shares = conditional_shares(next(published).values)
                    self.columns[column] = shares @ self.columns[column]
        self._tables = records.release("attribute_tables", latents)

    @answers(LatentTables)
    def latent_tables(self, step: int) -> LatentTables:
        """Hand over the published tables of pairs of the party's own latent attributes."""
        steps = [np.zeros(0, np.int64), *(release.steps for release in self._tables)]
        counts = torch.tensor(np.concatenate(steps))
        return LatentTables(self.name, SERVER, step, counts, torch.tensor(self._sizes))

    @takes(LatentTree)
    def take_tree(self, message: LatentTree) -> None:
        """Take the tree of all parties' latent attributes.

        ProtocolError if it is no tree of as many as all know, with room for no more states than
        there may be, or not of the party's own.
        """
        what = f"the server sent party {self.name!r} a tree"
        parents, sizes = message.parents.tolist(), message.sizes.tolist()
        n_latents = sum(self._n_groups.values())
        first = sum(n for name, n in self._n_groups.items() if name < self.name)
        if (len(parents), message.first) != (n_latents, first):
            raise ProtocolError(
                f"{what} of {len(parents)} latent attributes, its own from number {message.first}; "
                f"expected {n_latents}, its own from number {first}"
            )
        own = sizes[first : first + len(self._sizes)]
        if own != self._sizes or not all(0 < n <= self._width for n in sizes):
            raise ProtocolError(
                f"{what} whose latent attributes have {sizes} states; expected numbers from 1 to "
                f"{self._width}, its own being {self._sizes}"
            )
        reached = top_down(parents)
        if parents.count(-1) != 1 or min(parents) < -1 or len(reached) != n_latents:
            raise ProtocolError(f"{what} with parents {parents}; expected one root, -1, above all")
        n_shares = sum(map(math.prod, tree_shapes(message)))
        if len(message.shares) != n_shares:
            raise ProtocolError(f"{what} with {len(message.shares)} shares; expected {n_shares}")
        for table in tree_tables(message):
            check_distributions(table, f"{what} with states of a latent attribute")
        self.structure = message

    def samplers(self) -> list[RowSampler]:
        """Put together what the party was sent and what it has."""
        tree = self.structure
        assert tree is not None, "the tree was scattered to all parties"
        histograms = list(self.transformer.histograms_.values())
        sampler = LatentTreeSampler(
            tree.parents.tolist(),
            tree_tables(tree),
            [torch.tensor(table) for table in self.columns],
            [tree.first + group for group in self.group_of],
            [encoded_bins(histogram) for histogram in histograms],
            [histogram.has_missing for histogram in histograms],
        )
        return [sampler]


def tree_shapes(tree: LatentTree) -> list[tuple[int, ...]]:
    """Return the shape of every latent attribute's distribution: (state,) or (parent's, state)."""
    parents, sizes = tree.parents.tolist(), tree.sizes.tolist()
    return [
        (sizes[node],) if parent < 0 else (sizes[parent], sizes[node])
        for node, parent in enumerate(parents)
    ]


def tree_tables(tree: LatentTree) -> list[Tensor]:
    """Return the distribution of every latent attribute, see `tree_shapes`."""
    shapes = tree_shapes(tree)
    parts = torch.split(tree.shares, [math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
