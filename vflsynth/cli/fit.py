"""``vflsynth fit``: party tables in files -> a saved model."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth.cli.console import say
from vflsynth.cli.tables import PARTY_FILES, PartyFile, key_label, label, read_party_frames
from vflsynth.cli.targets import beside, check_apart, check_artefact, is_taken
from vflsynth.columns.kinds import TRANSFORMERS
from vflsynth.exceptions import ArtefactError, ParameterError
from vflsynth.model import PARTY_KIND
from vflsynth.presets import PRESETS, preset
from vflsynth.synthesizers import VFLGANSynthesizer
from vflsynth.synthesizers.base import KIND
from vflsynth.training import EarlyStopping
from vflsynth.training.checkpoint import KIND as CHECKPOINT

logger = logging.getLogger("vflsynth")

SUMMARY = "learn a model from the tables of two or more parties"
DESCRIPTION = """\
Match the parties' records, train VFLGAN, and save the model.

The tables are matched by a key column and never joined: each party's networks see its own columns
only. The key is not modelled. What was matched and dropped is reported before training starts.
"""
EPILOG = """\
examples:
  vflsynth fit lab=lab.csv clinic=clinic.parquet --on patient_id --output model
  vflsynth fit lab.csv clinic.csv --on id --kind zip=categorical --seed 0 --output model
  vflsynth fit lab.csv clinic.csv --on id --seed 0 --checkpoint ckpt --output model
  vflsynth fit lab.csv clinic.csv --on id --seed 0 --resume ckpt --output model

The model holds no row of any table, but what was learned from the columns: categories, ranges,
means. Without differential privacy, a model and its samples can leak information about records.

Ctrl-C saves the model of the finished epochs: at --output, or as OUTPUT-interrupted if there is a
model already, which stays. Before the first epoch has ended there is nothing to save.
"""

_OWN_OPTIONS = {
    "random_state": "--seed",
    "column_kinds": "--kind",
    "device": "--device",
    "verbose": "--quiet",
}
"""Parameters that '--set' leaves to options of their own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    tables = parser.add_argument_group("tables")
    tables.add_argument(
        "tables",
        nargs="+",
        metavar=PARTY_FILES,
        type=PartyFile.parse,
        help="a party's table; FILE alone names the party after the file",
    )
    tables.add_argument(
        "--on",
        metavar="COLUMN",
        help="key column in every table; without it, row i is the same record everywhere",
    )
    tables.add_argument(
        "--kind",
        action="append",
        default=[],
        metavar="COLUMN=KIND",
        type=_kind,
        help=f"read a column as {', '.join(TRANSFORMERS)}; repeatable (default: inferred, "
        "see 'vflsynth inspect TABLE')",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "-o", "--output", required=True, metavar="DIR", type=Path, help="where to save the model"
    )
    model.add_argument(
        "--halves",
        metavar="DIR",
        type=Path,
        help="also save each party's half alone, as DIR/PARTY, to be handed to that party",
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="passes over the records (default: from their number)",
    )
    training.add_argument(
        "--seed", type=int, metavar="N", help="same seed, tables and options: same model"
    )
    training.add_argument("--preset", choices=PRESETS, help="settings of one of the paper's tables")
    training.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=_setting,
        help="any parameter of VFLGANSynthesizer, its value in JSON, such as "
        "generator_hidden=[64,64]; repeatable",
    )
    training.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help="stop after N epochs without a lower Fréchet distance",
    )
    training.add_argument(
        "--device",
        default="auto",
        help="such as cpu or cuda:0 (default: a GPU if there is one)",
    )
    long = parser.add_argument_group("long runs (need --seed)")
    long.add_argument(
        "--checkpoint", metavar="DIR", type=Path, help="save the state of training here regularly"
    )
    long.add_argument(
        "--checkpoint-every", type=int, default=10, metavar="N", help="epochs (default: 10)"
    )
    long.add_argument(
        "--resume",
        metavar="DIR",
        type=Path,
        help="continue from this checkpoint, with the same tables, options and seed",
    )
    parser.add_argument(
        "--transcript",
        action="store_true",
        help="count what crosses each party's boundary; 'vflsynth inspect' shows it",
    )


def run(options: argparse.Namespace) -> int:
    """Fit and save; 130 if training was interrupted, with the finished epochs saved."""
    if options.seed is None and (options.checkpoint or options.resume):
        raise ParameterError(
            "--checkpoint and --resume need --seed: a run can only be continued "
            "with the seed that it was started with"
        )
    _check_targets(options)
    frames = read_party_frames(options.tables)
    synth = VFLGANSynthesizer(**_parameters(options, frames))
    synth.fit(
        frames,
        on=key_label(frames.values(), options.on),
        callbacks=[] if options.patience is None else [EarlyStopping(options.patience)],
        checkpoint=options.checkpoint,
        checkpoint_every=options.checkpoint_every,
        resume=options.resume,
        transcript=options.transcript,
    )
    if synth.interrupted_:
        _save_interrupted(synth, options.output, options.halves)
        return 130
    _save(synth, options.output, options.halves)
    return 0


