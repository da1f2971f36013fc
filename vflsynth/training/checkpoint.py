"""Checkpoints: everything that a run needs to go on as if it had never stopped.

Draws are functions of the step (`vflsynth._random`), so no generator state is saved. Each party's
state is its own file; in one process one object writes them all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError
from vflsynth.parties import TrainableParty
from vflsynth.training.algorithm import Algorithm
from vflsynth.training.callbacks import EpochState
from vflsynth.training.history import History

KIND = "vflsynth checkpoint"


@dataclass
class Checkpointer:
    """Write a checkpoint every few epochs, replacing the one before.

    Parameters
    ----------
    path : path-like
    every : int
        Epochs between checkpoints; the last epoch is always written.
    fingerprint : dict
        Identifies the run: version, settings, and digests of records and of ``random_state``.
    algorithm : Algorithm
    parties : mapping of str to TrainableParty
    history : History
    """

    path: str | os.PathLike[str]
    every: int
    fingerprint: Mapping[str, Any]
    algorithm: Algorithm
    parties: Mapping[str, TrainableParty]
    history: History

    def on_epoch_end(self, state: EpochState) -> None:
        """Write if it is time."""
        if state.epoch % self.every == 0 or state.epoch == state.n_epochs:
            self.write(state.epoch)

    def write(self, epoch: int) -> None:
        """Write now, atomically."""
        with artefacts.new_directory(self.path, KIND) as root:
            progress = {"epoch": epoch, "history": self.history.records, "run": self.fingerprint}
            artefacts.write_json(root / "progress.json", progress)
            artefacts.write_tensors(root / "server.safetensors", self.algorithm.state())
            for name, party in self.parties.items():
                artefacts.write_tensors(root / "parties" / f"{name}.safetensors", party.state())


def load_checkpoint(
    path: str | os.PathLike[str],
    fingerprint: Mapping[str, Any],
    algorithm: Algorithm,
    parties: Mapping[str, TrainableParty],
    history: History,
) -> int:
    """Restore a run and return the number of epochs it had finished.

    Raises
    ------
    ArtefactError
        If the checkpoint is damaged, or of a run with other settings or data.
    """
    root = artefacts.open_directory(path, KIND)
    progress = artefacts.read_json(root / "progress.json")
    with artefacts.reading(root, "a run"):
        check_same_run(
            root,
            dict(progress["run"]),
            fingerprint,
            "Resume with the same tables, parameters, integer random_state and version",
        )
        history.records[:] = progress["history"]
        device = algorithm.device
        algorithm.load_state(artefacts.read_tensors(root / "server.safetensors", device))
        for name, party in parties.items():
            file = root / "parties" / f"{name}.safetensors"
            party.load_state(artefacts.read_tensors(file, device))
        return int(progress["epoch"])


def check_same_run(
    path: Path, saved: Mapping[str, Any], fingerprint: Mapping[str, Any], fix: str
) -> None:
    """Check that a checkpoint is of the run that is to go on.

    Parameters
    ----------
    path : Path
        Of the checkpoint, for the message.
    saved : mapping
        Fingerprint as it was read.
    fingerprint : mapping
        That of this run.
    fix : str
        What to do about it.

    Raises
    ------
    ArtefactError
        If an entry is another, or only one of them has it.
    """
    now = artefacts.json_equal(dict(fingerprint))
    # In the order of the fingerprint: what is said first explains the rest.
    for key in [*now, *saved]:
        if key not in saved or key not in now or saved[key] != now[key]:
            was, is_ = (repr(run[key]) if key in run else "absent" for run in (saved, now))
            raise ArtefactError(
                f"{path} belongs to another run: {key} was {was} and is {is_}. {fix}"
            )
