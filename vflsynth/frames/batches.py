"""Tables larger than memory: records that all parties have, drawn from files batch by batch.

A file is passed over twice. The first pass reads the key column and nothing else; keys are matched,
and so many of the common ones are drawn, uniformly. The second pass keeps the rows that were drawn.
What is in memory at a time is the keys, a batch, and the rows kept so far.

Who needs all matched records, to judge a table by them, has them side by side in files of one
column each.
"""

from __future__ import annotations

import json
import os
import shutil
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from vflsynth._random import RandomState, derive, secret_from
from vflsynth.codec import check_names
from vflsynth.exceptions import MissingKeyError, TableFileError
from vflsynth.frames.io import (
    CsvStyle,
    check_closed,
    csv_options,
    kind_of_file,
    naming_file,
    read_csv,
    restored,
    with_dtypes,
)
from vflsynth.frames.keys import (
    AlignmentReport,
    KeyMinter,
    MatchOn,
    align_keys,
    check_no_repeated_key,
    in_form,
    learn_key_minters,
    only_counts_rows,
    positions,
)
from vflsynth.frames.party_frames import check_keys, check_owners
from vflsynth.frames.sources import Description, read_description, spool_query
from vflsynth.registry import Number, check_parameters

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
        csv, parquet, a folder of parquet files, Arrow; or a TOML file that names one of these, or
        a query and an ADBC driver, whose answer is kept in a temporary file.
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
    matched = _Matched.of(files, on)
    common, keys = matched.common, matched.keys
    if len(common) > max_records:
        seed = int.from_bytes(derive(secret_from(random_state), "drawn records"))
        chosen = np.random.default_rng(seed).choice(len(common), max_records, replace=False)
        common = common[np.sort(chosen)]
    minters = learn_key_minters(keys)
    frames = {}
    for party, table in matched.tables.items():
        rows = np.sort(positions(keys.pop(party), common)).astype(np.int64)
        own, label = matched.given.pop(party), matched.labels[party]
        frame = frames[party] = table.read(rows, len(own))
        if label is not None:  # typed as all keys are
            frame[label] = own.take(rows).array
    return DrawnRecords(frames, replace(matched.alignment, n_drawn=len(common)), minters)


def read_lowest(
    path: str | os.PathLike[str],
    party: str,
    on: Any,
    *,
    max_records: int,
    rank: Callable[[Any], int],
) -> tuple[pd.DataFrame, pd.Index]:
    """Read the rows of one party whose keys have the lowest ranks, of a file of any size.

    Of parties that rank alike, each by itself, what all keep is a uniform sample of what all have:
    the common records below the lowest of their limits. There must be a key column; the rank of a
    key in the form in which keys are compared is a number below 2**64, as good as random. Returns
    the rows in their order, and the keys of the whole table in the form compared.
    """
    asked = MatchOn.reading(on)
    table = _Stored.of(Path(path), party)
    label = table.label(asked.of(party))
    given = table.keys(label)
    check_keys(party, given.to_frame(index=False), label)
    keys = in_form(given, asked.form)
    check_no_repeated_key(party, keys)
    rows: Rows = np.arange(len(keys))
    if len(keys) > max_records:
        ranks = np.fromiter(map(rank, keys), np.uint64, len(keys))
        rows = np.sort(np.argpartition(ranks, max_records)[:max_records])
    frame = table.read(rows, len(keys))
    frame[label] = given.take(rows).array
    return frame, keys


