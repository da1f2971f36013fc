"""Checkpoints of a run in one process: one directory for all nodes, replaced as a whole.

Draws are functions of the step (`vflsynth._random`), so no generator state is saved.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError

KIND = "vflsynth checkpoint"
_FIX = "Resume with the same tables, parameters, integer random_state and version"


class CheckpointDirectory:
    """Collects the parties' states, and writes all together when the server's comes.

    Without a path nothing is written; `resume` is where to go on from, and `server` the name of the
    node whose state comes last.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        resume: str | os.PathLike[str] | None,
        server: str,
    ) -> None:
        self.server, self._path = server, path
        self._root = None if resume is None else artefacts.open_directory(resume, KIND)
        if path is not None:
            artefacts.check_target(path, KIND)
        self._pending: dict[str, tuple[Mapping[str, Tensor], Mapping[str, Any]]] = {}

    def of(self, node: str) -> NodeState:
        """Return one node's part."""
        return NodeState(self, node)

    def epochs(self) -> list[int]:
        """Return the one epoch, if there is something to go on from."""
        return [] if self._root is None else [int(self._progress()["epoch"])]

    def collect(
        self,
        node: str,
        epoch: int,
        tensors: Mapping[str, Tensor],
        fingerprint: Mapping[str, Any],
        history: list[dict[str, Any]],
    ) -> None:
        """Keep a party's state; with the server's, write all, aside and renamed."""
        self._pending[node] = tensors, fingerprint
        if node != self.server or self._path is None:
            return
        with artefacts.new_directory(self._path, KIND, private=True) as root:
            runs = {name: dict(found) for name, (_, found) in self._pending.items()}
            artefacts.write_json(
                root / "progress.json", {"epoch": epoch, "history": history, "runs": runs}
            )
            for name, (state, _) in self._pending.items():
                artefacts.write_tensors(_file(root, name, self.server), state)
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
                    f"not of {node!r}. {_FIX}"
                )
            check_same_run(file, dict(runs[node]), fingerprint, _FIX)
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
    if node == server:
        return root / "server.safetensors"
    return root / "parties" / f"{node}.safetensors"
