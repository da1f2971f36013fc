"""Tables named on the command line: ``lab=lab.csv``."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth.cli.options import Option
from vflsynth.exceptions import ParameterError, PartyNameError, did_you_mean
from vflsynth.frames import MatchOn, key_of, read_table
from vflsynth.frames.keys import STEPS
from vflsynth.frames.typed import Unreadable

logger = logging.getLogger("vflsynth")


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
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form PARTY=FILE")
        return cls(name, Path(path))


def by_party(files: Iterable[PartyFile]) -> dict[str, Path]:
    """Return the paths of all parties' tables; no two parties have the same name."""
    paths: dict[str, Path] = {}
    for file in files:
        if file.party in paths:
            raise PartyNameError(
                "two tables belong to parties of this name",
                fix="give each its own, with PARTY=FILE",
                party=file.party,
            )
        paths[file.party] = file.path
    return paths


def read_party_frames(
    paths: Mapping[str, Path], dtypes: Mapping[Hashable, Any] | None = None
) -> dict[str, pd.DataFrame]:
    """Read the tables of all parties, with the types that were stated for a private fit."""
    return {party: read(path, party, dtypes, "missing") for party, path in paths.items()}


def read(
    path: Path,
    party: str | None = None,
    dtypes: Mapping[Hashable, Any] | None = None,
    unreadable: Unreadable = "refused",
) -> pd.DataFrame:
    """Read one table and say so."""
    frame = read_table(path, party=party, dtypes=dtypes, unreadable=unreadable)
    logger.info("read %s: %s rows, %s columns", path, f"{len(frame):,}", len(frame.columns))
    return frame


def texts_of(dtypes: Mapping[Hashable, Any]) -> dict[Hashable, str]:
    """Say which columns `read` must read as text from a file without types, for 007 is no 7.

    The dtypes are those of a model, or of another table with these columns.
    """
    cells = {
        column: dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
        for column, dtype in dtypes.items()
    }
    return {
        column: "str"
        for column, dtype in cells.items()
        if pd.api.types.is_string_dtype(dtype) or pd.api.types.is_object_dtype(dtype)
    }


def label(frames: Iterable[Any], text: str) -> Hashable:
    """Find the column that a text on the command line means: labels may be integers.

    Where no table has such a column it is the text itself, for an error to name.
    """
    labels: list[Hashable] = [name for frame in frames for name in frame.columns]
    return text if text in labels else next((name for name in labels if str(name) == text), text)


def check_target(
    frames: Mapping[str, Any], on: str | Mapping[str, str] | None, target: str | None
) -> str | None:
    """Return a column to predict; ParameterError if no table has it, or it is a key."""
    keys = {party: key_of(on, party) for party in frames}
    owned = ((party, str(name)) for party, frame in frames.items() for name in frame.columns)
    names = [name for party, name in owned if name != keys[party]]
    if target and target not in names:
        raise ParameterError(
            f"no table has a column {target!r} to predict; there are {', '.join(names)}"
            + did_you_mean(target, names)
        )
    return target


TABLES = Option(
    "tables PARTY=FILE",
    "a party's table; FILE alone names the party after the file",
    nargs="*",
    type=PartyFile.parse,
)

KEY = [
    Option(
        "--on COLUMN*",
        "key column in every table, or PARTY=COLUMN, once for each; without it, row i is the same "
        "record everywhere",
        default=None,
    ),
    Option("--key-form WORDS", f"form in which keys are compared, some of: {' '.join(STEPS)}"),
]


def on_of(texts: Sequence[str] | None) -> str | dict[str, str] | None:
    """Read ``--on``.

    Raises ParameterError if there are several that do not say whose they are, or two of a party.
    """
    if texts is None or (len(texts) == 1 and "=" not in texts[0]):
        return None if texts is None else texts[0]
    pairs = [text.partition("=") for text in texts]
    columns = {party: column for party, sign, column in pairs if party and sign and column}
    if len(columns) < len(pairs):
        raise ParameterError(
            f"--on {' '.join(texts)} must be COLUMN, or PARTY=COLUMN, once for each"
        )
    return columns


def match_on(
    frames: Mapping[str, pd.DataFrame], on: str | Mapping[str, str] | None, form: str | None
) -> Any:
    """Return what `fit` takes as `on`, with columns as the tables have them: labels may be numbers.

    `on` is of `on_of`, or of a file.
    """
    columns: Any
    if isinstance(on, Mapping):
        columns = {
            party: label([frames[party]] if party in frames else [], column)
            for party, column in on.items()
        }
    else:
        columns = None if on is None else label(frames.values(), on)
    return MatchOn(columns, form) if form else columns