class StoredTable:
    """A table on disk: a column, a batch of rows, or some rows are in memory at a time.

    `len()` of it is its number of rows, ``table[label]`` a column.

    Parameters
    ----------
    columns : iterable of DataFrame
        Its columns, each alone and with all rows. They are copied into a temporary folder, which
        goes with the object.
    parties : mapping of party name to column labels, default={}
        Who owns what, if several parties' columns are side by side.

    Attributes
    ----------
    columns : pandas.Index
        Labels of the columns.
    """

    def __init__(
        self, columns: Iterable[pd.DataFrame], parties: Mapping[str, list[Hashable]] | None = None
    ) -> None:
        self.parties = dict(parties or {})
        folder = mkdtemp(prefix="vflsynth-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._files: dict[Hashable, Path] = {}
        self._n_rows, self._last = 0, pd.DataFrame()
        for column in columns:
            path = Path(folder, f"{len(self._files)}.arrow")
            table = with_dtypes(column)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                for start in range(0, len(table), _BATCH):  # else by the chunks that it has
                    out.write_table(table.slice(start, _BATCH).combine_chunks())
            self._files[column.columns[0]], self._n_rows = path, len(column)
        self.columns = pd.Index(list(self._files), tupleize_cols=False)

    def __len__(self) -> int:
        return self._n_rows

    def __getitem__(self, label: Hashable) -> pd.Series[Any]:
        if label not in self._last:
            with pa.OSFile(str(self._files[label])) as file:
                self._last = restored(pa.ipc.open_file(file).read_all(), None)
        return self._last[label]

    def batches(self, which: Iterable[int] | None = None) -> Iterator[pd.DataFrame]:
        """Yield batches of all columns, the last one perhaps shorter; by default all of them."""
        with ExitStack() as files:
            opened = [files.enter_context(pa.OSFile(str(p))) for p in self._files.values()]
            readers = [pa.ipc.open_file(file) for file in opened]
            for i in range(-(-self._n_rows // _BATCH)) if which is None else which:
                tables = [pa.Table.from_batches([reader.get_batch(i)]) for reader in readers]
                yield pd.concat([restored(table, None) for table in tables], axis="columns")

    def take(self, rows: npt.NDArray[Any]) -> pd.DataFrame:
        """Return some rows by their positions, which are sorted."""
        which, starts = np.unique(rows // _BATCH, return_index=True)
        parts = [
            batch.take(own % _BATCH)
            for batch, own in zip(self.batches(which.tolist()), np.split(rows, starts[1:]))
        ]
        return pd.concat(parts, ignore_index=True)


def stored_table(
    files: Mapping[str, str | os.PathLike[str]], on: Any = None
) -> tuple[StoredTable, AlignmentReport]:
    """Put the matched records of all parties side by side on disk, to judge tables by them.

    This joins what parties have, in one process. Key columns are left out.

    Parameters
    ----------
    files : mapping of party name to path
        As of `read_records`. The table may be of one party.
    on : hashable, mapping of party name to hashable, or MatchOn, optional
        As in `fit`. Default: row i is the same record everywhere.

    Returns
    -------
    StoredTable, AlignmentReport
        Rows are in the order in which `fit` has them. Its `parties` say who owns what.

    Raises
    ------
    SharedColumnError
        If two parties have a column of the same name.
    TableFileError, MissingKeyError, KeyTypeError, DuplicateKeyError, NoOverlapError
        As of `read_records`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     pd.DataFrame({"age": [30, 41, 55]}).to_parquet(Path(folder, "clinic.parquet"))
    ...     table, _ = stored_table({"clinic": Path(folder, "clinic.parquet")})
    >>> len(table), int(table["age"].max()), table.parties
    (3, 55, {'clinic': ['age']})
    """
    matched = _Matched.of(files, on)
    empty = {party: table.empty for party, table in matched.tables.items()}
    check_owners(empty, matched.labels)
    parties: dict[str, list[Hashable]] = {
        party: [label for label in own if label != matched.labels[party]]
        for party, own in empty.items()
    }

    def columns() -> Iterator[pd.DataFrame]:
        for party, table in matched.tables.items():
            rows = positions(matched.keys.pop(party), matched.common)
            for label in parties[party]:
                yield table.column(label).take(rows).reset_index(drop=True)

    return StoredTable(columns(), parties), matched.alignment


@dataclass(frozen=True)
class _Matched:
    """Parties' tables in files whose keys were matched.

    Of every party: its table, the label of its key column (None for the order of rows), its keys as
    they were `given`, and the `keys` in the form in which they are compared.
    """

    tables: dict[str, _Stored]
    labels: dict[str, Any]
    given: dict[str, pd.Index]
    keys: dict[str, pd.Index]
    common: pd.Index
    alignment: AlignmentReport

    @classmethod
    def of(cls, files: Mapping[str, str | os.PathLike[str]], on: Any) -> _Matched:
        """Read the key columns and nothing else, and match them."""
        asked = MatchOn.reading(on)
        tables = {party: _Stored.of(Path(path), party) for party, path in files.items()}
        labels = {
            party: None if asked.of(party) is None else table.label(asked.of(party))
            for party, table in tables.items()
        }
        given = {party: table.keys(labels[party]) for party, table in tables.items()}
        for party, own in given.items():
            check_keys(party, own.to_frame(index=False), labels[party])
        keys = {party: in_form(own, asked.form) for party, own in given.items()}
        few = max(map(len, keys.values())) <= _MOST_COMPARED
        common, alignment = align_keys(keys, str(asked), compare=few)
        return cls(tables, labels, given, keys, common, alignment)


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
            if said.one_row_per:
                raise _in_one_piece(path, party, "it is a summary of several rows")
            if said.file is None:
                return cls._spooled(said, path, party)
            path, options = path.parent / said.file, said.options
            kind = kind_of_file(path, party)
            if "sheet" not in options:
                style = CsvStyle(**options)
        if kind == ".xlsx":
            raise _in_one_piece(path, party, "it is an Excel file")
        return cls(path, party, kind, style)

    @classmethod
    def _spooled(cls, said: Description, path: Path, party: str) -> _Stored:
        """Keep what a database answers in a file, as long as this object is there."""
        if not said.driver:
            raise _in_one_piece(path, party, "it is a query without an ADBC `driver`")
        folder = mkdtemp(prefix="vflsynth-")
        made = cls(Path(folder, "answer.arrow"), party, ".arrow", CsvStyle())
        weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
        spool_query(said, made.path, party)
        return made

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

    def keys(self, label: Any) -> pd.Index:
        """Read the key column and nothing else; without one, count the rows."""
        if label is not None:
            keys: pd.Index = pd.Index(self.column(label)[label])
            return keys
        if self._is_csv:
            return pd.RangeIndex(len(self.column(self.empty.columns[0])))
        if not only_counts_rows(self.empty.index):
            raise MissingKeyError(
                "the table has an index, which may be its key",
                fix="write it with reset_index(), and name the key column with on=...",
                party=self.party,
                column=self.empty.index.name,
            )
        with naming_file(self.path, self.kind, self.party):
            return pd.RangeIndex(self._dataset.count_rows())

    def column(self, label: Any) -> pd.DataFrame:
        """Read one column, in the types that the whole table is read in."""
        with naming_file(self.path, self.kind, self.party):
            if self._is_csv:
                return read_csv(self.path, self.party, self.style, {}, "refused", only=str(label))
            table = self._dataset.to_table(columns=[str(label)])
            kept = dict(table.schema.metadata or {})
            if b"pandas" in kept:
                kept[b"pandas"] = json.dumps(json.loads(kept[b"pandas"]) | {"index_columns": []})
            return restored(table.replace_schema_metadata(kept), self.party)

    def read(self, rows: Rows, n_rows: int) -> pd.DataFrame:
        """Return some rows, whose positions are sorted, of a table of so many."""
        kept, start = [], 0
        with naming_file(self.path, self.kind, self.party):
            for batch in self._batches():
                first, last = np.searchsorted(rows, [start, start + batch.num_rows])
                if last > first:
                    kept.append(batch.take(pa.array(rows[first:last] - start)))
                start += batch.num_rows
            if self._is_csv:
                check_closed(self.path, batch, start, self.party)
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


def _in_one_piece(path: Path, party: str, why: str) -> TableFileError:
    return TableFileError(
        f"{str(path)!r} cannot be read in batches: {why}",
        fix="write it as parquet, or fit on all of it, without max_records",
        party=party,
    )
