"""Relations that are exact in one table: computed columns, orders, dependencies, codes.

Columns are looked at up to three at a time, but for sums and products: first in a few hundred
records spread over the table, where most candidates fail, and what is left in all records. A
relation counts if at least `LEAST_SURPRISE` records would break it were its columns independent.
Whatever is found was read off the records and is paid for by nobody: it is not for private fits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import Floats
from vflsynth.contract.computing import computing
from vflsynth.contract.expressions import LONGEST
from vflsynth.contract.findings import (
    LEAST_SURPRISE,
    NEARLY,
    SCREENED,
    SCREENED_AGAIN,
    Codes,
    Finding,
    Level,
    Table,
    name_of,
    spread,
)
from vflsynth.contract.rules import (
    Check,
    Determines,
    FixedCombinations,
    in_order,
    plain_value,
)
from vflsynth.exceptions import ContractError

_MOST_LEVELS = 256
_SPIKE = 0.05
"""Share of the records that a number needs to count as a level, but for 0."""

_CROSSING = 0.02
"""Share of independent pairs that have to be out of order: the ranges of two columns overlap."""


def discover(frame: pd.DataFrame, *, nearly: bool = False) -> list[Finding]:
    """Find relations that hold in all records of a table and would not hold by chance.

    Parameters
    ----------
    frame : DataFrame, shape (record, column)
    nearly : bool, default=False
        Whether to return what 99 % of the records keep as well, all but groups of flags.

    Returns
    -------
    list of Finding
        Equal columns; sums and products, ratios, quotients and remainders, the larger of two and
        what lies beyond a limit, as they are rounded, perhaps otherwise for each label or two;
        days, months and years between times, and parts of times; orders, without those that follow
        from anything else; groups of flags of which one is set; columns that one or two others
        determine; values of a column that fix another. Of a product and a ratio of the same
        columns, the one that computes the column that tells most. Columns whose labels are neither
        whole numbers nor texts of at most 100 characters are not looked at.
    """
    if len(frame) < LEAST_SURPRISE:
        return []
    table = Table(frame, nearly=nearly)
    with np.errstate(all="ignore"):  # infinite and huge numbers
        computed = computing(table)
        flags = list(_one_hot(table))
        dependent = list(_dependencies(table, computed, flags))
        levels = list(_levels(table, [*computed, *flags, *dependent]))
        table.drop({label for finding in flags for label in finding.rule.columns})
        ordered = list(_orders(table, [*computed, *dependent], levels))
    return [*computed, *ordered, *flags, *dependent, *levels]


def compatible(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out relations that compute a column which one before computes, or in a circle."""
    kept: list[Finding] = []
    for finding in findings:
        rules = [own.rule for own in kept]
        computed = finding.rule.repaired_column
        if computed is not None and any(rule.repaired_column == computed for rule in rules):
            continue
        try:
            in_order([*rules, finding.rule])
        except ContractError:
            continue
        kept.append(finding)
    return kept


# flags


def _one_hot(table: Table) -> Iterator[Finding]:
    """Find groups of flags of which exactly one is set."""
    flags: dict[Hashable, Any] = {}
    for label in table.labels:
        column = table.frame[label]
        numeric = pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column)
        if numeric and column.isin([0, 1]).all() and column.nunique() > 1:
            flags[label] = column.to_numpy(dtype=np.int64)
    free = list(flags)
    while free:
        group = [free.pop(0)]
        total = flags[group[0]].copy()
        for label in list(free):
            if not (total & flags[label]).any():
                group.append(label)
                total += flags[label]
        if len(group) > 2 and (total == 1).all():
            free = [label for label in free if label not in group]
            shares = np.array([flags[label].mean() for label in group])
            odds = shares / (1 - shares)
            by_chance = float(np.prod(1 - shares) * odds.sum())  # exactly one of independent flags
            surprise = table.n * (1 - by_chance)
            yield Finding(FixedCombinations(tuple(group)), "flags", table.n, surprise)


# orders


