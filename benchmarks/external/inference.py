"""What AIM's package does in its innermost loop, in less time: mirror descent on a graph of tables.

The package keeps a dense log potential per clique of a junction tree and sends messages between
them. What it measures has one or two columns, though, so potentials are sums of such tables. Here
columns are summed out one after another in the package's order, as products of matrices whose
cells multiply small tables, so that no array over a whole clique is made; the way back gives the
tables' marginals. Steps, line search, warm starts and results are the package's: `TreeInference`
compares each model with its belief propagation.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from dpmm.models.base.mbi import CliqueVector, Factor, FactoredInference, GraphicalModel

Names = tuple[str, ...]
Tables = dict[Names, np.ndarray]

_LEAST_KEPT = 1e-280
"""Of the product of all scales; 1e-308 of it is where numbers end."""


class _Product:
    """Tables that are multiplied, and what an array sums to over each one's columns.

    Parameters
    ----------
    names : tuple of str
        What the product is over, in this order.
    tables : list of tuple of str
    lengths : mapping of str to int
    """

    def __init__(self, names: Names, tables: list[Names], lengths: Mapping[str, int]) -> None:
        self.shape = [lengths[name] for name in names]
        self._forth, self._back = [], []
        for table in tables:
            kept = [name for name in names if name in table]
            lacking = tuple(axis for axis, name in enumerate(names) if name not in table)
            shape = [lengths[name] if name in table else 1 for name in names]
            self._forth.append(([table.index(name) for name in kept], shape))
            self._back.append((lacking, [kept.index(name) for name in table]))

    def multiplied(self, tables: list[np.ndarray]) -> np.ndarray:
        """Multiply the tables."""
        product = np.ones([1] * len(self.shape))
        for table, (axes, shape) in zip(tables, self._forth):
            product = product * table.transpose(axes).reshape(shape)
        return np.broadcast_to(product, self.shape)

    def sums(self, array: np.ndarray) -> Iterator[np.ndarray]:
        """Sum an array over the product's columns to each table's."""
        array = array.reshape(self.shape)
        for lacking, axes in self._back:
            yield np.add.reduce(array, lacking).transpose(axes)


class _Elimination:
    """One column summed out of all tables that have it.

    They are multiplied in two groups, and these as matrices, so that the array over all columns
    of all of them is never made.

    Parameters
    ----------
    name : str
    tables : dict of int to tuple of str
        What has the column, by its place among all tables and messages.
    lengths : mapping of str to int
    """

    def __init__(self, name: str, tables: Mapping[int, Names], lengths: Mapping[str, int]) -> None:
        def cells(names: Iterable[str]) -> int:
            return math.prod(lengths[name] for name in names)

        def others(group: Iterable[int]) -> list[str]:
            return list(dict.fromkeys(n for i in group for n in tables[i] if n != name))

        first, second = _two_groups(name, tables, lengths)
        common = [n for n in others(first) if n in others(second)]
        rows = [n for n in others(first) if n not in common]
        columns = [n for n in others(second) if n not in common]
        self.message = (*common, *rows, *columns)
        self._groups = first, second
        self._products = (
            _Product((*common, *rows, name), [tables[i] for i in first], lengths),
            _Product((*common, name, *columns), [tables[i] for i in second], lengths),
        )
        self._matrices = (
            (cells(common), cells(rows), lengths[name]),
            (cells(common), lengths[name], cells(columns)),
        )
        self._shape = [lengths[n] for n in self.message]

    def summed(self, found: list[np.ndarray]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return the message, and what it was computed from."""
        first, second = (
            product.multiplied([found[i] for i in group]).reshape(shape)
            for group, product, shape in zip(self._groups, self._products, self._matrices)
        )
        summed = first @ second
        return summed.reshape(self._shape), (first, second, summed)

    def shared(
        self, wanted: np.ndarray, parts: tuple[np.ndarray, ...]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each table's place and marginal, given the message's."""
        first, second, summed = parts
        share = np.zeros_like(summed)
        np.divide(wanted.reshape(summed.shape), summed, out=share, where=summed > 0.0)
        joints = (
            first * (share @ second.transpose(0, 2, 1)),
            second * (first.transpose(0, 2, 1) @ share),
        )
        for group, product, joint in zip(self._groups, self._products, joints):
            yield from zip(group, product.sums(joint))


def _two_groups(
    name: str, tables: Mapping[int, Names], lengths: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Part tables that have a column, so that few cells are multiplied; the second may be empty."""
    sets = {i: frozenset(names) for i, names in tables.items()}
    wide = [s for s in dict.fromkeys(sets.values()) if not any(s < t for t in sets.values())]

    def work(group: tuple[frozenset[str], ...]) -> int:
        rest = [s for s in wide if s not in group]
        return sum(len(g) * math.prod(lengths[n] for n in {name}.union(*g)) for g in (group, rest))

    groups = (g for n in range(1, len(wide) + 1) for g in itertools.combinations(wide, n))
    best = min(groups, key=work)
    first = tuple(i for i, s in sets.items() if any(s <= t for t in best))
    return first, tuple(i for i in tables if i not in first)


def _balanced(tables: Tables) -> Tables:
    """Move what a whole row of a two-way table has in common to the row's one-way table.

    The product stays the same. Steps let such shares drift apart until tables exclude each other.
    """
    made = dict(tables)
    for names in tables:
        for axis, name in enumerate(names if len(names) == 2 else ()):
            if (name,) in made:
                common = made[names].max(axis=1 - axis, keepdims=True)
                made[names] = made[names] - common
                made[name,] = made[name,] + common.ravel()
    return made


class _Sums:
    """The order in which columns are summed out of tables, and back.

    Parameters
    ----------
    tables : iterable of tuple of str
    lengths : mapping of str to int
    """

    def __init__(self, tables: Iterable[Names], lengths: Mapping[str, int]) -> None:
        self._tables = list(tables)
        self._eliminations = []
        left = dict(enumerate(self._tables))
        for name, _ in _eliminated(lengths, self._tables):
            elimination = _Elimination(
                name, {i: names for i, names in left.items() if name in names}, lengths
            )
            left = {i: names for i, names in left.items() if name not in names}
            left[len(self._tables) + len(self._eliminations)] = elimination.message
            self._eliminations.append(elimination)

    def marginals(self, tables: Tables, total: float) -> Tables:
        """Return the marginals of the product of exponentials, which sums to a total.

        Messages and tables are scaled to a maximum of 1: what is below 1e-308 of it is zero. That
        loses nothing while the product of all scales is far above it, and no quotient on the way
        back exceeds the total over that product.

        Raises
        ------
        FloatingPointError
            If it is not, as of tables whose largest cells exclude each other. Then only sums of
            logarithms tell them apart.
        """
        balanced = _balanced(tables)
        found = [np.exp(balanced[names] - balanced[names].max()) for names in self._tables]
        parts, kept = [], 1.0
        for elimination in self._eliminations:
            message, part = elimination.summed(found)
            largest = message.max()
            kept *= largest
            if not kept > _LEAST_KEPT:
                raise FloatingPointError("cells that were too small to keep may matter")
            found.append(message / largest)
            parts.append(part)
        wanted: list[np.ndarray] = [np.array(total)] * len(found)
        for k in reversed(range(len(parts))):
            place = len(self._tables) + k
            for i, marginal in self._eliminations[k].shared(wanted[place], parts[k]):
                wanted[i] = marginal
        return dict(zip(self._tables, wanted))


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
        self.model.__class__ = TreeModel
        self._measured = self._merge_measurements()
        self._place_tables()
        tables = {names: part.copy() for names, part in self._tables.items()}
        found = self._marginals(tables)
        loss, gradient = self._loss(found)
        alpha = 1.0 / self.model.total**2
        for _ in range(self.iters if loss > 0.0 else 0):
            old, was, old_loss, slope = tables, found, loss, gradient
            alpha *= 2.0
            for _ in range(25):
                tables = old | {names: old[names] - alpha * slope[names] for names in slope}
                found = self._marginals(tables)
                loss, gradient = self._loss(found)
                gained = sum(np.vdot(slope[n], was[n] - found[n]) for n in slope)
                if old_loss - loss >= 0.5 * alpha * gained:
                    break
                alpha *= 0.5
        self._finish(tables, found)
        return loss

    def _order(self, names: Iterable[str]) -> Names:
        return tuple(sorted(names, key=self.domain.attrs.index))

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
        """Put every table into a clique; those of before start where they ended."""
        domain, cliques = self.domain, self.model.cliques
        self._owners = {
            self._order(names): clique
            for clique, group in self.groups.items()
            for *_, names in group
        }
        # The package adds old potentials to the first clique that has theirs, or drops them.
        parts: dict[tuple[Names, Names], np.ndarray] = {}
        for (clique, names), part in getattr(self, "_parts", {}).items():
            wider = next((c for c in cliques if set(clique) <= set(c)), None)
            if self.warm_start and wider is not None:
                parts[wider, names] = parts.get((wider, names), 0.0) + part
        self._parts = parts
        homes = {names: clique for clique, names in parts} | self._owners
        self._homes = dict(sorted(homes.items()))
        self._tables = {names: np.zeros([domain[name] for name in names]) for names in self._homes}
        for (_, names), part in parts.items():
            self._tables[names] = self._tables[names] + part
        self._sums = _Sums(self._tables, domain.config)

    def _marginals(self, tables: Tables) -> Tables:
        """Return the tables' marginals; in logarithms, as the package does, where it needs that."""
        try:
            return self._sums.marginals(tables, self.model.total)
        except FloatingPointError:
            beliefs = self.model.belief_propagation(self._potentials(tables))
            return {
                names: beliefs[clique].project(names).values
                for names, clique in self._homes.items()
            }

    def _potentials(self, tables: Tables) -> CliqueVector:
        """Sum tables to the package's potentials of cliques."""
        model, domain = self.model, self.domain
        potentials = {clique: Factor.zeros(domain.project(clique)) for clique in model.cliques}
        for names, clique in self._homes.items():
            potentials[clique] += Factor(domain.project(names), tables[names])
        return CliqueVector(potentials)

    def _loss(self, found: Tables) -> tuple[float, Tables]:
        loss, gradient = 0.0, {}
        for names, measured in self._measured.items():
            error = found[names] - measured.mean
            gradient[names] = measured.weights * error
            loss += 0.5 * float(np.vdot(gradient[names], error)) + measured.rest
        return loss, gradient

    def _finish(self, tables: Tables, found: Tables) -> None:
        """Hand over potentials, marginals and two-way tables in the package's form."""
        model = self.model
        for names, clique in self._owners.items():
            key = (clique, names)
            change = tables[names] - self._tables[names]
            self._parts[key] = self._parts.get(key, 0.0) + change
        model.potentials = self._potentials(tables)
        model.marginals = model.belief_propagation(model.potentials)
        self.deviation_ = max(
            float(np.abs(model.marginals[clique].project(names).values - found[names]).max())
            / model.total
            for names, clique in self._homes.items()
        )
        if not self.deviation_ < 1e-6:
            raise ArithmeticError(f"a marginal is wrong by {self.deviation_:.1e} of the records")
        model.pairs = _TwoWay(model).tables


class _TwoWay:
    """The marginals of every two columns, along the junction tree.

    Attributes
    ----------
    tables : dict of (str, str) to ndarray
        In one order or both.
    """

    def __init__(self, model: GraphicalModel) -> None:
        self._beliefs = model.marginals
        self._neighbours = {c: list(model.junction_tree.tree.neighbors(c)) for c in model.cliques}
        self._summed = cache(lambda clique, names: self._beliefs[clique].project(names).values)
        self.tables: Tables = {}
        for clique in model.cliques:
            for pair in itertools.combinations(clique, 2):
                self.tables[pair] = self._summed(clique, pair)
        for clique, neighbours in self._neighbours.items():
            for neighbour in neighbours:
                between = _common(clique, neighbour)
                for name in set(clique) - set(between):
                    joint = self._summed(clique, (name, *between))
                    self._walk(name, joint, clique, neighbour)

    def _walk(self, name: str, joint: np.ndarray, clique: Names, neighbour: Names) -> None:
        """Go on to a neighbour, with the marginal of a column and what is between."""
        between = _common(clique, neighbour)
        own = self._summed(neighbour, between)
        given = np.zeros_like(joint)
        np.divide(joint, own, out=given, where=own > 0.0)
        for other in neighbour:
            if other not in between and (other, name) not in self.tables:
                self.tables[name, other] = self._passed(given, between, neighbour, (other,))
        for further in self._neighbours[neighbour]:
            if further != clique:
                names = _common(neighbour, further)
                self._walk(name, self._passed(given, between, neighbour, names), neighbour, further)

    def _passed(
        self, given: np.ndarray, between: Names, clique: Names, further: Names
    ) -> np.ndarray:
        """Multiply p(column | between) by what a clique has of it and of further columns."""
        stays, goes = (tuple(n for n in between if (n in further) is x) for x in (True, False))
        comes = tuple(name for name in further if name not in between)
        axes = [1 + between.index(name) for name in stays + goes]
        given = given.transpose([*axes[: len(stays)], 0, *axes[len(stays) :]])
        table = self._summed(clique, stays + goes + comes)
        both = table.shape[: len(stays)]
        passed = given.reshape(*both, given.shape[len(stays)], -1) @ table.reshape(
            *both, -1, math.prod(table.shape[len(stays + goes) :])
        )
        passed = passed.reshape(*passed.shape[:-1], *table.shape[len(stays + goes) :])
        order = stays + comes
        return np.moveaxis(passed, len(stays), 0).transpose(
            0, *(1 + order.index(name) for name in further)
        )


def _common(clique: Names, other: Names) -> Names:
    return tuple(name for name in sorted(clique) if name in other)


def _eliminated(lengths: Mapping[str, int], tables: Iterable[Names]) -> Iterator[tuple[str, Names]]:
    """Yield columns in the package's order, and what is over them and all they then touch."""
    names = list(lengths)
    bits = {name: 1 << i for i, name in enumerate(names)}
    sets = {sum(bits[name] for name in table) for table in tables}

    @cache
    def cells(members: int) -> int:
        return math.prod(n for i, n in enumerate(lengths.values()) if members >> i & 1)

    while bits:
        unions = {name: _union(bit, sets) for name, bit in bits.items()}
        name = min(bits, key=lambda name: cells(unions[name]))
        bit = bits.pop(name)
        clique = unions[name] | bit
        sets = {members for members in sets if not members & bit} | {clique & ~bit}
        yield name, tuple(n for i, n in enumerate(names) if clique >> i & 1)


def model_size(domain: Any, cliques: list[Names]) -> float:
    """Return the size in MiB that a model of these cliques would have.

    The package's ``hypothetical_model_size`` makes the whole model to find out.
    """
    eliminated = [set(clique) for _, clique in _eliminated(domain.config, cliques)]
    largest = [
        clique
        for i, clique in enumerate(eliminated)
        if not any(clique <= other for other in eliminated[:i])
    ]
    return sum(math.prod(domain[name] for name in clique) for clique in largest) * 8 / 2**20


def _union(bit: int, sets: Iterable[int]) -> int:
    union = 0
    for members in sets:
        if members & bit:
            union |= members
    return union
