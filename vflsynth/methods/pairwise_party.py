"""A party whose columns are counted in pairs, with its own and with those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from vflsynth.columns import NoisyHistogram
from vflsynth.columns.bins import Bins
from vflsynth.columns.histograms import estimate_n_records
from vflsynth.exceptions import ProtocolError
from vflsynth.latent_tree import Floats
from vflsynth.methods.latent_tree_party import DiscreteColumn, discretised
from vflsynth.methods.party import Party
from vflsynth.methods.received import check_distributions
from vflsynth.networks.tilts import (
    CATEGORIES,
    CODE_NORM,
    GATED,
    LEAST_SHARE,
    ORDERED,
    column_code,
    within_states,
)
from vflsynth.privacy.contingency import exact_tables
from vflsynth.privacy.releases import Grid
from vflsynth.protocol import SERVER, answers, takes
from vflsynth.protocol.messages import ColumnTables, MaskedStates, Mixture, SumShares
from vflsynth.secure import Arithmetic, ProductParty


class PairwiseParty(Party):
    """A party that publishes noisy products of its columns, and masks each record's codes.

    Parameters
    ----------
    name, frame, on
        See `Party`.

    Attributes
    ----------
    cells : list of float64 array, shape (state, cell)
        p(cell | state) of every column, of the encoding's cells, by the published histograms.
    mixture : Mixture or None
        What the server fitted.

    Notes
    -----
    Reads its records for two rounds of noisy sums: histograms, and products of codes of all pairs
    of columns. Those of its own columns are published; to those with others' it contributes masked
    codes and shares.
    """

    cells: list[Floats]
    mixture: Mixture | None = None

    def share(
        self,
        n_states: int,
        n_components: int,
        n_columns: Mapping[str, int],
        grid: Grid | None,
        arithmetic: Arithmetic | None,
        secret: bytes,
        noise: torch.Generator | None = None,
        n_dummies: int = 0,
    ) -> None:
        """Find the states of all records, and prepare what they contribute to.

        Parameters
        ----------
        n_states : int
            Most states of a column, missing values not included.
        n_components : int
            Of the mixture that the server will send.
        n_columns : mapping of party name to int
        grid : Grid, optional
            Of this party's noise. Default: there is no pair of columns.
        arithmetic : Arithmetic, optional
            Of secure sums, likewise.
        secret : bytes
            The parties', new in every attempt.
        noise : torch.Generator, optional
            For tests only; see `vflsynth.privacy.noise`.
        n_dummies : int, default=0
            Among the records that are masked.
        """
        histograms = list(self.transformer.histograms_.values())
        discrete, codes = discretised(self.matched(), self.transformer.histograms_, n_states)
        self.cells = [column.cells[:, column.encoded] for column in discrete]
        self._sizes = [len(column.cells) for column in discrete]
        self._shares = [
            state_shares(column, h.shares(), h.missing_share)
            for column, h in zip(discrete, histograms, strict=True)
        ]
        self._kinds = [_kind(h) for h in histograms]
        self._n_records = estimate_n_records(h.counts for h in histograms)
        error = mean_noise(grid, self._n_records)
        vectors = [column_code(*own, error) for own in zip(self._shares, self._kinds, strict=True)]
        index = list(combinations(range(len(codes)), 2))
        tables = exact_tables(
            [codes[a] for a, _ in index],
            [codes[b] for _, b in index],
            [(self._sizes[a], self._sizes[b]) for a, b in index],
        )
        self._own_products = [
            vectors[a].T @ table @ vectors[b] for (a, b), table in zip(index, tables, strict=True)
        ]
        self._grid, self._noise, self._n_components = grid, noise, n_components
        if len(n_columns) > 1:
            assert arithmetic is not None, "two parties' columns are pairs"
            width = n_states + 1
            padded = [np.pad(v, ((0, 0), (0, width - v.shape[1]))) for v in vectors]
            matrix = np.concatenate([v[c] for v, c in zip(padded, codes, strict=True)], 1)
            widths = {name: n * width for name, n in n_columns.items()}
            self._products = ProductParty(self.name, matrix, widths, secret, arithmetic, n_dummies)

    @answers(ColumnTables)
    def column_tables(self, step: int) -> ColumnTables:
        """Publish the products of all pairs of the party's own columns, once."""
        sums, self._own_products = self._own_products, []
        found = [np.zeros(0, np.int64)]
        if self._grid is not None:
            grid = self._grid
            found += [grid.release(grid.count(s.ravel()), rng=self._noise).steps for s in sums]
        return ColumnTables(
            self.name,
            SERVER,
            step,
            torch.tensor(np.concatenate(found)),
            torch.tensor(self._sizes),
            torch.tensor(np.concatenate(self._shares)),
            torch.tensor(self._kinds),
            torch.tensor([self._n_records], dtype=torch.float64),
        )

    @answers(MaskedStates)
    def masked_states(self, step: int) -> MaskedStates:
        """Mask a block of records."""
        return MaskedStates(self.name, SERVER, step, self._products.mask(step))

    @answers(SumShares)
    def sum_shares(self, step: int) -> SumShares:
        """Send shares of all products with other parties' columns, all of them with noise."""
        assert self._grid is not None, "two parties' columns are pairs"
        noise = self._grid.noise((self._products.n_shares,), rng=self._noise)
        return SumShares(self.name, SERVER, step, self._products.shares(noise))

    @takes(Mixture)
    def take_mixture(self, message: Mixture) -> None:
        """Take the weights, and p(state | component) of the party's own columns.

        Raises
        ------
        ProtocolError
            If it is no mixture of as many components as all know, of the party's columns.
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

    def columns(self) -> list[Tensor]:
        """Return p(cell | component), shape (component, cell), of every column."""
        assert self.mixture is not None, "the mixture was scattered to all parties"
        weights = self.mixture.weights.double()
        parts = torch.split(self.mixture.shares.double(), self._sizes, 1)
        return [
            within_states(weights, part, torch.tensor(shares), torch.tensor(cells), kind)
            for part, shares, cells, kind in zip(
                parts, self._shares, self.cells, self._kinds, strict=True
            )
        ]


def mean_noise(grid: Grid | None, n_records: float) -> float:
    """Return the standard deviation of a mean product's noise, where codes have a norm of 1."""
    return 0.0 if grid is None else grid.noise_std / (n_records * CODE_NORM**2)


def state_shares(column: DiscreteColumn, cells: Floats, missing: float) -> Floats:
    """Add up a published histogram's shares by state, shape (state,); all are above 0."""
    shares = np.append(cells * (1.0 - missing), missing)
    found = np.bincount(column.states, shares, len(column.cells))
    found = np.maximum(found, LEAST_SHARE)
    normalised: Floats = found / found.sum()
    return normalised


def _kind(histogram: NoisyHistogram) -> int:
    if not isinstance(histogram.cells, Bins):
        return CATEGORIES
    return GATED if histogram.has_missing else ORDERED
