"""Mixtures of products: columns independent given one latent state, fitted to sums of products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from vflsynth.networks.adam import FlatAdam

_STEPS = 600
_LEARNING_RATE, _FINAL_RATE, _BETAS = 0.1, 0.02, (0.9, 0.999)
_SPREAD = 0.3

_HOLD = 10.0
"""Weight of an error of a marginal, which histograms tell better than products do."""

N_SPLITS = 4
"""Of what is fitted, to find out when to stop, where noise is most of it."""

_PART = 0.5
"""Of a product's deviation, added to what is fitted; the less, the worse the judge sees."""


@dataclass(frozen=True, slots=True)
class ProductMixture:
    """A distribution of discrete columns.

    Parameters
    ----------
    weights : Tensor, shape (component,)
        Adding up to 1.
    shares : Tensor, shape (component, column, state)
        p(state | component); 0 for states that a column has not got.
    """

    weights: Tensor
    shares: Tensor

    def marginals(self) -> Tensor:
        """Return p(state), shape (column, state)."""
        return torch.einsum("k,kcs->cs", self.weights, self.shares)

    def products(self, codes: Tensor) -> Tensor:
        """Return mean products of two columns' codes.

        Parameters
        ----------
        codes : Tensor, shape (column, state, coordinate)
            One-hot ones make tables: p(state of a, state of b).

        Returns
        -------
        Tensor, shape (column, coordinate, column, coordinate)
            A column with itself has that of two draws of one component, of no use.
        """
        means = torch.einsum("kcs,csi->kci", self.shares, codes)
        flat = means.flatten(1)
        both = flat.T @ (self.weights.unsqueeze(1) * flat)
        return both.view(*means.shape[1:], *means.shape[1:])


def fit_product_mixture(
    marginals: Tensor,
    codes: Tensor,
    products: Tensor,
    noise: Tensor,
    sampling: Tensor,
    basis: Tensor,
    start: Tensor,
    splits: Tensor,
) -> ProductMixture:
    """Fit to mean products by weighted least squares, for as long as it predicts better.

    Parameters
    ----------
    marginals : Tensor, shape (column, state)
        One-way shares, 0 for states that a column has not got; where the search begins.
    codes : Tensor, shape (column, state, coordinate)
        0 for states and coordinates that a column has not got.
    products : Tensor, shape (column, coordinate, column, coordinate)
        Mean products of two columns' codes, with noise.
    noise : Tensor, shaped like `products`
        Variance of each one's noise; 0 for those that are not known.
    sampling : Tensor, shaped like `products`
        Variance by which records were drawn.
    basis : Tensor, shape (column, tilt, state)
        Directions in which a component's log shares differ from the marginals'; see
        `vflsynth.networks.tilts.tilt_basis`.
    start : Tensor, shape (component, column, tilt)
        Normal numbers by which components differ at first: alike they would stay alike.
    splits : Tensor, shape (split, *products.shape)
        Normal numbers that take the products apart, each time anew.

    Returns
    -------
    ProductMixture
        By at most 600 steps of Adam.

    Notes
    -----
    Source of the stop: data fission (Leiner, Duan, Wasserman and Ramdas 2023). With s of a
    product's deviation, noise and sampling, ``x + s z / 2`` and ``x - 2 s z`` err independently. A
    search that sees the former only is judged by the latter after every step; the whole then gets
    as many steps as were best, on average of the splits: beyond these, noise is learned, or which
    records were drawn. One split alone is by chance far off where noise is most of what is seen;
    where it is not, the average of several stops a little early.

    All products of a mixture of K components are one product of matrices, so a step takes
    ``3 K (columns * coordinates)^2`` multiply-adds however many columns there are.
    """
    variance = torch.where(noise > 0.0, noise + sampling, 0.0)
    upper = torch.ones(len(products), len(products)).triu(1)[:, None, :, None].bool()
    precision, errors = _one_over(variance), torch.zeros(_STEPS + 1, dtype=torch.float64)
    for split in splits:
        shift = variance.sqrt() * torch.where(upper, split, split.permute(2, 3, 0, 1))
        seen, held_out = products + _PART * shift, products - shift / _PART
        for step, found in enumerate(_search(marginals, codes, seen, noise, basis, start)):
            errors[step] += (precision * (found.products(codes) - held_out).square()).sum()
    best = int(errors.argmin())
    search = _search(marginals, codes, products, noise, basis, start)
    return next(islice(search, best, None))


def _search(
    marginals: Tensor, codes: Tensor, products: Tensor, noise: Tensor, basis: Tensor, start: Tensor
) -> Iterator[ProductMixture]:
    """Yield what is found after 0, 1, 2, ... steps."""
    absent = torch.where(marginals > 0.0, 0.0, -math.inf)
    centre = marginals.clamp_min(1e-6).log() + absent
    tilts = nn.Parameter(_SPREAD * start)
    weights = nn.Parameter(torch.zeros(len(start)))
    parameters = nn.ParameterList([tilts, weights])
    optimiser = FlatAdam(parameters, learning_rate=_LEARNING_RATE, betas=_BETAS)
    precision = _one_over(noise)
    n_products = max(1.0, float((noise > 0.0).sum()))

    def mixture() -> ProductMixture:
        logits = centre + torch.einsum("kcj,cjs->kcs", tilts, basis)
        return ProductMixture(weights.softmax(0), logits.softmax(-1))

    for step in range(_STEPS):
        now = mixture()
        yield ProductMixture(now.weights.detach(), now.shares.detach())
        falling = 0.5 * (1.0 + math.cos(math.pi * step / _STEPS))
        optimiser.learning_rate = _LEARNING_RATE * (_FINAL_RATE + (1.0 - _FINAL_RATE) * falling)
        loss = (precision * (now.products(codes) - products).square()).sum()
        drift = precision.max() * (now.marginals() - marginals).square().sum()
        total = (loss + _HOLD * drift) / n_products
        optimiser.set_gradient(torch.autograd.grad(total, [tilts, weights]))
        optimiser.step()
    with torch.no_grad():
        yield mixture()


def _one_over(variance: Tensor) -> Tensor:
    """Return the precision, 0 where nothing is known."""
    return torch.where(variance > 0.0, 1.0 / variance, 0.0)
