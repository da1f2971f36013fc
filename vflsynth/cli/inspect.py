"""``vflsynth inspect``: what is in a model, or in a table."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth import _artefacts as artefacts
from vflsynth.cli.console import say, share, table
from vflsynth.cli.fit import training_sentence, training_summary
from vflsynth.cli.options import check_file, file, flag
from vflsynth.cli.records import open_model
from vflsynth.cli.tables import (
    PARTY_FILES,
    PartyFile,
    add_key,
    by_party,
    label,
    match_on,
    on_of,
    read_party_frames,
)
from vflsynth.columns import TableTransformer
from vflsynth.contract import (
    Contract,
    prepared_parties,
    propose,
    read_contract,
    relations_of,
    write_contract,
)
from vflsynth.contract.checking import hold
from vflsynth.contract.proposing import proposal_text
from vflsynth.exceptions import ParameterError, PartyDataError
from vflsynth.frames import align_party_frames, key_of
from vflsynth.models import PartyModel, number_sources
from vflsynth.reporting import size_text

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Show what is in a saved model: parties, columns and how they are encoded, sizes, how it was trained,
what crossed each party's boundary if it was fitted with --transcript, and the privacy ledger if
there is one.

Of tables: rows, kinds of columns as they would be inferred, distinct and missing values, width of
the encoding, every column that could not be used as it is, and relations of up to three columns
that hold in all records or nearly all. With --on, what could be matched.
"""
EPILOG = """\
examples:
  vflsynth inspect model
  vflsynth inspect lab=lab.csv clinic=clinic.parquet --on patient_id
  vflsynth inspect lab=lab.csv --on patient_id --write-contract lab.toml
  vflsynth inspect model --json
  vflsynth inspect model --numbers
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "what",
        nargs="+",
        metavar=f"MODEL|{PARTY_FILES}",
        help="a model, one party's half of one, or tables",
    )
    add_key(parser)
    flag(
        parser,
        "--numbers",
        "list all numbers of a model, with their sources: public, released or drawn",
    )
    file(
        parser,
        "--write-contract",
        "FILE",
        "of tables: propose a contract, with rules that hold in all records, for a person to "
        "correct; see 'vflsynth fit --contract'",
    )
    file(
        parser,
        "--contract",
        "FILE",
        "of tables: how many rows of each party keep the rules of a contract; what cannot be "
        "computed, or no row keeps, is an error",
    )
    flag(parser, "--json", "the same as JSON")


def run(options: argparse.Namespace) -> int:
    """Describe and print."""
    path = Path(options.what[0])
    is_model = len(options.what) == 1 and (path.is_dir() or not path.suffix)
    if options.numbers and not is_model:
        raise ParameterError(f"--numbers is for models, and {path} is no model")
    if is_model:
        for name in ("write_contract", "contract", "on"):
            if getattr(options, name) is not None:
                option = name.replace("_", "-")
                raise ParameterError(f"--{option} is for tables, and {path} is no table")
        description = describe_model(path)
        if options.numbers:
            description["numbers"] = [
                asdict(numbers) | {"source": str(numbers.source)}
                for numbers in number_sources(path)
            ]
        text: Callable[[Mapping[str, Any]], str] = model_text
    else:
        files = [PartyFile.parse(what) for what in options.what]
        if options.write_contract is not None:
            check_file("--write-contract", options.write_contract)
        frames = read_party_frames(by_party(files))
        on = match_on(frames, on_of(options.on), options.key_form)
        if options.write_contract is not None:
            _propose(frames, on, options.write_contract)
        description = describe_tables(frames, on)
        if options.contract is not None:
            contract = read_contract(options.contract, lambda text: label(frames.values(), text))
            description["rules"] = _held(contract, frames, on)
        text = tables_text
    if options.json:
        say(json.dumps(description, indent=1, allow_nan=False, ensure_ascii=False))
    else:
        say(text(description))
    return 0


def _propose(frames: Mapping[str, pd.DataFrame], on: Any, path: Path) -> None:
    """Write a contract that a person has to read."""
    contract, reasons = propose(frames, on)
    write_contract(contract, path, proposal_text(reasons))
    logger.info("%s: a proposed contract; read and correct it", path)
    logger.info("next: vflsynth fit PARTY=FILE ... --on KEY --contract %s --output model", path)


def _held(contract: Contract, frames: Mapping[str, pd.DataFrame], on: Any) -> list[str]:
    """Say how each party's own rows keep the rules, and refuse rules that cannot hold."""
    plain = {party: TableTransformer() for party in frames}
    made, _ = prepared_parties(contract, frames, on, plain, private=False)
    return [
        f"{party}: {held}"
        for party, own in made.items()
        for held in hold(own.rules, frames[party], f"party {party!r}")
    ]


# models


def describe_model(path: Path) -> dict[str, Any]:
    """Describe a saved model or half, JSON-safe."""
    model = open_model(path)
    about = {"path": str(path), "bytes": _bytes(path)}
    if isinstance(model, PartyModel):
        return about | {"class": "PartyModel", "parties": [_describe_half(model)]}
    content = artefacts.read_json(path / "synthesizer.json")
    alignment, ledger = model.alignment_, model.privacy_ledger_
    return about | {
        "class": type(model).__name__,
        "version": content["version"],
        "device": model.device_,
        "interrupted": model.interrupted_,
        "training": training_summary(model.history_),
        "settings": model.settings_,
        "alignment": None
        if alignment is None
        else {
            "matched_by": alignment.matched_by,
            "matched": alignment.n_matched,
            "dropped": alignment.n_dropped,
        },
        "privacy_ledger": None
        if ledger is None
        else {**ledger.to_dict(), "text": str(ledger).splitlines()},
        "parties": [_describe_half(half) for half in model.parties_.values()],
        "transcript": None if model.transcript_ is None else model.transcript_.to_dict("records"),
    }


