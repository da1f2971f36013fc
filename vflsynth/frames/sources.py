"""Tables that are no plain file: a TOML file says where they are and how they are written.

Wherever a table's file is named, in Python, on the command line, in jobs and site files, such a
file may stand in its place. A table with several rows per person, visits or transactions, becomes
one of flat summaries, so that a person is one record to everything else: matching, models, rare
values, ε. What happened in which order, and what went with what in one row, is lost.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pandas.api.types import pandas_dtype

from vflsynth._schema import FileTable, checked, read_toml
from vflsynth.codec import as_frame, check_names, family_of, frame_of
from vflsynth.exceptions import (
    ColumnNameError,
    MissingExtraError,
    MissingKeyError,
    ParameterError,
    PartyDataError,
    TableFileError,
)
from vflsynth.frames.typed import Unreadable, with_types

_OPTIONS = ("separator", "decimal", "encoding", "sheet")
_OF_DATABASES = ("database", "database_variable", "query", "driver")
_ADBC = re.compile(r"adbc_driver_[a-z0-9_]+")


@dataclass(frozen=True, kw_only=True)
class Description(FileTable):
    """What a TOML file says of a table.

    Parameters
    ----------
    file : str, optional
        Beside this file: csv, Excel, parquet or Arrow.
    separator, decimal, encoding, sheet : str, optional
        How the file is written.
    query : str, optional
        In place of a file: SQL.
    database, database_variable : str, optional
        SQLAlchemy's URL; or the variable of the environment that has it.
    driver : str, optional
        An ADBC driver that reads in place of SQLAlchemy, such as adbc_driver_postgresql.
    one_row_per : str, optional
        Key of which the table has several rows, that become one.
    constant : str, default=""
        Columns with one value per key, separated by commas.
    """

    file: str | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    query: str | None = None
    database: str | None = None
    database_variable: str | None = None
    driver: str | None = None
    one_row_per: str | None = None
    constant: str = ""

    def __post_init__(self) -> None:
        options, database = bool(self.options), any(getattr(self, n) for n in _OF_DATABASES)
        if self.constant and not self.one_row_per:
            raise ParameterError("says 'constant' alone. Fix: one_row_per names the key")
        if self.file is not None and database:
            raise ParameterError("names a file and a database. Fix: leave one out")
        if self.file is not None and self.file.endswith(".toml"):
            raise ParameterError("names another description. Fix: name the table itself")
        if self.file is None and (self.query is None or options):
            raise ParameterError(
                "says neither a table nor a query alone. Fix: give 'file' and its options, or "
                "'query' and its database"
            )
        if self.driver and not _ADBC.fullmatch(self.driver):
            raise ParameterError("names no ADBC driver, such as 'adbc_driver_postgresql'")
        if self.file is None and not self.url:
            raise ParameterError(
                "says no database, or two. Fix: give 'database', or set the variable that "
                "'database_variable' names"
            )

    @property
    def options(self) -> dict[str, str]:
        """Those of `read_table`."""
        return {name: own for name in _OPTIONS if (own := getattr(self, name)) is not None}

    @property
    def url(self) -> str | None:
        """The database's; None if there is none, or two."""
        if self.database_variable is None:
            return self.database
        return os.environ.get(self.database_variable) if self.database is None else None

    def summarised(self, frame: pd.DataFrame, party: str | None) -> pd.DataFrame:
        """Return the table with one row per key, if that is asked for."""
        if not self.one_row_per:
            return frame
        constant = [label.strip() for label in self.constant.split(",") if label.strip()]
        return summarise_rows(frame, self.one_row_per, constant=constant, party=party)


def read_description(path: Path, party: str | None) -> Description:
    """Read what a TOML file says of a table; TableFileError names every key that is wrong."""

    def failure(problem: str) -> TableFileError:
        return TableFileError(problem, fix="see 'vflsynth schema table'", party=party)

    return checked(Description, read_toml(path, failure), str(path), failure)


def records_of(path: Path) -> Path:
    """Return the file or folder with the records: of a description of one, that which it names."""
    if path.suffix.lower() != ".toml":
        return path
    file = read_description(path, None).file
    return path if file is None else records_of(path.parent / file)


