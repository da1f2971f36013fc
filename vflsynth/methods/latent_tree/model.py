"""Latent tree models of discrete tables: groups of columns, latent classes, a tree, inference.

Everything here is computed from tables of counts that are noisy already, so it is post-processing:
it costs no privacy, and counts may be negative. Inference is exact: evidence goes up the tree from
its leaves and states are drawn down from its root (Pearl 1988), so that all draws weigh the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth.columns.histograms import nearest_shares
from vflsynth.models.samplers import pick

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Pair = tuple[int, int]

_EM_STEPS, _EM_STARTS = 100, 5
_SMALLEST = 1e-12


def joint_shares(counts: Floats) -> Floats:
    """Turn a table of noisy counts, shape (a, b), into probabilities that add up to 1."""
    return nearest_shares(counts.ravel()).reshape(counts.shape)


def conditional_shares(counts: Floats) -> Floats:
    """Turn noisy counts of pairs (a, b), shape (a, b), into p(b | a).

    Rows of next to no mass get the shares of b over all rows.
    """
    joint = joint_shares(counts)
    rows = joint.sum(1, keepdims=True)
    shares: Floats = np.where(rows > _SMALLEST, joint / np.maximum(rows, _SMALLEST), joint.sum(0))
    return shares


def mutual_information(counts: Floats) -> float:
    """Mutual information of two columns in nats, from their noisy counts, shape (a, b)."""
    joint = joint_shares(counts)
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    there = joint > 0.0
    return float(np.sum(joint[there] * np.log(joint[there] / apart[there])))


def counts_of(pairs: Mapping[Pair, Floats], one: int, other: int) -> Floats:
    """Return noisy counts of two columns, of which `pairs` has those with the smaller one first."""
    return pairs[one, other] if one < other else pairs[other, one].T


def information_of(pairs: Mapping[Pair, Floats], n_columns: int) -> Floats:
    """Mutual information of every two columns, (column, column), 0 without a table of the two."""
    found = np.zeros((n_columns, n_columns))
    for (a, b), counts in pairs.items():
        found[a, b] = found[b, a] = mutual_information(counts)
    return found


def group_sizes(n_columns: int, group_size: int) -> list[int]:
    """Sizes of the groups of a party's columns, as equal as possible; depends on numbers only."""
    n_groups = -(-n_columns // group_size)
    return [len(part) for part in np.array_split(np.arange(n_columns), n_groups)]


def group_columns(information: Floats, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Put columns that tell most about each other into groups of these sizes, which add up.

    A group begins with the strongest pair that is left and takes, one by one, the column with the
    largest sum of mutual information, (column, column), about its members.
    """
    left = list(range(len(information)))
    groups = []
    for size in sizes:
        between = information[np.ix_(left, left)]
        np.fill_diagonal(between, -np.inf)
        first = left[int(between.max(1).argmax())] if len(left) > 1 else left[0]
        group = [first]
        left.remove(first)
        while len(group) < size:
            best = left[int(information[np.ix_(group, left)].sum(0).argmax())]
            group.append(best)
            left.remove(best)
        groups.append(tuple(group))
    return groups


def pairs_of_one_party(n_latents: int, n_parties: int) -> list[Pair]:
    """Return the pairs of a party's own latent attributes.

    The only attribute of a single party is counted against itself, which gives its distribution.
    """
    alone = [(0, 0)] if n_latents == n_parties == 1 else []
    return list(combinations(range(n_latents), 2)) or alone


def spanning_tree(information: Floats) -> list[int]:
    """Find the tree with the largest sum of mutual information (Chow and Liu 1968), by Prim.

    Returns each node's parent; -1 for the root, which is node 0.
    """
    n_nodes = len(information)
    gain, inside = information[0].copy(), np.zeros(n_nodes, dtype=np.bool_)
    parents = np.zeros(n_nodes, dtype=np.int64)
    parents[0], inside[0] = -1, True
    for _ in range(n_nodes - 1):
        node = int(np.where(inside, -np.inf, gain).argmax())
        inside[node] = True
        closer = ~inside & (information[node] > gain)
        gain[closer] = information[node][closer]
        parents[closer] = node
    return parents.tolist()


def top_down(parents: Sequence[int]) -> list[int]:
    """Order the nodes such that parents come before their children."""
    order = [node for node, parent in enumerate(parents) if parent < 0]
    for node in order:
        order += [child for child, parent in enumerate(parents) if parent == node]
    return order


def group_distribution(pairs: Mapping[Pair, Floats], group: Sequence[int]) -> Floats:
    """Approximate the joint distribution of two columns or more by their best tree of pairs.

    `pairs` are noisy counts of every pair with the smaller column first. One axis per column.
    """
    size = len(group)
    own = {(i, j): counts_of(pairs, group[i], group[j]) for j, i in combinations(range(size), 2)}
    parents = spanning_tree(information_of(own, size))
    joint = np.ones([1] * size)
    for node in top_down(parents):
        parent = parents[node]
        shape = [1] * size
        if parent < 0:
            factor = joint_shares(counts_of(pairs, group[0], group[1])).sum(1)
            shape[node] = len(factor)
        else:
            factor = conditional_shares(counts_of(pairs, group[parent], group[node]))
            shape[parent], shape[node] = factor.shape
            if parent > node:
                factor = factor.T
        joint = joint * factor.reshape(shape)
    return joint


@dataclass(frozen=True)
class LatentClasses:
    """A latent class model of a group of columns: a latent state, and columns independent given it.

    Shares are those of the latent states; columns have p(column's state | latent state).
    """

    shares: Floats
    columns: tuple[Floats, ...]

    @classmethod
    def fit(cls, joint: Floats, n_latent: int, rng: np.random.Generator) -> LatentClasses:
        """Fit to a joint distribution, an axis per column, by EM from five random starts."""
        best: tuple[float, LatentClasses] | None = None
        for _ in range(_EM_STARTS):
            model = cls._maximise(joint, rng.dirichlet(np.ones(n_latent), joint.shape))
            for _ in range(_EM_STEPS):
                model = cls._maximise(joint, model.posterior())
            likelihood = float(np.sum(joint * np.log(model._joint().sum(-1) + _SMALLEST)))
            if best is None or likelihood > best[0]:
                best = likelihood, model
        assert best is not None
        return best[1]

    def posterior(self) -> Floats:
        """p(latent state | states of all columns), one axis per column and one for the latent."""
        joint = self._joint() + _SMALLEST
        posterior: Floats = joint / joint.sum(-1, keepdims=True)
        return posterior

    def assign(self, codes: Codes) -> Codes:
        """Return every record's most probable latent state, of its codes (record, column)."""
        most_probable = self.posterior().argmax(-1)
        latent: Codes = most_probable[tuple(codes.T)]
        return latent

    def _joint(self) -> Floats:
        """p(columns, latent state)."""
        size = len(self.columns)
        joint = self.shares.reshape([1] * size + [-1])
        for axis, column in enumerate(self.columns):
            shape = [1] * size + [len(self.shares)]
            shape[axis] = column.shape[1]
            joint = joint * column.T.reshape(shape)
        return joint

    @classmethod
    def _maximise(cls, joint: Floats, posterior: Floats) -> LatentClasses:
        """Best parameters, given how probable each latent state is for every cell."""
        weights = joint[..., None] * posterior
        axes = range(joint.ndim)
        columns = []
        for axis in axes:
            counts = weights.sum(tuple(other for other in axes if other != axis)).T + _SMALLEST
            columns.append(counts / counts.sum(1, keepdims=True))
        return cls(weights.sum(tuple(axes)), tuple(columns))


def merge_cells(shares: Floats, n_states: int, *, ordered: bool) -> Codes:
    """Merge a histogram's cells into at most `n_states` states of roughly equal mass.

    Of ordered cells (bins of numbers) only neighbours may be merged; otherwise the rarest
    categories share the last state. Returns the state of each cell, from 0 without gaps.
    """
    if ordered:
        middle = np.cumsum(shares) - shares / 2.0
        states = np.minimum((middle * n_states).astype(np.int64), n_states - 1)
        return np.unique(states, return_inverse=True)[1].astype(np.int64)
    rank = np.argsort(np.argsort(-shares, kind="stable")).astype(np.int64)
    return np.minimum(rank, n_states - 1)


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
