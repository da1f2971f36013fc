"""What AIM's package does in its innermost loop, in less time: mirror descent on a junction tree.

The package keeps a dense log potential per clique and calls thirty functions of Python for each of
its messages. A potential is a sum of the measured tables' own, though, so here these tables are all
that is kept, cliques are their sums, and what has to be added up over which axes is planned once
per tree. Steps, line search, warm starts and results are the package's:
`TreeInference` compares each model with its belief propagation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
from dpmm.models.base.mbi import CliqueVector, Factor, FactoredInference, GraphicalModel

Names = tuple[str, ...]
Tables = dict[Names, np.ndarray]

_NARROW = 16
"""Rows shorter than that are added up as a product of matrices, which has no loop per row."""


@cache
def _adder(length: int, after: int) -> np.ndarray:
    """Return the matrix that adds up blocks of numbers."""
    return np.tile(np.eye(after), (length, 1))


def _added_up(array: np.ndarray, axis: int) -> np.ndarray:
    """Sum over one axis, which stays with length 1."""
    shape = array.shape
    before, length, after = (
        math.prod(shape[:axis]),
        shape[axis],
        math.prod(shape[axis + 1 :]),
    )
    if before > 1 and after < _NARROW:
        added = array.reshape(before, -1) @ _adder(length, after)
    else:
        added = np.add.reduce(array.reshape(before, length, after), 1)
    return added.reshape(*shape[:axis], 1, *shape[axis + 1 :])


@dataclass
class _Node:
    """A table that is summed from a wider one of a clique, and added to it.

    Parameters
    ----------
    names : tuple of str
    wanted : bool
        Or a step on the way to others.
    parts : list of (axis that is summed, narrower table)
    """

    names: Names
    wanted: bool = False
    parts: list[tuple[int, _Node]] = field(default_factory=list)


class _Clique:
    """A clique's order of axes, and what is summed from it.

    Axes are sorted by length, so that rows are long; all tables have this order.
    """

    def __init__(self, names: Names, shape: tuple[int, ...], tables: Iterable[Names]) -> None:
        self.names, self.shape = names, shape
        self._lengths = dict(zip(names, shape))
        self._spreads: dict[Names, list[int]] = {}
        self._root = self._plan(names, list(dict.fromkeys(tables)))

    def _plan(self, names: Names, tables: list[Names]) -> _Node:
        node = _Node(names, names in tables)
        tables = [table for table in tables if table != names]
        while tables:
            lacking = {name: sum(name not in table for table in tables) for name in names}
            axis = max(lacking, key=lambda name: lacking[name])
            part = [table for table in tables if axis not in table]
            tables = [table for table in tables if axis in table]
            rest = tuple(name for name in names if name != axis)
            node.parts.append((self.names.index(axis), self._plan(rest, part)))
        return node

    def spread(self, table: np.ndarray, names: Names) -> np.ndarray:
        """Give a table this clique's axes, of length 1 where it has none."""
        if names not in self._spreads:
            self._spreads[names] = [
                self._lengths[name] if name in names else 1 for name in self.names
            ]
        return table.reshape(self._spreads[names])

    def total(self, tables: Mapping[Names, np.ndarray]) -> np.ndarray:
        """Add tables to a new array over all axes."""
        total = self._added(self._root, tables)
        if not self._root.parts or total.shape != self.shape:
            total = np.broadcast_to(total, self.shape).copy()
        return total

    def _added(self, node: _Node, tables: Mapping[Names, np.ndarray]) -> np.ndarray:
        total = self.spread(tables[node.names], node.names) if node.wanted else None
        for _, part in node.parts:
            other = self._added(part, tables)
            total = other if total is None else total + other
        return np.zeros([1] * len(self.names)) if total is None else total

    def highest(self, array: np.ndarray, names: Names) -> np.ndarray:
        """Return the maxima over the axes that a table has not got, which stay with length 1."""
        for axis, name in enumerate(self.names):
            if name not in names:
                array = np.maximum.reduce(array, axis, keepdims=True)
        return array

    def sums(self, array: np.ndarray) -> Tables:
        """Sum an array over all axes to all tables."""
        found: Tables = {}
        self._sum(self._root, array, found)
        return found

    def _sum(self, node: _Node, array: np.ndarray, found: Tables) -> None:
        if node.wanted:
            found[node.names] = array.reshape([self._lengths[name] for name in node.names])
        for axis, part in node.parts:
            self._sum(part, _added_up(array, axis), found)

    def summed(self, array: np.ndarray, names: Names) -> np.ndarray:
        """Sum an array over all axes to one table."""
        for axis, name in enumerate(self.names):
            if name not in names:
                array = _added_up(array, axis)
        return array.reshape([self._lengths[name] for name in self.names if name in names])


