"""``vflsynth complete``: a saved model, a partly filled table -> the table with what it lacks."""

from __future__ import annotations

import argparse
import logging

import numpy as np
import pandas as pd

from vflsynth.cli.options import Option, check_table
from vflsynth.cli.records import (
    check_replaced,
    domains_of,
    open_model,
    say_rule_cost,
    write_or_print,
)
from vflsynth.cli.tables import label, read, texts_of
from vflsynth.exceptions import ParameterError, did_you_mean

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Draw what a table lacks from a saved model: columns of any party, and missing cells.

One record is drawn for each row of the table. What it holds comes out as it is, in the model's
types. Without --output, the records are written to standard output as csv.
"""
EPILOG = """\
examples:
  vflsynth complete model clinic.csv --on patient_id -o completed.parquet
  vflsynth complete model partly.parquet --draws 256 --seed 7 -o completed.csv

If the table holds real records, so does the result, and no guarantee of privacy is about them.

Without --seed, every call gives the same records, the first of the model's own sequence.
"""


OPTIONS = [
    Option("model MODEL", "saved by 'vflsynth fit'"),
    Option("table FILE", "some of the model's columns; cells may be empty"),
    Option("--on KEY", "column that names the records: it is kept, and not modelled"),
    Option("-o --output FILE", ".csv or .parquet"),
    Option(
        "--draws N",
        "draws per record, one of which is chosen by its weight (default: 64)",
        default=64,
    ),
    Option("--seed SEED", "other records; same seed, same records"),
]


def run(options: argparse.Namespace) -> int:
    """Complete and write."""
    if options.output is not None:
        check_table("--output", options.output, [options.table])
    model = open_model(options.model)
    domains = domains_of(model)
    check_replaced(options.output, domains)
    types = {column: domain.dtype for column, domain in domains.items()}
    known = read(options.table, dtypes=texts_of(types))
    keys = []
    if options.on is not None:
        key = label([known], options.on)
        if key not in known:
            near = did_you_mean(options.on, known.columns)
            raise ParameterError(f"--on {options.on}: the table has no such column{near}")
        if key in domains:
            raise ParameterError(f"--on {options.on}: the model draws this column; leave --on out")
        keys = [known[key]]
        del known[key]
    table = model.complete(known, n_draws=options.draws, random_state=options.seed)
    sizes = np.asarray(table.attrs["effective_sample_size"])
    if sizes.size:
        logger.info("effective draws per record: %.1f, median %.1f", sizes.min(), np.median(sizes))
    say_rule_cost(model)
    table = pd.concat([*keys, table], axis=1)
    write_or_print(table, options.output)
    return 0
