"""A party of a differentially private latent tree: its columns in groups, one latent each."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsynth.columns import Bounds, NoisyHistogram
from vflsynth.columns.bins import cell_codes
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.products import ProductsParty, ProductTerms, one_hot_codes
from vflsynth.learning.received import check_distributions
from vflsynth.methods.latent_tree.mechanism import LatentTreePlan
from vflsynth.methods.latent_tree.messages import LatentTables, LatentTree
from vflsynth.methods.latent_tree.model import (
    Codes,
    Floats,
    LatentClasses,
    conditional_shares,
    group_columns,
    group_distribution,
    merge_cells,
    mutual_information,
    pairs_of_one_party,
    top_down,
)
from vflsynth.privacy.contingency import exact_tables, release_tables
from vflsynth.protocol import SERVER, answers, takes


@dataclass(frozen=True)
class DiscreteColumn:
    """How the cells of a published histogram are merged into a few states.

    Parameters
    ----------
    states : int64 array, shape (cell,)
        State of every cell; missing values are the last cell, with a state of their own if they are
        visible above the noise.
    cells : float64 array, shape (state, cell)
        p(cell | state).
    encoded : int64 array
        The cells that the encoding has, in its order.
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


def discretised(
    frame: pd.DataFrame,
    histograms: Mapping[Hashable, NoisyHistogram],
    n_states: int,
    n_labels: int,
) -> tuple[list[DiscreteColumn], list[Codes]]:
    """Merge the cells of all columns, and find the state of every record in each."""
    columns = [DiscreteColumn.of(h, n_states, n_labels) for h in histograms.values()]
    codes = [
        column.states[cell_codes(frame[label], histogram.cells)]
        for column, (label, histogram) in zip(columns, histograms.items(), strict=True)
    ]
    return columns, codes


