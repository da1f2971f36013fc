"""Vectors of whole numbers that stand for a column's states, by how much noise their products have.

All pairs of columns get the same noise, which the longest products of codes pay for. A record's
one-hot codes are as long at every state, and a correlation of numbers, read off a table of 8 x 8
cells, has the noise of all of them. What codes are short of, states or relations of a high degree,
cannot be learned. So they follow the noise, which is a public number.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import torch

from vflsynth.methods.pairwise.tilts import CATEGORIES, ORDERED, normal_scores, score_polynomials

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CODE_NORM = 64
"""Of a column's code, so that a product of two has a norm of at most 4,096, in 32 bits for as many
as 500,000 records."""

_LITTLE_NOISE, _MUCH_NOISE = 0.3 / 8**2, 1.0 / 8**2
"""Three tenths of a mean cell of two columns of eight states each, and a whole one."""

_WEIGHTS = np.array([1.0, 0.6])
"""Of a score and its square in a code: the former says more, for the noise that it costs."""

_N_KNOTS = 4
"""Of a number where noise is little: most coordinates of its code."""

_FURTHEST = NormalDist().inv_cdf(0.98)
"""Normal score that codes tell apart from no higher one; that of the last knot."""

_SHORTEST = 1e-9
"""Of what is made as long as all others; but for a single state nothing is shorter."""


@dataclass(frozen=True)
class Detail:
    """How much of columns' relations codes tell, by the noise of a mean product.

    Its standard deviation, where codes have a norm of at most 1.
    """

    noise: float

    @property
    def is_fine(self) -> bool:
        """Whether noise is little: numbers have more states, and codes of knots between them."""
        return self.noise < _LITTLE_NOISE

    @property
    def is_coarse(self) -> bool:
        """Whether noise is much: numbers have codes of full length, and fits several judges."""
        return self.noise >= _MUCH_NOISE

    @property
    def n_steps(self) -> int:
        """Of the fit: more where the mixture errs, not the noise."""
        return 1_500 if self.is_fine else 600

    @property
    def degree(self) -> int:
        """Of the tilts of numbers, see `vflsynth.methods.pairwise.tilts.tilt_basis`."""
        return 3 if self.is_fine else len(_WEIGHTS)


def column_code(shares: Floats, kind: int, detail: Detail) -> Codes:
    """Choose the codes of a column's states, int64 (state, coordinate), at most `CODE_NORM` long.

    `shares` are the column's marginal, all above 0; for `kind` see `tilts.tilt_basis`.

    Labels are the corners of a simplex around its middle, which for two of them is -1 and 1.

    Numbers have the coordinates that components can differ in, normal score and square, around the
    middle of their range: what that takes out of a product is known from the marginals. Scores stop
    at those of 96 % of the records, or a state at an end that hardly any record has would be the
    longest by far, and leave all others codes that are nearly equal.

    Where noise is little, scores do not tell which label goes with which number. Numbers of few
    values then count as labels altogether, and those of more have the weights of linear
    interpolation between knots, evenly spaced over these scores, around their middle as labels are.

    Where it is much, all numbers have codes of full length: where scores are small they pay for
    those at the ends. Correlations then have less noise, mixed with relations of higher degree.
    """
    n_ordered = len(shares) if kind == ORDERED else len(shares) - 1
    if kind == CATEGORIES:
        code = _simplex(np.eye(len(shares)))
    elif detail.is_fine:
        weights = _knot_weights(shares[:n_ordered])
        code = _simplex(_beside(weights, len(shares)))
    else:
        ordered = torch.tensor(shares[:n_ordered] / shares[:n_ordered].sum())
        found = score_polynomials(ordered, len(_WEIGHTS), _FURTHEST).numpy().T
        code = _beside(found * _WEIGHTS[: found.shape[1]], len(shares))
        if not detail.is_coarse:
            code -= (code.max(0) + code.min(0)) / 2.0 if code.size else 0.0
        else:
            missing = shares[n_ordered:]
            code[:, found.shape[1] :] -= missing
            code[:, found.shape[1] :] *= _WEIGHTS[1] / np.sqrt(missing * (1.0 - missing))
            code /= np.maximum(np.linalg.norm(code, axis=1, keepdims=True), _SHORTEST)
    longest = np.sqrt((code**2).sum(1).max()) if code.size else 0.0
    scaled = code * (CODE_NORM / longest) if longest > 0.0 else np.zeros((len(shares), 1))
    whole = np.trunc(scaled).astype(np.int64)  # towards zero, so that no code becomes longer
    assert (whole**2).sum(1).max() <= CODE_NORM**2, "the sensitivity is for codes of this norm"
    return whole


def _simplex(weights: Floats) -> Floats:
    """Move points between the corners of a simplex so that its middle is 0."""
    moved: Floats = weights - 1.0 / weights.shape[1]
    return moved


def _beside(ordered: Floats, n_states: int) -> Floats:
    """Give what is not of the ordered states, which is missing, a coordinate of its own."""
    n_more = n_states - len(ordered)
    code = np.zeros((n_states, ordered.shape[1] + n_more))
    code[: len(ordered), : ordered.shape[1]] = ordered
    code[len(ordered) :, ordered.shape[1] :] = np.eye(n_more)
    return code


def _knot_weights(shares: Floats) -> Floats:
    """Return weights of linear interpolation between knots, shape (ordered state, knot)."""
    if len(shares) <= _N_KNOTS:
        return np.eye(len(shares))
    scores = normal_scores(torch.tensor(shares / shares.sum())).numpy()
    first, last = max(-_FURTHEST, scores[0]), min(_FURTHEST, scores[-1])
    knots = np.linspace(first, last, _N_KNOTS)
    weights = np.stack([np.interp(scores, knots, knot) for knot in np.eye(_N_KNOTS)], 1)
    return weights[:, weights.max(0) > 0.0]
