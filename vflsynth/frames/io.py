"""Tables in files: csv and parquet, through Arrow; Excel files and databases are read only.

Parquet keeps every dtype exactly. A csv file holds no dtypes, so reading one infers them, with a
few rules that protect keys and missing values; see `read_table`.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from vflsynth import _artefacts as artefacts
from vflsynth.codec import as_frame, check_names, dtype_from_json, dtype_to_json, frame_of
from vflsynth.exceptions import PartyDataError, PublishingWarning, TableFileError, warn_user
from vflsynth.frames.sources import read_description, read_excel, read_query
from vflsynth.frames.typed import Unreadable, with_types
from vflsynth.frames.written import with_values

_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_READ_ONLY = (".arrow", ".feather", ".xlsx", ".toml")
_TYPED = (".parquet", ".arrow", ".feather")
METADATA_KEY = b"vflsynth.dtypes"
_ARROW = {"arrow": "as stored"}
_SAID = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
_CODES = (
    (r"^[+-]?(0[0-9]+|[0-9]{19,})$", ""),
    (r"^[0-9]{2,}[eE][0-9]+$", r"^[0-9]+([eE][0-9]+)?$"),
)
"""What looks like a number and is a code: what some values look like, and all of them."""


def read_table(
    path: str | os.PathLike[str],
    party: str | None = None,
    *,
    separator: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    sheet: str | None = None,
    dtypes: Mapping[Any, Any] | None = None,
    unreadable: Unreadable = "refused",
) -> pd.DataFrame:
    """Read a table from a file.

    Parameters
    ----------
    path : path-like
        Ends in ``.csv``, ``.csv.gz``, ``.parquet``, ``.arrow``, ``.feather``, ``.xlsx``, or in
        ``.toml`` for a file that says where the table is, see `vflsynth.frames.sources`; or a
        folder of parquet files, such as `sample_to` writes.
    party : str, optional
        Whose table it is; error messages name it.
    separator : str, optional
        Of a csv file's fields, one character. Default: comma, semicolon, tab or ``|``, whichever is
        most frequent in the header line.
    decimal : str, default="."
        Decimal point of a csv file, one character.
    encoding : str, default="utf-8"
        Of a csv file's text, as Python calls it.
    sheet : str, optional
        Of an Excel file. Default: the first.
    dtypes : mapping of column to dtype, optional
        Types that were stated, of columns of files that have none (csv, Excel) and of answers of a
        database: their values are read one by one, whatever the others look like. Columns that the
        table has not got are ignored.
    unreadable : {"refused", "missing"}, default="refused"
        What becomes of values that are not of their stated types. A private run has them missing:
        whether there is one, a single record decides.

    Raises
    ------
    TableFileError
        If the file is absent, of an unknown kind, or malformed.
    ColumnKindError
        If a value is not of the type that was stated, unless it is to be missing.

    Notes
    -----
    All files are read in the types of `vflsynth.codec`. Parquet written by `write_table`
    comes back with the dtypes it had. From csv (UTF-8, a header line):

    - whole numbers become ``int64``, with missing values ``Int64``; true and false ``bool``, with
      missing values ``boolean``; ISO dates and times become datetimes;
    - empty fields and unquoted ``NA``, ``NaN``, ``null`` and the like are missing, quoted ones are
      text;
    - text that is a number with a decimal comma, or a date with the day or the month first, in
      every row and in one way, becomes one, with a warning, see `vflsynth.frames.written`;
    - digits with a leading zero (``007``) or too many for a number stay text, being identifiers;
      so do digits with an ``e`` as no number has it (``10e5``), with a warning;
    - durations of ISO 8601 (``P1DT2H``) or of pandas (``1 days 02:00:00``) become durations;
    - Excel's first line ``sep=;`` and a byte order mark of UTF-16 are heeded;
    - a first column without a name that counts rows from 0 is left out, with a warning.
    """
    path = Path(path)
    suffix = kind_of_file(path, party)
    style = CsvStyle(separator, decimal, encoding)
    _check_options(path, suffix, style, sheet, party)
    stated: Any = {"dtypes": dtypes, "unreadable": unreadable}
    if suffix == ".toml":
        said = read_description(path, party)
        if said.file is None:
            url, query = str(said.url), str(said.query)
            frame = read_query(url, query, party, driver=said.driver or "", **stated)
        else:
            options: Any = said.options
            frame = read_table(path.parent / said.file, party, **stated, **options)
        return said.summarised(frame, party)
    with naming_file(path, suffix, party):
        if suffix == ".parquet":
            return restored(pa.parquet.read_table(path), party)
        if suffix in (".arrow", ".feather"):
            return frame_of(pa.feather.read_table(path), party)
        if suffix == ".xlsx":
            return read_excel(path, sheet, party, **stated)
        return read_csv(path, party, style, dtypes or {}, unreadable)


@contextmanager
def naming_file(path: Path, suffix: str, party: str | None) -> Iterator[None]:
    """Have whatever goes wrong in reading a file name it, with TableFileError and no value."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, PartyDataError):
            raise
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
            raise _not_in_encoding(path, party) from None
        raise TableFileError(
            f"{str(path)!r} cannot be read as {suffix}: {_without_cells(error)}",
            fix="check that the file is complete and of the kind that its name says",
            party=party,
        ) from None


