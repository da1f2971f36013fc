"""Expressions about the columns of a row: some of Python's grammar, never run as Python.

::

    start <= end
    total == net + tax
    relationship == "Husband" => sex == "Male"
    col("hours per week") / 7 <= 24
    tax == round(net * case(country, "DE", 0.19, "CH", 0.081, 0.2), 2)
    state in ["open", "paused"] => missing(closed)

Names are columns, ``col("...")`` those whose labels are no names. There are ``and``, ``or``,
``not``, comparisons (also chained), ``in`` lists, ``+ - * / // %``, and the functions of
`FUNCTIONS`. ``=>`` is implication and binds least. ``a == round(b, 2)`` leaves open which way what
lies half way was rounded, as programs differ there.
"""

from __future__ import annotations

import ast
import io
import operator
import tokenize
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns.arrays import Flags, plain_values
from vflsynth.exceptions import ContractError

LONGEST = 2000
"""Characters of an expression, at most."""

_RELATIVE, _ABSOLUTE = 1e-9, 1e-12
"""Floating-point numbers that differ by less count as equal: sums of tenths have rounding
errors."""


def _days(count: Any) -> Any:
    whole = np.rint(np.asarray(count, dtype=np.float64) * 86_400_000_000)
    return whole.astype("m8[us]")[()]


def _part(unit: str, of: str, first: int = 0) -> Callable[[Any], Any]:
    """Count the units of times within the next larger unit, from `first` on."""

    def counted(times: Any) -> Any:
        own = np.asarray(times).astype(f"M8[{unit}]")
        return (own - own.astype(f"M8[{of}]").astype(own.dtype)).astype(np.int64) + first

    return counted


def _months_after(times: Any, count: Any) -> Any:
    """Return times some months later; on the last day of a month that has no such day."""
    own, count = np.asarray(times).astype("M8[us]"), np.asarray(count)
    first = own.astype("M8[M]")
    later = first + np.rint(count).astype("m8[M]")
    days = own.astype("M8[D]") - first.astype("M8[D]")
    last = (later + 1).astype("M8[D]") - later.astype("M8[D]") - 1
    return (later.astype("M8[D]") + np.minimum(days, last)).astype("M8[us]") + (
        own - own.astype("M8[D]")
    )


def _months_between(early: Any, late: Any) -> Any:
    """Return how many whole months have passed."""
    months = np.asarray(late).astype("M8[M]") - np.asarray(early).astype("M8[M]")
    count = months.astype(np.int64)
    return count - (_months_after(early, count) > np.asarray(late))


def _case(of: Any, *cases: Any) -> Any:
    """Return what stands behind the value that is there, or what stands last."""
    *pairs, made = cases
    if len(pairs) % 2 or not pairs:
        raise TypeError("case")
    for value, then in zip(pairs[-2::-2], pairs[::-2]):
        made = np.where(_equal(of, value), then, made)
    return made


