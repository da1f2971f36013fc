"""Exact inference in a tree of latent attributes, given what is known of records.

Evidence goes up the tree from its leaves and states are drawn down from its root (Pearl 1988):
draws have the tree's distribution given what is known, and all weigh the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from vflsynth.methods.latent_tree.model import top_down
from vflsynth.models.known import pick


def states_given(
    parents: Sequence[int],
    shares: Sequence[Tensor],
    evidence: Iterable[tuple[int, Tensor]],
    levels: Tensor,
    n_draws: int,
) -> tuple[Tensor, Tensor]:
    """Draw the states of all latent attributes of a tree, and say how probable the evidence is.

    Parents are -1 for the root; shares (state,) of the root, (parent state, state) of others.
    `evidence` are attributes with log probabilities of what is known given their states, (record or
    1, state), which are added up. `levels` are uniform, (draw, latent attribute), of each record
    all draws, one after the other. The states are of no meaning where what is known is impossible;
    the log probability is of what is known, (record or 1,).
    """
    order = top_down(parents)
    up = [torch.zeros(1, table.shape[-1], dtype=torch.float64) for table in shares]
    for node, log in evidence:
        up[node] = up[node] + log
    for node in reversed(order[1:]):
        up[parents[node]] = up[parents[node]] + _log_mean(up[node], shares[node].mT)
    root = order[0]
    total = _log_mean(up[root], shares[root].unsqueeze(1))
    states = torch.zeros(len(levels), len(shares), dtype=torch.int64)
    for node in order:
        prior = shares[node].unsqueeze(0)
        if node != root:
            prior = shares[node][states[:, parents[node]]]
        posterior = prior * for_draws(_above_zero(up[node]), n_draws)
        mass = posterior.sum(1, keepdim=True)
        posterior = torch.where(mass > 0.0, posterior / mass, prior)
        states[:, node] = pick(posterior, levels[:, node])
    return states, total.squeeze(1)


def for_draws(rows: Tensor, n_draws: int) -> Tensor:
    """Repeat rows of records, shape (record or 1, ...), for all their draws, unless it is one."""
    return rows if len(rows) == 1 else rows.repeat_interleave(n_draws, 0)


def _log_mean(logs: Tensor, weights: Tensor) -> Tensor:
    """log(exp(logs) @ weights), shape (record, column of weights)."""
    largest = logs.amax(1, keepdim=True)
    safe = torch.where(largest > -torch.inf, largest, 0.0)
    return (_above_zero(logs) @ weights).log() + safe


def _above_zero(logs: Tensor) -> Tensor:
    """exp(logs), as a share of the largest of each row."""
    largest = logs.amax(1, keepdim=True)
    return (logs - torch.where(largest > -torch.inf, largest, 0.0)).exp()
