"""A classifier of drawn rows, which the server trains on features and the parties keep.

When training is over, every party sends the server fixed random features of records and of rows
that its generator draws, both in an order that the parties draw alike. The server trains a network
of one hidden layer to tell them apart, and gives each party the weights of its own features with
what comes after the hidden layer: `vflsynth.models.choosing` says what they do with them.

Sees: features. Sends: weights; the server keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import PayloadRejectedError
from vflsynth.networks.layers import MLP, FlatAdam, at_rows

N_FEATURES, _HIDDEN = 256, 32
"""Features of a party's rows, and hidden units of the classifier."""

_MOST_RECORDS, _BLOCK = 1 << 15, 1 << 13
"""Records that it is trained on at most, and those of a message."""

_BATCH, _MOST_STEPS, _LOOK_EVERY, _PATIENCE = 512, 1500, 100, 5
_LEARNING_RATE = 1e-3


def feature_blocks(n_records: int) -> list[slice]:
    """Say which of the records, in an order of their own, are in which message."""
    n = min(n_records, _MOST_RECORDS)
    return [slice(start, min(n, start + _BLOCK)) for start in range(0, n, _BLOCK)]


def draw_features(records: Tensor, streams: RandomStreams, replica: int) -> tuple[Tensor, Tensor]:
    """Draw weights and offsets of features of encoded records, (encoded, feature) and (feature,).

    ``cos(w·z + b)`` of records z whose columns have mean 0 and deviation 1, with w normal and as
    long on average as makes ``w·z`` have deviation 1.
    """
    mean, deviation = records.mean(0), records.std(0, correction=0)
    deviation = deviation.where(deviation > 1e-3, 1.0)  # of what is always the same
    width = records.shape[1]
    weight = streams.normal("features", 0, (width, N_FEATURES))[replica]
    weight = weight / (width**0.5 * deviation.unsqueeze(1))
    offset = streams.uniform("offsets", 0, (N_FEATURES,))[replica] * (2.0 * torch.pi)
    return weight, offset - mean @ weight


@torch.no_grad()
def learn_to_tell(
    received: Mapping[str, tuple[Tensor, Tensor]], streams: RandomStreams
) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Train a classifier on features of records and of drawn rows, both (replica, row, feature).

    Returns for every party what a `RowScorer` holds. A fifth of the rows is held out, and says when
    to stop, for every replica; where they cannot be told apart, scores are all the same. Raises
    PayloadRejectedError if the parties' features are not of equally many rows.
    """
    names = sorted(received)
    shape = received[names[0]][0].shape[:2]
    for name in names:
        if any(own.shape[:2] != shape for own in received[name]):
            raise PayloadRejectedError(
                f"sent features of {[tuple(own.shape) for own in received[name]]}; expected "
                f"{tuple(shape)} rows",
                fix="give all parties the same settings and version of vflsynth",
                party=name,
            )
    real, fake = (torch.cat([received[name][k] for name in names], -1) for k in (0, 1))
    network = MLP(
        (real.shape[-1], _HIDDEN, 1), bias=True, activate_last=False, streams=streams, name="scorer"
    )
    for parameter in network.linears[-1].parameters():
        parameter.zero_()
    optimizer = FlatAdam(network, learning_rate=_LEARNING_RATE)
    n_held_out, half = shape[1] // 5, _BATCH // 2
    held_out = torch.cat([real[:, :n_held_out], fake[:, :n_held_out]], 1)
    best, kept = held_out_loss(network, held_out), optimizer.flat.clone()
    waited = torch.zeros_like(best)
    for step in range(_MOST_STEPS):
        rows = streams.uniform("rows", step, (2, half)) * (shape[1] - n_held_out)
        chosen = (n_held_out + rows.long()).clamp_max(shape[1] - 1)
        batch = [at_rows(of, chosen[:, k]) for k, of in enumerate((real, fake))]
        descend(network, torch.cat(batch, 1))
        optimizer.step()
        if (step + 1) % _LOOK_EVERY:
            continue
        loss = held_out_loss(network, held_out)
        better = (loss < best) & (waited < _PATIENCE)  # as if every replica were alone
        kept = torch.where(better[optimizer.replica_of], optimizer.flat, kept)
        best = torch.where(better, loss, best)
        waited = torch.where(better, 0.0, waited + 1.0)
        if bool((waited >= _PATIENCE).all()):
            break
    optimizer.flat.copy_(kept)
    (first, bias), (last, _) = network.layers
    assert bias is not None
    common = bias.detach()[:, 0], last.detach()[..., 0]
    parts = torch.split(first.detach(), [received[name][0].shape[-1] for name in names], 1)
    return {name: (own, *common) for name, own in zip(names, parts)}


def descend(network: MLP, rows: Tensor) -> None:
    """Set the gradient of the mean log loss on rows whose first half is real."""
    trace = network.trace(rows)
    scores = trace[-1]
    is_real = (torch.arange(rows.shape[1], device=rows.device) < rows.shape[1] // 2).float()
    upstream = (scores.sigmoid() - is_real.view(1, -1, 1)) / rows.shape[1]
    network.write_gradient(trace, network.cotangents(trace, upstream))


def held_out_loss(network: MLP, rows: Tensor) -> Tensor:
    """Mean log loss on rows whose first half is real, (replica,)."""
    scores = network.trace(rows)[-1][..., 0]
    real, fake = torch.tensor_split(scores, 2, 1)
    return torch.cat([F.softplus(-real), F.softplus(fake)], 1).mean(1)