def model_text(model: Mapping[str, Any]) -> str:
    """Lay out `describe_model` for people."""
    lines = [f"{model['class']}, {size_text(model['bytes'])}: {model['path']}"]
    if "version" in model:
        lines[0] += f" (saved by vflsynth {model['version']})"
        matched = model["alignment"]
        lines += [
            _matched_sentence(matched),
            f"training: {training_sentence(model['training'])}, on {model['device']}"
            + ("; interrupted" if model["interrupted"] else ""),
        ]
        if model["settings"]:
            settings = [f"{name}={json.dumps(v)}" for name, v in model["settings"].items()]
            lines.append(f"settings: {', '.join(settings)}")
    for half in model["parties"]:
        lines += [
            "",
            f"party {half['party']}: {len(half['columns'])} columns, {half['encoded']} encoded; "
            f"{half['parameters']:,} parameters; key: {half['key'] or 'the index'}",
            table(half["columns"]),
        ]
    if model.get("privacy_ledger"):
        lines += ["", *model["privacy_ledger"]["text"]]
    if model.get("transcript"):
        rows = [
            {
                "message": row["message"],
                "from": row["sender"],
                "to": row["receiver"],
                "messages": row["messages"],
                "size": size_text(row["bytes"]),
                "contents": row["contents"],
            }
            for row in model["transcript"]
        ]
        lines += ["", "what crossed each boundary during training:", table(rows)]
    elif "version" in model:
        lines += ["", "What crossed each boundary was not counted; 'fit --transcript' does."]
    if "numbers" in model:
        lines += ["", "numbers in its files, and where they come from:", table(model["numbers"])]
    return "\n".join(lines)


def _matched_sentence(matched: Mapping[str, Any] | None) -> str:
    if matched is None:
        return "records: their number is private and not in the model"
    dropped = ", ".join(f"{party} {n:,}" for party, n in matched["dropped"].items())
    return f"records: {matched['matched']:,} matched by {matched['matched_by']}; dropped: {dropped}"


def _describe_half(half: PartyModel) -> dict[str, Any]:
    transformer = half.transformer
    return {
        "party": half.name,
        "key": None if half.on is None else str(half.on),
        "encoded": transformer.width_,
        "parameters": sum(tensor.numel() for tensor in half.sampler.tensors().values()),
        "columns": [
            {
                "column": str(label),
                "dtype": str(column.dtype_),
                "kind": column.declared_kind,
                "encoded": column.width_,
            }
            for label, column in transformer.transformers_.items()
        ]
        + [
            {
                "column": str(step.column),
                "dtype": str(step.dtype),
                "kind": f"from {', '.join(map(str, step.by))}",
                "encoded": 0,
            }
            for step in (() if half.preparation is None else half.preparation.steps)
            if step.is_left_out
        ],
    }


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# tables


def describe_tables(frames: Mapping[str, pd.DataFrame], on: Any) -> dict[str, Any]:
    """Describe tables as `fit` would see them, JSON-safe."""
    description: dict[str, Any] = {
        "parties": [
            {
                "party": party,
                "rows": len(frame),
                "columns": [
                    _describe_column(frame, label, key_of(on, party)) for label in frame.columns
                ],
                "relations": relations_of(
                    frame[[label for label in frame.columns if label != key_of(on, party)]]
                ),
            }
            for party, frame in frames.items()
        ]
    }
    if on is not None:
        alignment = align_party_frames(frames, on=on, allow_empty_columns=True)[2]
        description["alignment"] = str(alignment)
        least = Contract().fewest_records
        if alignment.n_matched < least:
            description["alignment"] += (
                f"\nThey are too few to fit without privacy: fewer than {least}, unless a contract "
                "sets least_records"
            )
    return description


def tables_text(tables: Mapping[str, Any]) -> str:
    """Lay out `describe_tables` for people."""
    lines = []
    for own in tables["parties"]:
        columns = [
            {**column, "missing": share(column["missing"] / max(1, own["rows"]))}
            for column in own["columns"]
        ]
        fixes: dict[str, list[str]] = {}
        for column in columns:
            if (fix := column.pop("fix")) is not None:
                fixes.setdefault(fix, []).append(column["column"])
        if not fixes:
            columns = [{k: v for k, v in column.items() if k != "problem"} for column in columns]
        encoded = sum(column["encoded"] or 0 for column in columns)
        lines += [
            f"{own['party']}: {own['rows']:,} rows, {len(columns)} columns, {encoded} encoded",
            table(columns),
            *(f"  Fix of {', '.join(map(repr, labels))}: {fix}" for fix, labels in fixes.items()),
            *(f"  {relation}" for relation in own["relations"]),
            "",
        ]
    for title in ("alignment", "rules"):
        said = tables.get(title, [])
        lines += [said] if isinstance(said, str) else said and ["", "rules:", *said]
    return "\n".join(lines).rstrip("\n")


def _describe_column(frame: pd.DataFrame, label: Any, key: Any) -> dict[str, Any]:
    column = frame[label]
    described = {
        "column": str(label),
        "dtype": str(column.dtype),
        "kind": "key",
        "encoded": None,
        "distinct": int(column.nunique()),
        "missing": int(column.isna().sum()),
        "problem": None,
        "fix": None,
    }
    if label == key:
        return described
    try:
        transformer = TableTransformer().fit(frame[[label]])
    except PartyDataError as error:
        return described | {"kind": None, "problem": error.problem, "fix": error.fix}
    return described | {"kind": transformer.kinds_[label], "encoded": transformer.width_}
