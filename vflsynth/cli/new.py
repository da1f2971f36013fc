"""``vflsynth new``: five questions -> a study file and a proposed contract."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth._schema import toml_text
from vflsynth._signatures import new_key
from vflsynth.cli.console import say
from vflsynth.cli.options import Option, check_file, nonnegative
from vflsynth.cli.tables import (
    TABLES,
    PartyFile,
    by_party,
    check_target,
    label,
    match_on,
    on_of,
    read_party_frames,
)
from vflsynth.columns.kinds import is_known_to_others
from vflsynth.contract import ColumnContract, Contract, PartyContract, propose, write_contract
from vflsynth.contract.proposing import proposal_text
from vflsynth.exceptions import MissingKeyError, ParameterError, VFLSynthError, did_you_mean
from vflsynth.frames import align_party_frames
from vflsynth.frames.io import infers_types
from vflsynth.privacy import PrivacyAccount
from vflsynth.release.measuring import QUESTIONS, limit_shown_by

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Write what 'vflsynth publish' needs: a study file, a contract proposed from the tables, a key that
signs the release, and with --epsilon a privacy account. What is not given as an option is asked
for: five questions.
"""
EPILOG = """\
examples:
  vflsynth new
  vflsynth new lab=lab.csv clinic=clinic.csv --on patient_id --target diagnosis \\
      --epsilon 0 --audit-minutes 10
"""

_HEADING = """\
What 'vflsynth publish' does. 'vflsynth schema study' writes a JSON schema of its keys for editors.
"""
_PRIVATE = """\
Of a private fit: delta is to be well below one over the number of records, and rows is as you like,
for the number of records is private.
"""
_DELTA = 1e-6  # whatever the number of records: it is published, and theirs is private
_NO_TARGET = "no column is to be predicted: target in the study names one"


OPTIONS = [
    TABLES,
    Option(
        "--on COLUMN*", "key column in every table, or PARTY=COLUMN, once for each", default=None
    ),
    Option("--target COLUMN", "what models trained on the table would predict; '': no"),
    Option("--epsilon E", "differential privacy; 0: none is promised", type=float),
    Option(
        "--audit-minutes N",
        "time for attacks on memberships; 0: no attack at all (default: the questions whether "
        "records can be singled out, linked and inferred, of one more model)",
        type=float,
    ),
    Option("--seed SEED", "of the study; default: one that nobody can guess"),
    Option("-o --output FILE", "default: study.toml", default=Path("study.toml")),
]


def run(options: argparse.Namespace) -> int:
    """Ask, propose, write."""
    path: Path = options.output
    contract, key = path.with_name("contract.toml"), path.with_name("publisher.pem")
    account = path.with_name("account.json")
    for file_ in (path, contract):
        check_file("--output", file_)
        if file_.exists():
            raise ParameterError(
                f"{file_} is there already. Fix: move it away, or name another folder (--output)"
            )
    question = "1/5 tables, as PARTY=FILE, apart by spaces"
    tables, frames = _answer(options.tables or None, question, None, _tables)
    shared = sorted(set.intersection(*({str(c) for c in f.columns} for f in frames.values())))
    question = "2/5 key column, or PARTY=COLUMN for each table, apart by spaces"
    on = _answer(options.on, question, next(iter(shared), ""), partial(_key, frames))
    question = "3/5 column to predict, or nothing"
    target = _answer(options.target, question, "", partial(check_target, frames, on))
    question = "4/5 ε of differential privacy, 0 for none"
    epsilon = _answer(options.epsilon, question, "0", partial(_epsilon, tables))
    question = "5/5 minutes for attacks on memberships, 0 for no attack, or nothing"
    minutes = _answer(options.audit_minutes, question, "", _number)
    privacy = {"mechanism": "pairwise_tables", "epsilon": epsilon, "delta": _DELTA}
    publish = {
        "output": "published",
        "target": target or None,
        "rows": 1000 if epsilon else None,
        "audit_minutes": minutes,
        "key": "publisher.pem",
        "account": account.name if epsilon else None,
        "seed": secrets.randbelow(2**31) if options.seed is None else options.seed,
    }
    study = {
        "on": on,
        "contract": "contract.toml",
        "parameters": {"privacy": privacy} if epsilon else None,
        "parties": {
            name: str(file_) if file_.is_absolute() else os.path.relpath(file_, path.parent)
            for name, file_ in tables.items()
        },
        "publish": publish,
    }
    heading = _HEADING + _PRIVATE * bool(epsilon)
    if epsilon and not account.exists():  # an error if there was one: nothing is written then
        PrivacyAccount.create(account)
        logger.info("%s: books every private fit of the study", account)
    _propose(frames, on, contract, _waived(target, minutes), private=bool(epsilon))
    artefacts.replace_text(path, toml_text(study, heading))
    if not key.exists():
        logger.info("%s: its public key is %s", key, new_key(key))
    say(f"{path} and {contract}: read and correct them")
    say(f"next: vflsynth publish {shlex.quote(str(path))}")
    return 0


