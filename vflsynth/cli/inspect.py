"""``vflsynth inspect``: what is in a model, or in a table."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth import _artefacts as artefacts
from vflsynth.cli.console import say, table
from vflsynth.cli.fit import training_sentence
from vflsynth.cli.options import Option, check_file
from vflsynth.cli.tables import KEY, PartyFile, by_party, label, match_on, on_of, read_party_frames
from vflsynth.columns import TableTransformer
from vflsynth.contract import (
    Contract,
    contract_to_toml,
    prepared_parties,
    propose,
    read_contract,
    relations_of,
    write_contract,
)
from vflsynth.contract.checking import hold
from vflsynth.contract.proposing import proposal_text
from vflsynth.exceptions import ArtefactError, ParameterError, PartyDataError
from vflsynth.frames import align_party_frames, key_of
from vflsynth.loading import load
from vflsynth.methods.synthesizer import BaseSynthesizer
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
  vflsynth inspect model --numbers
"""


OPTIONS = [
    Option("what MODEL|PARTY=FILE...", "a model, one party's half of one, or tables"),
    *KEY,
    Option(
        "--numbers", "list all numbers of a model, with their sources: public, released or drawn"
    ),
    Option(
        "--write-contract FILE",
        "of tables: propose a contract, with rules that hold in all records, for a person to "
        "correct; see 'vflsynth fit --contract'",
    ),
    Option(
        "--contract FILE",
        "of tables: how many rows of each party keep the rules of a contract; what cannot be "
        "computed, or no row keeps, is an error",
    ),
]


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
        text = describe_model(path, numbers=options.numbers)
    else:
        files = [PartyFile.parse(what) for what in options.what]
        if options.write_contract is not None:
            check_file("--write-contract", options.write_contract)
        frames = read_party_frames(by_party(files))
        on = match_on(frames, on_of(options.on), options.key_form)
        if options.write_contract is not None:
            _propose(frames, on, options.write_contract)
        text = describe_tables(frames, on)
        if options.contract is not None:
            contract = read_contract(options.contract, lambda text: label(frames.values(), text))
            text = "\n".join([text, "", "rules:", *_held(contract, frames, on)])
    say(text)
    return 0


def _propose(frames: Mapping[str, pd.DataFrame], on: Any, path: Path) -> None:
    """Write a contract that a person has to read."""
    contract, reasons = propose(frames, on)
    text = contract_to_toml(contract, proposal_text(reasons))
    if path.exists() and path.read_bytes() != text.encode():  # a table, or corrected by hand
        raise ParameterError(
            f"--write-contract: {path} is there already, and says something else. Fix: give it "
            "as --contract (in a study: contract = FILE), move it away, or name another file"
        )
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


def describe_model(path: Path, *, numbers: bool) -> str:
    """Describe a saved model or half; with `numbers`, all of its numbers and their sources."""
    model = load(path)
    if not isinstance(model, BaseSynthesizer | PartyModel):
        raise ArtefactError(f"{path} is a saved {type(model).__name__}, which draws no records")
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    lines = [f"{type(model).__name__}, {size_text(size)}: {path}"]
    if isinstance(model, PartyModel):
        lines += _half_lines(model)
    else:
        version = artefacts.read_json(path / "synthesizer.json")["version"]
        lines[0] += f" (saved by vflsynth {version})"
        lines += _model_lines(model)
    if numbers:
        rows = [asdict(own) | {"source": str(own.source)} for own in number_sources(path)]
        lines += ["", "numbers in its files, and where they come from:", table(rows)]
    return "\n".join(lines)


