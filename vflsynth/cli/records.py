"""Models that commands open, and the records that they draw from them."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow.parquet import read_schema

from vflsynth.cli.console import say
from vflsynth.columns.wanted import Domain
from vflsynth.exceptions import ArtefactError, ParameterError
from vflsynth.frames import write_table
from vflsynth.frames.io import suffix_of
from vflsynth.loading import load
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.models import PartyModel

logger = logging.getLogger("vflsynth")


def write_or_print(table: pd.DataFrame, path: Path | None) -> None:
    """Write records to a file, or to standard output the bytes that a csv file would hold."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            logger.info("replacing %s", path)
        write_table(table, path)
        say(f"{path}: {len(table):,} rows, {len(table.columns)} columns")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sample.csv"
        write_table(table, file)
        sys.stdout.flush()
        with file.open("rb") as written:
            shutil.copyfileobj(written, sys.stdout.buffer)


def check_replaced(path: Path | None, columns: Iterable[Any]) -> None:
    """Refuse to replace a file without these columns: it was not drawn, but is somebody's table."""
    if path is None or not path.is_file() or not path.stat().st_size:
        return
    try:
        is_parquet = suffix_of(path) == ".parquet"
        there = {*(read_schema(path).names if is_parquet else pd.read_csv(path, nrows=0))}
    except (ValueError, OSError):
        there = set()
    if not there.issuperset(map(str, columns)):
        raise ParameterError(
            f"--output: {path} is there already, and lacks columns of the model, so it was not "
            "drawn from it. Fix: move it away, or name another file"
        )


def say_rule_cost(model: BaseSynthesizer) -> None:
    """Say what the rules of a contract cost, if there are any."""
    if (cost := model.rule_cost()) is not None:
        logger.info("%s", cost)


def say_uncovered(model: BaseSynthesizer | None) -> None:
    """Warn that what is measured of real records is none of what a private model's ε covers."""
    ledger = None if model is None else model.privacy_ledger_
    if ledger is not None and ledger.covers_synthetic_data:
        logger.warning(
            "all that this measures is computed from real records, and the model's ε pays for "
            "handing none of it out"
        )


def open_model(path: Path) -> BaseSynthesizer:
    """Load a saved synthesizer, onto a GPU if there is one."""
    found = load(path)
    if isinstance(found, BaseSynthesizer):
        return found
    if isinstance(found, PartyModel):
        raise ParameterError(
            f"{path} is one party's half, and this needs the whole model. Fix: name that; parts of "
            "a sample draws 'vflsynth parties sample'"
        )
    raise ArtefactError(f"{path} is a saved {type(found).__name__}, which draws no records")


def domains_of(model: BaseSynthesizer) -> dict[Any, Domain]:
    """Return what all parties' columns can be."""
    return {
        column: domain
        for half in model.parties_.values()
        for column, domain in half.domains.items()
    }
