"""``vflsynth evaluate``: real tables and a synthetic one -> numbers, and a report."""

from __future__ import annotations

import argparse
import logging
from typing import Any

import pandas as pd

from vflsynth.cli.console import say
from vflsynth.cli.judged import (
    READER,
    Judged,
    judged,
    read_judged,
    read_judged_contract,
    rule_metrics,
)
from vflsynth.cli.options import Option, check_page
from vflsynth.cli.records import open_model, say_uncovered
from vflsynth.evaluation import MetricResults, SDMetricsReports, evaluate, report
from vflsynth.exceptions import ParameterError, did_you_mean
from vflsynth.release import Dossier, release_gate

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Measure how close a synthetic table is to the real ones, and what it is good for.

CAUTION: this puts the real rows of all parties side by side, in this process. Fitting and sampling
never do; relations across parties cannot be judged without it. Run it where all parties agree that
their rows may meet, or with one party's table alone: then its columns only are compared.
"""
EPILOG = """\
examples:
  vflsynth evaluate --real lab=lab.csv clinic=clinic.parquet --on patient_id \\
      --synthetic synthetic.parquet --target diagnosis -o report.html
  vflsynth evaluate --real lab=lab.csv --synthetic lab-synthetic.csv --json > results.json

Of a folder of parquet files, real or synthetic, batches are in memory, if there is no contract.
Every line names the direction, a 95% interval, what real data score, and what a naive table scores.
"""


OPTIONS = [
    *judged("the table to judge"),
    Option(
        "--model DIR",
        "the model that drew the table: its training, and what the rules of its contract cost",
    ),
    Option(
        "--contract FILE",
        "hold the table against a contract: its rules, what it says of columns, and the limits of "
        "a release; whether it may be published decides 'vflsynth release' (default: the model's)",
    ),
    READER,
    Option("-o --output FILE", "HTML report, one file"),
    Option(
        "--sdmetrics", "SDMetrics' quality and diagnostic scores beside ours (extra 'sdmetrics')"
    ),
    Option("--json", "results as JSON, parts included"),
]


def run(options: argparse.Namespace) -> int:
    """Judge, print, and write the report."""
    results, dossier = judge(options)
    say(results.to_json() if options.json else "\n".join([repr(results), "", *results.remarks]))
    if dossier is not None and not options.json:
        say(f"\n{dossier}")
    return 0


def judge(options: argparse.Namespace) -> tuple[MetricResults, Dossier | None]:
    """Compute all metrics, hold them against a contract, write the report if one was asked for."""
    tables = [table.path for table in (*options.real, *options.holdout)]
    check_page("--output", options.output, [*tables, options.synthetic])
    model = None if options.model is None else open_model(options.model)
    if model is not None and options.output is None and model.contract is None:
        raise ParameterError("--model is shown in the report; say where to write it with --output")
    say_uncovered(model)
    ruled = options.contract is not None or (model is not None and model.contract is not None)
    if ruled and any(path.is_dir() for path in [*tables, options.synthetic]):
        logger.warning("a contract is held against all rows at once: tables are read into memory")
    judged = read_judged(options, in_batches=not ruled)
    contract = read_judged_contract(options, judged, model, "evaluation")
    real, synthetic = judged.real, judged.synthetic
    compared = [name for name in real.columns if name in synthetic.columns]
    _say_left_out(judged, compared)
    if isinstance(synthetic, pd.DataFrame):
        synthetic = synthetic[compared]
    arguments: dict[str, Any] = {
        "parties": judged.parties,
        "target": judged.target,
        "holdout": judged.holdout,
        "categorical": [c for c in judged.categorical if c in compared or c not in real.columns],
    }
    logger.info(
        "comparing %s synthetic rows with %s real ones", f"{len(synthetic):,}", f"{len(real):,}"
    )
    history = None if model is None else model.history_
    dossier = None
    further = [SDMetricsReports()] if options.sdmetrics else []
    if contract is not None:
        metrics = [*rule_metrics(model, contract, real, len(synthetic)), *further]
        dossier = release_gate(
            real, synthetic, model=model, contract=contract, metrics=metrics, **arguments
        )
        if options.output is None:
            return dossier.evaluation, dossier
        page = dossier.internal_page(history=history, reader=options.reader, report="evaluation")
    elif options.output is None:
        return evaluate(real, synthetic, columns=compared, metrics=further, **arguments), None
    else:
        page = report(
            real, synthetic, columns=compared, history=history, metrics=further, **arguments
        )
    page.save(options.output)
    logger.info("wrote %s", options.output)
    return page.results, dossier


def _say_left_out(judged: Judged, compared: list[Any]) -> None:
    """Say which columns only one side has: keys, other parties', those that a contract left out.

    Raises ParameterError if nothing is left, or not what was to be predicted.
    """
    for which, one in (("real", judged.real), ("synthetic", judged.synthetic)):
        if foreign := [str(name) for name in one.columns if name not in compared]:
            logger.info("not compared, only in the %s table: %s", which, ", ".join(foreign))
    if not compared:
        raise ParameterError("the real tables and the synthetic one have no column in common")
    if judged.target is not None and judged.target not in compared:
        raise ParameterError(
            f"--target {judged.target}: the synthetic table has no such column"
            f"{did_you_mean(judged.target, compared)}. Fix: name one of "
            f"{', '.join(map(str, compared))}"
        )