def _model_lines(model: BaseSynthesizer) -> list[str]:
    ended, matched = "; interrupted" if model.interrupted_ else "", model.alignment_
    records = "records: their number is private and not in the model"
    if matched is not None:
        dropped = ", ".join(f"{party} {n:,}" for party, n in matched.n_dropped.items())
        records = f"records: {matched.n_matched:,} matched by {matched.matched_by}"
        records += f"; dropped: {dropped}"
    lines = [records, f"training: {training_sentence(model.history_)}, on {model.device_}{ended}"]
    settings = [
        f"{name}={json.dumps(value)}"
        for name, value in model.settings_.items()
        if (name, value) != ("contract", Contract().digest)  # which says nothing: none was given
    ]
    if settings:
        lines.append(f"settings: {', '.join(settings)}")
    for half in model.parties_.values():
        lines += _half_lines(half)
    if model.privacy_ledger_ is not None:
        lines += ["", str(model.privacy_ledger_)]
    if model.transcript_ is None:
        return [*lines, "", "What crossed each boundary was not counted; 'fit --transcript' does."]
    names = {"sender": "from", "receiver": "to", "bytes": "size"}
    crossed = model.transcript_.rename(columns=names)
    crossed["size"] = crossed["size"].map(size_text)
    rows: Any = crossed.to_dict("records")
    return [*lines, "", "what crossed each boundary during training:", table(rows)]


def _half_lines(half: PartyModel) -> list[str]:
    transformer = half.transformer
    found: list[tuple[Any, Any, str, int]] = [
        (label, column.dtype_, column.declared_kind, column.width_)
        for label, column in transformer.transformers_.items()
    ]
    for step in () if half.preparation is None else half.preparation.steps:
        if step.is_left_out:
            found.append((step.column, step.dtype, f"from {', '.join(map(str, step.by))}", 0))
    columns = [
        {"column": str(label), "dtype": str(dtype), "kind": kind, "encoded": width}
        for label, dtype, kind, width in found
    ]
    n_parameters = sum(tensor.numel() for tensor in half.sampler.tensors().values())
    return [
        "",
        f"party {half.name}: {len(columns)} columns, {transformer.width_} encoded; "
        f"{n_parameters:,} parameters; key: {'the index' if half.on is None else half.on}",
        table(columns),
    ]


# tables


def describe_tables(frames: Mapping[str, pd.DataFrame], on: Any) -> str:
    """Describe tables as `fit` would see them."""
    lines: list[str] = []
    for party, frame in frames.items():
        lines += [*_table_lines(party, frame, key_of(on, party)), ""]
    if on is not None:
        alignment = align_party_frames(frames, on=on, allow_empty_columns=True)[2]
        lines.append(str(alignment))
        least = Contract().fewest_records
        if alignment.n_matched < least:
            lines.append(
                f"They are too few to fit without privacy: fewer than {least}, unless a contract "
                "sets least_records"
            )
    return "\n".join(lines).rstrip("\n")


def _table_lines(party: str, frame: pd.DataFrame, key: Any) -> list[str]:
    columns = [_described(frame, label, key) for label in frame.columns]
    fixes: dict[str, list[str]] = {}
    for column in columns:
        if (fix := column.pop("fix")) is not None:
            fixes.setdefault(fix, []).append(column["column"])
    if not fixes:
        columns = [{k: v for k, v in column.items() if k != "problem"} for column in columns]
    encoded = sum(column["encoded"] or 0 for column in columns)
    relations = relations_of(frame[[label for label in frame.columns if label != key]])
    return [
        f"{party}: {len(frame):,} rows, {len(columns)} columns, {encoded} encoded",
        table(columns),
        *(f"  Fix of {', '.join(map(repr, labels))}: {fix}" for fix, labels in fixes.items()),
        *(f"  {relation}" for relation in relations),
    ]


def _described(frame: pd.DataFrame, label: Any, key: Any) -> dict[str, Any]:
    column = frame[label]
    missing = int(column.isna().sum()) / max(1, len(frame))
    described: dict[str, Any] = {
        "column": str(label),
        "dtype": str(column.dtype),
        "kind": "key",
        "encoded": None,
        "distinct": None,
        "missing": f"{100 * missing:.3g}%" if missing else "",
        "problem": None,
        "fix": None,
    }
    with suppress(TypeError):  # lists, and other cells that cannot be counted
        described["distinct"] = int(column.nunique())
    if label == key:
        return described
    try:
        transformer = TableTransformer().fit(frame[[label]])
    except PartyDataError as error:
        return described | {"kind": None, "problem": error.problem, "fix": error.fix}
    return described | {"kind": transformer.kinds_[label], "encoded": transformer.width_}
