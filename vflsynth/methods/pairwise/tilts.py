"""Tilts of log shares: how the components of a mixture of products differ from the marginals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

CATEGORIES, ORDERED, GATED = 0, 1, 2
"""Kinds of columns, see `tilt_basis`."""

LEAST_SHARE = 1e-9
"""Of a state in its column's marginal, before shares add up to 1: none is nothing."""

_ROUNDS = 30
"""Of proportional fitting; of fitted mixtures the cells' marginal is then kept to a millionth."""

_FAINTEST = -30.0
"""Log of the least a cell may have of its state's share, relative to the most: never nothing."""


def tilt_basis(marginals: Tensor, kinds: Sequence[int], degree: int) -> Tensor:
    """Say in which directions a component's columns may differ from the marginals, (column, state).

    `kinds` are `CATEGORIES`, `ORDERED`, or `GATED`, which is ordered but for its last state,
    missing. Of categories, every state for itself. Of ordered states, polynomials of the normal
    score of the state up to a degree, orthonormal under the marginals: of the second, a component
    has a place and a width, and cannot learn the noise of single states. The result, (column, tilt,
    state), has as many tilts as the column with the most of them.
    """
    n_columns, n_states = marginals.shape
    basis, n_tilts = torch.zeros(n_columns, n_states, n_states), 1
    for column, kind in enumerate(kinds):
        shares = marginals[column][marginals[column] > 0.0].double()
        if kind == CATEGORIES:
            basis[column, : len(shares), : len(shares)] = torch.eye(len(shares))
            n_tilts = max(n_tilts, len(shares))
            continue
        ordered = shares[: len(shares) - int(kind == GATED)]
        found = score_polynomials(ordered / ordered.sum(), degree)
        basis[column, : len(found), : len(ordered)] = found.float()
        if kind == GATED:
            basis[column, len(found), len(ordered)] = 1.0
        n_tilts = max(n_tilts, len(found) + int(kind == GATED))
    return basis[:, :n_tilts]


def within_states(
    weights: Tensor, part: Tensor, shares: Tensor, cells: Tensor, kind: int, degree: int
) -> Tensor:
    """Let components differ within states of numbers as they do between them.

    In float64: weights (component,) that add up to 1, `part` p(state | component), `shares` the
    column's marginal, all above 0, and `cells` p(cell | state) of all components together. Returns
    p(cell | component), where all components have their states' shares, and together p(cell |
    state).

    A component's log shares differ from the marginal's by a polynomial of the states' normal
    scores. It is continued to the cells' scores, and then fitted to both kinds of shares by
    iterative proportional fitting (Deming and Stephan 1940), which changes the dependence within a
    state least. Without, all relations would end where a state does: two columns with a correlation
    of 1 would have none within each state. Categories stay as they are: nothing says what is near.
    """
    n_ordered = len(shares) - int(kind == GATED)
    if kind == CATEGORIES or n_ordered == 1:
        return part @ cells
    found = part[:, n_ordered:] @ cells[n_ordered:]
    part, shares, numbers = part[:, :n_ordered], shares[:n_ordered], cells[:n_ordered]
    degree = min(degree, n_ordered - 1)
    scores = torch.vander(normal_scores(shares / shares.sum()), degree + 1)
    ratios = (part.clamp_min(1e-30) / shares).log()
    # The default driver's last bits depend on where memory starts; one by singular values' do not.
    tilts = torch.linalg.lstsq(scores, ratios.T, driver="gelsd").solution
    of_cells = torch.vander(normal_scores(shares / shares.sum() @ numbers), degree + 1) @ tilts
    for state, both in enumerate(part.T * weights):
        there = numbers[state] > 0.0
        target = numbers[state, there]
        tilted = of_cells[there].T
        tilted = target * (tilted - tilted.amax(1, keepdim=True)).clamp_min(_FAINTEST).exp()
        tilted /= tilted.sum(1, keepdim=True)
        total = both.sum()
        for _ in range(_ROUNDS if total > 0.0 else 0):
            tilted *= target / (both / total @ tilted)
            tilted /= tilted.sum(1, keepdim=True)
        found[:, there] += part[:, state, None] * tilted
    return found


def score_polynomials(shares: Tensor, most: int, furthest: float = math.inf) -> Tensor:
    """Return orthonormal polynomials of normal scores, shape (degree, state), by Gram-Schmidt.

    The weights are the shares of ordered states, of which n have n - 1 at `most`; scores are at
    most `furthest` from 0.
    """
    scores = normal_scores(shares).clamp(-furthest, furthest)
    found = [torch.ones_like(scores)]
    for degree in range(1, min(most, len(shares) - 1) + 1):
        new = scores**degree
        for old in found:
            new = new - (shares * new * old).sum() * old
        found.append(new / (shares * new.square()).sum().sqrt().clamp_min(1e-6))
    return torch.stack(found)[1:]


def normal_scores(shares: Tensor) -> Tensor:
    """Return the normal score of the middle of each of ordered states or cells."""
    scores: Tensor = torch.special.ndtri((shares.cumsum(0) - shares / 2.0).clamp(1e-4, 1.0 - 1e-4))
    return scores