@dataclass(frozen=True)
class _Measured:
    """All measurements of one table, as one: ``weights * (x - mean)^2 / 2 + rest``."""

    weights: np.ndarray
    mean: np.ndarray
    rest: float


class TreeModel(GraphicalModel):
    """A model that knows its two-way tables."""

    def project(self, attrs: Any) -> Factor:
        """Return a marginal, one- and two-way ones without eliminating variables."""
        names = tuple(attrs) if isinstance(attrs, (list, tuple)) else (attrs,)
        pairs = getattr(self, "pairs", {})
        for order in (names, names[::-1]):
            if order in pairs:
                factor = Factor(self.domain.project(order), pairs[order])
                return factor.transpose(names)
        return super().project(attrs)


class TreeInference(FactoredInference):
    """`FactoredInference` by mirror descent, with the same results.

    Attributes
    ----------
    deviation_ : float
        The most by which a cell of the last model's marginals differed from the package's,
        relative to the number of records.
    """

    def mirror_descent(
        self, measurements: list, total: Any = None, stepsize: None = None, callback: None = None
    ) -> float:
        """Fit as the package does, by steps whose length is searched."""
        self._setup(measurements, total)
        self._lay_out_tree()
        self._measured = self._merge_measurements()
        self._place_tables()
        tables = {names: part.copy() for names, part in self._tables.items()}
        found = self._propagate(tables)
        loss, gradient = self._loss(found)
        alpha = 1.0 / self.model.total**2
        for _ in range(self.iters if loss > 0.0 else 0):
            old, was, old_loss, slope = tables, found, loss, gradient
            alpha *= 2.0
            for _ in range(25):
                tables = old | {names: old[names] - alpha * slope[names] for names in slope}
                found = self._propagate(tables)
                loss, gradient = self._loss(found)
                gained = sum(np.vdot(slope[n], was[n] - found[n]) for n in slope)
                if old_loss - loss >= 0.5 * alpha * gained:
                    break
                alpha *= 0.5
        self._finish(tables)
        return loss

    def _order(self, names: Iterable[str]) -> Names:
        attrs = self.domain.attrs
        return tuple(sorted(names, key=lambda name: (self.domain[name], attrs.index(name))))

    def _lay_out_tree(self) -> None:
        """Hang the tree on its largest clique, whose array is summed once less."""
        domain, model = self.domain, self.model
        model.__class__ = TreeModel
        at = {clique: i for i, clique in enumerate(model.cliques)}
        root = max(model.cliques, key=domain.size)
        tree = model.junction_tree.tree
        self._parents: list[int | None] = [None] * len(at)
        self._downwards = [at[root]]
        for parent, child in nx.bfs_edges(tree, root):
            self._parents[at[child]] = at[parent]
            self._downwards.append(at[child])
        self._separators = [
            () if parent is None else self._order(set(clique) & set(model.cliques[parent]))
            for clique, parent in zip(model.cliques, self._parents)
        ]
        self._children = [
            [child for child, parent in enumerate(self._parents) if parent == i]
            for i in range(len(at))
        ]

    def _merge_measurements(self) -> dict[Names, _Measured]:
        grouped = defaultdict(list)
        for group in self.groups.values():
            for matrix, answer, noise, names in group:
                scale = matrix.diagonal() if hasattr(matrix, "diagonal") else np.ones(len(answer))
                ordered = self._order(names)
                axes = [names.index(name) for name in ordered]
                shape = [self.domain[name] for name in names]
                grouped[ordered].append(
                    [np.transpose(x.reshape(shape), axes) / noise for x in (scale, answer)]
                )
        measured = {}
        for names, group in grouped.items():
            weights = sum(scale**2 for scale, _ in group)
            mean = sum(scale * answer for scale, answer in group) / weights
            rest = sum(0.5 * np.square(scale * mean - answer).sum() for scale, answer in group)
            measured[names] = _Measured(weights, mean, float(rest))
        return measured

    def _place_tables(self) -> None:
        """Put every table into one clique; those of before start where they ended."""
        domain, model = self.domain, self.model
        at = {clique: i for i, clique in enumerate(model.cliques)}
        self._owners = {
            self._order(names): clique
            for clique, group in self.groups.items()
            for *_, names in group
        }
        # The package adds old potentials to the first clique that has theirs, or drops them.
        parts: dict[tuple[Names, Names], np.ndarray] = {}
        for (clique, names), part in getattr(self, "_parts", {}).items():
            wider = next((c for c in model.cliques if set(clique) <= set(c)), None)
            if self.warm_start and wider is not None:
                parts[wider, names] = parts.get((wider, names), 0.0) + part
        self._parts = parts
        self._tables = {
            names: np.zeros([domain[name] for name in names])
            for names in {*self._owners, *(names for _, names in parts)}
        }
        held = defaultdict(list)
        homes = {names: at[clique] for names, clique in self._owners.items()}
        for (clique, names), part in parts.items():
            self._tables[names] = self._tables[names] + part
            homes.setdefault(names, at[clique])
        for names, home in homes.items():
            held[home].append(names)
        self._held = [held[i] for i in range(len(at))]
        self._cliques = [
            _Clique(
                self._order(clique),
                tuple(domain[name] for name in self._order(clique)),
                [*self._held[i], *(self._separators[child] for child in self._children[i])],
            )
            for i, clique in enumerate(model.cliques)
        ]

    def _propagate(self, tables: Tables, beliefs: list | None = None) -> Tables:
        """Return the marginals of tables; keep the cliques' own, if asked to."""
        n_cliques = len(self._cliques)
        arrays, messages, sent, wanted = ([None] * n_cliques for _ in range(4))
        for i in reversed(self._downwards):
            clique = self._cliques[i]
            own = {names: tables[names] for names in self._held[i]}
            for child in self._children[i]:
                names = self._separators[child]
                own[names] = own[names] + messages[child] if names in own else messages[child]
            array = clique.total(own)
            highest = clique.highest(array, self._separators[i])
            array -= highest
            arrays[i] = np.exp(array, out=array)
            sent[i] = clique.summed(array, self._separators[i])  # at least 1, everywhere
            messages[i] = np.log(sent[i]) + highest.reshape(sent[i].shape)
        found: Tables = {}
        for i in self._downwards:
            clique, array = self._cliques[i], arrays[i]
            above = self.model.total if wanted[i] is None else wanted[i]
            array *= clique.spread(above / sent[i], self._separators[i])
            sums = clique.sums(array)
            for names in self._held[i]:
                found[names] = sums[names]
            for child in self._children[i]:
                wanted[child] = sums[self._separators[child]]
            if beliefs is None:
                arrays[i] = None
        if beliefs is not None:
            beliefs.extend(arrays)
        return found

    def _loss(self, found: Tables) -> tuple[float, Tables]:
        loss, gradient = 0.0, {}
        for names, measured in self._measured.items():
            error = found[names] - measured.mean
            gradient[names] = measured.weights * error
            loss += 0.5 * float(np.vdot(gradient[names], error)) + measured.rest
        return loss, gradient

    def _finish(self, tables: Tables) -> None:
        """Hand over potentials, marginals and two-way tables in the package's form."""
        model, domain = self.model, self.domain
        for names, clique in self._owners.items():
            key = (clique, names)
            change = tables[names] - self._tables[names]
            self._parts[key] = self._parts.get(key, 0.0) + change
        beliefs: list = []
        self._propagate(tables, beliefs)
        marginals, potentials = {}, {}
        for i, clique in enumerate(model.cliques):
            own = self._cliques[i]
            axes = [own.names.index(name) for name in clique]
            potential = np.zeros(own.shape)
            for names in self._held[i]:
                potential += own.spread(tables[names], names)
            potentials[clique] = Factor(domain.project(clique), potential.transpose(axes).copy())
            marginals[clique] = Factor(domain.project(clique), beliefs[i].transpose(axes).copy())
        model.potentials, model.marginals = CliqueVector(potentials), CliqueVector(marginals)
        theirs = model.belief_propagation(model.potentials)
        self.deviation_ = max(
            float(np.abs(theirs[c].values - marginals[c].values).max()) / model.total
            for c in model.cliques
        )
        if not self.deviation_ < 1e-6:
            raise ArithmeticError(f"a marginal is wrong by {self.deviation_:.1e} of the records")
        model.pairs = self._two_way(beliefs)

    def _two_way(self, beliefs: list) -> Tables:
        """Return the marginals of every two columns that are in no common clique."""
        model = self.model
        cliques = [set(clique.names) for clique in self._cliques]
        at = {clique: i for i, clique in enumerate(model.cliques)}
        neighbours = [
            [at[other] for other in model.junction_tree.tree.neighbors(clique)]
            for clique in model.cliques
        ]
        found: Tables = {}
        for i, clique in enumerate(self._cliques):
            for j in neighbours[i]:
                between = self._order(cliques[i] & cliques[j])
                for name in clique.names:
                    if name in between:
                        continue
                    joint = clique.summed(beliefs[i], self._order({name, *between}))
                    joint = np.moveaxis(joint, self._order({name, *between}).index(name), 0)
                    self._walk(name, joint, between, i, j, beliefs, neighbours, found)
        return found

    def _walk(
        self,
        name: str,
        joint: np.ndarray,
        between: Names,
        i: int,
        j: int,
        beliefs: list,
        neighbours: list[list[int]],
        found: Tables,
    ) -> None:
        """Go from clique i to j and further, with the table of a column and what is between."""
        clique = self._cliques[j]
        own = clique.summed(beliefs[j], between)
        given = np.zeros_like(joint)
        np.divide(joint, own, out=given, where=own > 0.0)
        for other in clique.names:
            if other not in between and (other, name) not in found:
                found[name, other] = self._passed(given, between, j, (other,), beliefs)
        for k in neighbours[j]:
            if k != i:
                further = self._order(set(clique.names) & set(self._cliques[k].names))
                table = self._passed(given, between, j, further, beliefs)
                self._walk(name, table, further, j, k, beliefs, neighbours, found)

    def _passed(
        self, given: np.ndarray, between: Names, j: int, further: Names, beliefs: list
    ) -> np.ndarray:
        """Multiply p(column | between) by what clique j has of it and of further columns."""
        both = self._order({*between, *further})
        table = self._cliques[j].summed(beliefs[j], both)
        letters = {name: chr(ord("b") + i) for i, name in enumerate(both)}
        spelt = ["".join(letters[n] for n in names) for names in (between, both, further)]
        return np.einsum(f"a{spelt[0]},{spelt[1]}->a{spelt[2]}", given, table, optimize=True)


def model_size(domain: Any, cliques: list[Names]) -> float:
    """Return the size in MiB that a model of these cliques would have.

    The package's ``hypothetical_model_size`` makes the whole model to find out.
    """
    bits = {name: 1 << i for i, name in enumerate(domain.attrs)}
    lengths = [domain[name] for name in domain.attrs]
    sets = {sum(bits[name] for name in clique) for clique in cliques}

    @cache
    def cells(members: int) -> int:
        return math.prod(n for i, n in enumerate(lengths) if members >> i & 1)

    left, eliminated = list(bits.values()), []
    while left:
        unions = {bit: _union(bit, sets) for bit in left}
        bit = min(left, key=lambda bit: cells(unions[bit]))
        eliminated.append(unions[bit] | bit)
        left.remove(bit)
        sets = {members for members in sets if not members & bit} | {unions[bit] & ~bit}
    largest = [
        members
        for i, members in enumerate(eliminated)
        if not any(members & ~other == 0 for j, other in enumerate(eliminated) if j < i)
    ]
    return sum(map(cells, largest)) * 8 / 2**20


def _union(bit: int, sets: Iterable[int]) -> int:
    union = 0
    for members in sets:
        if members & bit:
            union |= members
    return union
