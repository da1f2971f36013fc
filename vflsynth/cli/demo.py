"""``vflsynth demo``: the main job on a real table that comes with scikit-learn."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from vflsynth import _artefacts as artefacts
from vflsynth.cli import publish
from vflsynth.cli.console import say
from vflsynth.cli.options import Option, check_folder
from vflsynth.datasets import load_breast_cancer_parties
from vflsynth.frames import align_party_frames, write_table

DESCRIPTION = """\
The main job from beginning to end, in about a minute.

A laboratory and a clinic know different things about the same patients (scikit-learn's breast
cancer table, split between them; a quarter of the patients is held out). Their tables are written
to files, and the commands that make one synthetic table of them are shown as they are run. The
release at the end, which holds the table against the contract of the two, is the only step that
puts rows of both side by side.
"""
EPILOG = """\
examples:
  vflsynth demo
  vflsynth demo --output demo-output --epochs 20 --seed 1
"""

KEY = "patient_id"
HELD_OUT = 0.25
"""Share of the matched patients that the model is not fitted on."""

_FILES = {"lab": "lab.csv", "clinic": "clinic.parquet"}

_CONTRACT = """\
# What the two agreed on. 'vflsynth inspect lab.csv clinic.parquet --write-contract FILE'
# proposes one.
rare_records = 5
# "Worst" is the mean of a patient's three largest cells. These rules are about columns of both
# parties, and looked at in drawn rows only.
rules = ["col('mean area') <= col('worst area')", "col('mean radius') <= col('worst radius')"]

[parties.lab]
rules = ["col('concave points error') <= col('mean concave points')"]

[parties.clinic.columns.diagnosis]
role = "sensitive"

# Limits that are not written here are the defaults; what nobody measures has to be waived.
[release.waived]
unique_combinations = "measurements of cells are known to the two parties only"
membership = "an audit takes longer than a demo: vflsynth audit"
singling_out = "an audit takes longer than a demo: vflsynth audit"
linkability = "an audit takes longer than a demo: vflsynth audit"
inference = "an audit takes longer than a demo: vflsynth audit"
"""

_STUDY = """\
method = "VFLGANSynthesizer"
on = "patient_id"
contract = "contract.toml"

[parties]
lab = "lab.csv"
clinic = "clinic.parquet"

[parameters]
{epochs}

[publish]
output = "."
rows = {rows}
target = "diagnosis"
audit_minutes = 0
seed = {seed}

[publish.holdout]
lab = "held-out/lab.csv"
clinic = "held-out/clinic.parquet"
"""


OPTIONS = [
    Option(
        "-o --output DIR",
        "folder to write to (default: demo-output)",
        default=Path("demo-output"),
    ),
    Option("--epochs N", "fewer give a quick and poor result"),
    Option("--seed SEED", "default: 0", default=0),
    Option("--only-tables", "write the parties' tables and stop"),
]


def run(options: argparse.Namespace) -> int:
    """Write the tables, and publish."""
    out: Path = options.output
    check_folder("--output", out)
    n_train = _write_tables(out, options.seed)
    if options.only_tables:
        say("\n".join(str(out / file) for file in _FILES.values()))
        return 0
    study = out / "study.toml"
    epochs = "" if options.epochs is None else f"epochs = {options.epochs}"
    text = _STUDY.format(rows=n_train, seed=options.seed, epochs=epochs)
    artefacts.replace_text(study, text)
    own = argparse.Namespace(study=study, plan=False, quiet=options.quiet)
    code = publish.run(own)
    return 0 if code == 1 else code  # a table that does not pass is a demo, too


def interrupted(options: argparse.Namespace) -> str:
    """Say what is left of a demo that Ctrl-C ended."""
    return f"what was finished before is in {options.output}"


def _write_tables(out: Path, seed: int) -> int:
    """Write what each party has, held-out patients apart; return how many records can be used."""
    frames = load_breast_cancer_parties(seed)
    keys = align_party_frames(frames, on=KEY)[1]
    n_held_out = int(HELD_OUT * len(keys))
    held_out = np.random.default_rng(seed).choice(keys.to_numpy(), n_held_out, replace=False)
    (out / "held-out").mkdir(parents=True, exist_ok=True)
    (out / "contract.toml").write_text(_CONTRACT, encoding="utf-8")
    for party, frame in frames.items():
        is_held_out = frame[KEY].isin(held_out)
        write_table(frame[~is_held_out].reset_index(drop=True), out / _FILES[party])
        write_table(frame[is_held_out].reset_index(drop=True), out / "held-out" / _FILES[party])
    return len(keys) - n_held_out