def read_query(
    url: str,
    query: str,
    party: str | None = None,
    *,
    driver: str = "",
    dtypes: Mapping[Any, Any] | None = None,
    unreadable: Unreadable = "refused",
) -> pd.DataFrame:
    """Return what a database answers to a query, of SQL, by SQLAlchemy or by an ADBC driver.

    The URL is SQLAlchemy's, such as ``postgresql+psycopg://host/lab``, or with `driver`, a package
    such as ``adbc_driver_postgresql``, the database's; then types are Arrow's, and `dtypes` and
    `unreadable` (see `read_table`) have no effect. MissingExtraError without SQLAlchemy;
    TableFileError, without URL and values, if there is no answer.
    """
    if driver:
        with _answer_of(url, query, party, driver) as cursor:
            return frame_of(cursor.fetch_arrow_table(), party)
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingExtraError("reading from a database", "sqlalchemy", "sql") from error
    try:
        engine = sqlalchemy.create_engine(url)
        try:
            with engine.connect() as connection:
                answer = connection.execute(sqlalchemy.text(query))
                names, rows = [*answer.keys()], [tuple(row) for row in answer]
        finally:
            engine.dispose()
        return _from_cells(
            pd.DataFrame(rows, columns=names, dtype=object), dtypes or {}, party, unreadable
        )
    except (
        sqlalchemy.exc.SQLAlchemyError,
        pd.errors.DatabaseError,
        ImportError,  # of the driver
        pa.ArrowException,
    ) as error:
        raise _no_answer(error, party) from None


def spool_query(said: Description, path: Path, party: str | None) -> None:
    """Write what a database answers into an Arrow file, a batch at a time, by an ADBC driver.

    TableFileError, without URL and values, if there is no answer.
    """
    url, query, driver = str(said.url), str(said.query), str(said.driver)
    with _answer_of(url, query, party, driver) as cursor:
        batches = cursor.fetch_record_batch()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batches.schema) as out:
            for batch in batches:
                out.write_batch(batch)


@contextmanager
def _answer_of(url: str, query: str, party: str | None, driver: str) -> Iterator[Any]:
    """Have a query answered: yield the cursor."""
    try:
        package: Any = importlib.import_module(f"{driver}.dbapi")
    except ImportError as error:
        raise TableFileError(
            f"the ADBC driver {driver} cannot be imported",
            fix=f"pip install {driver.replace('_', '-')} adbc-driver-manager",
            party=party,
        ) from error
    try:
        with package.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            yield cursor
    except (package.Error, pa.ArrowException) as error:
        raise _no_answer(error, party) from None


def _no_answer(error: Exception, party: str | None) -> TableFileError:
    """Error without the database's own words, which may hold values."""
    return TableFileError(
        f"the database gave no table ({type(error).__name__})",
        fix="check URL, driver, rights and query with the database's own client",
        party=party,
    )


def read_excel(
    path: Path,
    sheet: str | None,
    party: str | None,
    *,
    dtypes: Mapping[Any, Any] | None = None,
    unreadable: Unreadable = "refused",
) -> pd.DataFrame:
    """Return a sheet of an Excel file, the first unless named; its first row has the names."""
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("reading Excel files", "openpyxl", "excel") from error

    named = 0 if sheet is None else sheet
    with pd.ExcelFile(path) as book:
        cells = pd.read_excel(book, sheet_name=named, dtype=object)
        first = pd.read_excel(book, sheet_name=named, dtype=object, header=None, nrows=1)
    check_names([name for row in first.to_numpy() for name in row if not pd.isna(name)], party)
    return _from_cells(cells, dtypes or {}, party, unreadable)


def _from_cells(
    cells: pd.DataFrame, dtypes: Mapping[Any, Any], party: str | None, unreadable: Unreadable
) -> pd.DataFrame:
    """Return columns of cells that have each a type: as stated, or what all cells of one are.

    Cells of several types become the text that a csv file would have.
    """
    written = cells.copy(deep=False)
    for name in cells:
        if name in dtypes:
            is_text = family_of(pandas_dtype(dtypes[name])) in ("text", "label")
        else:
            found = pd.api.types.infer_dtype(cells[name], skipna=True)
            is_text = found in ("mixed-integer", "mixed")
        if is_text:
            written[name] = cells[name].map(_written)
    typed = with_types(written, dtypes, party=party, unreadable=unreadable)
    frame: pd.DataFrame = as_frame(typed, party)
    return frame.infer_objects()


