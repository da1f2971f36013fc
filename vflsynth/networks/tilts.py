"""Tilts of log shares: how the components of a mixture of products differ from the marginals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CATEGORIES, ORDERED, GATED = 0, 1, 2
"""Kinds of columns, see `tilt_basis`."""

LEAST_SHARE = 1e-9
"""Of a state in its column's marginal, before shares add up to 1: none is nothing."""

CODE_NORM = 64
"""Of a column's code, so that a product of two has a norm of at most 4,096, in 32 bits for as many
as 500,000 records."""

_DEGREE = 2

_WEIGHTS = np.array([1.0, 0.6])
"""Of a score and its square in a code: the former says more, for the noise that it costs."""

_LITTLE_NOISE, MUCH_NOISE = 0.1 / 8**2, 1.0 / 8**2
"""A tenth of a mean cell of two columns of eight states each, and a whole one."""

_SHORTEST = 1e-9
"""Of what is made as long as all others; but for a single state nothing is shorter."""

_ROUNDS = 30
"""Of proportional fitting; of fitted mixtures the cells' marginal is then kept to a millionth."""

_FAINTEST = -30.0
"""Log of the least a cell may have of its state's share, relative to the most: never nothing."""


def tilt_basis(marginals: Tensor, kinds: Sequence[int]) -> Tensor:
    """Say in which directions a component's columns may differ from the marginals.

    Parameters
    ----------
    marginals : Tensor, shape (column, state)
        0 for states that a column has not got.
    kinds : sequence of int
        Of each column: `CATEGORIES`, `ORDERED`, or `GATED`, which is ordered but for its last
        state, missing.

    Returns
    -------
    Tensor, shape (column, tilt, state)
        Of categories, every state for itself. Of ordered states, polynomials of the normal score of
        the state up to the second degree, orthonormal under the marginals: a component has a place
        and a width, and cannot learn the noise of single states.
    """
    n_columns, n_states = marginals.shape
    basis = torch.zeros(n_columns, n_states, n_states)
    for column, kind in enumerate(kinds):
        shares = marginals[column][marginals[column] > 0.0].double()
        if kind == CATEGORIES:
            basis[column, : len(shares), : len(shares)] = torch.eye(len(shares))
            continue
        ordered = shares[: len(shares) - int(kind == GATED)]
        found = _polynomials(ordered / ordered.sum())
        basis[column, : len(found), : len(ordered)] = found.float()
        if kind == GATED:
            basis[column, len(found), len(ordered)] = 1.0
    return basis


def column_code(shares: Floats, kind: int, noise: float) -> Codes:
    """Choose the vectors of whole numbers that stand for a column's states in sums of products.

    Parameters
    ----------
    shares : float64 array, shape (state,)
        The column's marginal, all above 0.
    kind : int
        Of the column, see `tilt_basis`.
    noise : float
        Standard deviation of a mean product's noise, where codes have a norm of at most 1.

    Returns
    -------
    int64 array, shape (state, coordinate)
        Of norm at most `CODE_NORM`.

    Notes
    -----
    All pairs of columns get the same noise, which the longest products of codes pay for. A record's
    one-hot codes are as long at every state, and a correlation of numbers, read off a table of 8 x
    8 cells, has the noise of all of them. So numbers have the coordinates that components can
    differ in, normal score and square, around the middle of their range; labels are the corners of
    a simplex around its middle, which for two of them is -1 and 1. What this takes out of a product
    is known from the marginals.

    Where noise is little, numbers have the codes of labels, and products are whole tables: scores
    do not tell which label goes with which number. Where it is much, all numbers have codes of full
    length: where scores are small they pay for those at the ends. Of eight states as frequent as
    each other a correlation of scores then has .6 times the noise, but is mixed with relations of
    higher degree, which less noise would show.
    """
    n_ordered = len(shares) if kind == ORDERED else len(shares) - 1
    if kind == CATEGORIES or noise < _LITTLE_NOISE:
        code = np.eye(len(shares)) - 1.0 / len(shares)
    else:
        ordered = torch.tensor(shares[:n_ordered] / shares[:n_ordered].sum())
        found = _polynomials(ordered).numpy().T * _WEIGHTS[: min(_DEGREE, n_ordered - 1)]
        code = np.zeros((len(shares), found.shape[1] + len(shares) - n_ordered))
        code[:n_ordered, : found.shape[1]] = found
        code[n_ordered:, found.shape[1] :] = 1.0
        if noise < MUCH_NOISE:
            code -= (code.max(0) + code.min(0)) / 2.0 if code.size else 0.0
        else:
            missing = shares[n_ordered:]
            code[:, found.shape[1] :] -= missing
            code[:, found.shape[1] :] *= _WEIGHTS[1] / np.sqrt(missing * (1.0 - missing))
            code /= np.maximum(np.linalg.norm(code, axis=1, keepdims=True), _SHORTEST)
    longest = np.sqrt((code**2).sum(1).max()) if code.size else 0.0
    scaled = code * (CODE_NORM / longest) if longest > 0.0 else np.zeros((len(shares), 1))
    found = np.trunc(scaled).astype(np.int64)  # towards zero, so that no code becomes longer
    assert (found**2).sum(1).max() <= CODE_NORM**2, "the sensitivity is for codes of this norm"
    return found


