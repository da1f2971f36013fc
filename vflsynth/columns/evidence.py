"""What is known of encoded records: which codes they may have, and where their numbers lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns.arrays import Flags, Floats
from vflsynth.columns.base import ColumnTransformer, OutputSpan, naming, not_held
from vflsynth.columns.numeric import NumericTransformer
from vflsynth.columns.public import PublicTransformer
from vflsynth.columns.table import TableTransformer
from vflsynth.columns.wanted import Wanted
from vflsynth.exceptions import ColumnMismatchError

# Scores that nothing is beyond, halvings of what is between, and how far intervals are widened.
_FURTHEST, _HALVINGS, _WIDENED = 40.0, 40, 1e-4

_OWN_KINDS = (NumericTransformer, PublicTransformer)


@dataclass
class Evidence:
    """What is known of encoded records, column by column; constants have no place in it.

    `allowed` are categories or states that each record may have, bool (record, code), None where
    nothing is known. `lower` and `upper` are, of the columns with numbers, between which scaled
    numbers theirs lies where the code is 0, (record,). `log_width` sums the logarithms by which
    probabilities become densities.
    """

    allowed: list[Flags | None] = field(default_factory=list)
    lower: list[Floats] = field(default_factory=list)
    upper: list[Floats] = field(default_factory=list)
    log_width: Any = 0.0


def has_densities(table: TableTransformer) -> bool:
    """Whether it is known how wide the intervals of scaled numbers are that values decode from."""
    return all(
        isinstance(column, _OWN_KINDS) or not _has_value(column)
        for column in table.transformers_.values()
    )


def evidence_of_rows(
    table: TableTransformer,
    frame: pd.DataFrame,
    *,
    missing_is_value: bool,
    among: Mapping[Any, Sequence[tuple[Any, ...]]],
) -> Evidence:
    """Say which codes and scaled numbers decode to some of the fitted columns' values.

    A missing cell says that the value is missing (`missing_is_value`), or that it is not known and
    none that is missing. `among` has, for columns that `frame` lacks, categories of which each
    record has one. Raises ColumnMismatchError for other columns, and UnseenValueError for a
    category or a missing value that did not occur when fitted.
    """
    if unknown := [label for label in frame.columns if label not in table.transformers_]:
        raise ColumnMismatchError(
            f"columns {unknown} were not there when the model was fitted",
            fix=f"pass some of {list(table.transformers_)}",
            party=table.party_,
        )
    found, n = Evidence(), len(frame)
    for label, column in table.transformers_.items():
        with naming(table.party_, label):
            if label in frame.columns:
                values = frame[label]
                known = values.notna().to_numpy() | missing_is_value
                _add_rows(found, column, values, known)
            elif label in among:
                _add_among(found, column, among[label])
            elif column.width_:
                _add_nothing(found, column, n)
    return found


def evidence_of_wanted(table: TableTransformer, wanted: Mapping[Any, Wanted]) -> Evidence:
    """Say which codes and numbers can decode to what is wanted of columns, for one record.

    Labels that are not the table's are skipped. Nothing that is wanted lies outside; what lies
    inside has to be looked at once decoded: sets of numbers are filled up, and rare categories
    share a code.
    """
    found = Evidence()
    for label, column in table.transformers_.items():
        if label in wanted and column.width_:
            with naming(table.party_, label):
                _add_wanted(found, column, wanted[label])
        elif column.width_:
            _add_nothing(found, column, 1)
    return found


def _add_nothing(found: Evidence, column: ColumnTransformer, n: int) -> None:
    found.allowed += [None] * max(1, sum(span.role != "value" for span in column.spans_))
    if _has_value(column):
        found.lower.append(np.full(n, -np.inf))
        found.upper.append(np.full(n, np.inf))


def _add_rows(
    found: Evidence, column: ColumnTransformer, values: pd.Series[Any], known: Flags
) -> None:
    matrix = column.transform(values[known])
    if not column.width_:
        return
    allowed = None
    for span in _codes(column):
        allowed = np.ones((len(values), span.width), np.bool_)
        allowed[known] = matrix[:, span.start : span.stop] > 0.5
        allowed[~known] = ~_missing_codes(column, span)
        found.allowed.append(allowed)
    if not _has_value(column):
        return
    if allowed is None:
        found.allowed.append(None)
    lower, upper = np.full(len(values), -np.inf), np.full(len(values), np.inf)
    log_width: Any = 0.0
    if isinstance(column, _OWN_KINDS):
        lower[known], upper[known], log_width = column.score_cells(values[known])
    else:
        lower[known], upper[known] = _scores_of(column, values[known].reset_index(drop=True))
    ordinary = known.copy()
    if allowed is not None:
        ordinary &= allowed[:, 0]
    found.log_width = found.log_width + np.where(ordinary, log_width, 0.0)
    found.lower.append(lower)
    found.upper.append(upper)


def _add_among(
    found: Evidence, column: ColumnTransformer, options: Sequence[tuple[Any, ...]]
) -> None:
    encoded = {}
    for own in set(options):
        asked = pd.Series([*own], dtype=column.dtype_, name=column.name_)
        encoded[own] = np.any(column.transform(asked) > 0.5, axis=0)
    for span in _codes(column):
        codes = [encoded[own][span.start : span.stop] for own in options]
        found.allowed.append(np.array(codes, np.bool_).reshape(len(options), span.width))


def _codes(column: ColumnTransformer) -> list[OutputSpan]:
    """Spans of the column's codes: one, two where the code has two parts, or none."""
    return [span for span in column.spans_ if span.role != "value"]


