"""The exchange, and the server that fits a mixture to noisy products of all pairs of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError, PublishingWarning, warn_user
from vflsynth.learning.base import Algorithm
from vflsynth.learning.messages import check_distributions, states_of, tables_of
from vflsynth.learning.products import ProductTerms, noisy_products
from vflsynth.methods.pairwise.column_codes import CODE_NORM, Codes
from vflsynth.methods.pairwise.messages import ColumnTables, Mixture, StateCodes, codes_of
from vflsynth.methods.pairwise.party import detail_of
from vflsynth.methods.pairwise.product_mixtures import (
    N_SEARCHES,
    N_SPLITS,
    ProductMixture,
    StackedCodes,
    fit_product_mixture,
)
from vflsynth.methods.pairwise.tilts import CATEGORIES, GATED, LEAST_SHARE, ORDERED, tilt_basis
from vflsynth.privacy.releases import Floats, Grid
from vflsynth.protocol.channel import SERVER, Channel
from vflsynth.secure.membership import Codebook, Pair, coordinates_of


@dataclass(eq=False)
class PublishPairs(Algorithm):
    """Noisy products of one party's columns, secure sums for those across parties, the mixture.

    The server finds one that has them. There are no terms if there is one party. Columns have at
    most `width` states; the grid is that of every party's noise, None if there is no pair of
    columns; the mean of mixtures of `n_components` each is taken. Sees published products of pairs
    of one party's columns, and of pairs across parties those with the noise of both, which
    `vflsynth.learning.products` computes. Of its own streams are the starts of the fit, and what
    takes products apart.
    """

    channel: Channel
    terms: ProductTerms | None
    n_columns: Mapping[str, int]
    width: int
    n_records: int
    grid: Grid | None
    n_components: int
    streams: RandomStreams

    def begin(self) -> None:
        """Publish."""
        tables, products = self.channel.gather(ColumnTables, 0), {}
        book = self.codebook(tables)
        if self.terms is not None:
            codes = book.all
            sizes, dims = (torch.tensor([code.shape[axis] for code in codes]) for axis in (0, 1))
            flat = torch.tensor(np.concatenate([code.ravel() for code in codes]))
            self.tell(lambda name: StateCodes(SERVER, name, 0, sizes, dims, flat))
            products = noisy_products(self.channel, book, self.terms)
        self.channel.scatter(self.put_together(tables, book, products))

    def codebook(self, messages: Mapping[str, ColumnTables]) -> Codebook:
        """Return the codes of all parties' columns, or name a party that sent what it must not."""
        return Codebook(
            {
                name: codes_of(m, states_of(m, self.n_columns[name], self.width), self.width)
                for name, m in messages.items()
            }
        )

    def put_together(
        self,
        messages: Mapping[str, ColumnTables],
        book: Codebook,
        products: Mapping[Pair, list[list[Floats]]],
    ) -> dict[str, Mixture]:
        """Put all products together and fit; ProtocolError names a party that is wrong.

        `products` are those of `noisy_products`, empty if there is one party. A PublishingWarning
        says where nothing shows that the columns of two parties are related.
        """
        names = sorted(messages)
        sizes = {name: [len(code) for code in book.codes[name]] for name in names}
        first = dict(zip(names, np.cumsum([0, *(len(sizes[name]) for name in names)]).tolist()))
        marginals = [own for name in names for own in self._marginals(messages[name], sizes[name])]
        kinds = [kind for name in names for kind in self._kinds(messages[name])]
        n_records = fmean([self._n_records(messages[name]) for name in names])
        own, side = coordinates_of(book.all), sum(book.widths.values())
        sums, variance = np.zeros((side, side)), np.zeros((side, side))
        noise = 0.0 if self.grid is None else self.grid.noise_std**2

        def put(a: int, b: int, table: Floats, of: float) -> None:
            sums[own[a], own[b]], sums[own[b], own[a]] = table, table.T
            variance[own[a], own[b]] = variance[own[b], own[a]] = of

        for name in names:
            for (a, b), table in self._own(messages[name], book.codes[name]).items():
                put(first[name] + a, first[name] + b, table, noise)
        for (one, other), tables in products.items():
            for a, b in np.ndindex(len(tables), len(tables[0])):
                put(first[one] + a, first[other] + b, tables[a][b], 2.0 * noise)
        mixture, pairs = self._fit(
            marginals,
            book.all,
            kinds,
            sums / (n_records * CODE_NORM**2),
            variance / (n_records * CODE_NORM**2) ** 2,
            n_records,
            torch.tensor([i for i, name in enumerate(names) for _ in sizes[name]]),
        )
        columns = {name: slice(first[name], first[name] + len(sizes[name])) for name in names}
        for one, other in combinations(names, 2):
            if not bool(pairs[columns[one], columns[other]].any()):
                warn_user(
                    f"no relation of columns of {one!r} and {other!r} is more than noise at this "
                    "epsilon: their parts of a synthetic record are independent",
                    PublishingWarning,
                )
        return {
            name: Mixture(
                SERVER,
                name,
                0,
                mixture.weights,
                torch.cat(
                    [mixture.shares[:, first[name] + c, :n] for c, n in enumerate(sizes[name])], 1
                ),
            )
            for name in names
        }

    def _fit(
        self,
        marginals: Sequence[Floats],
        codes: Sequence[Codes],
        kinds: Sequence[int],
        products: Floats,
        noise: Floats,
        n_records: float,
        groups: Tensor,
    ) -> tuple[ProductMixture, Tensor]:
        shares = torch.zeros(len(marginals), max(map(len, marginals)))
        for column, own in zip(shares, marginals, strict=True):
            column[: len(own)] = torch.tensor(own)
        vectors = [code / CODE_NORM for code in codes]
        means, squares = (
            np.concatenate([own @ v**power for own, v in zip(marginals, vectors, strict=True)])
            for power in (1, 2)
        )
        drawn = np.outer(squares, squares) - np.outer(means, means) ** 2
        detail = detail_of(self.grid, n_records)
        basis = tilt_basis(shares, kinds, detail.degree)
        starts, splits = (
            self.streams.normal(f"{what} of the mixture", 0, shape)[0].float().cpu()
            for what, shape in (
                ("starts", (N_SEARCHES, self.n_components, len(codes), max(map(len, codes)))),
                ("splits", (N_SPLITS, *products.shape)),
            )
        )
        return fit_product_mixture(
            shares,
            StackedCodes.of([torch.tensor(vector).float() for vector in vectors]),
            torch.tensor(products).float(),
            torch.tensor(noise).float(),
            torch.tensor(drawn / n_records).float(),
            basis,
            starts[..., : basis.shape[1]],
            splits if detail.is_coarse else splits[:1],
            groups,
            detail.n_steps,
        )

    @staticmethod
    def _n_records(message: ColumnTables) -> float:
        found = float(message.n_records[0])
        if not 1.0 <= found < 2.0**62:
            raise ProtocolError(
                f"party {message.sender!r} says that its histograms have {found:.4g} records; "
                "expected a number from 1"
            )
        return found

    def _kinds(self, message: ColumnTables) -> list[int]:
        kinds: list[int] = message.kinds.tolist()
        expected = self.n_columns[message.sender]
        if len(kinds) != expected or not {*kinds} <= {CATEGORIES, ORDERED, GATED}:
            raise ProtocolError(
                f"party {message.sender!r} says that its columns are of kinds {kinds}; "
                f"expected {expected} numbers from {CATEGORIES} to {GATED}"
            )
        return kinds

    def _own(self, message: ColumnTables, codes: Sequence[Codes]) -> dict[tuple[int, int], Floats]:
        index = list(combinations(range(len(codes)), 2))
        shapes = [(codes[a].shape[1], codes[b].shape[1]) for a, b in index]
        largest = self.n_records * CODE_NORM**2
        return dict(zip(index, tables_of(message, shapes, largest, self.grid), strict=True))

    def _marginals(self, message: ColumnTables, sizes: list[int]) -> list[Floats]:
        shares = message.shares
        if len(shares) != sum(sizes):
            raise ProtocolError(
                f"party {message.sender!r} sent shares of {len(shares)} states; expected those of "
                f"{sum(sizes)}"
            )
        parts = list(torch.split(shares, sizes))
        for part in parts:
            what = f"party {message.sender!r} sent a column's states"
            check_distributions(part, what, least=LEAST_SHARE / 2.0)
        return [part.numpy() for part in parts]