def within_states(
    weights: Tensor, part: Tensor, shares: Tensor, cells: Tensor, kind: int
) -> Tensor:
    """Let components differ within states of numbers as they do between them.

    Parameters
    ----------
    weights : float64 Tensor, shape (component,)
        Adding up to 1.
    part : float64 Tensor, shape (component, state)
        p(state | component) of a column.
    shares : float64 Tensor, shape (state,)
        The column's marginal, all above 0.
    cells : float64 Tensor, shape (state, cell)
        p(cell | state) of all components together.
    kind : int
        Of the column, see `tilt_basis`.

    Returns
    -------
    float64 Tensor, shape (component, cell)
        p(cell | component). All components have their states' shares, and together p(cell | state).

    Notes
    -----
    A component's log shares differ from the marginal's by a polynomial of the states' normal
    scores. It is continued to the cells' scores, and then fitted to both kinds of shares by
    iterative proportional fitting (Deming and Stephan 1940), which changes the dependence within a
    state least. Without, all relations would end where a state does: two columns with a
    correlation of 1 would have none within each state. Categories stay as they are: nothing says
    what is near.
    """
    n_ordered = len(shares) - int(kind == GATED)
    if kind == CATEGORIES or n_ordered == 1:
        return part @ cells
    found = part[:, n_ordered:] @ cells[n_ordered:]
    part, shares, numbers = part[:, :n_ordered], shares[:n_ordered], cells[:n_ordered]
    degree = min(_DEGREE, n_ordered - 1)
    scores = torch.vander(_scores(shares / shares.sum()), degree + 1)
    ratios = (part.clamp_min(1e-30) / shares).log()
    # The default driver's last bits depend on where memory starts; one by singular values' do not.
    tilts = torch.linalg.lstsq(scores, ratios.T, driver="gelsd").solution
    of_cells = torch.vander(_scores(shares / shares.sum() @ numbers), degree + 1) @ tilts
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


def _polynomials(shares: Tensor) -> Tensor:
    """Return orthonormal polynomials of normal scores, shape (degree, state), by Gram-Schmidt."""
    scores = _scores(shares)
    found = [torch.ones_like(scores)]
    for degree in range(1, min(_DEGREE, len(shares) - 1) + 1):
        new = scores**degree
        for old in found:
            new = new - (shares * new * old).sum() * old
        found.append(new / (shares * new.square()).sum().sqrt().clamp_min(1e-6))
    return torch.stack(found)[1:]


def _scores(shares: Tensor) -> Tensor:
    """Return the normal score of the middle of each of ordered states or cells."""
    scores: Tensor = torch.special.ndtri((shares.cumsum(0) - shares / 2.0).clamp(1e-4, 1.0 - 1e-4))
    return scores
