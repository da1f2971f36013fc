"""``vflsynth demo``: the main job on a real table that comes with scikit-learn."""

from __future__ import annotations

import argparse
import logging
import shlex
from pathlib import Path
from types import ModuleType

import numpy as np

from vflsynth.cli import fit, release, sample
from vflsynth.cli.console import say, table
from vflsynth.cli.options import file, flag, number
from vflsynth.datasets import load_breast_cancer_parties
from vflsynth.frames import align_party_frames, write_table
from vflsynth.release import Dossier

logger = logging.getLogger("vflsynth")

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

KEY, TARGET = "patient_id", "diagnosis"
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    file(
        parser,
        "-o --output",
        "DIR",
        "folder to write to (default: demo-output)",
        default=Path("demo-output"),
    )
    number(parser, "--epochs", "fewer give a quick and poor result")
    number(parser, "--seed", "default: 0", default=0)
    flag(parser, "--only-tables", "write the parties' tables and stop")


def run(options: argparse.Namespace) -> int:
    """Write the tables, run the commands, sum up."""
    out: Path = options.output
    n_train = _write_tables(out, options.seed)
    tables = [f"{party}={out / file}" for party, file in _FILES.items()]
    if options.only_tables:
        say("\n".join(str(out / file) for file in _FILES.values()))
        return 0
    held_out = [f"{party}={out / 'held-out' / file}" for party, file in _FILES.items()]

    arguments = [*tables, "--on", KEY, "--contract", str(out / "contract.toml")]
    arguments += ["--seed", str(options.seed), "--transcript"]
    if options.epochs is not None:
        arguments += ["--epochs", str(options.epochs)]
    fit_options = _options(fit, [*arguments, "--output", str(out / "model")], options)
    if code := fit.run(fit_options):
        return code

    synthetic = str(out / "synthetic.parquet")
    sample.run(_options(sample, [str(out / "model"), "-n", str(n_train), "-o", synthetic], options))

    arguments = [str(out / "model"), "--real", *tables, "--holdout", *held_out, "--on", KEY]
    arguments += ["--synthetic", synthetic, "--target", TARGET, "--output", str(out / "release")]
    dossier = release.judge(_options(release, arguments, options))

    say(f"{dossier}\n{_summary(dossier, out)}")
    return 0


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


def _options(
    command: ModuleType, arguments: list[str], demo: argparse.Namespace
) -> argparse.Namespace:
    """Show a command as one would type it, and parse it."""
    name = command.__name__.rpartition(".")[2]
    logger.info("\n$ vflsynth %s %s", name, shlex.join(arguments))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments, argparse.Namespace(quiet=demo.quiet, debug=demo.debug))


def _summary(dossier: Dossier, out: Path) -> str:
    results = dossier.evaluation
    measures = {
        "Fréchet distance": "frechet_distance",
        "error of relations within parties": "association_error_within",
        "error of relations across parties": "association_error_across",
        "accuracy of a model on held-out patients": "train_synthetic_test_real",
    }
    rows = [
        {
            "": title,
            "synthetic": _number(results[name].value),
            "real": _number(results[name].baseline),
            "naive": _number(results[name].naive),
            "better": results[name].metric.direction,
        }
        for title, name in measures.items()
    ]
    return f"""
{table(rows, indent="")}

synthetic  the synthetic table against the real one; the model trained on synthetic rows (TSTR)
real       one half of the real table against the other; the model trained on real rows (TRTR)
naive      columns made independent of each other; the most frequent answer

report           {out / "release" / "internal" / "report.html"}
to hand out      {out / "release" / "public" if dossier.passed else "nothing: a clause fails"}
synthetic table  {out / "synthetic.parquet"}"""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
