"""Contracts as TOML: the same fields as the classes.

::

    rare_records = 5
    rules = ['relationship == "Husband" => sex == "Male"']     # columns of several parties

    [parties.bank]
    rules = ["opened <= closed"]

    [parties.bank.columns.iban]
    role = "identifier"
    replacement = "surrogate"

    [parties.bank.columns.age]
    bounds = [0, 120]

    [[parties.bank.combinations]]
    among = ["education", "education_number"]
    allowed = [["Bachelors", 13], ["HS-grad", 9]]              # without it: learned; {} is missing

    [[parties.bank.determines]]
    by = ["zip"]
    column = "town"

    [release]                                                  # see `ReleaseTerms`
    worst_column = 0.05

    [release.waived]
    membership = "audited with the last edition"

    [readers]                                                  # who may see which report
    evaluation = ["bank"]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pandas as pd

from vflsynth import _artefacts as artefacts
from vflsynth._schema import FileTable, Parsed, checked, parsed_toml, read_toml, toml_text
from vflsynth.contract.contract import (
    RARE_RECORDS,
    ColumnContract,
    Contract,
    PartyContract,
    as_rules,
    stated,
)
from vflsynth.contract.releasing import ReleaseTerms
from vflsynth.contract.rules import Check, Determines, FixedCombinations, Rule
from vflsynth.exceptions import ContractError, ParameterError
from vflsynth.registry import Number, Optional

Label = Callable[[str], Hashable]

_OF_RULES = ("rules", "combinations", "determines")
_SHARED = ("rules", "rare_records", "least_records", "release", "readers")
"""What all parties share."""


@dataclass(kw_only=True)
class _Combinations(FileTable):
    """A table of ``combinations``."""

    among: list[str]
    allowed: list[list[Any]] | None = None

    def __post_init__(self) -> None:
        self.rule(str)

    def rule(self, label: Label) -> Rule:
        rows = None if self.allowed is None else tuple(map(_cells, self.allowed))
        return FixedCombinations(tuple(map(label, self.among)), rows)


@dataclass(kw_only=True)
class _Determines(FileTable):
    """A table of ``determines``."""

    documented_by: ClassVar[Any] = Determines

    by: list[str]
    column: str
    values: list[tuple[list[Any], Any]] | None = None

    def __post_init__(self) -> None:
        self.rule(str)

    def rule(self, label: Label) -> Rule:
        pairs = self.values
        made = None if pairs is None else tuple((_cells(k), _cell(v)) for k, v in pairs)
        return Determines(tuple(map(label, self.by)), label(self.column), made)


@dataclass(kw_only=True)
class _Rules(FileTable):
    """What a table says of rules."""

    rules: list[Annotated[Rule, Parsed(Check)]] = field(default_factory=list)
    combinations: list[_Combinations] = field(default_factory=list)
    determines: list[_Determines] = field(default_factory=list)

    def made(self, label: Label) -> list[Rule]:
        tables: list[_Combinations | _Determines] = [*self.combinations, *self.determines]
        return [*self.rules, *(own.rule(label) for own in tables)]


@dataclass(kw_only=True)
class _Party(_Rules):
    """What one party says."""

    documented_by: ClassVar[Any] = PartyContract

    columns: dict[str, ColumnContract] = field(default_factory=dict)


@dataclass(kw_only=True)
class ContractFile(_Rules):
    """The whole file."""

    documented_by: ClassVar[Any] = Contract

    parties: dict[str, _Party] = field(default_factory=dict)
    rare_records: Annotated[int, Number(0, whole=True)] = RARE_RECORDS
    least_records: Annotated[int | None, Optional(Number(1, whole=True))] = None
    release: ReleaseTerms = field(default_factory=ReleaseTerms)
    readers: dict[str, list[str]] = field(default_factory=dict)

    def contract(self, label: Label) -> Contract:
        """Make the contract; `label` turns the text that names a column into its label."""
        parties = {
            name: PartyContract(
                {label(c): own for c, own in part.columns.items()}, part.made(label)
            )
            for name, part in self.parties.items()
        }
        said = {name: getattr(self, name) for name in ("rare_records", "least_records", "release")}
        return Contract(parties, self.made(label), readers=self.readers, **said)

    def __post_init__(self) -> None:
        self.contract(str)


def read_contract(path: str | os.PathLike[str], label: Label = str) -> Contract:
    """Read a contract of a TOML file.

    `label` makes of the text that names a column its label, by default the text itself.
    ContractError names file, party, column or rule.
    """
    return contract_from(read_toml(Path(path), ContractError), str(path), label)


def write_contract(contract: Contract, path: str | os.PathLike[str], heading: str = "") -> None:
    """Write a contract as TOML, aside and then renamed, under a heading of comments for people.

    ContractError if a rule has no form in TOML: functions and rules of other packages have none.
    """
    artefacts.replace_text(Path(path), contract_to_toml(contract, heading))


def contract_from(
    said: str | Mapping[str, Any], where: str = "contract", label: Label = str
) -> Contract:
    """Read the text of a contract, or its tables as they stand in a job, as `read_contract` does.

    `where` is what errors begin with.
    """
    content = parsed_toml(said, where, ContractError) if isinstance(said, str) else said
    return checked(ContractFile, content, where, ContractError).contract(label)


def own_contract(
    path: str | os.PathLike[str], party: str, shared: Contract, label: Label = str
) -> Contract:
    """Read what one party wrote into a TOML file, beside what all parties agreed on.

    Of what all share, the file may say nothing, or the same; ContractError names what differs. The
    contract has all parts that the file has, and what is shared.
    """
    content = read_toml(Path(path), ContractError)
    said = contract_from(content, str(path), label)
    for name in _SHARED:
        keys = _OF_RULES if name == "rules" else (name,)
        if any(key in content for key in keys) and getattr(said, name) != getattr(shared, name):
            raise ContractError(
                f"party {party!r}: {path} and the job disagree on {name} of all parties. Fix: the "
                "same in both, or leave it out of the party's file"
            )
    return replace(shared, parties=said.parties)


def contract_to_toml(contract: Contract, heading: str = "") -> str:
    """Write a contract as text; `heading` and errors as of `write_contract`."""
    parties = {
        name: _of_rules(part.rules)
        | {
            "columns": {
                str(label): {k: _plain(v) for k, v in stated(own).items()}
                for label, own in part.columns.items()
            }
        }
        for name, part in contract.parties.items()
    }
    content = {
        "rare_records": contract.rare_records,
        "least_records": contract.least_records,
        **_of_rules(contract.rules),
        "parties": parties,
        "release": stated(contract.release),
        "readers": dict(contract.readers),
    }
    try:
        return toml_text({k: v for k, v in content.items() if v != {}}, heading)
    except ParameterError as error:
        raise ContractError(str(error)) from None


def _of_rules(rules: Iterable[Rule | str]) -> dict[str, Any]:
    """Return the keys of a table that say rules."""
    found: dict[str, list[Any]] = {name: [] for name in _OF_RULES}
    for rule in as_rules(rules):
        match rule:
            case Check():
                found["rules"].append(rule.expression)
            case FixedCombinations():
                said = {"among": [*map(str, rule.among)], "allowed": _plain(rule.combinations)}
                found["combinations"].append(said)
            case Determines():
                by = [*map(str, rule.by)]
                said = {"by": by, "column": str(rule.column), "values": _plain(rule.values)}
                found["determines"].append(said)
            case _:
                raise ContractError(
                    f"the rule {rule.title!r} is of type {type(rule).__name__}, which has no form "
                    "in TOML. Fix: write it as an expression, or keep the contract in Python"
                )
    return {name: own for name, own in found.items() if own}


def _plain(value: Any) -> Any:
    """Return what TOML has: durations are texts."""
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return str(pd.Timedelta(value)) if isinstance(value, timedelta) else value


def _cells(values: list[Any]) -> tuple[Any, ...]:
    return tuple(map(_cell, values))


def _cell(value: Any) -> Any:
    """Return a cell as tables have it: a timestamp for a date, and None for NaN."""
    if value == {} or value != value:
        return None
    return pd.Timestamp(value) if type(value) is date else value
