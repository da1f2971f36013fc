"""Party frames that synthesizers are tried on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns import PublicSchema
from vflsynth.datasets import make_party_frames
from vflsynth.frames.typed import family_of

Tables = Mapping[str, pd.DataFrame]

KEY = "record_id"
"""Key column of `small`."""

LABELS = "labels"
"""Name of whoever has the labels of a classifier."""

CLASSES = ["no", "yes"]
"""Which there are."""


def small(n_parties: int = 2) -> dict[str, pd.DataFrame]:
    """Make party frames of 60 records with a key column."""
    return make_party_frames(60, n_parties, random_state=1)


def zoo() -> dict[str, pd.DataFrame]:
    """Make three parties with every dtype, as one would meet them; the index is the key."""
    rng, n = np.random.default_rng(3), 61
    keys = pd.Index([f"p{i:03d}" for i in rng.permutation(n)], name="person")

    def holes(values: Any) -> Any:
        return pd.Series(values).mask(rng.random(n) < 0.2).array

    integers = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    levels = ["low", "middle", "high", "never"]
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    numbers: dict[Any, Any] = {name: rng.integers(0, 100, n).astype(name) for name in integers}
    numbers |= {
        "float32": rng.normal(size=n).astype("float32"),
        "float64": rng.normal(size=n),
        "float with NaN": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
        "zero-inflated": np.where(rng.random(n) < 0.5, 0.0, rng.exponential(size=n)),
    }
    nullable: dict[Any, Any] = {
        "Int64": holes(pd.array(rng.integers(0, 50, n), "Int64")),
        "UInt8": holes(pd.array(rng.integers(0, 50, n), "UInt8")),
        "Float64": holes(pd.array(rng.normal(size=n), "Float64")),
        "boolean": holes(pd.array(rng.random(n) < 0.5, "boolean")),
        "string": holes(pd.array(rng.choice(["x", "y", "zz"], n), "string")),
        "bool": rng.random(n) < 0.3,
    }
    labels: dict[Any, Any] = {
        7: pd.Categorical(rng.choice(levels[:3], n), levels),
        8: pd.Categorical(rng.choice(levels[:3], n), levels, ordered=True),
        0: days,
        1: days.tz_localize("Europe/Berlin"),
        2: pd.Series(days).mask(rng.random(n) < 0.2).array,
        "object": rng.choice(np.array(["r", "s"], dtype=object), n),
        "constant": np.full(n, 3),
    }
    frames = {"numbers": numbers, "nullable": nullable, "labels": labels}
    return {
        party: pd.DataFrame(columns, index=keys).sample(frac=1, random_state=i)
        for i, (party, columns) in enumerate(frames.items())
    }


def private_tables(n_records: int) -> tuple[dict[str, pd.DataFrame], PublicSchema]:
    """Make tables of two parties, and what is public of them, that a private fit is tried on.

    Columns are of every kind, with missing values, sorted by `KEY`; the first records of a longer
    table are those of a shorter one. All columns but one of numbers are public: its range is then
    published with noise.
    """
    k = np.arange(n_records)
    amount = np.where(k % 10 < 8, 0.0, k % 7)
    days = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta((7 * k) % 300, "D"))
    numbers = {"amount": amount, "visits": k % 6, "flag": k % 3 == 0}
    others = {
        "rate": pd.Series((k % 11) / 10.0).mask(k % 4 == 3),
        "day": days.dt.as_unit("s").mask(k % 5 == 4),
        "town": np.where(k % 4 == 1, "north", "south").astype(object),
    }
    schema = PublicSchema(
        {"amount": (0, 10), "visits": (0, 6), "day": ("2020-01-01", "2020-12-31")},
        {"flag": (False, True), "town": ("north", "south")},
        dtypes={
            KEY: "int64",
            "amount": "float64",
            "visits": "Int64",
            "flag": "boolean",
            "rate": "float64",
            "day": "datetime64[s]",
            "town": "str",
        },
    )
    tables = {
        "a": pd.DataFrame({KEY: k, **numbers}),
        "b": pd.DataFrame({KEY: k, **others}),
    }
    return tables, schema


def private_labels(n_records: int) -> pd.DataFrame:
    """Return labels of as many records of `private_tables`, by `KEY`."""
    k = np.arange(n_records)
    return pd.DataFrame({KEY: k, "label": np.where(k % 3 == 0, "yes", "no").astype(object)})


def replaced(tables: Tables) -> dict[str, Tables]:
    """Return tables whose last record is as far from all others as can be, by what it has.

    That is values that are extreme, missing or impossible.
    """

    def other(value: Callable[[pd.Series[Any]], Any]) -> Tables:
        changed = {}
        for name, table in tables.items():
            columns = {}
            for label, column in table.items():
                values = column.astype(object)
                if label != KEY:
                    values.iloc[-1] = value(column)
                columns[label] = values if label != KEY else column
            changed[name] = pd.DataFrame(columns, index=table.index)
        return changed

    return {
        "whose values are far away": other(lambda column: _FAR[family_of(column.dtype)]),
        "whose values are missing": other(lambda column: None),
        "whose values are of other types": other(lambda column: _OTHER[family_of(column.dtype)]),
    }


_OTHER = {
    "truth value": "perhaps",
    "whole number": "12 or so",
    "number": "12 or so",
    "time": "yesterday",
    "text": 7.5,
    "label": 7.5,
}
"""Values that are not of the types of such columns."""

_FAR = {
    "truth value": True,
    "whole number": 10**6,
    "number": 1e9,
    "time": pd.Timestamp("1800-01-01"),
    "text": "nowhere",
    "label": "nowhere",
}
