"""``vflsynth fit``: party tables in files -> a saved model."""

from __future__ import annotations

import argparse
import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth.cli import configured
from vflsynth.cli.console import say
from vflsynth.cli.options import (
    Group,
    Option,
    beside,
    check_apart,
    check_artefact,
    is_taken,
    nonnegative,
)
from vflsynth.cli.tables import KEY, TABLES, match_on, read_party_frames
from vflsynth.configuration import Configuration
from vflsynth.exceptions import ParameterError
from vflsynth.frames import DrawnRecords, MatchOn, read_records
from vflsynth.learning import Method
from vflsynth.methods.synthesizer import KIND, BaseSynthesizer, refuse_drawn
from vflsynth.run.local import KIND as CHECKPOINT
from vflsynth.run.loop import EarlyStopping

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Match the parties' records, train a synthesizer, and save the model.

The tables are matched by a key column and, but for WGANGPSynthesizer, never joined: each party's
networks see its own columns only. The key is not modelled. What was matched and dropped is reported
before training starts.
"""
EPILOG = """\
examples:
  vflsynth fit lab=lab.csv clinic=clinic.parquet --on patient_id --output model
  vflsynth fit lab.csv clinic.csv --on id --kind zip=categorical --seed 0 --output model
  vflsynth fit lab.csv clinic.csv --on id --method VertiGANSynthesizer --epochs 50 --output model
  vflsynth fit lab.parquet clinic.parquet --on id --output model \\
      --privacy 'dpsgd, epsilon=3, delta=1e-6, n_records=1000' --bounds age=0,120
  vflsynth account account.json --create --epsilon 6 --delta 1e-6
  vflsynth fit lab.parquet clinic.parquet --on id --output model \\
      --privacy 'latent_tree, epsilon=3, delta=1e-6' --method DPLTSynthesizer --account account.json
  vflsynth inspect lab.csv clinic.csv --on id --write-contract contract.toml
  vflsynth fit lab.csv clinic.csv --on id --contract contract.toml --output model
  vflsynth fit --config run.toml --output model
  vflsynth fit --config job.toml lab=lab.parquet clinic=clinic.parquet --output model
  vflsynth fit lab/ clinic.parquet --on id --max-records 1000000 --seed 0 --output model
  vflsynth fit lab.csv clinic.csv --on id --seed 0 --checkpoint ckpt --output model
  vflsynth fit lab.csv clinic.csv --on id --seed 0 --resume ckpt --output model

run.toml says the same as options, and options override it; 'vflsynth schema study' explains its
keys. A job of 'vflsynth parties' is one without tables and columns, which its sites' files have:
  method = "VFLGANSynthesizer"
  on = "patient_id"
  [parties]                      # relative to this file
  lab = "lab.parquet"
  clinic = "clinic.parquet"
  [parameters.privacy]
  mechanism = "dpsgd"
  epsilon = 3

The model holds no row of any table, but what was learned from the columns: categories, ranges,
means. Without --privacy, a model and its samples can leak information about records; with it,
'vflsynth inspect' shows what is promised, and tables must be parquet, whose types were fixed
beforehand.

