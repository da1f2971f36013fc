"""``vflsynth audit``: a model and the tables it was fitted on -> what attackers would learn."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from typing import Any

import pandas as pd
from sklearn.base import clone

from vflsynth.audit import (
    AuditReport,
    Criteria,
    audit_disclosure,
    audit_intermediate_features,
    audit_synthetic_data,
)
from vflsynth.audit.settings import LEAST_MODELS
from vflsynth.audit.targets import RULES
from vflsynth.cli.console import say
from vflsynth.cli.judged import READER, REAL, check_reader
from vflsynth.cli.options import Option, check_folder, check_page, jobs, whole
from vflsynth.cli.records import open_model, say_uncovered
from vflsynth.cli.tables import KEY, by_party, label, match_on, on_of, read_party_frames
from vflsynth.exceptions import ColumnMismatchError, ParameterError, PartyNameError
from vflsynth.frames import key_of
from vflsynth.frames.party_frames import party_keys
from vflsynth.methods.synthesizer import BaseSynthesizer

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Train many models like a saved one, with and without a record, and let attackers learn to tell the
two kinds of synthetic tables apart (the VFLGAN paper's ASSD), or the two kinds of intermediate
features that a party would send (ASIF). For synthetic data, also fit one model on half of the
records, and ask whether these can be singled out, linked and inferred more easily than those of the
other half; --questions asks nothing else.

CAUTION: this puts the real rows of all parties side by side, in this process. Run it where all
parties agree that their rows may meet.
"""
EPILOG = """\
examples:
  vflsynth audit model --real lab=lab.csv clinic=clinic.parquet --on patient_id -o audit.html
  vflsynth audit model --real lab=lab.csv clinic=clinic.parquet --on patient_id \\
      --target P0017 --models 200 --jobs 4 --cache audit-cache
  vflsynth audit model --real lab=lab.csv clinic=clinic.parquet --on patient_id \\
      --minutes 10 --jobs -1 --sensitive diagnosis -o audit.html

Every number comes with a 95% interval. An attack that fails is no proof that nothing leaks.
"""

_SCHEMES = {"assd": audit_synthetic_data, "asif": audit_intermediate_features}


OPTIONS = [
    Option("model MODEL", "saved by 'vflsynth fit'"),
    REAL,
    *KEY,
    Option(
        "--scheme",
        "what the attacker sees: the synthetic table, or intermediate features (default: assd)",
        choices=tuple(_SCHEMES),
        default="assd",
    ),
    Option(
        "--target KEY...",
        f"keys of records to ask about, or {' or '.join(RULES)} (default: both)",
    ),
    Option(
        "--categorical COLUMN...",
        "numeric columns that the attacker should read as labels, such as codes",
    ),
    Option(
        "--models N",
        f"models to train with, and without, each record, from {LEAST_MODELS} up (default: 100)",
        default=100,
        type=whole(LEAST_MODELS),
    ),
    Option(
        "--minutes N",
        "time for it all: train as many models as that allows, at most --models, and where these "
        "are too few, models of fewer epochs than usual",
        type=float,
    ),
    Option(
        "--attacker",
        "what the attacker holds: 'model' asks models that can tell how probable a record is "
        "(default: table)",
        choices=("table", "model"),
        default="table",
    ),
    Option(
        "--questions",
        "ask only whether records can be singled out, linked and inferred: one model is trained",
    ),
    Option("--sensitive COLUMN...", "columns whose values must not be inferred (assd)"),
    Option(
        "--quasi-identifiers COLUMN...",
        "columns by which an attacker infers those (default: all others)",
        default=None,
    ),
    Option("--seed SEED", "default: 0", default=0),
    Option(
        "--jobs N", "processes that train models, -1 for one per processor (default: 1)", type=jobs
    ),
    Option(
        "--cache DIR",
        "keep what was observed of each model here, and continue an interrupted audit",
    ),
    Option("-o --output FILE", "HTML report, one file"),
    Option("--json", "results as JSON"),
    READER,
]


def run(options: argparse.Namespace) -> int:
    """Audit, print, and write the report."""
    check_page("--output", options.output, [table.path for table in options.real])
    check_folder("--cache", options.cache)
    model = open_model(options.model)
    frames = read_party_frames(by_party(options.real), model.method().stated_dtypes)
    on = match_on(frames, on_of(options.on), options.key_form)
    check_tables(model, frames, on)
    check_reader(model.contract, "audit", options.reader)
    say_uncovered(model)
    ask = _questions if options.questions else _audit
    audit: Any = ask(clone(model), frames, on, options)  # fitted as the saved one was
    say(audit.to_json() if options.json else str(audit))
    if options.output is not None:
        audit.page().save(options.output)
        logger.info("wrote %s", options.output)
    return 0