class LatentTreeParty(ProductsParty):
    """A party that publishes noisy tables, and masks each record's latent attributes.

    Parameters
    ----------
    name, frame, on
        See `Party`.

    Attributes
    ----------
    columns : list of float64 array, shape (latent state, cell)
        p(cell | latent attribute of the column's group), per column, of the encoding's cells.
    group_of : list of int
        Group of each column.

    Notes
    -----
    Reads its records for three rounds of noisy tables: histograms, pairs of its own columns, and
    pairs of a latent attribute and a column or another latent attribute. A latent attribute is a
    function of one record's columns which the first two rounds determine. Tables of its own are
    published; to those with other parties' attributes it contributes masked states and shares.
    """

    columns: list[Floats]
    group_of: list[int]
    structure: LatentTree | None = None

    def publish(
        self,
        plan: LatentTreePlan,
        sizes: list[int],
        n_states: int,
        n_latent_states: int,
        rng: np.random.Generator,
        noise: torch.Generator | None = None,
    ) -> None:
        """Publish the tables and make groups and latent attributes of them.

        Parameters
        ----------
        plan : LatentTreePlan
            Noise of the contingency tables, in counts per cell.
        sizes : list of int
            Of the party's groups of columns.
        n_states, n_latent_states : int
            Most states of a discretised column; states of a latent attribute.
        rng : numpy.random.Generator
            For the starts of expectation maximisation.
        noise : torch.Generator, optional
            For tests only; see `vflsynth.privacy.noise`.
        """
        self._plan, self._n_latent_states = plan, n_latent_states
        self._rng, self._noise = rng, noise
        discrete, codes = discretised(
            self.matched(), self.transformer.histograms_, n_states, n_states
        )
        n_cells = [len(column.cells) for column in discrete]
        index = list(combinations(range(len(codes)), 2))
        pairs = dict(
            zip(
                index,
                release_tables(
                    [codes[a] for a, _ in index],
                    [codes[b] for _, b in index],
                    [(n_cells[a], n_cells[b]) for a, b in index],
                    noise_std=plan.pair_std,
                    rng=self._noise,
                ),
                strict=True,
            )
        )
        information = np.zeros((len(codes), len(codes)))
        for (a, b), table in pairs.items():
            information[a, b] = information[b, a] = mutual_information(table)
        groups = group_columns(information, sizes)
        self.latents = [self._latent(group, codes, n_cells, pairs) for group in groups]
        self._describe_columns(groups, codes, discrete)

    def _latent(
        self,
        group: tuple[int, ...],
        codes: list[Codes],
        n_cells: list[int],
        pairs: dict[tuple[int, int], Floats],
    ) -> tuple[Codes, int]:
        """Every record's latent attribute of a group, and its number of states."""
        if len(group) == 1:
            return codes[group[0]], n_cells[group[0]]
        distribution = group_distribution(pairs, group)
        classes = LatentClasses.fit(distribution, self._n_latent_states, self._rng)
        return classes.assign(np.stack([codes[c] for c in group], 1)), len(classes.shares)

    def _describe_columns(
        self, groups: list[tuple[int, ...]], codes: list[Codes], discrete: list[DiscreteColumn]
    ) -> None:
        """Publish tables of latent attribute and column, and keep p(cell | latent attribute)."""
        self.columns = [column.cells[:, column.encoded] for column in discrete]
        self.group_of = [0] * len(codes)
        for number, (group, (latent, n_latent)) in enumerate(
            zip(groups, self.latents, strict=True)
        ):
            for column in group:
                self.group_of[column] = number
            if len(group) == 1:
                continue  # the latent attribute is the column
            tables = release_tables(
                [latent] * len(group),
                [codes[column] for column in group],
                [(n_latent, len(discrete[column].cells)) for column in group],
                noise_std=self._plan.tree_std,
                rng=self._noise,
            )
            for column, table in zip(group, tables, strict=True):
                self.columns[column] = conditional_shares(table) @ self.columns[column]

    def share(self, terms: ProductTerms, secret: bytes) -> None:
        """Prepare what goes into tables with other latent attributes; codes are then dropped.

        Parameters
        ----------
        terms : ProductTerms
            Columns being latent attributes.
        secret : bytes
            The parties', new in every attempt.
        """
        codes, self._sizes = [c for c, _ in self.latents], [size for _, size in self.latents]
        del self.latents
        self._terms = terms
        index = pairs_of_one_party(len(codes), len(terms.n_columns))
        self._own_tables = exact_tables(
            [codes[a] for a, _ in index],
            [codes[b] for _, b in index],
            [(self._sizes[a], self._sizes[b]) for a, b in index],
        )
        if len(terms.n_columns) > 1:
            states = np.stack(codes, 1)
            self.multiply(states, one_hot_codes(terms), terms, secret, self._noise)

    @answers(LatentTables)
    def latent_tables(self, step: int) -> LatentTables:
        """Publish the tables of pairs of the party's own latent attributes, once."""
        tables, self._own_tables = self._own_tables, []
        grid = self._terms.grid
        steps = [grid.release(grid.count(table.ravel()), rng=self._noise).steps for table in tables]
        counts = torch.tensor(np.concatenate([np.zeros(0, np.int64), *steps]))
        return LatentTables(self.name, SERVER, step, counts, torch.tensor(self._sizes))

    @takes(LatentTree)
    def take_tree(self, message: LatentTree) -> None:
        """Take the tree of all parties' latent attributes.

        Raises
        ------
        ProtocolError
            If it is no tree of as many as all know, with room for no more states than there may be,
            or not of the party's own.
        """
        what = f"the server sent party {self.name!r} a tree"
        parents, sizes = message.parents.tolist(), message.sizes.tolist()
        n_latents, (first, last) = sum(self._terms.n_columns.values()), self._places()
        if (len(parents), message.first) != (n_latents, first):
            raise ProtocolError(
                f"{what} of {len(parents)} latent attributes, its own from number {message.first}; "
                f"expected {n_latents}, its own from number {first}"
            )
        if sizes[first:last] != self._sizes or not all(0 < n <= self._terms.width for n in sizes):
            raise ProtocolError(
                f"{what} whose latent attributes have {sizes} states; expected numbers from 1 to "
                f"{self._terms.width}, its own being {self._sizes}"
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

    def _places(self) -> tuple[int, int]:
        """Where the party's own latent attributes begin and end, among those of all parties."""
        first = sum(n for name, n in self._terms.n_columns.items() if name < self.name)
        return first, first + len(self._sizes)


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
