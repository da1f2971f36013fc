"""Tables larger than memory: records that all parties have, drawn from files batch by batch.

A file is passed over twice. The first pass reads the key column and nothing else; keys are matched,
and so many of the common ones are drawn, uniformly. The second pass keeps the rows that were drawn.
What is in memory at a time is the keys, a batch, and the rows kept so far.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from vflsynth._random import RandomState, derive, secret_from
from vflsynth._validation import Number, check_parameters
from vflsynth.exceptions import MissingKeyError, TableFileError
from vflsynth.frames.alignment import (
    AlignmentReport,
    align_keys,
    only_counts_rows,
    positions,
)
from vflsynth.frames.io import (
    CsvStyle,
    csv_options,
    kind_of_file,
    naming_file,
    read_csv,
    restored,
)
from vflsynth.frames.keys import KeyMinter, MatchOn, in_form, learn_key_minters
from vflsynth.frames.logical import check_names, frame_of
from vflsynth.frames.party_frames import check_keys
from vflsynth.frames.sources import read_description

_BATCH = 1 << 16
"""Rows of a batch."""

_MOST_COMPARED = 1 << 20
"""Keys up to which other ways of writing them are tried, which takes sets of all of them."""

Rows = npt.NDArray[np.int64]


class DrawnRecords(dict[str, pd.DataFrame]):
    """Rows of every party's table that were drawn, to be fitted on.

    Attributes
    ----------
    alignment : AlignmentReport
        How the whole tables match.
    minters : dict of str to KeyMinter
        They know the largest key of the whole tables.
    """

    def __init__(
        self,
        frames: Mapping[str, pd.DataFrame],
        alignment: AlignmentReport,
        minters: Mapping[str, KeyMinter],
    ) -> None:
        super().__init__(frames)
        self.alignment, self.minters = alignment, dict(minters)


def read_records(
    files: Mapping[str, str | os.PathLike[str]],
    on: Any = None,
    *,
    max_records: int,
    random_state: RandomState = None,
) -> DrawnRecords:
    """Draw records that all parties have, from files that need not fit into memory.

    Parameters
    ----------
    files : mapping of party name to path
        csv, parquet, a folder of parquet files, Arrow; or a TOML file that names one of these.
    on : hashable, mapping of party name to hashable, or MatchOn, optional
        As in `fit`. Default: row i is the same record everywhere.
    max_records : int
        Matched records to be drawn; all of them if they are fewer.
    random_state : int, numpy Generator, RandomState or None, default=None
        Decides which.

    Returns
    -------
    DrawnRecords
        A mapping of party name to DataFrame, for `fit`, which then reports how the whole tables
        match, and mints keys that are in none of them.

    Raises
    ------
    ParameterError
        If `max_records` is not a whole number ≥ 1.
    TableFileError
        If a file cannot be read in batches.
    MissingKeyError, KeyTypeError, DuplicateKeyError, NoOverlapError
        As in `fit`.

    Notes
    -----
    Every matched record is as likely as any other to be drawn. Whoever knows all common keys, as
    one process does, draws of them alone: which rows are drawn depends on no other column. Types
    of csv columns, categories and quantiles are those of the drawn rows: the share of a category,
    or below a quantile, is known to within 0.001 (two standard errors) of a million of them.

    A fit with `privacy` refuses drawn records: of a fixed number of them, one record more or less
    in a table changes two, and no ledger here counts so.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(1_000, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     files = {name: Path(folder, f"{name}.parquet") for name in frames}
    ...     for name, path in files.items():
    ...         frames[name].to_parquet(path)
    ...     drawn = read_records(files, "record_id", max_records=100, random_state=0)
    >>> [len(frame) for frame in drawn.values()], drawn.alignment.n_drawn
    ([100, 100], 100)
    """
    check_parameters(
        "read_records", {"max_records": max_records}, {"max_records": Number(1, whole=True)}
    )
    asked = MatchOn.reading(on)
    stored = {party: _Stored.of(Path(path), party) for party, path in files.items()}
    columns = {party: asked.of(party) for party in stored}
    given = {party: table.keys(columns[party]) for party, table in stored.items()}
    for party, own in given.items():
        check_keys(party, own.to_frame(index=False), columns[party])
    keys = {party: in_form(own, asked.form) for party, own in given.items()}
    few = max(map(len, keys.values())) <= _MOST_COMPARED
    common, alignment = align_keys(keys, str(asked), compare=few)
    if len(common) > max_records:
        seed = int.from_bytes(derive(secret_from(random_state), "drawn records"))
        chosen = np.random.default_rng(seed).choice(len(common), max_records, replace=False)
        common = common[np.sort(chosen)]
    minters = learn_key_minters(keys)
    frames = {}
    for party, table in stored.items():
        rows = np.sort(positions(keys.pop(party), common)).astype(np.int64)
        own = given.pop(party)
        frame = frames[party] = table.read(rows, len(own))
        if columns[party] is not None:  # typed as all keys are
            frame[table.label(columns[party])] = own.take(rows).array
    return DrawnRecords(frames, replace(alignment, n_drawn=len(common)), minters)


@dataclass(frozen=True)
class _Stored:
    """One party's table in a file, or in several."""

    path: Path
    party: str
    kind: str
    style: CsvStyle

    @classmethod
    def of(cls, path: Path, party: str) -> _Stored:
        """Find out what a path is; refuse what comes in one piece."""
        style, kind = CsvStyle(), kind_of_file(path, party)
        if kind == ".toml":
            said = read_description(path, party)
            if said.file is None or said.one_row_per:
                raise _in_one_piece(path, party, "it is a query, or a summary of several rows")
            path, options = path.parent / said.file, said.options
            kind = kind_of_file(path, party)
            if "sheet" not in options:
                style = CsvStyle(**options)
        if kind == ".xlsx":
            raise _in_one_piece(path, party, "it is an Excel file")
        return cls(path, party, kind, style)

    @cached_property
    def empty(self) -> pd.DataFrame:
        """The table without its rows; of a csv file, without types too."""
        with naming_file(self.path, self.kind, self.party):
            if not self._is_csv:
                return restored(self._dataset.schema.empty_table(), self.party)
            names = self._opened().schema.names
        check_names(names, self.party)
        return pd.DataFrame(columns=names)

    def label(self, on: Any) -> Any:
        """Return the column that a label, or its text, means; MissingKeyError if there is none."""
        named = [label for label in self.empty if label == on or str(label) == on]
        if not named:
            check_keys(self.party, self.empty, on)
        return named[0]

    def keys(self, on: Any) -> pd.Index:
        """Read the key column and nothing else; without one, count the rows."""
        label = self.empty.columns[0] if on is None else self.label(on)
        with naming_file(self.path, self.kind, self.party):
            if self._is_csv:
                read: Any = read_csv(
                    self.path, self.party, self.style, {}, "refused", only=str(label)
                )
                return pd.RangeIndex(len(read)) if on is None else pd.Index(read[label])
            if on is None:
                return pd.RangeIndex(self._count())
            table = self._dataset.to_table(columns=[str(label)]).replace_schema_metadata(None)
            keys: pd.Index = pd.Index(frame_of(table, self.party).iloc[:, 0], name=label)
        dtype: Any = self.empty[label].dtype
        if not isinstance(dtype, pd.CategoricalDtype):
            keys = keys.astype(dtype)
        return keys

    def read(self, rows: Rows, n_rows: int) -> pd.DataFrame:
        """Return some rows, whose positions are sorted, of a table of so many."""
        kept, start = [], 0
        with naming_file(self.path, self.kind, self.party):
            for batch in self._batches():
                first, last = np.searchsorted(rows, [start, start + batch.num_rows])
                if last > first:
                    kept.append(batch.take(pa.array(rows[first:last] - start)))
                start += batch.num_rows
            if start == n_rows:
                table = pa.Table.from_batches(kept)
                return (
                    self._with_types(table, rows) if self._is_csv else restored(table, self.party)
                )
        raise TableFileError(
            f"{str(self.path)!r} had {n_rows:,} rows when its keys were read, and has {start:,}",
            fix="read it while nobody writes it",
            party=self.party,
        )

    @property
    def _is_csv(self) -> bool:
        return self.kind.startswith(".csv")

    @cached_property
    def _dataset(self) -> Any:
        kind = "parquet" if self.kind == ".parquet" else "ipc"
        return pa.dataset.dataset(self.path, format=kind)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; those of csv files as text."""
        if self._is_csv:
            yield from self._opened(self.empty.columns)
        else:
            ahead = {"batch_readahead": 2, "fragment_readahead": 1}
            yield from self._dataset.to_batches(batch_size=_BATCH, **ahead)

    def _opened(self, texts: Iterable[str] = ()) -> Any:
        read, parse, convert = csv_options(self.path, self.style, self.party)
        convert.column_types = dict.fromkeys(texts, pa.string())
        return pa.csv.open_csv(self.path, read, parse, convert)

    def _with_types(self, table: pa.Table, rows: Rows) -> pd.DataFrame:
        """Read text once more, by the rules for csv files."""
        sink = pa.BufferOutputStream()
        pa.csv.write_csv(table, sink, pa.csv.WriteOptions(quoting_style="all_valid"))
        lines = sink.getvalue(), rows.tolist()
        return read_csv(self.path, self.party, self.style, {}, "refused", lines=lines)

    def _count(self) -> int:
        """Count the rows of a table that has no index."""
        if not only_counts_rows(self.empty.index):
            raise MissingKeyError(
                "the table has an index, which may be its key",
                fix="write it with reset_index(), and name the key column with on=...",
                party=self.party,
                column=self.empty.index.name,
            )
        n_rows: int = self._dataset.count_rows()
        return n_rows


def _in_one_piece(path: Path, party: str, why: str) -> TableFileError:
    return TableFileError(
        f"{str(path)!r} cannot be read in batches: {why}",
        fix="write it as parquet, or fit on all of it, without max_records",
        party=party,
    )
