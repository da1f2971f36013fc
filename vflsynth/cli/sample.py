"""``vflsynth sample``: a saved model -> synthetic records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pandas as pd

from vflsynth.cli.console import say
from vflsynth.cli.options import Option, check_folder, check_table, is_taken, jobs, whole
from vflsynth.cli.records import (
    check_replaced,
    domains_of,
    open_model,
    say_rule_cost,
    write_or_print,
)
from vflsynth.columns import Range
from vflsynth.columns.wanted import Domain, value_from_text
from vflsynth.exceptions import ColumnKindError, ParameterError
from vflsynth.methods.parts import holds_parts

DESCRIPTION = """\
Draw synthetic records from a saved model.

Without --output, the records are written to standard output as csv.
"""
EPILOG = """\
examples:
  vflsynth sample model -n 5000 -o synthetic.parquet
  vflsynth sample model -n 5000 -o synthetic.csv --keys --seed 7
  vflsynth sample model -n 5
  vflsynth sample model -n 10000000 -o synthetic/ --jobs 4
  vflsynth sample model -n 500 --where 'age=30..40' --where 'marital=Single,Divorced'

A condition is COLUMN=VALUE, COLUMN=VALUE,VALUE or COLUMN=LOW..HIGH, where one end may be left out,
and COLUMN= for a missing value; columns are of any party, and all conditions hold.

A folder that was begun is continued, with the same records whatever the number of jobs.

Without --seed, every call gives the same records, the first of the model's own sequence.
"""


OPTIONS = [
    Option("model MODEL", "saved by 'vflsynth fit'"),
    Option("-n N", "how many records", required=True, type=whole(0)),
    Option(
        "-o --output FILE",
        ".csv or .parquet; a name without an ending is a folder of parquet files for large samples",
    ),
    Option("--jobs N", "into a folder: parts drawn at a time; default 1", type=jobs),
    Option("--keys", "add fresh keys, which no real record has"),
    Option(
        "--where CONDITION*",
        "only records whose columns are as they must be, such as age=30..40; repeat for more",
    ),
    Option("--seed SEED", "other records; same seed, same records"),
]


def run(options: argparse.Namespace) -> int:
    """Sample and write."""
    in_parts = options.output is not None and not options.output.suffix
    if options.jobs is not None and not in_parts:
        raise ParameterError(
            "--jobs is for folders, whose parts are drawn at a time. Fix: leave it out, or name an "
            "--output without an ending"
        )
    if in_parts:
        check_folder("--output", options.output)
    elif options.output is not None:
        check_table("--output", options.output)
    model = open_model(options.model)
    columns = domains_of(model)
    if not in_parts:
        check_replaced(options.output, columns)
    conditions: dict[Any, Any] = {}
    for text in options.where:
        name, condition = condition_of(text, columns)
        if name in conditions:
            raise ParameterError(
                f"--where {text!r}: column {name!r} has a condition already. Fix: list its values, "
                "apart by commas, or give one range"
            )
        conditions[name] = condition
    drawn: dict[str, Any] = {"keys": options.keys, "random_state": options.seed}
    if in_parts:
        if options.where:
            raise ParameterError(
                f"--output {options.output} is a folder, which is for samples without conditions. "
                "Fix: name a file that ends in .parquet or .csv"
            )
        if is_taken(options.output) and not holds_parts(options.output):
            raise ParameterError(
                f"--output: {options.output} is not empty. Fix: name another folder"
            )
        paths = model.sample_to(options.output, options.n, n_jobs=options.jobs, **drawn)
        say(f"{options.output}: {options.n:,} rows in {len(paths):,} files")
        return 0
    try:
        table = model.sample(options.n, conditions=conditions or None, **drawn)
    except ColumnKindError as error:
        raise ParameterError(f"--where: {error}") from error
    say_rule_cost(model)
    write_or_print(table, options.output)
    return 0


def condition_of(text: str, columns: Mapping[Any, Domain]) -> tuple[Any, Any]:
    """Return the column, and the value, values or Range, of a condition.

    Raises ParameterError if it names no column, or a value that is not of the column's type.
    """
    said = {column: text.split("=", 1 + str(column).count("=")) for column in columns}
    named = (c for c, (*name, _) in said.items() if name and "=".join(name).strip() == str(c))
    label = next(named, None)
    if label is None:
        raise ParameterError(
            f"--where {text!r} must be COLUMN=VALUE, COLUMN=VALUE,VALUE or COLUMN=LOW..HIGH, "
            f"with a column of {', '.join(map(str, columns))}"
        )
    column, asked = columns[label], said[label][-1].strip()
    try:
        with suppress(ValueError):  # also where it has a comma or two dots
            return label, value_from_text(column, asked)
        low, dots, high = asked.partition("..")
        if dots:
            return label, Range(*(value_from_text(column, end.strip()) for end in (low, high)))
        return label, [value_from_text(column, value.strip()) for value in asked.split(",")]
    except ValueError:
        iso = ", days as 2023-12-31" if pd.api.types.is_datetime64_any_dtype(column.dtype) else ""
        raise ParameterError(
            f"--where {text!r}: what is asked for is no value of column {label!r}, "
            f"which is of type {column.dtype}. Fix: give values as sampled records have them{iso}"
        ) from None