def _missing_codes(column: ColumnTransformer, span: OutputSpan) -> Flags:
    """Which codes stand for a missing value: its group, where the code has two parts."""
    return np.asarray(_decoded_codes(column, span).isna())


def _decoded_codes(column: ColumnTransformer, span: OutputSpan) -> pd.Series[Any]:
    """One value of every code, shape (code,); the first that a group has, or a place may mean."""
    matrix = np.zeros((span.width, column.width_))
    matrix[:, span.start : span.stop] = np.eye(span.width)
    return column._decode_generated(matrix)


def _add_wanted(found: Evidence, column: ColumnTransformer, wanted: Wanted) -> None:
    if not _has_value(column):
        # By encoding, not by decoding: rare categories share a code.
        asked = pd.Series([*wanted.values], dtype=column.dtype_, name=column.name_)
        encoded: Flags = np.any(column.transform(asked) > 0.5, axis=0)
        for span in _codes(column):
            codes = encoded[span.start : span.stop].copy()
            if wanted.missing and span.within is None:
                codes |= _missing_codes(column, span)
            elif wanted.missing:
                codes[0] = True  # missing values have a group of their own
            found.allowed.append(codes[None])
        return
    lower, upper = np.full(1, np.inf), np.full(1, -np.inf)  # nothing ordinary, unless:
    if wanted.is_range:
        lower, upper = _scores_between(column, wanted.low, wanted.high)
    elif wanted.values:
        lower, upper = _scores_between(column, min(wanted.values), max(wanted.values))
    states: Flags | None = None
    for span in _codes(column):
        states = wanted.satisfied(_decoded_codes(column, span))
        states[0] = bool(lower[0] < upper[0])
    found.allowed.append(None if states is None else states[None])
    found.lower.append(lower)
    found.upper.append(upper)


def _scores_of(column: ColumnTransformer, values: pd.Series[Any]) -> tuple[Floats, Floats]:
    """Find where the scaled numbers lie that decode to values, of shape (record,), or beside them.

    A number that may lie anywhere is none that a score of 64 bits decodes to, but between two. What
    is beyond the values that scores decode to counts as their end.
    """
    ends = _decoded_scores(column, np.array([-_FURTHEST, _FURTHEST]))
    try:
        within = values.clip(*ends)
    except (TypeError, ValueError):
        raise not_held(column.dtype_) from None
    lower = _first_score(column, len(within), lambda decoded: decoded >= within)
    upper = _first_score(column, len(within), lambda decoded: decoded > within)
    return _widened(lower, upper)


def _scores_between(column: ColumnTransformer, low: Any, high: Any) -> tuple[Floats, Floats]:
    """Find the scaled numbers that decode to values between ends, None if open; perhaps none."""
    lower, upper = np.full(1, -_FURTHEST), np.full(1, _FURTHEST)
    if low is not None:
        lower = _first_score(column, 1, lambda decoded: decoded >= low)
    if high is not None:
        upper = _first_score(column, 1, lambda decoded: decoded > high)
    if lower[0] >= upper[0]:
        return np.full(1, np.inf), np.full(1, -np.inf)
    return _widened(lower, upper)


def _first_score(column: ColumnTransformer, n: int, is_beyond: Callable[[Any], Any]) -> Floats:
    """Find the smallest scores whose values are beyond an end, shape (n,), by bisection.

    Larger scaled numbers of a column never decode to smaller values.
    """
    left, right = np.full(n, -_FURTHEST), np.full(n, _FURTHEST)
    for _ in range(_HALVINGS):
        middle = (left + right) / 2.0
        beyond = np.asarray(is_beyond(_decoded_scores(column, middle)), dtype=np.bool_)
        left, right = np.where(beyond, left, middle), np.where(beyond, middle, right)
    return right


def _decoded_scores(column: ColumnTransformer, scores: Floats) -> pd.Series[Any]:
    """Values of scaled numbers."""
    matrix = np.zeros((len(scores), column.width_))
    if column.width_ > 1:
        matrix[:, 1] = 1.0
    matrix[:, 0] = scores
    return column._decode_generated(matrix)


def _widened(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Widen intervals of scores by a ten-thousandth, and open them where nothing is beyond."""
    return (
        np.where(lower <= -_FURTHEST + 1.0, -np.inf, lower - _WIDENED),
        np.where(upper >= _FURTHEST - 1.0, np.inf, upper + _WIDENED),
    )


def _has_value(column: ColumnTransformer) -> bool:
    return any(span.role == "value" for span in column.spans_)