def _orders(table: Table, known: Sequence[Finding], levels: Sequence[Finding]) -> Iterator[Finding]:
    """Pairs of which one is never larger, without those that follow from others.

    What a relation of both columns brings about, such as a part that is below its total, is no
    finding, nor is what follows from that. Where a value of one column fixes the other, records
    with both values say nothing.
    """
    rows = spread(table.n, SCREENED)
    some = {k: table.values(k, rows) for k in table.labels if k in table.kinds}
    together = _groups(known)
    pairs = [group for group in together if len(group) == 2]
    together += [one | other for one, other in combinations(pairs, 2) if one & other]
    fixed = {frozenset(f.rule.columns): f.level for f in levels if f.is_exact}
    found: dict[tuple[Hashable, Hashable], Finding] = {}
    implied: set[tuple[Hashable, Hashable]] = set()
    for low, high in permutations(some, 2):
        if table.kinds[low] != table.kinds[high]:
            continue
        tells = np.isfinite(some[low]) & np.isfinite(some[high])
        wrong = np.count_nonzero((some[low] > some[high])[tells])
        if tells.sum() < LEAST_SURPRISE or wrong > (1 - NEARLY) * 2 * tells.sum():
            continue
        one, other = table.values(low), table.values(high)
        both = np.isfinite(one) & np.isfinite(other)
        share = 1.0 - float((one > other)[both].mean())
        if (one == other)[both].all() or not table.counts(share):
            continue
        if any({low, high} <= group for group in together):
            implied |= {(low, high)} if share == 1.0 else set()
            continue
        if (level := fixed.get(frozenset((low, high)))) is not None:
            tells &= ~_at(table, level)[rows]
        crossing = np.searchsorted(np.sort(some[high][tells]), some[low][tells], side="left")
        surprise = len(crossing) and both.sum() / len(rows) * float(crossing.mean())
        if surprise >= max(LEAST_SURPRISE, _CROSSING * both.sum()):
            rule = Check(f"{name_of(low)} <= {name_of(high)}")
            found[low, high] = Finding(rule, "order", int(both.sum()), surprise, share)
    ordered = found.keys() | implied
    for (low, high), finding in found.items():
        if not any((low, m) in ordered and (m, high) in ordered for m in some):
            yield finding


def _groups(found: Sequence[Finding]) -> list[set[Hashable]]:
    """Return columns that stand in one exact relation."""
    return [set(finding.rule.columns) for finding in found if finding.is_exact]


def _at(table: Table, level: Level) -> npt.NDArray[np.bool_]:
    """Say where two columns have the values of a level."""
    there = np.ones(table.n, np.bool_)
    for label, value in ((level.by, level.when), (level.column, level.value)):
        codes, values = table.codes(label)
        there &= codes == (len(values) if value is None else values.index(value))
    return there


# dependencies


def _dependencies(
    table: Table, known: Sequence[Finding], flags: Sequence[Finding]
) -> Iterator[Finding]:
    """Columns that one or two others determine; both ways at once are fixed combinations."""
    together = _groups([*known, *flags])
    flagged = {label for finding in flags for label in finding.rule.columns}
    limit = table.n / 5
    codes: dict[Hashable, Codes] = {}
    for label in table.labels:
        found, values = table.codes(label)
        if 1 < len(values) <= limit and found.max() < len(values):
            codes[label] = found
    determining = [label for label, own in codes.items() if own.max() >= 2]
    few, again = spread(table.n, SCREENED), spread(table.n, SCREENED_AGAIN)
    fewest = (2 * NEARLY - 1) * len(again)
    determines: dict[tuple[Hashable, Hashable], tuple[float, float]] = {}
    for by in determining:
        for column in codes:
            if column == by or any({by, column} <= group for group in together):
                continue
            one, other = codes[by], codes[column]
            surprise = 0.0
            if all(_is_function(one[some], other[some]) for some in (few, again)):
                surprise = _surprise(one, other)
            if surprise >= LEAST_SURPRISE:
                determines[by, column] = surprise, 1.0
            elif table.nearly and _n_agreeing(one[again], other[again]) >= fewest:
                determines |= _nearly(one, other, (by, column))
    for (by, column), (surprise, share) in determines.items():
        back = determines.get((column, by))
        if back is None or (share == 1.0) != (back[1] == 1.0):
            yield Finding(Determines((by,), column), "dependency", table.n, surprise, share)
        elif table.labels.index(by) < table.labels.index(column):
            rule, least = FixedCombinations((by, column)), min(share, back[1])
            yield Finding(rule, "dependency", table.n, surprise, least)
    yield from _classes(table, codes, together)
    most = min(_MOST_LEVELS, table.n / 20)
    short = {k: own for k, own in codes.items() if own.max() < most and k not in flagged}
    yield from _pairs(table, short, set(determines), together)


