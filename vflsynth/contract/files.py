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

import json
import os
import re
import tomllib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vflsynth import _artefacts as artefacts
from vflsynth._validation import did_you_mean
from vflsynth.contract.contract import ColumnContract, Contract, PartyContract, stated
from vflsynth.contract.releasing import CLAUSES, ReleaseTerms
from vflsynth.contract.rules import Check, Determines, FixedCombinations, Rule, as_rules
from vflsynth.exceptions import ContractError, VFLSynthError

Label = Callable[[str], Hashable]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_OF_RULES = ("rules", "combinations", "determines")
_SHARED = {
    "rules": _OF_RULES,
    "rare_records": ("rare_records",),
    "least_records": ("least_records",),
    "release": ("release",),
    "readers": ("readers",),
}
"""What all parties share, and the keys of a file that say it."""

_OF_COLUMNS = tuple(f.name for f in fields(ColumnContract))


def read_contract(path: str | os.PathLike[str], label: Label = str) -> Contract:
    """Read a contract.

    Parameters
    ----------
    path : path-like
        A TOML file.
    label : callable, optional
        From the text that names a column to its label. Default: the text itself.

    Raises
    ------
    ContractError
        Naming file, party, column or rule.
    """
    return contract_from_content(_content(path), str(path), label)


def write_contract(contract: Contract, path: str | os.PathLike[str], heading: str = "") -> None:
    """Write a contract as TOML, aside and then renamed.

    Parameters
    ----------
    contract : Contract
    path : path-like
    heading : str, optional
        Comments for people, one line each.

    Raises
    ------
    ContractError
        If a rule has no form in TOML: functions and rules of other packages have none.
    """
    comments = "".join(f"# {line}".rstrip() + "\n" for line in heading.splitlines())
    artefacts.replace_text(Path(path), comments + contract_to_toml(contract))


def contract_from_toml(text: str, where: str = "contract", label: Label = str) -> Contract:
    """Read the text of a contract.

    Parameters
    ----------
    text : str
    where : str, default="contract"
        What errors begin with.
    label : callable, optional
        As of `read_contract`.

    Raises
    ------
    ContractError
    """
    return contract_from_content(_parsed(text, where), where, label)


def contract_from_content(
    content: Mapping[str, Any], where: str = "contract", label: Label = str
) -> Contract:
    """Read the tables of a contract, as they stand in a TOML file or in a job.

    Parameters
    ----------
    content : mapping
    where, label
        As of `contract_from_toml`.

    Raises
    ------
    ContractError
    """
    content = _table(content, where)
    _known(content, ("parties", *(key for keys in _SHARED.values() for key in keys)), where)
    parties = {}
    for name, part in _table(content.get("parties", {}), f"{where}: parties").items():
        own = f"{where}: party {name!r}"
        _known(_table(part, own), ("columns", *_OF_RULES), own)
        columns = {}
        for column, said in _table(part.get("columns", {}), own).items():
            inside = f"{own}, column {column!r}"
            _known(_table(said, inside), _OF_COLUMNS, inside)
            columns[label(column)] = _made(inside, ColumnContract, **said)
        parties[name] = _made(own, PartyContract, columns, _rules(part, own, label))
    given = {k: content[k] for k in ("rare_records", "least_records") if k in content}
    if "release" in content:
        inside = f"{where}: release"
        _known(_table(content["release"], inside), (*CLAUSES, "waived"), inside)
        given["release"] = _made(inside, ReleaseTerms, **content["release"])
    if "readers" in content:
        given["readers"] = _table(content["readers"], f"{where}: readers")
    made: Contract = _made(where, Contract, parties, _rules(content, where, label), **given)
    return made


def own_contract(
    path: str | os.PathLike[str], party: str, shared: Contract, label: Label = str
) -> Contract:
    """Read what one party wrote, beside what all parties agreed on.

    Parameters
    ----------
    path : path-like
        A TOML file. Of what all parties share it may say nothing, or the same.
    party : str
        Who wrote it.
    shared : Contract
        What all parties share.
    label : callable, optional
        As of `read_contract`.

    Returns
    -------
    Contract
        With all parts that the file has, and what is shared.

    Raises
    ------
    ContractError
        Naming what differs.
    """
    content = _content(path)
    said = contract_from_content(content, str(path), label)
    for field, keys in _SHARED.items():
        if any(key in content for key in keys) and getattr(said, field) != getattr(shared, field):
            raise ContractError(
                f"party {party!r}: {path} and the job disagree on {field} of all parties. Fix: the "
                "same in both, or leave it out of the party's file"
            )
    return replace(shared, parties=said.parties)


