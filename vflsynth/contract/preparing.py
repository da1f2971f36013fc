"""One party's table as it is modelled, and back: what its own part of a contract makes certain.

Fixed combinations become one column of labels, and identifiers are left out; steps keep what else
is exact. So every row that is decoded keeps these rules, whatever the model learned.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Self

import numpy as np
import pandas as pd

from vflsynth._random import RandomStreams, derive
from vflsynth.columns import Bounds, PublicSchema
from vflsynth.columns.arrays import Flags, has_timezone, kind_of_values
from vflsynth.columns.base import in_zone
from vflsynth.contract.contract import PartyContract
from vflsynth.contract.expressions import parse
from vflsynth.contract.recoding import (
    Composite,
    Pseudonym,
    Surrogate,
    composite_of,
    rounded,
    text_dtype,
)
from vflsynth.contract.rules import Check, Determines, FixedCombinations, Rule, in_order
from vflsynth.contract.steps import Ordered, Step
from vflsynth.contract.structure import without
from vflsynth.exceptions import ContractError
from vflsynth.registry import Value, register

MOST_COMBINATIONS = 256
"""More combinations than this are kept by leaving out rows: a label each would be too many
columns."""


@register
@dataclass(frozen=True)
class Preparation(Value):
    """How a party's table becomes the one that is modelled, and a decoded one the published one.

    Columns are those of the published table, in order; those `left_out` are neither modelled nor
    published as they are, and `rounded` has the decimals of published numbers. Rules are the
    party's own, with what was learned of its records; `certain` are titles of those that hold in
    every row that is decoded, and rules `across` parties are looked at when synthetic rows are put
    together. Steps, in the order of restoring, keep orders, and relations that were found in the
    records. `selects` says whether any party leaves out rows after drawing, so that rows drawn
    apart are not yet those of the sample.
    """

    columns: tuple[Hashable, ...]
    composites: tuple[Composite, ...] = ()
    replacements: tuple[Surrogate | Pseudonym, ...] = ()
    rounded: Mapping[Hashable, int] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    certain: tuple[str, ...] = ()
    across: tuple[Rule, ...] = ()
    left_out: tuple[Hashable, ...] = ()
    steps: tuple[Step, ...] = ()
    selects: bool = False

    def __post_init__(self) -> None:
        hash(tuple(self.columns))  # a forged file may hold what cannot be a label
        parts = {Composite: self.composites, Rule: (*self.rules, *self.across), Step: self.steps}
        for kind, found in parts.items():
            for one in found:
                if not isinstance(one, kind):
                    raise ValueError(f"{one!r} is no {kind.__name__}")

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        part: PartyContract,
        rules: Sequence[Rule],
        least: int,
        *,
        on: Hashable = None,
        across: Iterable[Rule] = (),
        private: bool = False,
    ) -> Self:
        """Say how to prepare a party's table, with its key column, `on`, if there is one.

        Rules are all whose columns are this party's, those `across` about columns of several. What
        fewer than `least` records hold is not learned; if `private`, records are not looked at.
        """
        if not private:
            _check_public(frame, part)
        known = rules if private else [rule.learned(frame, least) for rule in rules]
        learned = in_order(known)
        composites = _composites(frame, learned, private=private)
        replacements = _replacements(frame, part, least)
        gone = {*part.left_out} - {replacement.label for replacement in replacements}
        made = cls(
            tuple(label for label in frame.columns if label != on and label not in gone),
            composites,
            replacements,
            {k: c.decimals for k, c in part.columns.items() if c.decimals is not None},
            learned,
            tuple(rule.title for rule in learned if _is_certain(frame, composites, rule)),
            tuple(across),
            part.left_out,
        )
        return replace(made, selects=bool(made.open_rules))

    @property
    def titles(self) -> tuple[str, ...]:
        """What all rules are called."""
        return tuple(rule.title for rule in (*self.rules, *self.across))

    @property
    def open_rules(self) -> tuple[str, ...]:
        """Rules that rows have to be left out for."""
        return tuple(title for title in self.titles if title not in self.certain)

    @property
    def settled_later(self) -> tuple[Rule, ...]:
        """Own rules that cannot be kept before rules of several parties have computed a column."""
        computed = {rule.repaired_column for rule in self.across} & set(self.columns)
        found: list[Rule] = []
        while True:
            new = [r for r in self.rules if r not in found and computed & set(r.columns)]
            if not new:
                return tuple(rule for rule in self.rules if rule in found)
            found += new
            computed |= {rule.repaired_column for rule in new} - {None}

    def kept(self, table: pd.DataFrame) -> Flags:
        """Say which rows of a published table keep the own rules that can be settled here."""
        later = self.settled_later
        kept = np.ones(len(table), np.bool_)
        for rule in self.rules:
            if rule not in later:
                kept &= rule.keeps(table[list(rule.columns)])
        return kept

    def apply(self, frame: pd.DataFrame, matched: Flags | None = None) -> pd.DataFrame:
        """Return the table that is modelled; ContractError if nothing is left to model.

        What steps draw for `matched` records is like other matched ones.
        """
        if matched is not None and not matched.all():
            parts = [self.apply(frame[own]) for own in (matched, ~matched)]
            places = np.argsort(np.argsort(~matched, kind="stable"))
            return pd.concat(parts).iloc[places]
        published = frame = frame.drop(columns=list(self.left_out))
        for composite in self.composites:
            frame = composite.apply(frame)
        for step in self.steps:
            frame = step.apply(published, frame)
        return frame

    def settled(self, table: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
        """Restore what others tell, after cells of a published table were given values to keep."""
        if not self.steps:
            return table
        columns: dict[Hashable, pd.Series[Any]] = {k: table[k] for k in table.columns}
        for step in self.steps:
            made = step.settled(columns, table.index)
            if step.column in known:
                given = known[step.column].notna().to_numpy()
                made = made.mask(given, columns[step.column])
            columns[step.column] = made
        made_of = pd.DataFrame({k: columns[c].array for k, c in enumerate(columns)}, table.index)
        return made_of.set_axis(table.columns, axis=1)

    def schema(self, schema: PublicSchema | None) -> PublicSchema | None:
        """Return what is public about the table that is modelled."""
        if schema is None or not (self.composites or self.left_out):
            return schema
        gone = {*self.left_out, *(c for composite in self.composites for c in composite.columns)}
        bounds, categories = (without(part, gone) for part in (schema.bounds, schema.categories))
        categories |= {c.label: tuple(c.labels) for c in self.composites}
        dtypes = schema.dtypes
        if dtypes != "given":
            dtypes = without(dtypes, gone) | {c.label: "str" for c in self.composites}
        return PublicSchema(bounds, categories, dtypes)

    def replaced(self, n: int, secret: bytes, party: str) -> dict[Hashable, pd.Series[Any]]:
        """Draw what comes out in place of columns that are not modelled."""
        streams = RandomStreams([derive(secret, f"surrogates of {party}")])
        rng = streams.numpy_generators("values", 0)[0]
        pseudonyms = derive(secret, "pseudonyms")
        return {own.label: own.draw(n, rng, pseudonyms) for own in self.replacements}

    def restore(
        self, table: pd.DataFrame, secret: bytes, party: str, *, repairs: bool = True
    ) -> pd.DataFrame:
        """Return the published table of a decoded one.

        The parties share the secret, which is of the sample. `repairs` says whether columns that
        rules compute are computed.
        """
        columns: dict[Hashable, pd.Series[Any]] = {k: table[k] for k in table.columns}
        for composite in self.composites:
            columns |= composite.restore(table)
        for step in self.steps:
            columns[step.column] = step.restore(columns, table.index)
        columns |= self.replaced(len(table), secret, party)
        for label, decimals in self.rounded.items():
            if label in columns and kind_of_values(columns[label].dtype) in "iuf":
                columns[label] = rounded(columns[label], decimals)
        made = pd.DataFrame({k: columns[c].array for k, c in enumerate(self.columns)}, copy=False)
        made.columns = pd.Index(self.columns, tupleize_cols=False)
        made.index = table.index
        for rule in self.rules if repairs else ():
            made = rule.repair(made)
        return made


def _composites(
    frame: pd.DataFrame, rules: Iterable[Rule], *, private: bool
) -> tuple[Composite, ...]:
    """Return fixed combinations that become a column of labels: no column is in two of them."""
    taken = {rule.repaired_column for rule in rules} - {None}
    found: list[Composite] = []
    for rule in rules:
        if not isinstance(rule, FixedCombinations) or taken & set(rule.columns):
            continue
        allowed = rule.combinations or ()
        if len(allowed) <= MOST_COMBINATIONS:
            found.append(composite_of(frame, rule.columns, allowed, private=private))
            taken |= set(rule.columns)
    return tuple(found)


def _replacements(
    frame: pd.DataFrame, part: PartyContract, least: int
) -> tuple[Surrogate | Pseudonym, ...]:
    """Return what comes out in place of columns that are not modelled."""
    made: list[Surrogate | Pseudonym] = []
    for label in part.left_out:
        kind = part.columns[label].replacement
        if kind == "surrogate":
            made.append(Surrogate.fit(frame[label], least))
        elif kind == "pseudonym":
            made.append(Pseudonym(label, text_dtype(frame[label].dtype)))
    return tuple(made)


def _is_certain(frame: pd.DataFrame, composites: Iterable[Composite], rule: Rule) -> bool:
    """Whether every row that is decoded keeps a rule, whatever is rounded."""
    if isinstance(rule, FixedCombinations):
        return rule.columns in {composite.columns for composite in composites}
    if not isinstance(rule, Check):
        return isinstance(rule, Determines)
    if rule.repaired_column is None:
        return False
    kind = kind_of_values(frame[rule.repaired_column].dtype)
    parts = ast.walk(parse(rule.expression).tree)
    if kind in "iu" and (
        any(kind_of_values(frame[label].dtype) == "f" for label in rule.columns)
        or any(isinstance(getattr(part, "value", None), float) for part in parts)
    ):
        return False
    return kind == "f" or "/" not in rule.expression


def keeps_order(steps: Iterable[Step], rule: Rule) -> bool:
    """Whether some steps keep an order in every row, whatever is rounded."""
    orders = (step for step in steps if isinstance(step, Ordered))
    whole = {(own.low, own.high) for own in orders if kind_of_values(own.dtype) != "f"}
    return isinstance(rule, Check) and rule.ordered in whole and "=" in rule.expression


def _within(label: Hashable, ends: Sequence[Any], dtype: Any) -> Check:
    """Return the rule that a column of a type stays within public bounds."""

    def written(end: Any) -> str:
        if isinstance(end, pd.Timedelta):
            return f"days({end / pd.Timedelta(days=1)!r})"
        if not isinstance(end, date):
            return repr(end)
        time = pd.Timestamp(end)
        if has_timezone(dtype):
            time = in_zone(label, dtype, time).tz_convert(None)
        return f'date("{time.tz_localize(None).isoformat()}")'

    low, high = map(written, Bounds(*ends).ends)
    return Check(f"{low} <= col({label!r}) <= {high}")


def _check_public(frame: pd.DataFrame, part: PartyContract) -> None:
    """Compare the records with what is said to be public of them."""
    for label, column in part.columns.items():
        if not column.is_modelled:
            continue
        values = frame[label].dropna()
        if column.categories is not None:
            wrong = len({*values.unique()} - {*column.categories})
            what = "values are not among its categories"
        elif column.bounds is not None:
            kept = _within(label, column.bounds, values.dtype).keeps(values.to_frame())
            wrong, what = int((~kept).sum()), "records are beyond its bounds"
        else:
            continue
        if wrong:
            raise ContractError(
                f"column {label!r}: {wrong} {what}. Fix: correct the contract, or the table"
            )
