"""Mixtures of products: columns that are independent given one latent state, fitted to tables."""

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
"""Weight of an error of a marginal, which histograms tell better than tables of pairs do."""

_PART = 0.5
"""Of a cell's deviation, added to what is fitted; the less, the more is left out of the judge."""


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

    def tables(self) -> Tensor:
        """Return p(state of a, state of b), shape (column, state, column, state).

        A column with itself has p(both are this state in two draws of one component), of no use.
        """
        _, columns, states = self.shares.shape
        flat = self.shares.flatten(1)
        return (flat.T @ (self.weights.unsqueeze(1) * flat)).view(columns, states, columns, states)


def fit_product_mixture(
    marginals: Tensor,
    tables: Tensor,
    noise: Tensor,
    sampling: Tensor,
    basis: Tensor,
    start: Tensor,
    split: Tensor,
) -> ProductMixture:
    """Fit to two-way tables by weighted least squares, for as long as it predicts better.

    Parameters
    ----------
    marginals : Tensor, shape (column, state)
        One-way shares, 0 for states that a column has not got; where the search begins.
    tables : Tensor, shape (column, state, column, state)
        Two-way shares, with noise, so perhaps negative.
    noise : Tensor, shape (column, state, column, state)
        Variance of each cell's noise; 0 for cells that are not known.
    sampling : Tensor, shape (column, state, column, state)
        Variance of each cell's share by which records were drawn.
    basis : Tensor, shape (column, tilt, state)
        Directions in which a component's log shares differ from the marginals'; see
        `vflsynth.networks.tilts.tilt_basis`.
    start : Tensor, shape (component, column, tilt)
        Normal numbers by which components differ at first: alike they would stay alike.
    split : Tensor, shape (column, state, column, state)
        Normal numbers that take the tables apart.

    Returns
    -------
    ProductMixture
        By at most 600 steps of Adam.

    Notes
    -----
    Source of the stop: data fission (Leiner, Duan, Wasserman and Ramdas 2023). With s of a cell's
    deviation, noise and sampling, ``x + s z / 2`` and ``x - 2 s z`` err independently. A search
    that sees the former only is judged by the latter after every step; the whole tables then get
    as many steps as were best: beyond these, noise is learned, or which records were drawn.

    All two-way tables of a mixture of K products are one product of matrices, so a step takes
    ``3 K (columns * states)^2`` multiply-adds however many columns there are.
    """
    variance = torch.where(noise > 0.0, noise + sampling, 0.0)
    upper = torch.ones(len(tables), len(tables)).triu(1)[:, None, :, None].bool()
    shift = variance.sqrt() * torch.where(upper, split, split.permute(2, 3, 0, 1))
    held_out, precision = tables - shift / _PART, _one_over(variance)
    errors = [
        (precision * (found.tables() - held_out).square()).sum().item()
        for found in _search(marginals, tables + _PART * shift, noise, basis, start)
    ]
    best = errors.index(min(errors))
    return next(islice(_search(marginals, tables, noise, basis, start), best, None))


def _search(
    marginals: Tensor, tables: Tensor, noise: Tensor, basis: Tensor, start: Tensor
) -> Iterator[ProductMixture]:
    """Yield what is found after 0, 1, 2, ... steps."""
    absent = torch.where(marginals > 0.0, 0.0, -math.inf)
    centre = marginals.clamp_min(1e-6).log() + absent
    tilts = nn.Parameter(_SPREAD * start)
    weights = nn.Parameter(torch.zeros(len(start)))
    parameters = nn.ParameterList([tilts, weights])
    optimiser = FlatAdam(parameters, learning_rate=_LEARNING_RATE, betas=_BETAS)
    precision = _one_over(noise)
    n_cells = max(1.0, float((noise > 0.0).sum()))

    def mixture() -> ProductMixture:
        logits = centre + torch.einsum("kcj,cjs->kcs", tilts, basis)
        return ProductMixture(weights.softmax(0), logits.softmax(-1))

    for step in range(_STEPS):
        now = mixture()
        yield ProductMixture(now.weights.detach(), now.shares.detach())
        falling = 0.5 * (1.0 + math.cos(math.pi * step / _STEPS))
        optimiser.learning_rate = _LEARNING_RATE * (_FINAL_RATE + (1.0 - _FINAL_RATE) * falling)
        loss = (precision * (now.tables() - tables).square()).sum()
        drift = precision.max() * (now.marginals() - marginals).square().sum()
        total = (loss + _HOLD * drift) / n_cells
        optimiser.set_gradient(torch.autograd.grad(total, [tilts, weights]))
        optimiser.step()
    with torch.no_grad():
        yield mixture()


def _one_over(variance: Tensor) -> Tensor:
    """Return the precision, 0 where nothing is known."""
    return torch.where(variance > 0.0, 1.0 / variance, 0.0)
