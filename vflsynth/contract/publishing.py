"""A contract beside the parties' tables: every party's own preparation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
from sklearn.base import clone

from vflsynth.codec import check_can_be_written
from vflsynth.columns import PublicSchema, TableTransformer, infer_kind
from vflsynth.columns.arrays import kind_of_values
from vflsynth.columns.base import naming
from vflsynth.columns.kinds import is_index
from vflsynth.contract.checking import check_rules, check_units
from vflsynth.contract.contract import RARE_RECORDS, ColumnContract, Contract, as_rules
from vflsynth.contract.preparing import Preparation, keeps_order
from vflsynth.contract.recoding import rounded
from vflsynth.contract.rules import Rule
from vflsynth.contract.structure import Structure, without
from vflsynth.exceptions import ContractError
from vflsynth.frames import check_no_empty_column, key_of


def prepared_parties(
    contract: Contract | None,
    frames: Mapping[str, pd.DataFrame],
    on: Any,
    templates: Mapping[str, TableTransformer],
    *,
    private: bool,
    exact: bool = False,
    copies: bool = False,
) -> tuple[dict[str, Preparation], dict[str, TableTransformer]]:
    """Say how all parties prepare and encode their tables, by a contract and by what is exact.

    Of other parties' tables, a preparation depends on nothing but the labels. Otherwise as
    `prepared_party`; tables that are modelled as they are have no preparation.
    """
    keys = {name: key_of(on, name) for name in frames}
    if contract is not None:
        contract.check({n: [c for c in f.columns if c != keys[n]] for n, f in frames.items()})
        types = {label: dtype for frame in frames.values() for label, dtype in frame.dtypes.items()}
        check_units(as_rules(contract.rules), types)
    made, encoded = {}, {}
    for name, frame in frames.items():
        own, encoded[name] = prepared_party(
            contract,
            name,
            frame,
            keys[name],
            templates[name],
            private=private,
            exact=exact,
            copies=copies,
        )
        if own is not None:
            made[name] = own
    if any(own.selects for own in made.values()):  # then all parties have a contract
        made = {name: replace(own, selects=True) for name, own in made.items()}
    return made, encoded


def prepared_party(
    contract: Contract | None,
    party: str,
    frame: pd.DataFrame,
    on: Hashable,
    template: TableTransformer,
    *,
    private: bool,
    exact: bool = False,
    copies: bool = False,
) -> tuple[Preparation | None, TableTransformer]:
    """Say how one party prepares and encodes its own table; None if it is modelled as it is.

    The template has what was declared elsewhere. If `private`, nothing may be read off the records.
    If `exact`, relations that are exact in the records are kept, where the contract says nothing of
    a column; under privacy they are not looked for. `copies` is as of `Structure.of`. Raises
    ContractError, which names party, column or rule.
    """
    made = None
    if contract is not None:
        made = preparation(contract, party, frame, on, private=private)
        template = with_contract(template, contract, party, frame, made, private=private)
    elif not private:
        template = with_defaults(template)
    if private or not exact:
        return made, template
    gone, written, holding = _spoken(made, contract, party, frame)
    free = frame[[label for label in frame.columns if label not in {on, *gone}]]
    for label in free.columns:  # of some types nothing can be found out
        with naming(party, label):
            check_can_be_written(free[label])
    found = Structure.of(free, template, written, holding, copies=copies)
    if found.steps or found.groups:
        everything = tuple(label for label in frame.columns if label != on)
        made = made or Preparation(everything)
        steps, composites = (*made.steps, *found.steps), (*made.composites, *found.groups)
        sure = (rule.title for rule in made.rules if keeps_order(steps, rule))
        certain = tuple(dict.fromkeys((*made.certain, *sure)))
        made = replace(made, steps=steps, composites=composites, certain=certain)
        made = replace(made, selects=bool(made.open_rules))
    return made, found.encoded(template)


def _spoken(
    made: Preparation | None, contract: Contract | None, party: str, frame: pd.DataFrame
) -> tuple[set[Hashable], set[Hashable], list[Rule]]:
    """Say what of a party's columns is the contract's, when relations that were found are kept.

    Returns columns that are not there, or not yet what they are published as; those that are there,
    and not to be written again; and the own rules that all records keep.
    """
    if made is None or contract is None:
        return set(), set(), []
    coarser = (k for k, n in made.rounded.items() if not _has_decimals(frame[k], n))
    gone = {*made.left_out, *coarser}
    gone |= {rule.repaired_column for rule in (*made.across, *made.settled_later)}
    holding = []
    for rule in made.rules:
        if rule.keeps(frame[list(rule.columns)]).all():
            holding += [] if gone & {*rule.columns} else [rule]
        elif rule.repaired_column is not None:
            gone.add(rule.repaired_column)
    written = {k for c in made.composites for k in c.columns}
    columns = contract.of(party).columns
    written |= {k for k, own in columns.items() if own.bounds or own.categories}
    return gone, written, holding


def _has_decimals(column: pd.Series[Any], decimals: int) -> bool:
    """Whether no number of a column is changed by rounding."""
    if kind_of_values(column.dtype) not in "iuf":
        return True
    known = column.dropna()
    return bool((rounded(known, decimals).array == known.array).all())


def preparation(
    contract: Contract, party: str, frame: pd.DataFrame, on: Hashable, *, private: bool
) -> Preparation:
    """Say how one party prepares its own table; of the others it needs to know nothing.

    If private, nothing may be read off the records. ContractError, naming party, column or rule;
    EmptyColumnError if a column that is modelled has no value.
    """
    if private:
        contract.check_private()
    labels, part = [c for c in frame.columns if c != on], contract.of(party)
    contract.check_at(party, labels)
    modelled = [c for c in labels if part.columns.get(c, ColumnContract()).is_modelled]
    if not private:
        check_no_empty_column(party, frame[modelled])
    if labels and not modelled:
        raise ContractError(
            f"party {party!r} has nothing to model: the contract leaves out all its columns. "
            "Fix: leave the party out"
        )
    known = set(labels)
    shared = [rule for rule in as_rules(contract.rules) if known & set(rule.columns)]
    own = [*as_rules(part.rules), *(rule for rule in shared if known >= set(rule.columns))]
    check_rules(own, frame, party, private=private)
    return Preparation.of(
        frame,
        part,
        own,
        contract.rare_records,
        on=on,
        across=[rule for rule in shared if not known >= set(rule.columns)],
        private=private,
    )


def all_rules(prepared: Iterable[Preparation]) -> tuple[Rule, ...]:
    """Return all parties' own rules, and once each those about columns of several of them."""
    parts = list(prepared)
    own = [rule for part in parts for rule in part.rules]
    across: list[Rule] = []
    for rule in (rule for part in parts for rule in part.across):
        across += [] if rule in across else [rule]
    return (*own, *across)


