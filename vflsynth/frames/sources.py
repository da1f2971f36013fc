"""Tables that are no plain file: a TOML file says where they are and how they are written.

::

    file = "lab.csv"            # beside this file: csv, Excel, parquet, Arrow
    separator = ";"
    decimal = ","
    encoding = "latin-1"
    sheet = "Patients"          # Excel

    database_variable = "LAB_DATABASE"          # or instead: SQLAlchemy's URL in the environment,
    database = "sqlite:///lab.db"               # or here, where it holds no password
    query = "select id, marker from patients"
    driver = "adbc_driver_postgresql"           # an ADBC driver reads it, in place of SQLAlchemy

    one_row_per = "patient"     # of any of these: several rows per key become one
    constant = "sex, born"      # columns that have one value per key

Wherever a table's file is named, in Python, on the command line, in jobs and site files, such a
file may stand in its place.
"""

from __future__ import annotations

import importlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pandas.api.types import pandas_dtype

from vflsynth.exceptions import MissingExtraError, TableFileError
from vflsynth.frames.logical import as_frame, frame_of
from vflsynth.frames.summaries import summarise_rows
from vflsynth.frames.typed import Unreadable, family_of, with_types

_OPTIONS = ("separator", "decimal", "encoding", "sheet")
_OF_DATABASES = ("database", "database_variable", "query", "driver")
_SUMMARISED = ("one_row_per", "constant")
_ADBC = re.compile(r"adbc_driver_[a-z0-9_]+")


@dataclass(frozen=True)
class Description:
    """What a TOML file says of a table.

    Parameters
    ----------
    file : Path, optional
        None for a query.
    options : dict of str to str
        Of `read_table`.
    database, query, driver : str
    one_row_per, constant : str
        Key of which a table has several rows; its constant columns, separated by commas.
    """

    file: Path | None
    options: dict[str, str]
    database: str = ""
    query: str = ""
    driver: str = ""
    one_row_per: str = ""
    constant: str = ""

    def summarised(self, frame: pd.DataFrame, party: str | None) -> pd.DataFrame:
        """Return the table with one row per key, if that is asked for."""
        if not self.one_row_per:
            return frame
        constant = [label.strip() for label in self.constant.split(",") if label.strip()]
        return summarise_rows(frame, self.one_row_per, constant=constant, party=party)


def read_description(path: Path, party: str | None) -> Description:
    """Read what a TOML file says of a table; TableFileError names a key that is wrong."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong(path, f"is no TOML: {error}", "write it as in the manual", party) from error
    for name, value in content.items():
        keys = ("file", *_OPTIONS, *_OF_DATABASES, *_SUMMARISED)
        if name not in keys or not isinstance(value, str):
            known = ", ".join(keys)
            raise _wrong(path, f"says {name!r}", f"only {known}, each a text", party)
    rows = {name: content[name] for name in _SUMMARISED if name in content}
    if "constant" in rows and "one_row_per" not in rows:
        raise _wrong(path, "says 'constant' alone", "one_row_per names the key", party)
    if "file" in content:
        if set(content) & set(_OF_DATABASES):
            raise _wrong(path, "names a file and a database", "leave one out", party)
        file = path.parent / content["file"]
        if file.suffix == ".toml":
            raise _wrong(path, "names another description", "name the table itself", party)
        return Description(file, {k: content[k] for k in _OPTIONS if k in content}, **rows)
    if "query" not in content or set(content) & set(_OPTIONS):
        fix = "give 'file' and its options, or 'query' and its database"
        raise _wrong(path, "says neither a table nor a query alone", fix, party)
    variable = content.get("database_variable")
    url = content.get("database") if variable is None else os.environ.get(variable)
    if not url or ("database" in content and variable is not None):
        fix = "give 'database', or set the variable that 'database_variable' names"
        raise _wrong(path, "says no database, or two", fix, party)
    driver = content.get("driver", "")
    if driver and not _ADBC.fullmatch(driver):
        raise _wrong(path, "names no ADBC driver", "such as 'adbc_driver_postgresql'", party)
    return Description(None, {}, url, content["query"], driver, **rows)


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
        return _read_adbc(url, query, party, driver)
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


def _read_adbc(url: str, query: str, party: str | None, driver: str) -> pd.DataFrame:
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
            return frame_of(cursor.fetch_arrow_table(), party)
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

    cells = pd.read_excel(path, sheet_name=0 if sheet is None else sheet, dtype=object)
    return _from_cells(cells, dtypes or {}, party, unreadable)


def _from_cells(
    cells: pd.DataFrame, dtypes: Mapping[Any, Any], party: str | None, unreadable: Unreadable
) -> pd.DataFrame:
    """Return columns of cells that have each a type: as stated, or what all cells of one are.

    Cells of several types become the text that a csv file would have.
    """
    texts = [
        name
        for name in cells
        if (
            family_of(pandas_dtype(dtypes[name])) in ("text", "label")
            if name in dtypes
            else pd.api.types.infer_dtype(cells[name], skipna=True) in ("mixed-integer", "mixed")
        )
    ]
    written = cells.copy(deep=False)
    for name in texts:
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


def _wrong(path: Path, problem: str, fix: str, party: str | None) -> TableFileError:
    return TableFileError(f"{str(path)!r} {problem}", fix=fix, party=party)
