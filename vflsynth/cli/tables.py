"""Tables named on the command line: ``lab=lab.csv``."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth.exceptions import PartyNameError
from vflsynth.frames import read_table

logger = logging.getLogger("vflsynth")

PARTY_FILES = "PARTY=FILE"
"""How help texts write a `PartyFile`."""


@dataclass(frozen=True, slots=True)
class PartyFile:
    """A party's name and where its table is.

    Examples
    --------
    >>> PartyFile.parse("lab=data/measurements.csv").party
    'lab'
    >>> PartyFile.parse("data/clinic.parquet").party
    'clinic'
    """

    party: str
    path: Path

    @classmethod
    def parse(cls, text: str) -> PartyFile:
        """Split at the first ``=``; a path alone names the party after the file."""
        name, separator, path = text.partition("=")
        if not separator or "/" in name or "\\" in name:
            name, path = Path(text).name.split(".")[0], text
        if not name or not path:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {PARTY_FILES}")
        return cls(name, Path(path))


def by_party(files: Iterable[PartyFile]) -> dict[str, Path]:
    """Return the paths of all parties' tables; no two parties have the same name."""
    paths: dict[str, Path] = {}
    for file in files:
        if file.party in paths:
            raise PartyNameError(
                "two tables belong to parties of this name",
                fix=f"give each its own, with {PARTY_FILES}",
                party=file.party,
            )
        paths[file.party] = file.path
    return paths


def read_party_frames(
    paths: Mapping[str, Path], dtypes: Mapping[Hashable, Any] | None = None
) -> dict[str, pd.DataFrame]:
    """Read the tables of all parties, with the types that were stated for a private fit."""
    return {party: read(path, party, dtypes) for party, path in paths.items()}


def read(
    path: Path, party: str | None = None, dtypes: Mapping[Hashable, Any] | None = None
) -> pd.DataFrame:
    """Read one table and say so."""
    frame = read_table(path, party=party, dtypes=dtypes)
    logger.info("read %s: %s rows, %s columns", path, f"{len(frame):,}", len(frame.columns))
    return frame


def label(frames: Iterable[pd.DataFrame], text: str) -> Hashable:
    """Find the column that a text on the command line means: labels may be integers.

    Where no table has such a column it is the text itself, for an error to name.
    """
    labels: list[Hashable] = [name for frame in frames for name in frame.columns]
    return text if text in labels else next((name for name in labels if str(name) == text), text)


def key_label(frames: Iterable[pd.DataFrame], text: str | None) -> Hashable:
    """Find the key column; None, for the index, if none was named."""
    return None if text is None else label(frames, text)