_FEW_CHANGES = 0.1
"""Where a column changes along another, in order, if that determines it: of what chance brings."""


def _classes(
    table: Table, codes: dict[Hashable, Codes], together: Sequence[set[Hashable]]
) -> Iterator[Finding]:
    """Columns that change but a few times along numbers or times that hardly repeat: classes."""
    for by in (label for label in table.labels if label in table.kinds and label not in codes):
        numbers = table.values(by)
        if not np.isfinite(numbers).all():
            continue
        order = np.argsort(numbers, kind="stable")
        for column, own in codes.items():
            if any({by, column} <= group for group in together):
                continue
            changes = np.flatnonzero(np.diff(own[order]))
            shares = np.bincount(own) / table.n
            surprise = table.n * float(1.0 - (shares**2).sum()) - len(changes)
            few = len(changes) <= min(_FEW_CHANGES * surprise, table.n / LEAST_SURPRISE)
            if few and surprise >= LEAST_SURPRISE and np.diff(numbers[order])[changes].all():
                yield Finding(Determines((by,), column), "classes", table.n, surprise)


def _pairs(
    table: Table,
    codes: dict[Hashable, Codes],
    single: set[tuple[Hashable, Hashable]],
    together: Sequence[set[Hashable]],
) -> Iterator[Finding]:
    """Columns that two others determine, of which neither does."""
    if len(codes) < 3:
        return
    labels = list(codes)
    matrix = np.stack([codes[k] for k in labels], axis=1)
    sizes = matrix.max(axis=0) + 1
    some = matrix[spread(table.n, SCREENED_AGAIN)]
    most = 4 * (1 - NEARLY) * len(some) if table.nearly else 0
    for i, j in combinations(range(len(labels)), 2):
        if sizes[i] * sizes[j] > table.n / 5:
            continue
        if (labels[i], labels[j]) in single or (labels[j], labels[i]) in single:
            continue
        both = some[:, i] * sizes[j] + some[:, j]
        order = np.argsort(both, kind="stable")
        same = np.diff(both[order]) == 0
        changes = (np.diff(some[order], axis=0) != 0) & same[:, None]
        for k in np.flatnonzero(np.count_nonzero(changes, axis=0) <= most):
            one, other, column = labels[i], labels[j], labels[k]
            if k in (i, j) or (one, column) in single or (other, column) in single:
                continue
            if any({one, other, column} <= group for group in together):
                continue
            pair = matrix[:, i] * sizes[j] + matrix[:, j]
            agreeing = max(_n_agreeing(matrix[:, by], matrix[:, k]) for by in (i, j))
            surprise = float(table.n - agreeing)
            if surprise < LEAST_SURPRISE:
                continue
            rule = Determines((one, other), column)
            if _is_function(pair, matrix[:, k]):
                yield Finding(rule, "dependency", table.n, surprise)
            elif table.nearly:
                for chance, share in _nearly(pair, matrix[:, k], rule).values():
                    if (1 - share) * table.n <= _FEWER * surprise:
                        yield Finding(rule, "dependency", table.n, min(surprise, chance), share)


_FEWER = 0.1
"""What holds nearly is broken by at most so many of the records that would break it by chance."""


def _nearly(by: Codes, column: Codes, name: Any) -> dict[Any, tuple[float, float]]:
    """Return by how many records chance would break a dependency, and the share that keeps it.

    Nothing if too few keep it, or if columns that have nothing to do with each other do as well.
    """
    share = _n_agreeing(by, column) / len(by)
    chance = 1.0 - _n_agreeing(by, np.random.default_rng(0).permutation(column)) / len(by)
    told = 1.0 - share <= min(1.0 - NEARLY, _FEWER * chance)
    return {name: (chance * len(by), share)} if told and chance * len(by) >= LEAST_SURPRISE else {}


