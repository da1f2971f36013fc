"""Large samples as folders of parquet files, drawn in parallel, part by part."""

from __future__ import annotations

import hashlib
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import torch

from vflsynth import _artefacts as artefacts
from vflsynth._device import few_threads
from vflsynth._random import derive
from vflsynth.exceptions import ArtefactError
from vflsynth.frames import write_table

PART_ROWS = 1 << 16
"""Rows of a part, unless somebody wants others."""

_MANIFEST = "_sample.json"
"""What the folder says of itself; readers of data sets pass over names that begin so."""


def sample_parts(
    model: Any,
    folder: Path,
    n: int,
    secret: bytes,
    call: int | None,
    *,
    part_rows: int,
    n_jobs: int | None,
    keys: bool,
) -> list[Path]:
    """Write a sample; `BaseSynthesizer.sample_to` documents it. Return its parts, in order.

    `model` is a fitted synthesizer. Every part has a secret that is derived of the sample's; `call`
    says which of the model's own samples it is, if it is one.
    """
    # Of the secret, what tells nothing of it.
    print_ = derive(secret, "fingerprint of parts").hex()[:32]
    expected = {"sample": print_, "rows": n, "part_rows": part_rows, "keys": keys, "call": call}
    expected["model"] = _fingerprint(model)
    if folder.is_file():
        raise ArtefactError(f"{folder} is a file. Fix: name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    if holds_parts(folder):
        if artefacts.read_json(folder / _MANIFEST) != expected:
            raise ArtefactError(
                f"{folder} has parts of another sample: of another model, seed, number of rows or "
                "size of parts. Fix: name another folder, or remove this one"
            )
    elif any(folder.iterdir()):
        raise ArtefactError(f"{folder} is not empty. Fix: name another folder")
    else:
        artefacts.replace_json(folder / _MANIFEST, expected)
    if keys and n:  # whether there is room for the last one is known before hours of drawing
        half = next(iter(model.parties_.values()))
        half.minter.starting_at(half.minter.offset + n - 1).mint(1)
    starts = range(0, max(n, 1), part_rows)
    digits = max(5, len(str(len(starts) - 1)))
    paths = [folder / f"part-{number:0{digits}d}.parquet" for number in range(len(starts))]
    missing = [
        (path, derive(secret, f"part {number}"), start, min(part_rows, n - start), keys)
        for number, (path, start) in enumerate(zip(paths, starts))
        if not path.exists()
    ]
    if not missing or joblib.effective_n_jobs(n_jobs) == 1:
        for task in missing:
            _write(model, *task)
        return paths
    with tempfile.TemporaryDirectory() as aside:
        saved = Path(aside) / "model"
        model.save(saved)
        tasks = (joblib.delayed(_write_saved)(type(model), saved, *task) for task in missing)
        joblib.Parallel(n_jobs=n_jobs)(tasks)
    return paths


def holds_parts(folder: Path) -> bool:
    """Whether a sample in parts was begun in a folder."""
    return (folder / _MANIFEST).exists()


def call_of(folder: Path) -> int | None:
    """Say which of a model's own samples a folder was begun with; None if there is none."""
    if not holds_parts(folder):
        return None
    found = artefacts.read_json(folder / _MANIFEST)
    call = found.get("call") if isinstance(found, dict) else None
    return call if isinstance(call, int) else None


def _fingerprint(model: Any) -> str:
    """Return a digest of a model: of one seed there may be several."""
    found = hashlib.sha256()
    for half in model.parties_.values():
        rules = None if half.preparation is None else half.preparation.titles
        said = [half.name, half.transformer.to_dict(), half.sampler.to_dict(), rules]
        found.update(json.dumps(said, sort_keys=True).encode())
        found.update(artefacts.tensor_bytes(half.sampler.tensors()))
    return found.hexdigest()


def _write_saved(kind: Any, saved: Path, *task: Any) -> None:
    _write(_loaded(kind, saved), *task)


@cache
def _loaded(kind: Any, saved: Path) -> Any:
    """Load a model once in every worker."""
    return kind.load(saved, device="cpu")


def _write(model: Any, path: Path, secret: bytes, start: int, rows: int, keys: bool) -> None:
    """Draw a part on one thread, as the order of sums would depend on how many there are."""
    with few_threads(0.0, torch.device("cpu")):
        parts = model.draw_rows(rows, secret)
    table = pd.concat(list(parts.values()), axis=1)
    if keys:
        table = next(iter(model.parties_.values())).add_keys(table, start)
    else:
        table = table.set_axis(pd.RangeIndex(start, start + rows, name=table.index.name), axis=0)
    write_table(table, path)