def _not_in_encoding(path: Path, party: str | None, column: Any = None) -> TableFileError:
    return TableFileError(
        f"{str(path)!r} is not in UTF-8, or not in the encoding that was named",
        fix="save the file with UTF-8 encoding, or name its own: encoding = 'latin-1' in a TOML "
        "file beside it, encoding='latin-1' in Python",
        party=party,
        column=column,
    )


def _without_cells(error: Exception) -> str:
    """Return what an error says, without the line of the file that Arrow's errors about csv show.

    Other readers' errors are about files as a whole.
    """
    text = str(error)
    if "CSV" not in text or "Empty" in text:
        return text
    counted = re.search(r"(?:Row #(\d+): )?(Expected \d+ columns, got \d+)", text)
    if counted is None:
        return "a line of it is malformed"
    where = "in a line" if counted[1] is None else f"in row {counted[1]} (the header is row 1)"
    return f"{where}: {counted[2]}"


def infers_types(path: str | os.PathLike[str]) -> bool:
    """Tell by a file's name whether `read_table` infers its columns' types from their values.

    Raises
    ------
    TableFileError
        If the file is of an unknown kind.
    """
    return not Path(path).is_dir() and suffix_of(Path(path), reading=True) not in _TYPED


def write_table(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table to a csv (also gzipped) or parquet file.

    The file appears under its name only once it is complete.

    Parameters
    ----------
    frame : pandas.DataFrame
        Parquet keeps its dtypes, categories (unused ones and their order too), column names and
        index. csv keeps neither dtypes nor the index, and integer column names become text.
    path : path-like
        Ends in ``.csv``, ``.csv.gz`` or ``.parquet``.

    Raises
    ------
    TableFileError
        If the kind of file is unknown, the folder is absent or full, column names mix text and
        integers or are not unique, a column holds objects that the file cannot hold, or the only
        column of a csv file has gaps.
    """
    path = Path(path)
    suffix = suffix_of(path)
    if len({type(name) for name in frame.columns.tolist()}) > 1:
        raise TableFileError(
            f"column names mix text and other types: {frame.columns.tolist()}",
            fix="make them all text with frame.columns = frame.columns.astype(str)",
        )
    check_names(frame.columns.tolist(), None)
    if suffix != ".parquet" and frame.shape[1] == 1 and frame.isna().to_numpy().any():
        raise TableFileError(
            "the only column has missing values, which a csv file has as empty lines, and readers "
            "skip those",
            fix="write a parquet file",
            column=frame.columns[0],
        )
    if not path.parent.is_dir():
        raise TableFileError(f"there is no folder {str(path.parent)!r}", fix="create it first")
    try:
        with artefacts.aside(path) as side:
            if suffix == ".parquet":
                pa.parquet.write_table(with_dtypes(frame), side)
            else:
                compression = "gzip" if suffix == ".csv.gz" else None
                with pa.output_stream(side, compression=compression) as stream:
                    pa.csv.write_csv(_as_text(frame), stream)
    except (pa.ArrowException, TypeError, OverflowError, OSError) as error:
        said, fix = error.args[-1], "convert the column to one simple type, as with .astype(str)"
        if isinstance(error, OSError):  # it does not name the file
            said, fix = error, "make room for it, or choose another folder"
        # Arrow says the column last, and before it the value that it could not convert.
        raise TableFileError(f"{str(path)!r} cannot be written: {said}", fix=fix) from None


def kind_of_file(path: Path, party: str | None) -> str:
    """Return the suffix of a file that is there; a folder of parquet files has theirs."""
    if path.is_dir() and any(path.glob("*.parquet")):
        return ".parquet"
    suffix = suffix_of(path, party, reading=True)
    if not path.is_file():
        raise TableFileError(f"there is no file {str(path)!r}", fix="check the path", party=party)
    return suffix


class CsvStyle(NamedTuple):
    """How a csv file is written."""

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"


def _check_options(
    path: Path, suffix: str, style: CsvStyle, sheet: str | None, party: str | None
) -> None:
    """Refuse options that are for another kind of file, or that no file could have."""
    problem, fix = "", "leave it out"
    if style != CsvStyle() and not suffix.startswith(".csv"):
        problem = "separator, decimal and encoding are for csv files"
    elif sheet is not None and suffix != ".xlsx":
        problem = "a sheet is for Excel files"
    elif any(len(mark) != 1 for mark in (style.separator or ",", style.decimal)):
        problem, fix = "separator and decimal must be one character", "correct it"
    elif style.separator == style.decimal:
        problem, fix = "separator and decimal are the same", "correct one of them"
    else:
        try:
            "".encode(style.encoding)
        except LookupError:
            problem, fix = f"there is no encoding {style.encoding!r}", "such as 'latin-1'"
    if problem:
        raise TableFileError(f"{str(path)!r}: {problem}", fix=fix, party=party)


def suffix_of(path: Path, party: str | None = None, *, reading: bool = False) -> str:
    """Return a file's kind, of those that can be written, or read; or raise TableFileError."""
    try:
        str(path).encode()
    except UnicodeEncodeError:  # no library reads or writes it
        raise TableFileError(
            f"the name {str(path)!r} is no text", fix="choose a name in UTF-8", party=party
        ) from None
    known = (*_SUFFIXES, *_READ_ONLY) if reading else _SUFFIXES
    for suffix in known:
        if path.name.lower().endswith(suffix):
            return suffix
    raise TableFileError(
        f"{str(path)!r} is of an unknown kind",
        fix=f"use a file name that ends in one of {', '.join(known)}",
        party=party,
    )


# csv


def csv_options(path: Path, style: CsvStyle, party: str | None) -> tuple[Any, Any, Any]:
    """Return Arrow's options for reading, parsing and converting a csv file."""
    style, n_before = _seen(path, style, party)
    read = pa.csv.ReadOptions(encoding=style.encoding, skip_rows=n_before)
    parse = pa.csv.ParseOptions(delimiter=style.separator, newlines_in_values=True)
    convert = pa.csv.ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False, decimal_point=style.decimal
    )
    return read, parse, convert


