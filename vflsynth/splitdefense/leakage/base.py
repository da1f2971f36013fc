"""What an attack on a split training is, what it is measured by, and scores of gradients."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

Rows = npt.NDArray[np.intp]
Floats = npt.NDArray[np.floating]


class LeakageAttack(ABC):
    """One way to read labels off what a passive party has, or columns off what it sent.

    Subclasses are `Ranking` and `Inversion`; those that are registered are tried by every
    `leakage_report`, ours and those of other packages.
    """

    registry_group: ClassVar[str] = "leakage_attacks"
    name: ClassVar[str]


@dataclass(frozen=True)
class Found:
    """What an attack is, and how well it did.

    `knows` says what of the truth the attacker knows. `measure` is "AUC", "accuracy", "balanced
    accuracy" or "R²"; "mean R²" is over all columns of numbers. `value` and `baseline` are with
    what crosses at the cut, and without; NaN where the attack is not applicable. `column` was read;
    none where labels were.
    """

    attack: str
    knows: str
    measure: str
    value: float
    baseline: float
    column: str = ""


def as_frame(party: str, found: Sequence[Found]) -> pd.DataFrame:
    """Return one row per attack, with ``party`` and ``gain``, the difference to the baseline."""
    frame = pd.DataFrame(found, columns=list(Found.__dataclass_fields__))
    frame.insert(0, "party", party)
    return frame.assign(gain=frame["value"] - frame["baseline"])


def standardised(features: Floats) -> Floats:
    """Return columns of mean 0 and deviation 1; constant ones are 0."""
    return StandardScaler().fit_transform(features) if features.shape[1] else features


def others_than(known: Rows, n: int) -> Rows:
    """Return the rows of n that are not known."""
    return np.setdiff1d(np.arange(n), known)


BATCH_ATTACKS = {
    "norm": "length of the gradient",
    "cosine": "angle to one positive record's clean gradient",
    "mean": "nearer class mean",
    "mean_threshold": "side of the batch mean",
    "median": "nearer class median",
    "median_threshold": "side of the batch median",
    "direction": "position between the class means",
    "spectral": "first principal direction",
}
"""Attacks on one batch, each measured by an AUC folded to at least 1/2, and what they look at."""

BATCH_MEASURES = (*BATCH_ATTACKS, "total_variation")
"""Rows of `batch_measures`."""

TVD_BINS = 20


def auc(scores: Tensor, positive: Tensor) -> Tensor:
    """Area under the ROC curve of scores, (..., record), ties counted half.

    NaN where only one class is present.
    """
    ordered, order = scores.sort(-1)
    is_positive = positive.expand_as(scores).gather(-1, order).to(scores.dtype)
    below = torch.searchsorted(ordered, ordered)
    up_to = torch.searchsorted(ordered, ordered, right=True)
    ranks = (below + up_to + 1).to(scores.dtype) / 2.0
    n_positive = is_positive.sum(-1)
    n_negative = scores.shape[-1] - n_positive
    wins = (ranks * is_positive).sum(-1) - n_positive * (n_positive + 1.0) / 2.0
    return wins / (n_positive * n_negative)


def fold(values: Tensor) -> Tensor:
    """``max(a, 1 - a)``: an attack that is always wrong is always right the other way round."""
    return torch.maximum(values, 1.0 - values)


def guess_auc(guess: Tensor, positive: Tensor) -> Tensor:
    """AUC of a hard guess, which is its balanced accuracy; bool (..., record) to (...)."""
    hits = (guess & positive).sum(-1) / positive.sum(-1)
    false_alarms = (guess & ~positive).sum(-1) / (~positive).sum(-1)
    return 0.5 * (1.0 + hits - false_alarms)


def batch_measures(gradients: Tensor, clean: Tensor, positive: Tensor) -> Tensor:
    """Folded AUC of every attack on one batch, and how far the classes are apart.

    `gradients` are as sent, `clean` before protection (the cosine attack knows one of them), both
    (replica, batch, feature). The result, (measure, replica), is in the order of `BATCH_MEASURES`;
    NaN where the batch has only one class.

    - ``norm``, ``cosine``: Marvell §3. The hint is the clean gradient of one positive record of the
      batch (the first, and batches are in random order).
    - ``mean``, ``median``: GAFM Eqs. 9 and 10, the guess by the nearer class mean or median.
    - ``mean_threshold``, ``median_threshold``: a cut at the mean or median over the batch, on the
      line between the class means. The figures of GAFM's table 1 are of this attack.
    - ``direction``: the position on that line as a score, the best attack on Gaussians.
    - ``spectral``: the position along the first principal direction; needs no label.
    - ``total_variation`` is the distance of the classes' distributions on that line. The line is
      drawn through the batch's own means, so that wide gradients of few records read some distance
      where there is none.

    Marvell §5 reports norm and cosine at the passive party's first layer, too. They are measured at
    the cut only: what the party has there, it computes from the cut's gradient and its own model.
    """
    both = torch.stack([~positive, positive], 1).to(gradients.dtype)
    means = (both / both.sum(-1, keepdim=True)) @ gradients  # (replica, class, feature)
    difference = (means[:, 1] - means[:, 0]).unsqueeze(-1)
    line = (gradients @ difference).squeeze(-1)
    norms = torch.linalg.vector_norm(gradients, dim=-1)
    hint = clean[torch.arange(len(clean)), positive.long().argmax(1)].unsqueeze(-1)
    towards = (gradients @ hint).squeeze(-1)

    mean_line = line.mean(1, keepdim=True)
    median_line = _median(line).unsqueeze(1)
    guesses = torch.stack(
        [
            _nearer(gradients, means),
            line >= mean_line,
            _nearer(gradients, class_medians(gradients, positive)),
            line >= median_line,
        ]
    )
    hard = fold(guess_auc(guesses, positive))
    if gradients.shape[-1] == 1:  # one line: position on it is the only score but for its norm
        soft = fold(auc(torch.stack([norms, line]), positive))
        cosine = fold(guess_auc(towards > 0, positive))
        ordered = [soft[0], cosine, *hard, soft[1], soft[1]]
    else:
        main = gradients @ principal_direction(gradients)
        cosines = towards / norms.clamp_min(torch.finfo(norms.dtype).tiny)
        soft = fold(auc(torch.stack([norms, cosines, line, main.squeeze(-1)]), positive))
        ordered = [soft[0], soft[1], *hard, soft[2], soft[3]]
    return torch.stack([*ordered, total_variation(line, positive)])


def class_medians(gradients: Tensor, positive: Tensor) -> Tensor:
    """Coordinate-wise medians per class, shape (replica, class, feature)."""
    medians = [
        _median(gradients.masked_fill(~mask.unsqueeze(-1), torch.nan))
        for mask in (~positive, positive)
    ]
    return torch.stack(medians, 1)


def _median(values: Tensor) -> Tensor:
    """Median over records, axis 1, but for NaN: torch's own is the lower of two middle values."""
    found: Tensor = torch.nanmedian(values, dim=1).values - torch.nanmedian(-values, dim=1).values
    return found / 2.0


