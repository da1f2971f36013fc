"""Mixtures of products: columns independent given one latent state, fitted to sums of products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from vflsynth.networks.adam import FlatAdam

_LEARNING_RATE, _FINAL_RATE, _BETAS = 0.1, 0.02, (0.9, 0.999)
_SPREAD = 0.3

_HOLD = 10.0
"""Weight of an error of a marginal, which histograms tell better than products do."""

N_SEARCHES = 4
"""From different starts, of which the mean is taken."""

N_SPLITS = 4
"""Of what is fitted, to find out when to stop, where noise is most of it."""

_PART = 0.5
"""Of a product's deviation, added to what is fitted; the less, the worse the judge sees."""


@dataclass(frozen=True, slots=True)
class StackedCodes:
    """Vectors that stand for the states of columns, of all columns side by side.

    Parameters
    ----------
    padded : Tensor, shape (column, state, coordinate)
        0 for states and coordinates that a column has not got.
    there : int64 Tensor, shape (stacked coordinate,)
        Which of all columns' coordinates they have.
    """

    padded: Tensor
    there: Tensor

    @classmethod
    def of(cls, codes: Sequence[Tensor]) -> StackedCodes:
        """Put codes, each of shape (state, coordinate), side by side."""
        n_states, n_coordinates = (max(code.shape[axis] for code in codes) for axis in (0, 1))
        padded = torch.zeros(len(codes), n_states, n_coordinates)
        there = torch.zeros(len(codes), n_coordinates, dtype=torch.bool)
        for column, code in enumerate(codes):
            padded[column, : code.shape[0], : code.shape[1]] = code
            there[column, : code.shape[1]] = True
        return cls(padded, there.flatten().nonzero().squeeze(1))

    def means(self, shares: Tensor) -> Tensor:
        """Average by shares of states, (..., column, state), to (..., stacked coordinate)."""
        means: Tensor = torch.einsum("...cs,csi->...ci", shares, self.padded)
        return means.flatten(-2)[..., self.there]

    @property
    def columns(self) -> Tensor:
        """The column of every stacked coordinate, int64, shape (stacked coordinate,)."""
        return self.there // self.padded.shape[2]

    def precede(self) -> Tensor:
        """Say of every two stacked coordinates whether the first one's column is the earlier."""
        return self.columns[:, None] < self.columns

    def sums(self, products: Tensor) -> Tensor:
        """Add up over both columns' coordinates, to shape (column, column)."""
        owners = nn.functional.one_hot(self.columns, len(self.padded)).to(products)
        return owners.mT @ products @ owners


@dataclass(frozen=True, slots=True)
class ProductMixture:
    """A distribution of discrete columns, or several.

    Parameters
    ----------
    weights : Tensor, shape (..., component)
        Adding up to 1.
    shares : Tensor, shape (..., component, column, state)
        p(state | component); 0 for states that a column has not got.
    """

    weights: Tensor
    shares: Tensor

    def marginals(self) -> Tensor:
        """Return p(state), shape (..., column, state)."""
        return torch.einsum("...k,...kcs->...cs", self.weights, self.shares)

    def products(self, codes: StackedCodes) -> Tensor:
        """Return mean products of two columns' codes.

        Parameters
        ----------
        codes : StackedCodes
            One-hot ones make tables: p(state of a, state of b).

        Returns
        -------
        Tensor, shape (..., stacked coordinate, stacked coordinate)
            A column with itself has that of two draws of one component, of no use.
        """
        means = codes.means(self.shares)
        return means.mT @ (self.weights.unsqueeze(-1) * means)

    def mean(self) -> ProductMixture:
        """Make one of several, shape (mixture, component, ...), that have equal weight."""
        weights = self.weights.flatten() / len(self.weights)
        return ProductMixture(weights, self.shares.flatten(0, 1))

    def apart(self, columns: Tensor) -> ProductMixture:
        """Make columns independent of all others, with their marginals.

        Parameters
        ----------
        columns : bool Tensor, shape (..., column)
        """
        means = self.marginals().unsqueeze(-3)
        return ProductMixture(
            self.weights, torch.where(columns[..., None, :, None], means, self.shares)
        )