def read_csv(
    path: Path,
    party: str | None,
    style: CsvStyle,
    dtypes: Mapping[Any, Any],
    unreadable: Unreadable,
    *,
    only: str | None = None,
    lines: tuple[pa.Buffer, Sequence[int]] | None = None,
) -> pd.DataFrame:
    """Read a csv file as `read_table` does, which see; or one column `only`.

    `lines` are some of the file's rows, in UTF-8 and with commas, and which they are.
    """
    read, parse, convert = csv_options(path, style, party)
    convert.column_types = {str(name): pa.string() for name in dtypes}
    if only is not None:
        convert.include_columns = [only]
    if lines is not None:
        read, parse.delimiter = pa.csv.ReadOptions(), ","

    def parsed() -> pa.Table:
        source = path if lines is None else pa.BufferReader(lines[0])
        try:
            return pa.csv.read_csv(source, read, parse, convert)
        except pa.ArrowInvalid:
            if lines is not None:
                raise
            read.use_threads = False  # then the error says which row
            return pa.csv.read_csv(source, read, parse, convert)

    table = parsed()
    if lines is None:
        check_closed(path, table, len(table), party)
    names = table.column_names
    check_names(names, party)
    for field in table.schema:
        if pa.types.is_binary(field.type):  # what Arrow makes of bytes that are not UTF-8
            raise _not_in_encoding(path, party, field.name)
    if names[0] == "" and len(names) > 1 and _is_row_number(table[0], lines and lines[1]):
        warn_user(
            f"the first column of {path.name!r} has no name and holds the row numbers that pandas "
            "writes with a table's index: it was left out. Fix: to_csv(..., index=False)",
            PublishingWarning,
        )
        names, table = names[1:], table.remove_column(0)
    if doubtful := [name for name in names if _may_have_lost_digits(table[name])]:
        convert.include_columns = doubtful
        convert.column_types = dict.fromkeys(doubtful, pa.string())
        text = parsed()
        for name in doubtful:
            if any(_holds(text[name], *form) for form in _CODES):
                table = table.set_column(names.index(name), name, text[name])
    frame = frame_of(table, party, types_are_given=False)
    typed = with_types(frame, dtypes, party=party, decimal=style.decimal, unreadable=unreadable)
    stated = [name for name in frame if name in dtypes]
    found = with_values(frame.drop(columns=stated), party, commas=style.decimal == ".")
    for name in found:
        typed[name] = found[name]
    return typed


