"""Numbers as what a party's earlier columns leave of them, for training.

Two columns of a party may agree but for a hundredth of their spread. A critic of bounded slope
hardly sees that hundredth, and a generator that misses it is told apart at once. So a number is
learned as its residual: what a linear regression on the columns before it does not explain, as
normal scores. Once rows are drawn, every number is put together again.

Sees: one party's encoded records. Sends: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from vflsynth.columns import OutputSpan
from vflsynth.methods.gan.calibration import MarginalMap, places_of_numbers

_FEWEST = 100

# Of the mean absolute deviation, what a regression must leave to be worth while, at most.
_LARGEST = 0.95

# Least absolute deviations are found by reweighting: steps, the smallest residual that counts, as
# a share of their mean, and pseudo-records by regressor that say that nothing depends on anything.
_STEPS, _SMALLEST, _PRIOR = 12, 0.02, 0.5


@dataclass(frozen=True)
class Residuals:
    """Regressions of the numbers of one party's encoded rows, each on the columns before it.

    `weights`, (value, encoded), and `offsets`, (value,), are those of the regressions, 0 from a
    number's own column on. `scores` maps normal scores to what is left.
    """

    weights: Tensor
    offsets: Tensor
    scores: MarginalMap

    @classmethod
    def fit(cls, spans: Sequence[OutputSpan], records: Tensor) -> tuple[Self, Tensor]:
        """Learn them from encoded records, (record, encoded); also return what training sees."""
        columns, gates = places_of_numbers(spans)
        bounded = {span.start for span in spans if span.bound is not None}
        rows = records.double().cpu()
        left, seen = rows.clone(), rows.clone()
        weights = torch.zeros(len(columns), rows.shape[1], dtype=torch.float64)
        offsets = torch.zeros(len(columns), dtype=torch.float64)
        for i, (column, gate) in enumerate(zip(columns.tolist(), gates.tolist())):
            there = slice(None) if gate == column else torch.nonzero(rows[:, gate] > 0.0)[:, 0]
            own = rows[there, column]
            if column == 0 or column in bounded or len(own) < _FEWEST:
                continue
            found, offset = _least_deviations(rows[there, :column], own)
            unexplained = own - rows[there, :column] @ found - offset
            if unexplained.abs().mean() < _LARGEST * (own - own.median()).abs().mean():
                weights[i, :column], offsets[i] = found, offset
                left[there, column] = unexplained
                seen[there, column] = _normal_scores(unexplained)
        device, dtype = records.device, records.dtype
        scores = MarginalMap.fit(spans, seen.to(device, dtype), left.to(device, dtype))
        made = cls(weights.to(device, dtype), offsets.to(device, dtype), scores)
        return made, seen.to(device, dtype)

    def calibrated(self, spans: Sequence[OutputSpan], generated: Tensor, records: Tensor) -> Self:
        """Return those that give generated rows the residuals of records, both as trained."""
        scores = MarginalMap.fit(spans, generated, self.scores.apply(records))
        return replace(self, scores=scores)

    def put_together(self, rows: Tensor) -> Tensor:
        """Put numbers together in rows (n, encoded), those before a number first."""
        rows = self.scores.apply(rows)
        for i, column in enumerate(self.scores.columns.tolist()):
            rows[:, column] += self._explained(rows, i)
        return rows

    def take_out(self, rows: Tensor) -> Tensor:
        """Make of encoded rows (n, encoded) what training sees of them, but for its map's knots."""
        left = rows.clone()
        for i, column in enumerate(self.scores.columns.tolist()):
            left[:, column] -= self._explained(rows, i)
        return self.scores.inverse().apply(left)

    def _explained(self, rows: Tensor, i: int) -> Tensor:
        """Return what the columns before a number say of it, 0 where there is none."""
        column, gate = int(self.scores.columns[i]), int(self.scores.gates[i])
        explained = rows[:, :column] @ self.weights[i, :column] + self.offsets[i]
        return explained if gate == column else explained * (rows[:, gate] > 0.0)

    def tensors(self) -> dict[str, Tensor]:
        """Return what has to be saved besides the spans."""
        return {"weights": self.weights, "offsets": self.offsets, **self.scores.tensors()}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]) -> Self:
        """Undo `tensors`; ValueError if they are not of encoded rows of these spans."""
        scores = MarginalMap.restore(tensors, spans)
        weights, offsets, columns = tensors["weights"], tensors["offsets"], scores.columns
        if weights.shape != (len(columns), sum(span.width for span in spans)):
            raise ValueError(f"regressions of shape {tuple(weights.shape)} do not fit the columns")
        if offsets.shape != columns.shape:
            raise ValueError("every regression needs an offset")
        if any(own[column:].any() for own, column in zip(weights, columns.tolist())):
            raise ValueError("a number can only be explained by the columns before it")
        return cls(weights, offsets, scores)


def _least_deviations(regressors: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Find weights and offset with the smallest absolute residuals, roughly.

    Where most records follow a line and some are far off it, the line is theirs.
    """
    design = torch.cat([regressors, torch.ones_like(own).unsqueeze(1)], 1)
    prior = torch.full_like(design[0], _PRIOR)
    prior[-1] = 1e-9
    weight, found = torch.ones_like(own), prior
    for _ in range(_STEPS):
        weighted = design * weight.unsqueeze(1)
        found = torch.linalg.solve(weighted.T @ design + torch.diag(prior), weighted.T @ own)
        size = (own - design @ found).abs()
        weight = size.mean() / size.clamp_min(_SMALLEST * size.mean() + 1e-12)
    return found[:-1], found[-1]


def _normal_scores(values: Tensor) -> Tensor:
    """Return standard normal scores of ranks; equal values get neighbouring ones."""
    ranks = torch.empty_like(values)
    ranks[values.argsort(stable=True)] = torch.arange(len(values), dtype=values.dtype)
    scores: Tensor = torch.special.ndtri((ranks + 0.5) / len(values))
    return scores