Ctrl-C saves the model of the finished epochs: at --output, or as OUTPUT-interrupted if there is a
model already, which stays. Before the first epoch has ended there is nothing to save.
"""


OPTIONS = [
    Group(
        "tables",
        [
            TABLES,
            *KEY,
            Option(
                "--max-records N",
                "read tables in batches, and learn from at most N of the matched records, drawn by "
                "--seed; for csv and parquet files, and folders of parquet, that do not fit into "
                "memory",
            ),
        ],
    ),
    *configured.OPTIONS,
    Group("model", [Option("-o --output DIR", "where to save the model", required=True)]),
    Group(
        "training",
        [
            Option(
                "--seed SEED",
                "same seed, tables and options: same model, but for the noise of --privacy",
            ),
            Option("--patience N", "stop after N epochs without a lower Fréchet distance"),
            Option(
                "--most-hours HOURS",
                "stop after the first steps if they tell that training takes longer",
                type=nonnegative,
            ),
            Option(
                "--transcript",
                "count what crosses each party's boundary; 'vflsynth inspect' shows it",
            ),
            Option(
                "--account FILE",
                "book what --privacy releases in this privacy account; see 'vflsynth account'",
            ),
        ],
    ),
    Group(
        "long runs (need --seed)",
        [
            Option("--checkpoint DIR", "save the state of training here regularly"),
            Option("--checkpoint-every N", "epochs (default: 10)"),
            Option(
                "--resume DIR",
                "continue from this checkpoint, with the same tables, options and seed",
            ),
        ],
    ),
]


def run(options: argparse.Namespace) -> int:
    """Fit and save; 130 if training was interrupted, with the finished epochs saved."""
    configuration = configured.configured(options, options.tables, random_state=options.seed)
    if not configuration.parties:
        raise ParameterError("there are no tables; name them as PARTY=FILE, or in --config")
    synth = configuration.make()
    if synth.random_state is None and (options.checkpoint or options.resume):
        raise ParameterError(
            "--checkpoint and --resume need --seed: a run can only be continued "
            "with the seed that it was started with"
        )
    _check_targets(options)
    if is_taken(options.output):
        logger.info("%s is replaced once the new model is ready", options.output)
    arguments = _arguments(synth, options, configuration)
    method = synth.method()  # checks all parameters before anything is read
    frames = _read(options, configuration, method)
    synth = configured.synthesizer(configuration, frames, quiet=options.quiet)
    on = match_on(frames, configuration.on, configuration.key_form)
    synth.fit(frames, on=on, **arguments)
    if synth.interrupted_:
        _save_interrupted(synth, options.output)
        return 130
    _save(synth, options.output)
    return 0


def interrupted(options: argparse.Namespace) -> str:
    """Say what is left of a fit that Ctrl-C ended at once."""
    checkpoint = options.checkpoint or options.resume
    if checkpoint is None or not is_taken(checkpoint):
        return "nothing was saved"
    return f"no model was saved; --resume {checkpoint} continues from the checkpoint"


def training_sentence(history: pd.DataFrame) -> str:
    """Say how long training was, which epoch was kept and its Fréchet distance."""
    if history.empty:
        return "in one go, without epochs"
    plural = "" if len(history) == 1 else "s"
    text = f"{len(history):,} epoch{plural}"
    if "seconds" in history:  # private models do not tell
        text += f" in {history['seconds'].sum():.1f} s"
    chosen = history[history["chosen"]] if "chosen" in history else history[:0]
    if len(chosen):
        text += f"; epoch {chosen.index[0]:,} was kept"
        if "frechet_distance" in chosen:
            distance = chosen["frechet_distance"].iloc[0]
            text += f", Fréchet distance of the encoded records {distance:.3g}"
    return text


def _arguments(
    synth: BaseSynthesizer, options: argparse.Namespace, configuration: Configuration
) -> dict[str, Any]:
    """Return what `fit` is told, once the synthesizer is known to listen."""
    names = ("checkpoint", "resume", "transcript", "account", "most_hours")
    asked = {name: getattr(options, name) for name in names}
    asked["callbacks"] = options.patience and [EarlyStopping(options.patience)]
    asked = {name: value for name, value in asked.items() if value}
    known = inspect.signature(synth.fit).parameters.keys()
    if configuration.most_hours is not None and "most_hours" in known:
        asked.setdefault("most_hours", configuration.most_hours)
    for name in asked.keys() - known:
        option = "patience" if name == "callbacks" else name.replace("_", "-")
        raise ParameterError(
            f"--{option} is for methods that train in epochs, and {configuration.method} does not"
        )
    if asked.keys() & {"checkpoint", "resume"}:
        every = options.checkpoint_every
        asked["checkpoint_every"] = configuration.checkpoint_every if every is None else every
    return asked


def _read(
    options: argparse.Namespace, configuration: Configuration, method: Method
) -> Mapping[str, pd.DataFrame]:
    """Read the tables, or as many of their records as were asked for."""
    most = configuration.max_records if options.max_records is None else options.max_records
    if most is None:
        return read_party_frames(configuration.parties, method.stated_dtypes)
    refuse_drawn(method)
    return draw_records(configuration, most, options.seed)


def draw_records(configuration: Configuration, most: int, seed: int | None) -> DrawnRecords:
    """Read so many records of tables that need not fit into memory."""
    on = MatchOn(configuration.on, configuration.key_form or "")
    return read_records(configuration.parties, on, max_records=most, random_state=seed)


def _check_targets(options: argparse.Namespace) -> None:
    """Check everything that will be written, before training rather than after it."""
    checkpoint, resume = options.checkpoint, options.resume
    apart = {"--output": options.output, "--resume": resume}
    goes_on = checkpoint and resume and checkpoint.resolve() == resume.resolve()
    if not goes_on:
        apart["--checkpoint"] = checkpoint
    check_apart(apart)
    check_artefact("--output", options.output, KIND)
    if checkpoint is not None:
        check_artefact("--checkpoint", checkpoint, CHECKPOINT)
        if is_taken(checkpoint) and not goes_on:
            raise ParameterError(
                f"--checkpoint: {checkpoint} holds the checkpoint of an earlier run, which would "
                f"be lost; continue that run with --resume {checkpoint}, remove the checkpoint, or "
                "choose another path"
            )


def _save(synth: BaseSynthesizer, output: Path) -> None:
    synth.save(output)
    assert synth.alignment_ is not None  # only loading and copying can lose it
    columns = sum(len(half.transformer.kinds_) for half in synth.parties_.values())
    say(
        f"trained on {synth.alignment_.n_used:,} records of {len(synth.parties_)} parties, "
        f"{columns} columns: {training_sentence(synth.history_)}\n"
        f"model saved: {output}"
    )
    if synth.privacy_ledger_ is not None:
        say(f"what is promised, and what is not: vflsynth inspect {output}")


def _save_interrupted(synth: BaseSynthesizer, output: Path) -> None:
    """Save the finished epochs, if there are any, and nothing in the place of another model."""
    stays = f"; {output} is what it was" if is_taken(output) else ""
    if synth.history_.empty:
        logger.warning("interrupted before the first epoch ended; nothing was saved%s", stays)
        return
    if stays:
        output = beside(output)
        logger.warning("interrupted%s, and the model so far is saved beside it", stays)
    _save(synth, output)
