"""Checkpoints: everything that a run needs to go on as if it had never stopped.

Draws are functions of the step (`vflsynth._random`), so no generator state is saved. Each party's
state is its own file; in one process one object writes them all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError
from vflsynth.networks.adam import FlatAdam
from vflsynth.parties import VFLGANParty
from vflsynth.training.callbacks import EpochState
from vflsynth.training.history import History
from vflsynth.training.vflgan import VFLGAN

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
        Identifies the run: settings, data sizes, package version. JSON-safe.
    algorithm : VFLGAN
    parties : mapping of str to VFLGANParty
    history : History
    """

    path: str | os.PathLike[str]
    every: int
    fingerprint: Mapping[str, Any]
    algorithm: VFLGAN
    parties: Mapping[str, VFLGANParty]
    history: History

    def on_epoch_end(self, state: EpochState) -> None:
        """Write if it is time."""
        if state.epoch % self.every == 0 or state.epoch == state.n_epochs:
            self.write(state.epoch)

    def write(self, epoch: int) -> None:
        """Write now, atomically."""
        server = self.algorithm.server
        with artefacts.new_directory(self.path, KIND) as root:
            progress = {"epoch": epoch, "history": self.history.records, "run": self.fingerprint}
            artefacts.write_json(root / "progress.json", progress)
            artefacts.write_tensors(
                root / "server.safetensors",
                {
                    **_network("discriminator", server.discriminator, server.optimizer),
                    "best_distance": self.algorithm.best_distance,
                },
            )
            for name, party in self.parties.items():
                artefacts.write_tensors(root / "parties" / f"{name}.safetensors", _party(party))


def load_checkpoint(
    path: str | os.PathLike[str],
    fingerprint: Mapping[str, Any],
    algorithm: VFLGAN,
    parties: Mapping[str, VFLGANParty],
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
    saved = progress["run"]
    different = sorted(k for k in {*saved, *fingerprint} if saved.get(k) != fingerprint.get(k))
    if different:
        key = different[0]
        raise ArtefactError(
            f"{root} belongs to another run: {key} was {saved.get(key)!r} and is "
            f"{fingerprint.get(key)!r}. Resume with the same tables, parameters and version"
        )
    history.records[:] = progress["history"]
    server = algorithm.server
    device = server.streams.device
    tensors = artefacts.read_tensors(root / "server.safetensors", device)
    algorithm.best_distance = tensors.pop("best_distance").cpu()
    _restore(tensors, "discriminator", server.discriminator, server.optimizer)
    for name, party in parties.items():
        tensors = artefacts.read_tensors(root / "parties" / f"{name}.safetensors", device)
        _restore(tensors, "generator", party.generator, party.generator_optimizer)
        _restore(tensors, "discriminator", party.discriminator, party.discriminator_optimizer)
        party.selected = _section(tensors, "selected")
        if party.averaged is not None:
            party.averaged.load_state_dict(_section(tensors, "averaged"))
    return int(progress["epoch"])


def _party(party: VFLGANParty) -> dict[str, Tensor]:
    tensors = {
        **_network("generator", party.generator, party.generator_optimizer),
        **_network("discriminator", party.discriminator, party.discriminator_optimizer),
        **{f"selected/{k}": v for k, v in party.selected.items()},
    }
    if party.averaged is not None:
        tensors |= {f"averaged/{k}": v for k, v in party.averaged.state_dict().items()}
    return tensors


def _network(label: str, module: nn.Module, optimizer: FlatAdam) -> dict[str, Tensor]:
    return {
        **{f"{label}/{k}": v for k, v in module.state_dict().items()},
        **{f"{label}.adam/{k}": v for k, v in optimizer.state().items()},
    }


def _restore(
    tensors: Mapping[str, Tensor], label: str, module: nn.Module, optimizer: FlatAdam
) -> None:
    with torch.no_grad():  # in place, so that the optimiser's flat buffer stays the storage
        module.load_state_dict(_section(tensors, label))
    optimizer.load_state(_section(tensors, f"{label}.adam"))


def _section(tensors: Mapping[str, Tensor], label: str) -> dict[str, Tensor]:
    prefix = f"{label}/"
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
