"""A node's checkpoints: its own state, taken after the same epoch as everybody else's."""

from __future__ import annotations

import ctypes
import gc
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError
from vflsynth.run.local import KIND, CheckpointDirectory
from vflsynth.run.server_run import Saved

logger = logging.getLogger("vflsynth")

_OWN = "state"
"""The one node of each directory."""
_PAUSE = 5.0
"""Seconds between two collections of garbage, which takes long beside a short epoch."""
_KEPT = 2  # a node that is killed while it writes still has the one that all others have too


class NodeCheckpoints:
    """Checkpoints of one node for one run; the last two are kept.

    `damaged` are those that were found and cannot be used, with the reason.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._collected = time.monotonic()
        self.damaged: dict[str, str] = {}

    def epochs(self) -> list[int]:
        """Return the epochs after which there is a complete checkpoint, in order."""
        found = []
        for epoch, path in artefacts.numbered(self._folder, "epoch-*").items():
            try:
                artefacts.open_directory(path, KIND)
                found.append(epoch)
            except ArtefactError as error:
                if str(path) not in self.damaged:
                    logger.warning("%s is damaged and not used: %s", path, error)
                self.damaged[str(path)] = str(error)
        return found

    def write(self, node: str, saved: Saved) -> None:
        """Write aside and rename; then drop what is older than the last two."""
        path = self._path(saved.epoch)
        if str(path) in self.damaged and path.exists():  # what is no checkpoint is not written over
            path.rename(path.with_name(f"damaged-{time.time_ns()}-{path.name}"))
        CheckpointDirectory(path, None, _OWN).write(_OWN, saved)
        for old in self.epochs()[:-_KEPT]:
            shutil.rmtree(self._path(old))
        if time.monotonic() - self._collected > _PAUSE:
            _return_freed_memory()
            self._collected = time.monotonic()

    def load(
        self, node: str, epoch: int, fingerprint: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Return state and history; ArtefactError if it is of other records or settings."""
        fix = "Give the job another name to start anew"
        directory = CheckpointDirectory(None, self._path(epoch), _OWN, fix)
        return directory.load(_OWN, epoch, fingerprint, device)

    def forget_after(self, epoch: int) -> None:
        """Drop checkpoints that other nodes do not have."""
        for later in self.epochs():
            if later > epoch:
                shutil.rmtree(self._path(later))

    def _path(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch:06d}"


def _return_freed_memory() -> None:
    """Collect a transport's cyclic garbage, and have glibc give back what was freed."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
