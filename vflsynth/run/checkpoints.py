"""Where the nodes of a run keep their states, for it to go on from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError

KIND = "vflsynth checkpoint"
_FIX = "Resume with the same tables, parameters, integer random_state and version"


@dataclass(frozen=True)
class Saved:
    """A node's state after an epoch, of which run it is, and the history, which the server has."""

    epoch: int
    tensors: Mapping[str, Tensor]
    fingerprint: Mapping[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)


class Checkpoints(Protocol):
    """Where one node keeps its state."""

    def epochs(self) -> list[int]:
        """Return the epochs after which there is a complete checkpoint, in order."""

    def write(self, saved: Saved) -> None:
        """Write a checkpoint."""

    def load(
        self, epoch: int, fingerprint: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Return state and history, if they are of the same run."""

    def forget_after(self, epoch: int) -> None:
        """Drop checkpoints that other nodes do not have."""


class CheckpointDirectory:
    """Collects the parties' states, and writes all together when the server's comes.

    Without a path nothing is written; `resume` is where to go on from, `server` the name of the
    node whose state comes last, and `fix` what to do about a directory of another run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        resume: str | os.PathLike[str] | None,
        server: str,
        fix: str = _FIX,
    ) -> None:
        self.server, self._path, self._fix = server, path, fix
        self._root = None if resume is None else artefacts.open_directory(resume, KIND)
        if path is not None:
            artefacts.check_target(path, KIND)
        self._pending: dict[str, Saved] = {}

    def of(self, node: str) -> NodeState:
        """Return one node's part."""
        return NodeState(self, node)

    def epochs(self) -> list[int]:
        """Return the one epoch, if there is something to go on from."""
        return [] if self._root is None else [int(self._progress()["epoch"])]

    def collect(self, node: str, saved: Saved) -> None:
        """Keep a party's state; with the server's, write all, aside and renamed."""
        self._pending[node] = saved
        if node != self.server or self._path is None:
            return
        with artefacts.new_directory(self._path, KIND, private=True) as root:
            runs = {name: dict(own.fingerprint) for name, own in self._pending.items()}
            progress = {"epoch": saved.epoch, "history": saved.history, "runs": runs}
            artefacts.write_json(root / "progress.json", progress)
            for name, own in self._pending.items():
                artefacts.write_tensors(_file(root, name, self.server), own.tensors)
        self._pending.clear()

    def load(
        self, node: str, epoch: int, fingerprint: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Return a node's state, and the history, of the one epoch that there is.

        Raises ArtefactError if it is of another run.
        """
        assert self._root is not None
        root, progress = self._root, self._progress()
        with artefacts.reading(root, "a run"):
            runs, file = progress["runs"], _file(root, node, self.server)
            if node not in runs:
                raise ArtefactError(
                    f"{root} belongs to another run, of {', '.join(map(repr, sorted(runs)))} and "
                    f"not of {node!r}. {self._fix}"
                )
            check_same_run(file, dict(runs[node]), fingerprint, self._fix)
            return artefacts.read_tensors(file, device), list(progress["history"])

    def _progress(self) -> dict[str, Any]:
        assert self._root is not None
        content: dict[str, Any] = artefacts.read_json(self._root / "progress.json")
        with artefacts.reading(self._root, "a run"):
            int(content["epoch"]), content["history"], dict(content["runs"])
        return content


class NodeState:
    """One node's part of a `CheckpointDirectory`, as `Checkpoints` has it."""

    def __init__(self, directory: CheckpointDirectory, node: str) -> None:
        self.epochs = directory.epochs
        self.write = partial(directory.collect, node)
        self.load = partial(directory.load, node)

    def forget_after(self, epoch: int) -> None:
        """Do nothing: all nodes' states are of one epoch."""


def check_same_run(
    path: Path, saved: Mapping[str, Any], fingerprint: Mapping[str, Any], fix: str
) -> None:
    """Raise ArtefactError, naming the first difference, if a checkpoint is of another run."""
    now = artefacts.json_equal(dict(fingerprint))
    for key in [*now, *saved]:
        if key not in saved or key not in now or saved[key] != now[key]:
            was, is_ = (repr(run[key]) if key in run else "absent" for run in (saved, now))
            raise ArtefactError(
                f"{path} belongs to another run: {key} was {was} and is {is_}. {fix}"
            )


def _file(root: Path, node: str, server: str) -> Path:
    return root / ("" if node == server else "parties") / f"{node}.safetensors"
