"""``vflsynth sample``: a saved model -> synthetic records."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from typing import Any

import pandas as pd

from vflsynth._random import secret_from
from vflsynth.cli.console import say
from vflsynth.cli.options import (
    add_passed,
    check_file,
    check_folder,
    count,
    file,
    flag,
    number,
    repeated,
)
from vflsynth.cli.records import domains_of, open_model, say_rule_cost, write, write_or_print
from vflsynth.columns import Range
from vflsynth.columns.wanted import Domain, value_from_text
from vflsynth.exceptions import ParameterError
from vflsynth.frames import infers_types
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.models import PartyModel
from vflsynth.models.party_model import draw_with_files

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Draw synthetic records from a saved model, or from one party's half of it.

Without --output and --by-party, the records are written to standard output as csv.
"""
EPILOG = """\
examples:
  vflsynth sample model -n 5000 -o synthetic.parquet
  vflsynth sample model -n 5000 --by-party parts --keys --seed 7
  vflsynth sample model -n 5
  vflsynth sample model -n 10000000 -o synthetic/ --jobs 4
  vflsynth sample model -n 500 --where 'age=30..40' --where 'marital=Single,Divorced'

A condition is COLUMN=VALUE, COLUMN=VALUE,VALUE or COLUMN=LOW..HIGH, where one end may be left out,
and COLUMN= for a missing value; columns are of any party, and all conditions hold.

One party's half gives that party's columns. Halves that use the same --seed give rows that belong
together, the same as the whole model gives with that seed. Halves of an AutoregressiveSynthesizer
draw one after the other, in the order of the parties' names: each reads what those before it passed
on from --passed, and writes there what those after it need. Only numbers about synthetic rows do.

A folder that was begun is continued, with the same records whatever the number of jobs.

Without --seed, every call gives the same records, the first of the model's own sequence.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    file(parser, "model", "MODEL", "saved by 'vflsynth fit'")
    parser.add_argument("-n", required=True, type=count, metavar="N", help="how many records")
    target = parser.add_mutually_exclusive_group()
    file(
        target,
        "-o --output",
        "FILE",
        ".csv or .parquet; a name without an ending is a folder of parquet files for large samples",
    )
    file(
        target,
        "--by-party",
        "DIR",
        "one file per party, DIR/PARTY.parquet; row i is the same record in all of them",
    )
    number(parser, "--jobs", "into a folder: parts drawn at a time; default 1", default=1)
    flag(parser, "--keys", "add fresh keys, which no real record has")
    repeated(
        parser,
        "--where",
        "CONDITION",
        "only records whose columns are as they must be, such as age=30..40; repeat for more",
    )
    add_passed(parser)
    number(parser, "--seed", "other records; same seed, same records")


def run(options: argparse.Namespace) -> int:
    """Sample and write."""
    in_parts = options.output is not None and not options.output.suffix
    if in_parts:
        check_folder("--output", options.output)
    elif options.output is not None:
        infers_types(options.output)  # an unknown kind of file is an error
        check_file("--output", options.output)
    model = open_model(options.model)
    conditions = _conditions(options, model)
    if in_parts:
        return _sample_parts(model, options)
    if options.by_party is not None:
        if isinstance(model, PartyModel):
            raise ParameterError(f"{options.model} is one party's half; use --output instead")
        for name in model.parties_:
            check_file("--by-party", options.by_party / f"{name}.parquet")
        parts = model.sample(
            options.n,
            by_party=True,
            keys=options.keys,
            conditions=conditions,
            random_state=options.seed,
        )
        for name, part in parts.items():
            write(part, options.by_party / f"{name}.parquet")
        say_rule_cost(model)
        return 0
    if isinstance(model, PartyModel):
        table = _sample_half(model, options)
    else:
        table = model.sample(
            options.n, keys=options.keys, conditions=conditions, random_state=options.seed
        )
        say_rule_cost(model)
    write_or_print(table, options.output)
    return 0


def _sample_parts(model: BaseSynthesizer | PartyModel, options: argparse.Namespace) -> int:
    if isinstance(model, PartyModel) or options.where:
        raise ParameterError(
            f"--output {options.output} is a folder, which is for samples of whole models without "
            "conditions. Fix: name a file that ends in .parquet or .csv"
        )
    paths = model.sample_to(
        options.output,
        options.n,
        n_jobs=options.jobs,
        keys=options.keys,
        random_state=options.seed,
    )
    say(f"{options.output}: {options.n:,} rows in {len(paths):,} files")
    return 0


def _conditions(
    options: argparse.Namespace, model: BaseSynthesizer | PartyModel
) -> dict[str, Any] | None:
    """Read --where; None without any."""
    if not options.where:
        return None
    if isinstance(model, PartyModel):
        raise ParameterError(
            f"{options.model} is one party's half: --where would choose among its rows alone, "
            "which then belong to no other party's. Fix: sample from the whole model"
        )
    columns = domains_of(model)
    return dict(condition_of(text, columns) for text in options.where)


def _sample_half(half: PartyModel, options: argparse.Namespace) -> pd.DataFrame:
    if options.seed is None:
        logger.info(
            "these rows of party %r belong to no other party's rows: use the same --seed for that",
            half.name,
        )
    table = draw_with_files(half, options.n, secret_from(options.seed), options.passed)
    return half.add_keys(table) if options.keys else table


def condition_of(text: str, columns: Mapping[Any, Domain]) -> tuple[Any, Any]:
    """Return the column, and the value, values or Range, of a condition.

    Raises ParameterError if it names no column, or a value that is not of the column's type.
    """
    name, sign, asked = text.partition("=")
    label = next((column for column in columns if str(column) == name.strip()), None)
    if not sign or label is None:
        raise ParameterError(
            f"--where {text!r} must be COLUMN=VALUE, COLUMN=VALUE,VALUE or COLUMN=LOW..HIGH, "
            f"with a column of {', '.join(map(str, columns))}"
        )
    column, asked = columns[label], asked.strip()
    try:
        try:
            return label, value_from_text(column, asked)  # also where it has a comma or two dots
        except ValueError:
            pass
        low, dots, high = asked.partition("..")
        if dots:
            return label, Range(*(value_from_text(column, end.strip()) for end in (low, high)))
        return label, [value_from_text(column, value.strip()) for value in asked.split(",")]
    except ValueError:
        raise ParameterError(
            f"--where {text!r}: what is asked for is no value of column {label!r}, "
            f"which is of type {column.dtype}. Fix: give values as sampled records have them"
        ) from None