def _n_agreeing(by: Codes, column: Codes) -> int:
    """Count the records that have the most frequent value among those like them."""
    n_column = int(column.max()) + 1
    pairs, counts = np.unique(by * n_column + column, return_counts=True)
    begins = np.flatnonzero(np.diff(pairs // n_column, prepend=-1))
    return int(np.maximum.reduceat(counts, begins).sum())


def _is_function(by: Codes, column: Codes) -> bool:
    """Whether each value of one has one value of the other."""
    n_column = int(column.max()) + 1
    joint = by * n_column + column
    if int(joint.max()) < 4 * len(by) + 1000:
        return bool(np.count_nonzero(np.bincount(joint)) == np.count_nonzero(np.bincount(by)))
    return len(np.unique(joint)) == len(np.unique(by))


def _surprise(by: Codes, column: Codes) -> float:
    """Count records that would break a dependency by chance; 0 if one of them does break it."""
    if not _is_function(by, column):
        return 0.0
    repeated = len(by) - len(np.unique(by))  # the first record of each value can break nothing
    shares = np.bincount(column) / len(column)
    return float(repeated * (1 - shares.max()))


# levels


def _levels(table: Table, known: Sequence[Finding]) -> Iterator[Finding]:
    """Values that fix another column, such as "zero exactly where"."""
    together = _groups(known)
    rows = spread(table.n, SCREENED_AGAIN)
    codes = {k: table.codes(k) for k in table.labels}
    shares = {k: np.bincount(own) / table.n for k, (own, _) in codes.items()}
    least = 2 * NEARLY - 1 if table.nearly else 1.0
    found: dict[_Cells, tuple[float, float]] = {}
    for by in table.labels:
        own = codes[by][0]
        for level in _candidates(table, by, shares[by]):
            there, some = own == level, own[rows] == level
            for column in table.labels:
                if column == by or any({by, column} <= group for group in together):
                    continue
                theirs = codes[column][0]
                part = theirs[rows][some]
                usual = int(np.bincount(part).argmax()) if len(part) else 0
                if not len(part) or np.count_nonzero(part == usual) < least * len(part):
                    continue
                share = float((theirs[there] == usual).mean())
                others = 1.0 - shares[column][usual]
                few = table.nearly and 1.0 - share <= min(1 - NEARLY, _FEWER * others)
                if share < 1.0 and not few:
                    continue
                if (surprise := float(there.sum() * others)) >= LEAST_SURPRISE:
                    found[(by, level), (column, usual)] = surprise, share
    places = list(found)
    for cells, (surprise, share) in found.items():
        mirrored = cells[1], cells[0]
        back = found.get(mirrored)
        if back is None or (share == 1.0) > (back[1] == 1.0):
            yield from _level(table, cells, surprise, share, exactly=False)
        if back is not None and places.index(cells) < places.index(mirrored):
            yield from _level(table, cells, surprise, min(share, back[1]), exactly=True)


_Cells = tuple[tuple[Hashable, int], tuple[Hashable, int]]


def _level(
    table: Table, cells: _Cells, surprise: float, share: float, *, exactly: bool
) -> Iterator[Finding]:
    """Yield what a pair of values says, if it can be written as a rule."""
    values = []
    for column, code in cells:
        known = table.codes(column)[1]
        values.append(None if code == len(known) else plain_value(known[code]))
    one, other = (_says(column, value) for (column, _), value in zip(cells, values))
    if one is None or other is None:
        return
    rule = Check(f"({one}) == ({other})" if exactly else f"{one} => {other}")
    try:
        keeps = np.asarray(rule.keeps(table.frame), np.bool_).all()
    except ContractError:
        return
    if keeps or share < 1.0:
        (by, code), (column, _) = cells
        saying = Level(by, values[0], column, values[1], exactly)
        n = int(np.count_nonzero(table.codes(by)[0] == code))
        yield Finding(rule, "level", n, surprise, share, saying)


def _candidates(table: Table, label: Hashable, shares: Floats) -> list[int]:
    """Return levels that may fix something: frequent labels, and numbers that stand out."""
    values = table.codes(label)[1]
    many = label in table.kinds and len(values) > 10
    if len(values) > _MOST_LEVELS and not many:
        return []
    few = LEAST_SURPRISE / table.n
    least = np.full(len(shares), max(_SPIKE, few) if many else few)
    least[len(values) :] = few  # what is missing stands out, and so does nothing
    if table.kinds.get(label) == "number" and 0 in values:
        least[values.index(0)] = few
    return np.flatnonzero((shares >= least) & (shares < 1.0)).tolist()


def _says(label: Hashable, value: Any) -> str | None:
    """Write that a column has a value; None if it cannot be written."""
    if value is None:
        return f"missing({name_of(label)})"
    if not isinstance(value, bool | int | float | str) or len(str(value)) > LONGEST / 4:
        return None
    return f"{name_of(label)} == {value!r}"


# codes


def codes_among(frame: pd.DataFrame) -> dict[Hashable, float]:
    """Find whole numbers that are codes: whose order means nothing.

    Returns by column how badly neighbours tell what a code's own records are like, from `_STRANGE`
    up.

    Of a number, records of the next smaller and the next larger value together are like its own; of
    a code, they are not. For every other column, let ``between`` be the variance of its means by
    code, and ``strange`` the mean square by which a code's mean differs from the mean of its two
    neighbours' means, both less what sampling noise adds. A column of 3 to 256 whole numbers with
    at least ten records on average is a code if some other column has at least `_TELLING` of its
    variance between codes, and ``strange`` is at least `_STRANGE` of ``between``. Labels count as
    one column of zeros and ones per value, summed up.
    """
    table = Table(frame.iloc[spread(len(frame), 20_000)].reset_index(drop=True))
    found: dict[Hashable, float] = {}
    with np.errstate(all="ignore"):
        targets = {label: _target(table, label) for label in table.labels}
        for label in table.numbers:
            values = table.values(label)
            known = np.isfinite(values)
            if not known.any() or (values[known] % 1 != 0).any():
                continue
            levels, codes = np.unique(values[known], return_inverse=True)
            if not 3 <= len(levels) <= _MOST_LEVELS or known.sum() < 10 * len(levels):
                continue
            scores = [
                _strangeness(codes, len(levels), columns[:, known])
                for other, columns in targets.items()
                if other != label and len(columns)
            ]
            worst = max(scores, default=0.0)
            if worst >= _STRANGE:
                found[label] = worst
    return found


_STRANGE, _TELLING = 0.4, 0.3


def _target(table: Table, label: Hashable) -> Floats:
    """Return what another column is compared by, (column, record): ranks, or zeros and ones."""
    if label in table.kinds and len(table.codes(label)[1]) > 10:
        ranks = pd.Series(table.values(label)).rank().to_numpy(np.float64)
        return np.where(np.isfinite(ranks), ranks, np.nanmean(ranks))[None]
    codes, values = table.codes(label)
    if len(values) > _MOST_LEVELS:
        return np.empty((0, table.n))
    counts = np.bincount(codes)
    common = np.argsort(-counts, kind="stable")[:20]
    return np.asarray(codes == common[counts[common] > 0][:, None], np.float64)


def _strangeness(codes: Codes, n_codes: int, columns: Floats) -> float:
    """Compare means by code with their neighbours'; 0 where codes tell little."""
    counts = np.bincount(codes, minlength=n_codes).astype(np.float64)
    between = strange = total = 0.0
    for column in columns:
        means = np.bincount(codes, column, minlength=n_codes) / counts
        inner = np.bincount(codes, (column - means[codes]) ** 2, minlength=n_codes)
        noise = inner.sum() / max(1.0, len(column) - n_codes)
        total += float(np.var(column)) * len(column)
        own = float((counts * (means - column.mean()) ** 2).sum())
        between += own - noise * (n_codes - 1)
        middle = (means[:-2] + means[2:]) / 2.0
        spread = 1 / counts[1:-1] + (1 / counts[:-2] + 1 / counts[2:]) / 4.0
        off = (means[1:-1] - middle) ** 2 - noise * spread
        # A code that is unlike both neighbours is 1.5 times as far from their mean as from all.
        strange += float((counts[1:-1] * off).sum()) / 1.5
    if total <= 0.0 or between < _TELLING * total:
        return 0.0
    return strange / between