def contract_to_toml(contract: Contract) -> str:
    """Write a contract as text; errors as of `write_contract`."""
    lines = [f"rare_records = {contract.rare_records}"]
    if contract.least_records is not None:
        lines.append(f"least_records = {contract.least_records}")
    lines += _rule_lines(contract.rules, "")
    for name, part in contract.parties.items():
        place = f"parties.{_key(name)}"
        checks = _checks(part.rules)
        lines += ["", f"[{place}]", *([_listed("rules", checks)] if checks else [])]
        for column, own in part.columns.items():
            lines += ["", f"[{place}.columns.{_key(str(column))}]"]
            lines += [
                f"{field} = {_value(value)}"
                for field in _OF_COLUMNS
                if (value := getattr(own, field)) is not None and value is not False
            ]
        lines += _tables(part.rules, f"{place}.")
    lines += _release_lines(contract.release)
    if contract.readers:
        lines += ["", "[readers]", *(f"{k} = {_value(v)}" for k, v in contract.readers.items())]
    return "\n".join([*lines, ""])


def _content(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ContractError(f"{path} cannot be read: {error}") from error
    return _parsed(text, str(path))


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ContractError(f"{where} is no TOML: {error}") from error


def _release_lines(terms: ReleaseTerms) -> list[str]:
    """Write the limits that are no defaults, and what is waived."""
    limits = [f"{k} = {_value(v)}" for k, v in stated(terms).items() if k != "waived"]
    waived = [f"{k} = {_quoted(v)}" for k, v in terms.waived.items()]
    return [
        *(["", "[release]", *limits] if limits else []),
        *(["", "[release.waived]", *waived] if waived else []),
    ]


def _rule_lines(rules: Iterable[Rule | str], place: str) -> list[str]:
    checks = _checks(rules)
    return [*([_listed("rules", checks)] if checks else []), *_tables(rules, place)]


def _checks(rules: Iterable[Rule | str]) -> list[str]:
    return [rule.expression for rule in as_rules(rules) if isinstance(rule, Check)]


def _listed(name: str, texts: list[str]) -> str:
    return "\n".join([f"{name} = [", *(f"    {_value(text)}," for text in texts), "]"])


def _tables(rules: Iterable[Rule | str], place: str) -> list[str]:
    """Write the rules that are tables."""
    lines: list[str] = []
    for rule in as_rules(rules):
        if isinstance(rule, FixedCombinations):
            lines += ["", f"[[{place}combinations]]", f"among = {_value([*map(str, rule.among)])}"]
            lines += [] if rule.reads_records else [f"allowed = {_value(rule.combinations)}"]
        elif isinstance(rule, Determines):
            lines += ["", f"[[{place}determines]]", f"by = {_value([*map(str, rule.by)])}"]
            lines += [f"column = {_quoted(str(rule.column))}"]
            lines += [] if rule.reads_records else [f"values = {_value(rule.values)}"]
        elif not isinstance(rule, Check):
            raise ContractError(
                f"the rule {rule.title!r} is of type {type(rule).__name__}, which has no form in "
                "TOML. Fix: write it as an expression, or keep the contract in Python"
            )
    return lines


def _rules(content: Mapping[str, Any], where: str, label: Label) -> list[Rule]:
    """Read what a table says of rules."""
    texts = content.get("rules", [])
    if not isinstance(texts, list):
        raise ContractError(f"{where}: rules must be a list of texts")
    made: list[Rule] = [_made(where, Check, text) for text in texts]
    for table in content.get("combinations", []):
        _known(_table(table, where), ("among", "allowed"), f"{where}: combinations")
        among = [label(column) for column in table.get("among", [])]
        allowed = table.get("allowed")
        cells = None if allowed is None else tuple(tuple(map(_cell, row)) for row in allowed)
        made.append(_made(where, FixedCombinations, tuple(among), cells))
    for table in content.get("determines", []):
        _known(_table(table, where), ("by", "column", "values"), f"{where}: determines")
        by = tuple(label(column) for column in table.get("by", []))
        pairs = table.get("values")
        if pairs is not None:
            pairs = tuple((tuple(map(_cell, key)), _cell(value)) for key, value in pairs)
        made.append(_made(where, Determines, by, label(str(table.get("column"))), pairs))
    return made


def _made(where: str, made: Callable[..., Any], /, *values: Any, **named: Any) -> Any:
    try:
        return made(*values, **named)
    except (VFLSynthError, TypeError, ValueError) as error:
        raise ContractError(f"{where}: {error}") from None


def _known(content: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    for name in content:
        if name not in (known := tuple(names)):
            raise ContractError(
                f"{where}: unknown {name!r}; there are {', '.join(known)}"
                + did_you_mean(name, known)
            )


def _table(content: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise ContractError(f"{where} must be a table of names and values")
    return content


def _cell(value: Any) -> Any:
    return None if value == {} else value


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    """Write a text, within single quotes if it has double ones: rules read better so."""
    if '"' in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    """Write a value of TOML; {} for what is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    match value:
        case None:
            return "{}"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case pd.Timedelta():
            return _quoted(str(value))
        case datetime() | date():
            return value.isoformat()
        case str():
            return _quoted(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
    raise ContractError(f"values of type {type(value).__name__} have no form in TOML")