PARTS: Mapping[str, Callable[[Any], Any]] = {
    "year": lambda times: np.asarray(times).astype("M8[Y]").astype(np.int64) + 1970,
    "month": _part("M", "Y", 1),
    "day": _part("D", "M", 1),
    "weekday": lambda times: (np.asarray(times).astype("M8[D]").astype(np.int64) + 3) % 7,
    "hour": _part("h", "D"),
    "minute": _part("m", "h"),
}
"""Functions that say a part of a time, as whole numbers; weekdays from Monday, 0, on."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs,
    "min": lambda *items: reduce(np.minimum, items),
    "max": lambda *items: reduce(np.maximum, items),
    "round": np.round,
    "sqrt": np.sqrt,
    "log": np.log,
    "log10": np.log10,
    "date": np.datetime64,
    "days": _days,
    "minutes_of": lambda clock: clock // 100 * 60 + clock % 100,
    "clock_of": lambda minutes: minutes // 60 * 100 + minutes % 60,
    **PARTS,
    "months_after": _months_after,
    "months_between": _months_between,
    "years_between": lambda early, late: _months_between(early, late) // 12,
    "case": _case,
    "implies": lambda one, other: np.logical_or(np.logical_not(one), other),
}
"""Functions that an expression may call, beside ``col(label)`` and ``missing(column)``."""

OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Expression:
    """A parsed expression, with its `columns` in the order in which they occur.

    ContractError if the text is none, with what is not allowed in it.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"low": [1, 5, None], "high": [2, 4, 3]})
    >>> Expression("low <= high").keeps(table).tolist()
    [True, False, True]
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
            raise ContractError(f"a rule is a text of at most {LONGEST} characters")
        self.text = text.strip()
        self.tree = _parsed(self.text)
        found = list(columns_of(self.tree, self.text))
        self._compared = list(dict.fromkeys(label for label, compared in found if compared))
        asked = (label for label, compared in found if not compared)
        self.columns: tuple[Hashable, ...] = tuple(dict.fromkeys([*self._compared, *asked]))
        if not self.columns:
            raise ContractError(f"{self.text!r} names no column")

    def keeps(self, table: pd.DataFrame) -> Flags:
        """Say which rows fulfil it; ContractError if values cannot be compared or added.

        A row with a missing value in a column that is compared is True, as a check of SQL is;
        ``missing(column)`` asks.
        """
        known = self.known(table)
        rows = table[list(self.columns)].take(np.flatnonzero(known))
        result = np.ones(len(table), dtype=np.bool_)
        if len(rows):
            result[known] = np.broadcast_to(np.asarray(self.value(self.tree, rows)), len(rows))
        return result

    def known(self, table: pd.DataFrame) -> Flags:
        """Say which rows have values in all columns that are compared."""
        return np.asarray(table[self._compared].notna().to_numpy().all(axis=1))

    def value(self, tree: ast.expr, rows: pd.DataFrame) -> Any:
        """Compute a part of the expression; errors as of `keeps`."""
        try:
            with np.errstate(all="ignore"):
                return _evaluate(tree, rows)
        except (TypeError, ValueError, OverflowError, np.exceptions.DTypePromotionError):
            types = ", ".join(f"{label!r} of type {rows[label].dtype}" for label in self.columns)
            raise ContractError(
                f"{self.text!r} cannot be computed for columns {types}. Fix: compare numbers with "
                "numbers, text with text, times with date(...)"
            ) from None


def label_of(node: ast.expr) -> Hashable | None:
    """Return the label if a part of an expression is a column and nothing else."""
    if isinstance(node, ast.Name):
        return node.id
    if _called(node) == "col":
        label: Hashable = ast.literal_eval(node.args[0])  # type: ignore[attr-defined]
        return label
    return None


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """Return the expression of a text, parsed once."""
    return Expression(text)


def _parsed(text: str) -> ast.expr:
    """Parse, with ``=>`` as calls of implies."""
    *conditions, consequence = _parts(text)
    tree = _python(consequence, text)
    for condition in reversed(conditions):
        name = ast.Name("implies", ast.Load())
        tree = ast.Call(name, [_python(condition, text), tree], [])
    return tree