def principal_direction(rows: Tensor) -> Tensor:
    """First principal direction of (replica, record, feature), shape (replica, feature, 1)."""
    if rows.shape[-1] == 1:
        return torch.ones(len(rows), 1, 1, dtype=rows.dtype, device=rows.device)
    centred = rows - rows.mean(1, keepdim=True)
    vectors: Tensor = torch.linalg.eigh((centred.mT @ centred).double())[1]
    return vectors[..., -1:].to(rows.dtype)


def total_variation(scores: Tensor, positive: Tensor) -> Tensor:
    """Total variation distance of the classes' scores by histogram, without the histogram's bias.

    Scores, (..., record), are in random order; bins, at most 20, have equal numbers of records,
    eight at least. Zero on average where there is no difference, so that a single value may be
    negative.

    Two samples of the same distribution have different histograms: 1028 records in 20 bins read
    about .10. Here every other record says in which bins the positive class has more, and the rest
    says how much more, and the other way round; NaN where either half lacks a class. Where classes
    differ little the result errs low, since some bins are mistaken: .36 for a true .38 with 1028
    records, .05 for .10; so it does in small batches, where a bin has both: .87 for 1 with 32.
    """
    n = scores.shape[-1]
    bins = max(2, min(TVD_BINS, n // 8))
    ordered = scores.sort(-1).values
    which = (torch.searchsorted(ordered, scores) * bins // n).clamp_max(bins - 1)
    is_positive = positive.expand_as(scores).to(scores.dtype)
    second = (torch.arange(n, device=scores.device) % 2).to(scores.dtype)
    differences = []
    for half in (1.0 - second, second):
        empty = scores.new_zeros((*scores.shape[:-1], bins))
        of_positive = empty.scatter_add(-1, which, half * is_positive)
        of_negative = empty.scatter_add(-1, which, half * (1.0 - is_positive))
        differences.append(
            of_positive / of_positive.sum(-1, keepdim=True)
            - of_negative / of_negative.sum(-1, keepdim=True)
        )
    a, b = differences
    return 0.25 * (a.sign() * b + b.sign() * a).sum(-1)


def one_against_rest(attack: Callable[[Tensor], Tensor], labels: Tensor, n_classes: int) -> Tensor:
    """Mean of an attack on each class against the rest; with two classes, the attack itself."""
    if n_classes == 2:
        return attack(labels == 1)
    found = torch.stack([attack(labels == c) for c in range(n_classes)])
    return torch.nanmean(found, 0)


def _nearer(gradients: Tensor, centres: Tensor) -> Tensor:
    """Whether each gradient is nearer to the second of two centres, bool (replica, batch)."""
    distances = (gradients.unsqueeze(1) - centres.unsqueeze(2)).square().sum(-1)
    return distances[:, 1] <= distances[:, 0]
