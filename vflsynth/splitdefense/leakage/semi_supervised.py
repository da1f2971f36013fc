"""Model completion that also learns from the records whose labels the attacker does not know."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.networks.adam import FlatAdam
from vflsynth.splitdefense.networks import Perceptron
from vflsynth.splitdefense.objectives.base import descend

_STEPS = 500
_BATCH = 64
_LEARNING_RATE = 2e-3
_TEMPERATURE = 0.8
_MIXING = 0.75
_GUESSES_WEIGHT = 50.0
_AVERAGE = 0.99


def completed_with_guesses(
    records: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    known: Sequence[npt.NDArray[np.intp]],
    bottom_model: Perceptron,
    n_classes: int,
    rng: np.random.Generator,
) -> npt.NDArray[np.float32]:
    """Probabilities by bottom model and head, trained on known labels and on guesses of the others.

    `records`, (record, column), are the party's own, encoded; `bottom_model` is as trained with the
    active party, of one replica. `known` are draws, of equal size, of the records whose labels are
    known; all are trained at once, one replica each. Returns an array (draw, record, class).

    Source: Fu et al. 2022 and their code, which is MixMatch (Berthelot et al. 2019) without
    augmentation: guesses sharpened at temperature 0.8, records and labels mixed in proportions from
    Beta(0.75, 0.75), squared error of guesses with a weight that rises to 50, averaged weights.

    Departs from the code: 500 steps of 64 known and 64 other records (25,600 of 16), with an
    average over about 100 steps (1,000); the last model is taken (the best by true labels);
    features are standardised before the head (batch normalisation). Where the bottom model has
    learned nothing, the weight of 50 can draw all guesses to one class.
    """
    n, repeats = len(records), len(known)
    x = torch.tensor(records)
    one_hot = F.one_hot(torch.tensor(labels), n_classes).float()
    others = np.stack([np.setdiff1d(np.arange(n), rows) for rows in known])
    bottom = _repeated(copy.deepcopy(bottom_model).float(), repeats)
    streams = RandomStreams([rng.bytes(32) for _ in known])
    head = Perceptron([bottom.dims[-1], n_classes], streams=streams, name="head")
    with torch.no_grad():
        features = bottom(x.expand(repeats, -1, -1))
    mean, spread = features.mean(1, keepdim=True), features.std(1, keepdim=True).clamp_min(1e-6)

    def logits(rows: Tensor) -> Tensor:
        outputs: Tensor = head((bottom(rows) - mean) / spread)
        return outputs

    def drawn(pools: npt.NDArray[np.intp]) -> Tensor:
        places = rng.integers(pools.shape[1], size=(repeats, _BATCH))
        return torch.tensor(np.take_along_axis(pools, places, 1))

    whole = nn.ModuleList([bottom, head])
    optimizer = FlatAdam(whole, learning_rate=_LEARNING_RATE, betas=(0.9, 0.999))
    average = optimizer.flat.clone()
    for step in range(_STEPS):
        labelled, unlabelled = drawn(np.stack(known)), drawn(others)
        with torch.no_grad():
            guesses = (logits(x[unlabelled]) / _TEMPERATURE).softmax(-1)
        rows = torch.cat([x[labelled], x[unlabelled]], 1)
        targets = torch.cat([one_hot[labelled], guesses], 1)
        partners = torch.tensor(rng.permutation(2 * _BATCH))
        share = float(max(portion := rng.beta(_MIXING, _MIXING), 1.0 - portion))
        rows = torch.lerp(rows[:, partners], rows, share)
        targets = torch.lerp(targets[:, partners], targets, share)
        found = logits(rows)
        supervised = -(targets * found.log_softmax(-1))[:, :_BATCH].sum(-1).mean(1)
        guessed = (found.softmax(-1) - targets)[:, _BATCH:].square().mean((1, 2))
        loss = supervised + _GUESSES_WEIGHT * step / _STEPS * guessed
        descend(loss, optimizer)
        average.lerp_(optimizer.flat, 1.0 - _AVERAGE)
    with torch.no_grad():
        optimizer.flat.copy_(average)
        odds: npt.NDArray[np.float32] = logits(x.expand(repeats, -1, -1)).softmax(-1).numpy()
    return odds


def _repeated(module: Perceptron, n_replicas: int) -> Perceptron:
    """Copy a network of one replica as one of several equal ones."""
    copies: dict[int, Any] = {
        id(p): nn.Parameter(p.detach().repeat(n_replicas, *[1] * (p.dim() - 1)))
        for p in module.parameters()
    }
    return copy.deepcopy(module, copies)