def check_closed(path: Path, last: Any, n_rows: int, party: str | None) -> None:
    """Refuse a csv file of which a quotation mark has all lines to the end in one cell, the last.

    `last` are its last rows.
    """
    if not last.num_rows or not re.search(r"[\r\n]", str(last[-1][-1])):
        return
    end = b""
    with pa.input_stream(path, compression="detect") as stream:
        while part := stream.read(2**20):
            end = (end + part).rstrip(b"\r\n\0 ")[-1:]
    if end == b'"':
        return
    raise TableFileError(
        f"{str(path)!r} has a quotation mark in row {n_rows + 1} (the header is row 1) that is "
        "never closed: all lines after it would be one cell",
        fix="close it, or remove it",
        party=party,
        column=last.schema.names[-1],
    )


def _is_row_number(column: pa.ChunkedArray, rows: Sequence[int] | None) -> bool:
    whole: bool = pa.types.is_integer(column.type)
    return whole and column.to_pylist() == list(range(len(column)) if rows is None else rows)


def _seen(path: Path, style: CsvStyle, party: str | None) -> tuple[CsvStyle, int]:
    """Find the encoding and the separator in a file's first lines, and how many lines to skip."""
    with pa.input_stream(path, compression="detect") as stream:
        head = stream.read(1 << 16)
    if style.encoding == "utf-8" and head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        style = style._replace(encoding="utf-16")
    text = head.decode(style.encoding, errors="replace").removeprefix("\ufeff")
    if "\0" in text:
        raise TableFileError(
            f"{str(path)!r} is no csv file in {style.encoding.upper()}: it holds zero bytes",
            fix="save it with UTF-8 encoding; if it is text of another program, it may be in "
            "encoding='utf-16-le'",
            party=party,
        )
    if (said := _SAID.match(text)) is not None:  # by Excel, to itself
        return style._replace(separator=style.separator or said[1]), 1
    header = re.sub(r'"[^"]*"', "", text.split("\n", 1)[0])
    marks = [mark for mark in ",;\t|" if mark != style.decimal]
    return style._replace(separator=style.separator or max(marks, key=header.count)), 0