def _propose(
    frames: Mapping[str, Any], on: Any, path: Path, waived: Mapping[str, str], *, private: bool
) -> None:
    """Write a contract for a person to correct; of a private study by names of columns alone."""
    limits: dict[str, float] = {}
    if private:
        known = ColumnContract(role="quasi-identifier")
        named = {n: [c for c in f.columns if is_known_to_others(c)] for n, f in frames.items()}
        proposed = Contract(
            {n: PartyContract(dict.fromkeys(own, known)) for n, own in named.items()}
        )
        heading = "By names of columns. Bounds and categories that are public save ε: add them."
    else:
        on = match_on(frames, on, None)
        alignment = align_party_frames(frames, on=on, allow_empty_columns=True)[2]
        logger.info("%s", alignment)
        n = alignment.n_matched
        proposed, reasons = propose(frames, on)
        heading = proposal_text(reasons)
        if (limit := limit_shown_by(n)) > proposed.release.singling_out:
            limits = {name: limit for name in QUESTIONS if name not in waived}
        if limits:
            heading += (
                f"\n\nLimits of attacks: {n:,} matched records can show {limit:g} of a model that "
                f"tells nothing, and not {proposed.release.singling_out:g}."
            )
    proposed = replace(proposed, release=replace(proposed.release, waived=waived, **limits))
    write_contract(proposed, path, heading)


def _waived(target: str, minutes: float | None) -> dict[str, str]:
    """Return clauses that the study measures nothing for, and why: a release has to say so."""
    waived = {} if target else {"utility": _NO_TARGET, "inference": _NO_TARGET}
    if minutes is None:
        waived["membership"] = "memberships were not attacked: audit_minutes in the study does that"
    elif minutes == 0:
        waived |= dict.fromkeys(("membership", *QUESTIONS), "no attack was made: audit_minutes = 0")
    return waived


def _tables(given: list[PartyFile] | str) -> tuple[dict[str, Path], dict[str, Any]]:
    """Return all parties' files, and what is in them."""
    tables = by_party(map(PartyFile.parse, given.split()) if isinstance(given, str) else given)
    if not tables:
        raise ParameterError("there are no tables; name them as PARTY=FILE")
    return tables, read_party_frames(tables)


def _key(frames: Mapping[str, Any], given: list[str] | str) -> str | dict[str, str] | None:
    """Return the key column of all tables, or of each, for the study."""
    on = on_of((given.split() if isinstance(given, str) else given) or None)
    named = on if isinstance(on, dict) else dict.fromkeys(frames, on)
    for party, frame in frames.items():
        column = named.get(party)
        if on is not None and (column is None or label([frame], column) not in frame):
            names = [*map(str, frame.columns)]
            missing = f"no column {column!r}" if column else "no column is named"
            raise MissingKeyError(
                f"{missing} to match records by; there are {', '.join(names)}"
                f"{did_you_mean(column or '', names)}",
                fix=" ".join(f"--on {each}=COLUMN" for each in frames),
                party=party,
            )
    return on


def _epsilon(tables: Mapping[str, Path], given: float | str) -> float | None:
    """Return ε, once the files can be used for a private fit."""
    epsilon = _number(given)
    for party, file_ in tables.items() if epsilon else ():
        if infers_types(file_):
            raise ParameterError(
                f"party {party!r}: types of {file_} are read off its records, and a private fit "
                "needs types that are fixed. Fix: store the table as parquet"
            )
    return epsilon


def _number(given: float | str) -> float | None:
    return nonnegative(str(given)) if given != "" else None


def _answer(given: Any, question: str, default: str | None, use: Callable[[Any], Any]) -> Any:
    """Use what was given, or what a person says; who cannot be understood is asked again."""
    while True:
        try:
            return use(_asked(question, default) if given is None else given)
        except (VFLSynthError, argparse.ArgumentTypeError) as error:
            if given is not None or not sys.stdin.isatty():
                if not isinstance(error, VFLSynthError):
                    error.add_note(f"Asked was: {question}")
                raise
            logger.error("%s", error)


def _asked(question: str, default: str | None) -> str:
    """Ask a person; without one, the default."""
    if not sys.stdin.isatty():
        if default is None:
            raise ParameterError(f"{question}: give it as an option, nobody can be asked")
        return default
    sys.stderr.write(f"{question}{f' [{default}]' if default else ''}: ")
    sys.stderr.flush()
    if not (answer := sys.stdin.readline()):  # Ctrl-D
        raise KeyboardInterrupt
    return answer.strip() or default or ""