def interrupted(options: argparse.Namespace) -> str:
    """Say what is left of a fit that Ctrl-C ended at once."""
    checkpoint = options.checkpoint or options.resume
    if checkpoint is None or not is_taken(checkpoint):
        return "nothing was saved"
    return f"no model was saved; --resume {checkpoint} continues from the checkpoint"


def training_summary(history: pd.DataFrame) -> dict[str, Any]:
    """Epochs, seconds, which epoch was chosen and its Fréchet distance; JSON-safe."""
    chosen = history.index[history["chosen"]] if "chosen" in history else history.index[:0]
    distance = (
        float(history.loc[chosen[0], "frechet_distance"])
        if len(chosen) and "frechet_distance" in history
        else None
    )
    return {
        "epochs": len(history),
        "seconds": float(history["seconds"].sum()) if "seconds" in history else 0.0,
        "chosen_epoch": int(chosen[0]) if len(chosen) else None,
        "frechet_distance": distance,
    }


def training_sentence(training: Mapping[str, Any]) -> str:
    """Say `training_summary` in words."""
    if not training["epochs"]:
        return "none"
    plural = "" if training["epochs"] == 1 else "s"
    text = f"{training['epochs']:,} epoch{plural} in {training['seconds']:.1f} s"
    if training["chosen_epoch"] is not None:
        text += f"; epoch {training['chosen_epoch']:,} was kept"
    if training["frechet_distance"] is not None:
        text += f", Fréchet distance of the encoded records {training['frechet_distance']:.3g}"
    return text


def _check_targets(options: argparse.Namespace) -> None:
    """Check everything that will be written, before training rather than after it."""
    apart = {"--output": options.output, "--halves": options.halves, "--resume": options.resume}
    if not _goes_on(options.checkpoint, options.resume):
        apart["--checkpoint"] = options.checkpoint
    check_apart(apart)
    check_artefact(options.output, KIND)
    for party in {table.party for table in options.tables} if options.halves else ():
        check_artefact(options.halves / party, PARTY_KIND)
    if options.checkpoint is not None:
        _check_checkpoint(options.checkpoint, options.resume)


def _goes_on(checkpoint: Path | None, resume: Path | None) -> bool:
    """Whether the checkpoint to be written is the one that training goes on from."""
    return (
        checkpoint is not None and resume is not None and checkpoint.resolve() == resume.resolve()
    )


def _check_checkpoint(path: Path, resume: Path | None) -> None:
    check_artefact(path, CHECKPOINT)
    if is_taken(path) and not _goes_on(path, resume):
        raise ArtefactError(
            f"{path} holds the checkpoint of an earlier run, which would be lost; continue that "
            f"run with --resume {path}, remove the checkpoint, or choose another path"
        )


def _save(synth: VFLGANSynthesizer, output: Path, halves: Path | None) -> None:
    synth.save(output)
    if halves is not None:
        for name, half in synth.parties_.items():
            half.save(halves / name)
    say(_summary(synth, output))


def _save_interrupted(synth: VFLGANSynthesizer, output: Path, halves: Path | None) -> None:
    """Save the finished epochs, if there are any, and nothing in the place of another model."""
    stays = f"; {output} is what it was" if is_taken(output) else ""
    if synth.history_.empty:
        logger.warning("interrupted before the first epoch ended; nothing was saved%s", stays)
        return
    if stays:
        output = beside(output)
        logger.warning("interrupted%s, and the model so far is saved beside it", stays)
    if halves is not None and any(is_taken(halves / name) for name in synth.parties_):
        halves = beside(halves)
        logger.warning("interrupted; the halves of the model so far are in %s", halves)
    _save(synth, output, halves)


def _summary(synth: VFLGANSynthesizer, output: Path) -> str:
    assert synth.alignment_ is not None  # only loading can lose it
    columns = sum(len(half.transformer.kinds_) for half in synth.parties_.values())
    return (
        f"trained on {synth.alignment_.n_matched:,} records of {len(synth.parties_)} parties, "
        f"{columns} columns: {training_sentence(training_summary(synth.history_))}\n"
        f"model saved: {output}"
    )


def _parameters(options: argparse.Namespace, frames: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    settings = dict(options.set)
    known = VFLGANSynthesizer().get_params(deep=False)
    for name in settings:
        if name not in known:
            raise ParameterError(
                f"--set {name}=...: there is no such parameter; there are {', '.join(known)}"
            )
        if name in _OWN_OPTIONS:
            raise ParameterError(f"--set {name}=...: use {_OWN_OPTIONS[name]} instead")
    parameters = (preset(options.preset) if options.preset else {}) | settings
    if options.epochs is not None:
        parameters["epochs"] = options.epochs
    return parameters | {
        "column_kinds": {label(frames.values(), name): kind for name, kind in options.kind} or None,
        "device": options.device,
        "random_state": options.seed,
        "verbose": 0 if options.quiet else 1,
    }


def _kind(text: str) -> tuple[str, str]:
    column, separator, kind = text.rpartition("=")
    if not separator or kind not in TRANSFORMERS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form COLUMN=KIND with a KIND of {', '.join(TRANSFORMERS)}"
        )
    return column, kind


def _setting(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # text needs no quotes here