def _may_have_lost_digits(column: pa.ChunkedArray) -> bool:
    """Tell whether a column that was read as numbers may be one of identifiers."""
    if pa.types.is_floating(column.type):
        return bool(pc.all(pc.equal(pc.floor(column), column)).as_py())  # 10e5, 20 digits
    return bool(pa.types.is_integer(column.type))  # 007


def _holds(text: pa.ChunkedArray, some: str, all_: str) -> bool:
    """Tell whether some values look like one thing, and all others like another."""
    one, other = (pc.match_substring_regex(text, form) for form in (some, all_))
    return bool(pc.any(one).as_py() and pc.all(other).as_py())


def _as_text(frame: pd.DataFrame) -> pa.Table:
    """Convert to Arrow, with days as dates and durations as ISO 8601 writes them."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for i, field in enumerate(table.schema):
        column = table[i]
        if pa.types.is_duration(field.type):
            known = {
                span: span.isoformat() for span in pd.Series(column.to_pandas()).dropna().unique()
            }
            made = pa.array(column.to_pandas().map(known), pa.string(), from_pandas=True)
            table = table.set_column(i, field.name, made)
        elif pa.types.is_timestamp(field.type) and field.type.tz is None:
            dates = column.cast(pa.date32(), safe=False)
            if dates.cast(field.type).equals(column):
                table = table.set_column(i, field.name, dates)
    return table


# parquet


def with_dtypes(frame: pd.DataFrame) -> pa.Table:
    """Convert to Arrow, noting the dtypes that Arrow and pandas do not bring back on their own.

    These are the categories of a categorical (lost unless they are text), the storage of text,
    ``object`` and ``datetime64[s]``. What other programs noted about the table, in its `attrs`,
    stays out: nobody who looks at rows would see it.
    """
    frame = frame.copy(deep=False)
    frame.attrs = {k: v for k, v in frame.attrs.items() if str(k).startswith("vflsynth ")}
    kept = [
        _ARROW if isinstance(dtype, pd.ArrowDtype) else dtype_to_json(dtype)
        for dtype in frame.dtypes
    ]
    table = pa.Table.from_pandas(frame)
    notes = json.dumps(dict(zip(table.column_names, kept))).encode()
    return table.replace_schema_metadata({**table.schema.metadata, METADATA_KEY: notes})


def restored(table: pa.Table, party: str | None) -> pd.DataFrame:
    """Convert from Arrow, in the dtypes that were noted."""
    frame = frame_of(table, party)
    if METADATA_KEY not in (table.schema.metadata or {}):
        return frame
    notes = json.loads(table.schema.metadata[METADATA_KEY])
    for i, column in enumerate(frame.columns):
        note = notes[table.column_names[i]]
        dtype = pd.ArrowDtype(table[i].type) if note == _ARROW else dtype_from_json(note)
        if isinstance(dtype, pd.CategoricalDtype):
            values = pa.array(dtype.categories, from_pandas=True)
            codes = pc.index_in(table[i].cast(values.type), value_set=values).to_pandas()
            cells = pd.Categorical.from_codes(codes.fillna(-1).astype(int), dtype=dtype)
            frame[column] = pd.Series(cells, index=frame.index)
        elif pa.types.is_date(table[i].type) or pa.types.is_decimal(table[i].type):
            continue  # objects that became what all of them are
        elif dtype == np.dtype(object):
            frame[column] = table[i].to_pandas(integer_object_nulls=True).astype(object).array
        elif frame[column].dtype != dtype:
            frame[column] = frame[column].astype(dtype)
    restored: pd.DataFrame = as_frame(frame, by_value=False)
    return restored
