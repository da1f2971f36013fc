"""Steps of columns that are all modelled, as others may depend on each, and made to agree."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import Floats, decimals_of, floats_of, kind_of_values, plain_values
from vflsynth.contract.expressions import parse
from vflsynth.contract.rules import PLACES, Check
from vflsynth.contract.steps import Columns, Step, limits
from vflsynth.registry import register

Times = npt.NDArray[np.datetime64]


@register
@dataclass(frozen=True)
class Share(Step):
    """One of several columns whose sum is `whole` in every row: shares of a hundred.

    Of drawn numbers that add up to something else the largest changes, or all in proportion if they
    would have to be below zero. The columns `by` are made to agree before it, `later` ones after
    it.
    """

    column: Hashable
    dtype: Any
    by: tuple[Hashable, ...]
    later: tuple[Hashable, ...]
    whole: float
    decimals: int | None

    @classmethod
    def of(cls, frame: pd.DataFrame, rule: Check) -> list[Step]:
        """Return a step for each column of a rule; none if it is not of shares, all of them known.

        Parameters
        ----------
        frame : DataFrame
            A party's table.
        rule : Check
            ``a == 100 - b - c``.
        """
        found = rule.shares
        if found is None:
            return []
        whole, labels = found
        numbers = {label: floats_of(frame[label]) for label in labels}
        if not all(np.isfinite(own).all() and (own >= 0).all() for own in numbers.values()):
            return []
        return [
            cls(label, frame[label].dtype, labels[:k], labels[k + 1 :], whole, decimals_of(own))
            for k, (label, own) in enumerate(numbers.items())
        ]

    @property
    def is_mended(self) -> bool:
        """It is."""
        return True

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Leave the column, but for the largest, which is what the others leave."""
        own = floats_of(columns[self.column])
        left = self.whole - sum(floats_of(columns[label]) for label in self.by)
        later = [floats_of(columns[label]) for label in self.later]
        most, drawn = np.max([0.0 * own, *later], axis=0), own + sum(later)
        made = np.where(own >= most, left - sum(later), own)
        beyond = drawn - left > np.maximum(own, most)
        np.divide(own * left, drawn, out=made, where=beyond & (drawn > 0))
        return pd.Series(np.minimum(self._rounded(made), left), index).astype(self.dtype)

    def settled(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Return what the others leave, as those may have been given values to keep."""
        left = self.whole - sum(floats_of(columns[label]) for label in (*self.by, *self.later))
        return pd.Series(self._rounded(np.maximum(left, 0.0)), index).astype(self.dtype)

    def _rounded(self, numbers: Floats) -> Floats:
        rounded: Floats = np.round(numbers, PLACES if self.decimals is None else self.decimals)
        return rounded


@register
@dataclass(frozen=True)
class Moved(Step):
    """A time of which other columns say parts: months, weekdays, hours.

    It is moved to a time near by of which the `rules` of parts hold, between the `ends` of what
    enough records have: into the nearest month, to the same part of it and the same weekday, as
    else first and last days would pile up; to the nearest day; to an hour of it. Where there is
    none, it stays.
    """

    column: Hashable
    dtype: Any
    rules: tuple[Check, ...]
    ends: tuple[Any, Any]
    by: tuple[Hashable, ...] = ()

    @classmethod
    def of(cls, frame: pd.DataFrame, rule: Check, least: int) -> Self:
        """Return the step of a time and a column that is a part of it; more `rules` may join it.

        Parameters
        ----------
        frame : DataFrame
            A party's table.
        rule : Check
            ``month == month(start)``.
        least : int
            Records that have what comes out at either end.
        """
        column = next(k for k in rule.columns if kind_of_values(frame[k].dtype) == "M")
        known = frame[column].dropna().sort_values()
        ends, _ = limits(known, max(1, min(least, len(known) // 2)), "M")
        return cls(column, frame[column].dtype, (rule,), ends)

    @property
    def is_mended(self) -> bool:
        """It is."""
        return True

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Move it to another month, a day of that, an hour of that, and a minute of that."""
        table = pd.DataFrame({k: columns[k] for rule in self.rules for k in rule.columns})
        rows = table.dropna()
        times = plain_values(rows[self.column]).astype("M8[us]")
        first, last = (plain_values(pd.Series([end])).astype("M8[D]")[0] for end in self.ends)
        days = np.arange(first, last + 1)
        months = np.unique(days.astype("M8[M]"))
        month = self._nearest("M", rows, times.astype("M8[M]"), months)
        made = _in_month(times.astype("M8[D]"), month)
        made = self._nearest("D", rows, made, days)
        for unit, of, count in (("h", "M8[D]", 24), ("m", "M8[h]", 60)):
            within = np.arange(count).astype(f"M8[{unit}]")  # of the first day, or hour, of all
            own = within[0] + (times - times.astype(of)).astype(f"m8[{unit}]")
            made = made + (self._nearest(unit, rows, own, within) - within[0])
        moved = pd.Series(made + (times - times.astype("M8[m]")), rows.index)
        if isinstance(self.dtype, pd.DatetimeTZDtype):
            moved = moved.dt.tz_localize("UTC")  # what rules compute with
        restored = table[self.column].copy()
        restored[rows.index] = moved.astype(self.dtype)
        return restored

    def _nearest(self, unit: str, rows: pd.DataFrame, times: Times, among: Times) -> Times:
        """Return the nearest of some sorted times of which the rules about a unit hold."""
        rules = [rule for rule in self.rules if _unit_of(rule) == unit]
        if not rules:
            return times
        rules += [rule for rule in self.rules if unit == "D" and _unit_of(rule) == "M"]
        candidates = pd.DataFrame({self.column: among.astype("M8[us]")})
        codes = np.zeros(len(among) + len(rows), np.int64)
        for rule in rules:
            parts = rule.computed(candidates), rows[rule.repaired_column].to_numpy(np.float64)
            own, values = pd.factorize(np.concatenate(parts, dtype=np.float64))
            codes = pd.factorize(codes * len(values) + own)[0]
        order = np.argsort(codes[: len(among)], kind="stable")
        has, wanted, found = codes[order], codes[len(among) :], times.copy()
        for code in np.unique(wanted):
            begin, end = np.searchsorted(has, [code, code + 1])
            if (options := among[order[begin:end]]).size:
                there = wanted == code
                later = np.searchsorted(options, own := times[there])
                low = options[np.maximum(later - 1, 0)]
                high = options[np.minimum(later, len(options) - 1)]
                found[there] = np.where(abs(own - low) <= abs(high - own), low, high)
        return found


def _in_month(days: Times, months: Times) -> Times:
    """Put days into months: the same part of them, and weekday, if they lie in others."""
    own = days.astype("M8[M]")
    first, after = months.astype("M8[D]"), (months + 1).astype("M8[D]")
    made = first + np.minimum(days - own.astype("M8[D]"), after - first - 1)
    made += ((days - made).astype(np.int64) + 3) % 7 - 3
    made += np.where(made < first, 7, np.where(made >= after, -7, 0))
    return np.where(own == months, days, made)


def _unit_of(rule: Check) -> str:
    """Return what a rule is about: the months of times, their days, hours or minutes."""
    calls = {own.func for own in ast.walk(parse(rule.expression).tree) if isinstance(own, ast.Call)}
    names = {own.id for own in calls if isinstance(own, ast.Name)}
    units = {"hour": "h", "minute": "m", "weekday": "D", "day": "D"}
    return next((unit for name, unit in units.items() if name in names), "M")