def with_defaults(template: TableTransformer) -> TableTransformer:
    """Return a transformer that publishes no value of fewer than `RARE_RECORDS` records.

    Its own `rare_records` and `extreme_records` count where they are given.
    """
    given = {name: getattr(template, name) for name in ("rare_records", "extreme_records")}
    said = {name: RARE_RECORDS if n is None else n for name, n in given.items()}
    made: TableTransformer = clone(template).set_params(**said)
    return made


def with_contract(
    template: TableTransformer,
    contract: Contract,
    party: str,
    frame: pd.DataFrame,
    prepared: Preparation,
    *,
    private: bool,
) -> TableTransformer:
    """Return a party's transformer with what the contract says of its columns.

    `template` has the kinds that were declared elsewhere; ContractError if they are others. Its
    `rare_records` and `extreme_records` count only above the contract's.
    """
    columns = contract.of(party).columns
    gone = {*prepared.left_out, *(label for c in prepared.composites for label in c.columns)}
    kinds = dict(template.kinds or {})
    for label, column in columns.items():
        if column.kind is not None and kinds.setdefault(label, column.kind) != column.kind:
            raise ContractError(
                f"party {party!r}, column {label!r}: the contract says {column.kind!r} "
                f"and column_kinds {kinds[label]!r}. Fix: say it once"
            )
        known = private or label in kinds
        if column.role is not None and column.is_modelled and not known:
            with naming(party, label):
                kinds[label] = infer_kind(frame[label], may_be_published=True)
    kinds = without(kinds, gone) | {c.label: "categorical" for c in prepared.composites}
    encoders = without(template.encoders, gone)
    made: TableTransformer = clone(template).set_params(kinds=kinds, encoders=encoders or None)
    if private:
        return made
    usual, overrides = contract.rare_records, without(template.overrides, gone)
    for label, column in columns.items():
        least = contract.least(column)
        said: dict[str, Any] = {"rare_records": least}
        said["extreme_records"] = 0 if column.extremes else least
        if column.categories is not None:
            said["categories"] = tuple(column.categories)
        if label not in gone and said != dict.fromkeys(said, usual):
            overrides[label] = {**said, **overrides.get(label, {})}
    made.set_params(
        rare_records=max(usual, template.rare_records or 0),
        extreme_records=max(usual, template.extreme_records or 0),
        overrides=overrides or None,
    )
    return made


def with_public(schema: PublicSchema | None, contract: Contract) -> PublicSchema | None:
    """Return a public schema with what a contract says; ContractError if the two disagree."""
    said = contract.public_schema()
    if not (said.bounds or said.categories or said.dtypes):
        return schema
    if schema is None:
        return said
    merged: dict[str, Any] = {}
    for name in ("bounds", "categories", "dtypes"):
        one, other = getattr(schema, name), getattr(said, name)
        if one == "given":
            continue
        for label in set(one) & set(other):
            if _plain(one[label]) != _plain(other[label]):
                raise ContractError(
                    f"column {label!r}: the contract and public_schema say different {name}. Fix: "
                    "say it once"
                )
        merged[name] = {**one, **other}
    return replace(schema, **merged)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def index_columns(frame: pd.DataFrame) -> list[Hashable]:
    """Return columns that are the row numbers a file kept of a table's index."""
    return [label for label in frame.columns if is_index(frame[label])]