def _questions(
    synth: BaseSynthesizer, frames: dict[str, pd.DataFrame], on: Any, options: argparse.Namespace
) -> Criteria:
    """Ask the three questions alone."""
    if options.scheme != "assd" or options.minutes is not None:
        raise ParameterError(
            "--questions trains one model, as long as it takes. Fix: leave out --scheme and "
            "--minutes"
        )
    asked = {"attacker": options.attacker, "random_state": options.seed}
    asked |= {"verbose": 0 if options.quiet else 1, **_disclosure(frames, options)}
    logger.info("a model is trained on half of the records, for the other half to compare with")
    return audit_disclosure(synth, frames, on, **asked)


def _audit(
    synth: BaseSynthesizer, frames: dict[str, pd.DataFrame], on: Any, options: argparse.Namespace
) -> AuditReport:
    """Train many models, with and without a record."""
    arguments: dict[str, Any] = {
        "targets": [_target(frames, on, text) for text in options.target or RULES],
        "categorical": [label(frames.values(), name) for name in options.categorical],
        "n_models": options.models,
        "minutes": options.minutes,
        "n_jobs": options.jobs,
        "cache": options.cache,
        "random_state": options.seed,
        "verbose": 0 if options.quiet else 1,
    }
    if options.scheme == "assd":
        arguments |= {"attacker": options.attacker, "disclosure": _disclosure(frames, options)}
    elif options.sensitive or options.quasi_identifiers:
        raise ParameterError(
            "--sensitive and --quasi-identifiers are about the synthetic data (assd)"
        )
    elif options.attacker != "table":
        raise ParameterError("--attacker is about the synthetic data (assd)")
    audit: AuditReport = _SCHEMES[options.scheme](synth, frames, on, **arguments)
    return audit


def _disclosure(frames: Mapping[str, pd.DataFrame], options: argparse.Namespace) -> dict[str, Any]:
    """Return what the three questions are to be about."""
    known = options.quasi_identifiers
    return {
        "sensitive": [label(frames.values(), name) for name in options.sensitive],
        "quasi_identifiers": known and [label(frames.values(), name) for name in known],
        "categorical": [label(frames.values(), name) for name in options.categorical],
    }


def interrupted(options: argparse.Namespace) -> str:
    """Say what is left of an audit that Ctrl-C ended."""
    if options.cache is None:
        return "nothing was saved; with --cache, an audit can be continued"
    return f"{options.cache} has what was observed of the models so far; the same command continues"


def check_tables(
    model: BaseSynthesizer, frames: Mapping[str, pd.DataFrame], on: Any = None
) -> None:
    """Refuse tables whose parties or columns, keys left out, are not the model's."""
    for party in frames:
        if party not in model.parties_:
            raise PartyNameError(
                f"the model has no such party, it has {', '.join(model.parties_)}",
                fix="name the tables as they were named for the fit, with PARTY=FILE",
                party=party,
            )
    for party, half in model.parties_.items():
        if party not in frames:
            raise PartyNameError(
                "the model was fitted on a table of this party, which is not given",
                fix=f"add it to --real, as {party}=FILE",
                party=party,
            )
        fitted, prepared = list(half.transformer.kinds_), half.preparation
        if prepared is not None:
            fitted = list(dict.fromkeys((*prepared.columns, *prepared.left_out)))
        given = [name for name in frames[party].columns if name != key_of(on, party)]
        missing = [name for name in fitted if name not in given]
        extra = [name for name in given if name not in fitted]
        problems = [f"the table lacks columns of the model: {missing}"] if missing else []
        problems += [f"the table has columns that the model has not: {extra}"] if extra else []
        if problems:
            raise ColumnMismatchError(
                "; ".join(problems),
                fix="give the table that the model was fitted on, and the same key with --on",
                party=party,
            )


def _target(frames: Mapping[str, pd.DataFrame], on: Any, text: str) -> Any:
    """Find the key that a text on the command line means: keys may be numbers."""
    if text in RULES:
        return text
    party, frame = next(iter(frames.items()))
    keys = party_keys(frame, key_of(on, party))
    return next((key for key in keys.tolist() if str(key) == text), text)
