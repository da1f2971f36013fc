"""What was observed of shadow models, kept on disk so that an audit can go on."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as dump_arrays

from vflsynth import _artefacts as artefacts
from vflsynth._version import __version__
from vflsynth.adversary.encoding import Floats
from vflsynth.audit.game import PartyFrames, World

logger = logging.getLogger("vflsynth")

Observation = dict[str, Floats]

_FORMAT = 2  # of the cache; part of every key
_MODEL = "model-{:05d}.safetensors"


def key_of(synthesizer: Any, world: World, on: Any, observed: str, random_state: int) -> str:
    """Digest of all that decides what is observed."""
    parameters = synthesizer.get_params(deep=True) if hasattr(synthesizer, "get_params") else {}
    kind = type(synthesizer)
    what = {
        "format": _FORMAT,
        "version": __version__,
        "synthesizer": f"{kind.__module__}.{kind.__qualname__}",
        "parameters": {
            name: joblib.hash(value)
            for name, value in sorted(parameters.items())
            if name not in ("random_state", "verbose", "memory_limit")
        },
        "world": world.name,
        "frames": {name: _digest(frame) for name, frame in world.party_frames.items()},
        "on": repr(on),
        "observed": observed,
        "targets": [repr(target) for target in world.targets],
        "random_state": int(random_state),  # NumPy's are none for JSON
    }
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def _digest(frame: pd.DataFrame) -> str:
    rows = pd.util.hash_pandas_object(frame, index=True).to_numpy()
    head = repr([(column, str(dtype)) for column, dtype in frame.dtypes.items()])
    return hashlib.sha256(head.encode() + rows.tobytes()).hexdigest()


class Store:
    """Observations on disk: one safetensors file per model, complete or absent; numbers in JSON."""

    def __init__(self, root: str | os.PathLike[str] | None, key: str) -> None:
        self._folder = None if root is None else Path(root) / key[:32]

    def read(self, n_models: int) -> dict[int, Observation]:
        """Return what there is of the first models."""
        found: dict[int, Observation] = {}
        if self._folder is None:
            return found
        for number in range(n_models):
            path = self._folder / _MODEL.format(number)
            try:
                found[number] = load_arrays(path.read_bytes())
            except FileNotFoundError:
                continue
            except SafetensorError:  # cut short by a full disk, say: train it again
                logger.warning("%s is damaged and will be replaced", path)
        return found

    def write(self, number: int, observation: Observation) -> None:
        """Keep what was observed of a model."""
        self._write(_MODEL.format(number), dump_arrays(observation))

    def recall(self, name: str) -> dict[str, float] | None:
        """Return the numbers that were kept under a name; None if there are none."""
        if self._folder is None:
            return None
        try:
            text = (self._folder / f"{name}.json").read_text(encoding="utf-8")
            found: dict[str, float] = json.loads(text)
        except (FileNotFoundError, ValueError):
            return None
        return found

    def remember(self, name: str, numbers: Mapping[str, float]) -> None:
        """Keep some numbers under a name."""
        self._write(f"{name}.json", json.dumps(dict(numbers)).encode())

    def _write(self, name: str, content: bytes) -> None:
        if self._folder is None:
            return
        # Nobody else may look: who was asked about is in it.
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with artefacts.aside(self._folder / name) as side:
            side.write_bytes(content)


def describe_frames(frames: PartyFrames) -> str:
    """Digest of party frames, for observers whose observations depend on them."""
    return hashlib.sha256("".join(_digest(frame) for frame in frames.values()).encode()).hexdigest()