def _python(part: str, text: str) -> ast.expr:
    try:
        return ast.parse(part.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ContractError(
            f'{text!r} is no rule. Fix: write it as in "start <= end" or \'role == "Husband" => '
            'sex == "Male"\'; within brackets write implies(a, b) for a => b'
        ) from None


def _parts(text: str) -> list[str]:
    """Split at ``=>`` outside of quotes."""
    line = text.replace("\n", " ")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(line).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return [text]
    cuts = [0]
    for one, other in zip(tokens, tokens[1:]):
        if one.string == "=" and other.string == ">" and one.end == other.start:
            cuts += [one.start[1], other.end[1]]
    return [line[a:b] for a, b in zip(cuts[::2], [*cuts[1::2], len(line)])]


def _called(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def columns_of(node: ast.AST, text: str) -> Iterator[tuple[Hashable, bool]]:
    """Yield columns, and whether they are compared; refuse what is not of the grammar."""
    match node:
        case ast.Name():
            yield node.id, True
            return
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.Call(func=ast.Name(id="col"), args=[ast.Constant(value=str() | int() as label)]):
            yield label, True
            return
        case ast.Call(func=ast.Name(id="missing"), args=[one]) if label_of(one) is not None:
            yield label_of(one), False
            return
        case ast.Call(func=ast.Name(id=name), args=[_, *_], keywords=[]) if name in FUNCTIONS:
            inside: list[ast.AST] = list(node.args)
        case ast.BoolOp() | ast.List() | ast.Tuple():
            inside = list(getattr(node, "values", getattr(node, "elts", ())))
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            inside = [node.operand]
        case ast.BinOp() if type(node.op) in OPERATORS:
            inside = [node.left, node.right]
        case ast.Compare() if all(map(_is_comparison, node.ops, node.comparators)):
            inside = [node.left, *node.comparators]
        case _:
            raise ContractError(
                f"{text!r}: {ast.unparse(node)!r} is not allowed in a rule. Fix: columns, "
                f"constants, and/or/not, comparisons, arithmetic, and {', '.join(FUNCTIONS)}, "
                "missing, col"
            )
    for part in inside:
        yield from columns_of(part, text)


def _is_comparison(op: ast.cmpop, right: ast.expr) -> bool:
    if isinstance(op, ast.In | ast.NotIn):
        return isinstance(right, ast.List | ast.Tuple)
    return type(op) in _COMPARED


def _evaluate(node: ast.expr, rows: pd.DataFrame) -> Any:
    if (label := label_of(node)) is not None:
        values = plain_values(rows[label])
        # Of small whole numbers, and of those without a sign, sums and differences need not fit.
        fits = values.dtype.kind in "iu" and (values <= np.iinfo(np.int64).max).all()
        return values.astype(np.int64) if fits else values
    match node:
        case ast.Constant():
            return node.value
        case ast.BoolOp():
            join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return reduce(join, [_evaluate(item, rows) for item in node.values])
        case ast.UnaryOp():
            value = _evaluate(node.operand, rows)
            return np.logical_not(value) if isinstance(node.op, ast.Not) else -value
        case ast.BinOp():
            return OPERATORS[type(node.op)](_evaluate(node.left, rows), _evaluate(node.right, rows))
        case ast.Compare():
            return _chain(node, rows)
        case ast.Call():
            name = _called(node)
            if name == "missing":
                return rows[label_of(node.args[0])].isna().to_numpy()
            return FUNCTIONS[str(name)](*(_evaluate(item, rows) for item in node.args))
    raise TypeError(type(node).__name__)  # lists stand after ``in`` only


def _chain(node: ast.Compare, rows: pd.DataFrame) -> Any:
    """Compute ``a <= b < c`` as ``a <= b and b < c``."""
    result: Any = True
    left = _evaluate(node.left, rows)
    for op, item in zip(node.ops, node.comparators):
        right: Any = None
        if isinstance(op, ast.In | ast.NotIn):
            options = [_evaluate(option, rows) for option in item.elts]  # type: ignore[attr-defined]
            now = reduce(np.logical_or, [False, *(_equal(left, o) for o in options)])
        else:
            right = _evaluate(item, rows)
            now = _COMPARED[type(op)](*_alike(left, right))
            if isinstance(op, ast.Eq | ast.NotEq) and _called(item) == "round":
                of = (_evaluate(part, rows) for part in item.args)  # type: ignore[attr-defined]
                now = np.logical_or(now, _rounds_to(left, *of))
        if isinstance(op, ast.NotIn | ast.NotEq):
            now = np.logical_not(now)
        result, left = np.logical_and(result, now), right
    return result


def _equal(left: Any, right: Any) -> Any:
    left, right = _alike(left, right)
    kinds = {np.asarray(side).dtype.kind for side in (left, right)}
    if "f" in kinds and kinds <= set("fiub"):
        return np.isclose(left, right, rtol=_RELATIVE, atol=_ABSOLUTE)
    if kinds & {"O", "U"}:
        one, other = (np.asarray(side, dtype=object) for side in (left, right))
        return np.equal(one, other).astype(bool)
    return np.equal(left, right)


def _rounds_to(rounded: Any, exact: Any, places: Any = 0) -> Any:
    """Say where numbers are others as they are rounded: what lies half way may go up or down."""
    half = 0.5 * 10.0**-places
    near = np.abs(rounded - exact) <= half * (1 + _RELATIVE) + _RELATIVE * np.abs(exact)
    return near & np.isfinite(exact) & _equal(rounded, np.round(rounded, places))


_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: _equal,
    ast.NotEq: _equal,  # the opposite is taken afterwards
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Read text as a point in time where it is compared with one."""
    one, other = (np.asarray(side).dtype.kind for side in (left, right))
    if one == "M" and isinstance(right, str):
        return left, np.datetime64(right)
    if other == "M" and isinstance(left, str):
        return np.datetime64(left), right
    return left, right