def _written(value: Any) -> Any:
    """Write a cell as text: whole numbers without a point, times as ISO has them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float) and value == value:
        return str(value)
    return value.isoformat() if isinstance(value, date) else value


def summarise_rows(
    frame: pd.DataFrame,
    on: Hashable,
    *,
    constant: Sequence[Hashable] = (),
    party: str | None = None,
) -> pd.DataFrame:
    """Summarise the rows of every key.

    Parameters
    ----------
    frame : DataFrame, shape (row, column)
    on : column label
        The key. Rows without one are left out.
    constant : sequence of column label, default ()
        Columns with one value per key, such as a year of birth: they stay as they are.
    party : str, optional
        Whose table it is; error messages name it.

    Returns
    -------
    DataFrame, shape (key, summary)
        Sorted by key: the key, ``rows`` (how many there are), `constant`, and of every other
        column: of numbers "smallest", "mean" and "largest", of times "first" and "last", of all
        else "most frequent" (of several the first in order) and "different" (how many values).
        Which columns there are depends on labels and types alone, and on no value.

    Raises
    ------
    MissingKeyError
        If there is no such column.
    PartyDataError
        If a constant column is none.
    ColumnNameError
        If two columns would have the same name.

    Examples
    --------
    >>> visits = pd.DataFrame({"id": [7, 7, 9], "born": [50, 50, 81], "cost": [5.0, 9.0, 2.0]})
    >>> summarise_rows(visits, "id", constant=["born"])
       id  rows  born  cost smallest  cost mean  cost largest
    0   7     2    50            5.0        7.0           9.0
    1   9     1    81            2.0        2.0           2.0
    """
    constant = [constant] if isinstance(constant, str) else constant
    for label in (on, *constant):
        if label not in frame.columns:
            raise MissingKeyError(
                f"there is no such column; the table has {frame.columns.tolist()}",
                fix="correct the name",
                party=party,
                column=label,
            )
    key: Any = on
    groups = frame.groupby(key, sort=True, dropna=True, observed=True)
    made: dict[Any, Any] = {"rows": groups.size()}
    for label in frame.columns:
        if label == on:
            continue
        column = groups[label]
        if label in constant:
            if several := int((column.nunique(dropna=False) > 1).sum()):
                raise PartyDataError(
                    f"{several} keys have several values of it",
                    fix="leave it out of the constant columns, or correct the table",
                    party=party,
                    column=label,
                )
            found: dict[Any, Any] = {label: column.first()}
        else:
            found = _summaries(frame, key, label)
        for name, values in found.items():
            if name in made or name == on:
                raise ColumnNameError(
                    "a summary has this name as well",
                    fix="rename the column",
                    party=party,
                    column=name,
                )
            made[name] = values
    return pd.DataFrame(made).rename_axis(key).reset_index()


def _summaries(frame: pd.DataFrame, on: Any, label: Any) -> dict[Any, Any]:
    """Summaries of a column by their labels, as its type has them."""
    values, column = frame[label], frame.groupby(on, observed=True)[label]
    types = pd.api.types
    if types.is_datetime64_any_dtype(values) or types.is_timedelta64_dtype(values):
        return {f"{label} first": column.min(), f"{label} last": column.max()}
    if types.is_numeric_dtype(values) and not types.is_bool_dtype(values):
        return {
            f"{label} smallest": column.min(),
            f"{label} mean": column.mean(),
            f"{label} largest": column.max(),
        }
    pairs = pd.DataFrame({"key": frame[on], "value": values.astype(object)}).dropna()
    counts = pairs.value_counts().reset_index()
    counts["text"] = counts["value"].astype(str)
    counts = counts.sort_values(["count", "text"], ascending=[False, True], kind="stable")
    best = counts.drop_duplicates("key").set_index("key")["value"]
    return {
        f"{label} most frequent": best.reindex(column.size().index).astype(values.dtype),
        f"{label} different": column.nunique(),
    }
