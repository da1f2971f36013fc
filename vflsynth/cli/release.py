"""``vflsynth release``: model, tables, contract and audit -> a dossier with a verdict."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth._artefacts import file_digest
from vflsynth._signatures import public_key
from vflsynth.cli.console import say
from vflsynth.cli.judged import (
    READER,
    Judged,
    judged,
    read_judged,
    read_judged_contract,
    rule_metrics,
)
from vflsynth.cli.options import Option, check_artefact
from vflsynth.cli.records import open_model
from vflsynth.codec import parameters_to_json, to_json
from vflsynth.exceptions import ColumnMismatchError, ParameterError, UnusableFileError
from vflsynth.frames import key_of
from vflsynth.frames.io import suffix_of
from vflsynth.frames.keys import STEPS, comparable_types, in_form
from vflsynth.frames.party_frames import party_keys
from vflsynth.frames.sources import records_of
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.privacy import PrivacyAccount
from vflsynth.release import release_gate, write_release
from vflsynth.release.publishing import KIND

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Hold a synthetic table against every clause of its contract: the worst column and pair, traces of
single records, rules, detection, usefulness, audited attacks, the privacy ledger.

DIR/internal is to keep: it shows real rows. DIR/public is to hand out: the table, a page and its
JSON twin without any real row, metadata, digests, and a signature. A release that fails has no
public part, and the exit code is 1. A clause that nobody measured decides nothing: the table passes
once it is measured, or the contract waives it and says why.

CAUTION: as 'vflsynth evaluate', this puts the real rows of all parties side by side.
"""
EPILOG = """\
examples:
  vflsynth release model --real lab=lab.csv clinic=clinic.parquet --on patient_id \\
      --synthetic synthetic.parquet --target diagnosis --audit audit.json \\
      --key publisher.pem -o release
  vflsynth verify release/public --public PUBLIC

Limits and waivers are in the contract:
  [release]
  worst_column = 0.05
  [release.waived]
  membership = "audited with the last edition"
"""


OPTIONS = [
    Option("model MODEL", "saved by 'vflsynth fit'"),
    *judged("the table to publish"),
    Option(
        "--contract FILE",
        "limits and roles (default: the contract that the model was fitted with)",
    ),
    READER,
    Option("--audit FILE", "what 'vflsynth audit --json' printed"),
    Option(
        "--account FILE",
        "the privacy account that the fit was booked in: then the clause on epsilon is about "
        "everything that was released about these records",
    ),
    Option(
        "--key FILE",
        "the publisher's private key, made by 'vflsynth parties key'; without it, nothing is "
        "signed",
    ),
    Option("--title TEXT", "of the page", default="Synthetic table"),
    Option("--seed SEED", "of the evaluation", default=0),
    Option("-o --output DIR", "folder of the dossier", required=True),
]


def run(options: argparse.Namespace) -> int:
    """Judge, print, and write both editions; 1 if a clause fails."""
    check_artefact("--output", options.output, KIND)
    suffix_of(options.synthetic)  # another kind of file is an error
    if options.synthetic.is_dir():
        raise ParameterError(f"--synthetic {options.synthetic} is a folder; one file is handed out")
    if options.key is not None:
        public_key(options.key)  # before long work
    inputs = {f"real table of {table.party}": records_of(table.path) for table in options.real}
    inputs |= {f"held-out table of {own.party}": records_of(own.path) for own in options.holdout}
    given = {"audit": options.audit, "privacy account": options.account}
    inputs |= {name: path for name, path in given.items() if path is not None}
    model = open_model(options.model)
    read = {"table": options.synthetic, **inputs}
    seen = {name: file_digest(path) for name, path in read.items()}
    audit = None if options.audit is None else _audit(options.audit)
    judged = read_judged(options)
    _check_fitted_on(model, judged)
    contract = read_judged_contract(options, judged, model, "internal")
    dossier = release_gate(
        judged.real,
        _publishable(judged),
        model=model,
        contract=contract,
        parties=judged.parties,
        target=judged.target,
        holdout=judged.holdout,
        categorical=judged.categorical,
        audit=audit,
        account=None if options.account is None else PrivacyAccount(options.account),
        metrics=rule_metrics(model, contract, judged.real, len(judged.synthetic)),
        random_state=options.seed,
    )
    write_release(
        dossier,
        options.output,
        options.synthetic,
        inputs=inputs,
        settings={
            "model": parameters_to_json(model),
            "fitted": model.settings_,
            "contract": None if contract is None else to_json(contract, "contract"),
        },
        seen=seen,
        key=options.key,
        fresh_keys={key_of(judged.on, party) for party in judged.frames},
        history=model.history_,
        title=options.title,
        reader=options.reader,
    )
    logger.info("internal edition: %s", options.output / "internal" / "report.html")
    if dossier.passed:
        logger.info("to hand out: %s", options.output / "public")
    else:
        logger.info("nothing to hand out: it does not pass")
    say(str(dossier))
    return 0 if dossier.passed else 1


def _check_fitted_on(model: BaseSynthesizer, judged: Judged) -> None:
    """Refuse tables of fewer records than a model's: copies of the others would be taken for new.

    As many others are not seen: a model holds no record to compare them with.
    """
    if model.alignment_ is None or model.privacy_ledger_ is not None:
        return
    n, n_fitted = len(judged.real), model.alignment_.n_used
    if n < n_fitted:
        raise ParameterError(
            f"the model was fitted on {n_fitted:,} records, and the tables of --real have {n:,} in "
            "common: what it copied of the others would not be seen. Fix: give the tables that it "
            "was fitted on"
        )


def _publishable(judged: Judged) -> pd.DataFrame:
    """Return what is judged, all but fresh keys: nothing goes out that nobody looked at."""
    synthetic: pd.DataFrame = judged.synthetic
    keys = {party: key_of(judged.on, party) for party in judged.frames}
    shared = [name for name in synthetic.columns if name in judged.real.columns]
    held: dict[Any, Any] = {name: synthetic[name] for name in synthetic.columns.drop(shared)}
    index = synthetic.index
    if index.name is not None or not isinstance(index, pd.RangeIndex):  # parquet holds it, too
        is_key = None in keys.values() and index.nlevels == 1
        held[None if is_key else index.name or "index"] = index
    for on in {*keys.values()} & {*held}:
        known = (party_keys(frame, keys[party]) for party, frame in judged.frames.items())
        fresh, *real = map(_written, (pd.Index(held.pop(on)), *known))
        if fresh & set().union(*real):
            raise ColumnMismatchError(
                "the table to publish holds keys of real records",
                fix="leave them out, or let 'vflsynth sample --keys' make fresh ones",
                column="index" if on is None else on,
            )
    for name in held:
        raise ColumnMismatchError(
            "is in the table to publish and in no real one, so that it cannot be judged",
            fix="drop it from the file, or give the tables of all parties with --real",
            column=name,
        )
    return synthetic[shared]


def _written(keys: pd.Index) -> set[Any]:
    """Return keys that are equal however they are written, and in whichever type."""
    return {*in_form(comparable_types(keys), " ".join(STEPS))}


def _audit(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnusableFileError(f"--audit: {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UnusableFileError(f"--audit: {path} is not what 'vflsynth audit --json' prints")
    return content
