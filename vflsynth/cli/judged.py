"""The tables that are held against each other: real ones of all parties, and a synthetic one."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth.cli.options import Option
from vflsynth.cli.tables import (
    KEY,
    PartyFile,
    by_party,
    label,
    match_on,
    on_of,
    read,
    read_party_frames,
    texts_of,
)
from vflsynth.contract import Contract, read_contract
from vflsynth.evaluation import RuleCost, RuleViolations, TableMetric
from vflsynth.exceptions import ParameterError, PartyDataError
from vflsynth.frames import MatchOn, StoredTable, align_party_frames, stored_table
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.release import promised_rules

logger = logging.getLogger("vflsynth")

_MOST_DRAWN = 5_000
"""Rows that are drawn to see what rules cost."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is compared with what.

    `frames` are the real tables as they were read, with their key columns `on`. `real` has the rows
    of all parties side by side, `synthetic` the table as it was read, and `parties` says who owns
    which column. `holdout` are real rows that the model was not fitted on, side by side. Tables on
    disk are `StoredTable`, and there are no `frames`.
    """

    frames: dict[str, pd.DataFrame]
    on: Any
    real: Any
    synthetic: Any
    parties: dict[str, list[Any]]
    holdout: Any
    target: Hashable
    categorical: list[Hashable]


READER = Option(
    "--reader NAME",
    "who the report is for: one of those whom the contract lets see it, if it says so",
)


def check_reader(contract: Contract | None, report: str, reader: str | None) -> None:
    """Check who a report is for, before anything is computed for it."""
    if contract is not None:
        contract.check_reader(report, reader)
    elif reader is not None:
        raise ParameterError("--reader is looked up in a contract, and there is none")


def read_judged_contract(
    options: argparse.Namespace, judged: Judged, model: BaseSynthesizer | None, report: str
) -> Contract | None:
    """Read the contract that --contract names, by default the model's, and check it."""
    contract = None if model is None else model.contract
    if options.contract is not None:
        contract = read_contract(options.contract, lambda text: label([judged.real], text))
        contract.check(judged.parties)
    check_reader(contract, report, options.reader)
    return contract


def rule_metrics(
    model: BaseSynthesizer | None, contract: Contract | None, real: pd.DataFrame, n: int
) -> list[TableMetric]:
    """Return what measures a contract's rules, and in `n` rows of a model what they cost."""
    if contract is None or not (rules := promised_rules(model, contract, real)):
        return []
    found: list[TableMetric] = [RuleViolations(rules)]
    if model is not None and (own := model.rules()):
        found.append(RuleCost(own, model.sample_before_rules(min(n, _MOST_DRAWN))))
    return found


REAL = Option(
    "--real PARTY=FILE...",
    "the tables that the model was fitted on",
    required=True,
    type=PartyFile.parse,
)


def judged(synthetic: str) -> list[Option]:
    """Return the options that name the tables; `synthetic` says what that table is for."""
    return [
        REAL,
        Option("--synthetic FILE", synthetic, required=True),
        *KEY,
        Option(
            "--holdout PARTY=FILE...",
            "the parties' tables of records that the model was not fitted on: models are then "
            "tested on these, and copies of training rows can be told from chance",
            type=PartyFile.parse,
        ),
        Option("--target COLUMN", "column to predict, for utility (TSTR against TRTR)"),
        Option("--categorical COLUMN...", "numeric columns to read as labels, such as codes"),
    ]


def read_judged(options: argparse.Namespace, *, in_batches: bool = False) -> Judged:
    """Read the tables that the options of `judged` name.

    If they may be judged `in_batches` they are, where one of them is a folder: then they are copied
    to disk, column by column.
    """
    named = [*options.real, *options.holdout]
    paths = [*(file.path for file in named), options.synthetic]
    frames: dict[str, pd.DataFrame] = {}
    on: Any
    real: Any
    synthetic: Any
    holdout: Any = None
    if in_batches and any(path.is_dir() for path in paths):
        on = MatchOn(on_of(options.on), options.key_form or "")
        real, alignment = stored_table(by_party(options.real), on)
        logger.info("%s", alignment)
        parties, synthetic = real.parties, _stored_like(real, options.synthetic)
        if options.holdout:
            holdout, _ = stored_table(by_party(options.holdout), on)
    else:
        frames = read_party_frames(by_party(options.real))
        on = match_on(frames, on_of(options.on), options.key_form)
        real, parties, keys = _side_by_side(frames, on)
        texts = texts_of(real.dtypes.to_dict())
        synthetic = read(options.synthetic, dtypes=texts)
        if options.holdout:
            holdout = _held_out(by_party(options.holdout), on, keys, texts)
    target = None if options.target is None else label([real], options.target)
    categorical = [label([real], name) for name in options.categorical]
    return Judged(frames, on, real, synthetic, parties, holdout, target, categorical)


def _stored_like(real: StoredTable, path: Path) -> StoredTable:
    """Put a synthetic table on disk, text as in the real one where its file has no types."""
    if path.is_dir():
        return stored_table({"synthetic": path})[0]
    (first,) = real.batches([0])
    table = read(path, dtypes=texts_of(first.dtypes.to_dict()))
    return StoredTable(table[[label]] for label in table)


def _side_by_side(
    frames: Mapping[str, pd.DataFrame], on: Any
) -> tuple[pd.DataFrame, dict[str, list[Any]], pd.Index]:
    """Join the parties' records, say who owns which column, and return the records' keys."""
    aligned, keys, alignment = align_party_frames(frames, on=on, allow_empty_columns=True)
    logger.info("%s", alignment)
    owned = {party: list(frame.columns) for party, frame in aligned.items()}
    return pd.concat(list(aligned.values()), axis="columns"), owned, keys


def check_held_out(frames: Mapping[str, Any], on: Any, paths: Mapping[str, Path]) -> None:
    """Check what `read_judged` does of tables of records that are held out, before a training."""
    real, _, keys = _side_by_side(frames, on)
    _held_out(paths, on, keys, texts_of(real.dtypes.to_dict()))


def _held_out(
    paths: Mapping[str, Path], on: Any, keys: pd.Index, texts: Mapping[Hashable, str]
) -> pd.DataFrame:
    """Read records that are held out; PartyDataError if one was trained on.

    That would make copies look like chance.
    """
    frames = read_party_frames(paths, texts)
    held_out, _, others = _side_by_side(frames, on)
    if on is not None and (n := int(others.isin(keys).sum())):
        raise PartyDataError(
            f"{n:,} of the {len(others):,} records of --holdout are in the tables of --real, too",
            fix="give each record to one of them: what is held out, no model was fitted on",
        )
    return held_out
