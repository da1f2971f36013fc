"""What is to be fitted: the same keys in a TOML file and as options, for all commands that fit."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from vflsynth.cli.options import Group, Option
from vflsynth.cli.tables import PartyFile, by_party, label, on_of
from vflsynth.configuration import (
    DEFAULT_METHOD,
    Configuration,
    read_configuration,
    schema_of_files,
)
from vflsynth.exceptions import ParameterError
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.registry import Members


def configured(
    options: argparse.Namespace, tables: Iterable[PartyFile], **parameters: Any
) -> Configuration:
    """Return what file and options say together; `parameters` have options of their own.

    Raises ParameterError, naming the file, or the command line, the key, and what there is instead.
    """
    said = {name: getattr(options, name) for name in ("method", "device", "key_form")}
    said["on"] = on_of(options.on)
    said |= {
        "parties": {party: str(path) for party, path in by_party(tables).items()},
        "column_kinds": dict(options.kind),
        "privacy": {name: dict(getattr(options, name)) for name in ("bounds", "categories")},
        "parameters": _parameters(options, parameters),
        "contract": _contracts(options.contract),
    }
    said = {key: value for key, value in said.items() if value is not None}
    parts = {}
    if options.config is not None:
        parts[str(options.config)] = read_configuration(options.config)
    return Configuration(parts | {"command line": said})


def synthesizer(
    configuration: Configuration, frames: Mapping[str, pd.DataFrame], *, quiet: bool
) -> BaseSynthesizer:
    """Make the synthesizer for tables, whose columns may have labels other than text.

    A private fit must not read the types of columns off the records of a file.
    """
    synth = configuration.make(lambda text: label(frames.values(), text))
    if quiet and "verbose" in synth.get_params(deep=False):
        synth.set_params(verbose=0)
    if synth.privacy is not None and synth.method().is_private:
        named = {f"party {party!r}: the fit": file for party, file in configuration.parties.items()}
        schema = schema_of_files(synth.method().public_schema, named)
        synth.privacy.set_params(public_schema=schema)
    return synth


def _parameters(options: argparse.Namespace, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables of what was said with --privacy, --set, --epochs and other options."""
    said: dict[str, Any] = {} if options.privacy is None else {"privacy": dict(options.privacy)}
    for name, value in options.set:
        *path, last = name.split(".")
        table = said
        for key in path:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ParameterError(f"--set {name}=...: {key} was set to {table!r} before")
        table[last] = value
    own = {"epochs": options.epochs, **parameters}
    return said | {name: value for name, value in own.items() if value is not None}


def _contracts(said: list[str]) -> str | dict[str, str] | None:
    """Return one file, or one per party."""
    if len(said) < 2 and not any("=" in text for text in said):
        return said[0] if said else None
    files = [PartyFile.parse(text) for text in said]
    return {party: str(path) for party, path in by_party(files).items()}


def _privacy(text: str) -> dict[str, Any]:
    """Read ``dpsgd, epsilon=3, delta=1e-6``; commas within brackets do not separate."""
    first, *rest = (part.strip() for part in re.split(r",(?![^\[{]*[\]}])", text))
    named = {} if "=" in first else {"mechanism": first}
    return named | dict(map(_setting, rest if named else [first, *rest]))


def _setting(text: str) -> tuple[str, Any]:
    name, value = _pair(text, form="NAME=VALUE")
    return name, _value(value)


def _list(text: str, form: str) -> tuple[str, list[Any]]:
    column, values = _pair(text, form)
    whole = _value(values)
    return column, whole if isinstance(whole, list) else [_value(v) for v in values.split(",")]


def _pair(text: str, form: str) -> tuple[str, str]:
    """Split at the first ``=``, but for a column, whose name may hold one, at the last."""
    split = text.partition if form == "NAME=VALUE" else text.rpartition
    name, separator, value = split("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
    return (name.strip(), value) if form == "NAME=VALUE" else (name, value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()  # text needs no quotes here


OPTIONS = [
    Group(
        "what is fitted",
        [
            Option(
                "--config FILE",
                "TOML file with the same keys, such as a job of 'vflsynth parties'; options "
                "override it",
            ),
            Option(
                "--method NAME", f"synthesizer, see 'vflsynth methods' (default: {DEFAULT_METHOD})"
            ),
            Option(
                "--privacy MECHANISM",
                "differential privacy: a mechanism and its parameters, such as "
                "'dpsgd, epsilon=3, delta=1e-6'; see 'vflsynth methods' (default: none)",
                type=_privacy,
            ),
            Option(
                "--set NAME=VALUE*",
                "any parameter, its value in JSON, such as generator_hidden=[64,64], "
                "privacy.epsilon=3 or transformer.rare_threshold=0; repeatable",
                type=_setting,
            ),
            Option("--epochs N", "passes over the records (default: the method's)"),
            Option("--device DEVICE", "such as cpu or cuda:0 (default: a GPU if there is one)"),
        ],
    ),
    Group(
        "columns",
        [
            Option(
                "--kind COLUMN=KIND*",
                f"read a column as {', '.join(Members('column_kinds'))}; repeatable (default: "
                "inferred, see 'vflsynth inspect TABLE')",
                type=partial(_pair, form="COLUMN=KIND"),
            ),
            Option(
                "--bounds COLUMN=LOW,HIGH*",
                "with --privacy: a range that is known without looking at the records, such as "
                "age=0,120 or admitted=2020-01-01,2024-12-31; repeatable",
                type=partial(_list, form="COLUMN=LOW,HIGH"),
            ),
            Option(
                "--categories COLUMN=A,B*",
                "with --privacy: labels that are known without looking at the records, such as "
                "smoker=no,yes; repeatable",
                type=partial(_list, form="COLUMN=A,B"),
            ),
            Option(
                "--contract FILE|PARTY=FILE*",
                "what is modelled, what may come out and which rules hold, as 'vflsynth inspect "
                "TABLE --write-contract FILE' writes it; one file, or one of each party",
            ),
        ],
    ),
]