def fit_product_mixture(
    marginals: Tensor,
    codes: StackedCodes,
    products: Tensor,
    noise: Tensor,
    sampling: Tensor,
    basis: Tensor,
    starts: Tensor,
    splits: Tensor,
    n_steps: int,
) -> ProductMixture:
    """Fit to mean products by weighted least squares, for as long as it predicts better.

    Parameters
    ----------
    marginals : Tensor, shape (column, state)
        One-way shares, 0 for states that a column has not got; where the search begins.
    codes : StackedCodes
    products : Tensor, shape (stacked coordinate, stacked coordinate)
        Mean products of two columns' codes, with noise.
    noise : Tensor, shaped like `products`
        Variance of each one's noise; 0 for those that are not known.
    sampling : Tensor, shaped like `products`
        Variance by which records were drawn.
    basis : Tensor, shape (column, tilt, state)
        Directions in which a component's log shares differ from the marginals'; see
        `vflsynth.networks.tilts.tilt_basis`.
    starts : Tensor, shape (search, component, column, tilt)
        Normal numbers by which components differ at first: alike they would stay alike.
    splits : Tensor, shape (split, *products.shape)
        Normal numbers that take the products apart, each time anew.
    n_steps : int
        Of Adam, at most.

    Returns
    -------
    ProductMixture
        One, of the components of all searches.

    Notes
    -----
    Where a search ends depends on where it starts: products of two columns do not say what three
    have together. The mean of mixtures from several starts has less of what is peculiar to one, and
    is a mixture.

    Source of the stop: data fission (Leiner, Duan, Wasserman and Ramdas 2023). With s of a
    product's deviation, noise and sampling, ``x + s z / 2`` and ``x - 2 s z`` err independently. A
    search that sees the former only is judged by the latter after every step; the whole then gets
    as many steps as were best, on average of the splits: beyond these, noise is learned, or which
    records were drawn. One split alone is by chance far off where noise is most of what is seen;
    where it is not, the average of several stops a little early. Splits have a start each, in turn.

    Columns whose relations do not help to predict are then made independent (`without_relations`).

    All products of a mixture of K components are one product of matrices, so a step takes
    ``3 K coordinates^2`` multiply-adds however many columns have them. All splits are searched side
    by side, and then from all starts.
    """
    variance = torch.where(noise > 0.0, noise + sampling, 0.0)
    shift = variance.sqrt() * torch.where(codes.precede(), splits, splits.mT)
    seen, held_out = products + _PART * shift, products - shift / _PART
    precision, least, best, judged = _one_over(variance), math.inf, 0, seen
    in_turn = starts[torch.arange(len(splits)) % len(starts)]
    search = _search(marginals, codes, seen, noise, basis, in_turn, n_steps)
    for step, (_, found) in enumerate(search):
        error = float((precision * (found - held_out).square()).sum(dtype=torch.float64))
        if error < least:
            least, best, judged = error, step, found
    means = codes.means(marginals)
    apart = means.unsqueeze(1) * means
    alone = without_relations(codes, precision, judged - apart, held_out - apart)
    search = _search(marginals, codes, products, noise, basis, starts, n_steps)
    mixtures, _ = next(islice(search, best, None))
    return mixtures.mean().apart(alone)


def without_relations(
    codes: StackedCodes, precision: Tensor, found: Tensor, held_out: Tensor
) -> Tensor:
    """Find columns that depend on no other, so that what was fitted to them is noise.

    Parameters
    ----------
    codes : StackedCodes
    precision : Tensor, shape (stacked coordinate, stacked coordinate)
        Of products, 0 for those that are not known.
    found, held_out : Tensor, shape (split, stacked coordinate, stacked coordinate)
        By how much products differ from those of independent columns.

    Returns
    -------
    bool Tensor, shape (column,)
        Columns without whose relations the squares of what was held out and is not found are less,
        by more than the deviation that noise gives to that difference. One by one, each
        time the column of which it is clearest.
    """
    both, own = (
        codes.sums((precision * found * other).mean(0)).double() for other in (held_out, found)
    )
    # The mean of what was held out has the products' errors, and a share of those of the splits.
    variance = 1.0 + 1.0 / (_PART**2 * len(held_out))
    related = torch.ones(len(own), dtype=torch.float64)
    while True:
        known = own @ related
        gain = known - 2.0 * both @ related
        clear = gain > (4.0 * variance * known).sqrt()
        candidates = torch.where(clear & (related > 0.0), gain / known.sqrt(), -math.inf)
        if not bool(candidates.max() > 0.0):
            return related == 0.0
        related[candidates.argmax()] = 0.0


def _search(
    marginals: Tensor,
    codes: StackedCodes,
    products: Tensor,
    noise: Tensor,
    basis: Tensor,
    starts: Tensor,
    n_steps: int,
) -> Iterator[tuple[ProductMixture, Tensor]]:
    """Yield mixtures and their products after 0, 1, 2, ... steps, one for each of `starts`."""
    absent = torch.where(marginals > 0.0, 0.0, -math.inf)
    centre = marginals.clamp_min(1e-6).log() + absent
    tilts = nn.Parameter(_SPREAD * starts)
    weights = nn.Parameter(torch.zeros(starts.shape[:2]))
    parameters = nn.ParameterList([tilts, weights])
    optimiser = FlatAdam(parameters, learning_rate=_LEARNING_RATE, betas=_BETAS)
    precision = _one_over(noise)
    n_products = max(1.0, float((noise > 0.0).sum()))
    for step in range(n_steps + 1):
        logits = centre + torch.einsum("rkcj,cjs->rkcs", tilts, basis)
        mixture = ProductMixture(weights.softmax(-1), logits.softmax(-1))
        found = mixture.products(codes)
        yield ProductMixture(mixture.weights.detach(), mixture.shares.detach()), found.detach()
        falling = 0.5 * (1.0 + math.cos(math.pi * step / n_steps))
        optimiser.learning_rate = _LEARNING_RATE * (_FINAL_RATE + (1.0 - _FINAL_RATE) * falling)
        loss = (precision * (found - products).square()).sum()
        drift = precision.max() * (mixture.marginals() - marginals).square().sum()
        total = (loss + _HOLD * drift) / n_products
        optimiser.set_gradient(torch.autograd.grad(total, [tilts, weights]))
        optimiser.step()


def _one_over(variance: Tensor) -> Tensor:
    """Return the precision, 0 where nothing is known."""
    return torch.where(variance > 0.0, 1.0 / variance, 0.0)
