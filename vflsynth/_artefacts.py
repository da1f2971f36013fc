"""Saved directories: JSON and safetensors, a manifest with digests, written to a side and renamed.

Nothing here can execute code on reading: JSON and safetensors hold data only.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from vflsynth.exceptions import ArtefactError, ArtefactVersionError

MANIFEST = "manifest.json"
FORMAT_VERSION = 1


@contextmanager
def new_directory(path: str | os.PathLike[str], kind: str) -> Iterator[Path]:
    """Yield an empty directory that becomes `path`, complete with a manifest, or leaves no trace.

    Parameters
    ----------
    path : path-like
        Replaced if it is an artefact of this package; refused if it holds anything else.
    kind : str
        What the directory is; `open_directory` checks it.

    Raises
    ------
    ArtefactError
        If `path` exists and is not such a directory.
    """
    target = check_target(path, kind)
    target.parent.mkdir(parents=True, exist_ok=True)
    side = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield side
        files = {
            file.relative_to(side).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(side.rglob("*"))
            if file.is_file()
        }
        write_json(
            side / MANIFEST, {"kind": kind, "format_version": FORMAT_VERSION, "files": files}
        )
        for file in side.rglob("*"):
            if file.is_file():
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
        side.chmod(0o755)
        old = None
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            target.rename(old / target.name)
        side.rename(target)
        if old is not None:
            shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(side, ignore_errors=True)
        raise


def check_target(path: str | os.PathLike[str], kind: str) -> Path:
    """Check that `new_directory` may write to `path`, before long work rather than after it.

    Raises
    ------
    ArtefactError
        If `path` exists and is neither an artefact of this package nor an empty directory.
    """
    target = Path(path)
    if (
        target.exists()
        and not (target / MANIFEST).is_file()
        and (not target.is_dir() or any(target.iterdir()))
    ):
        raise ArtefactError(f"{target} exists and is not a saved {kind}; choose another path")
    return target


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return what a directory says it is; `open_directory` checks that it is so.

    Raises
    ------
    ArtefactError
        If it has no manifest.
    """
    root = Path(path)
    if not (root / MANIFEST).is_file():
        what = "has no manifest.json" if root.exists() else "does not exist"
        raise ArtefactError(f"{root} is not saved by vflsynth: it {what}")
    manifest = read_json(root / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("kind"), str):
        raise ArtefactError(f"{root / MANIFEST} is not a manifest")
    return str(manifest["kind"])


def open_directory(path: str | os.PathLike[str], kind: str) -> Path:
    """Check that `path` is a complete, unchanged artefact of this kind and a readable version.

    Raises
    ------
    ArtefactError
        If it is missing, of another kind, or a file is missing, extra or changed.
    ArtefactVersionError
        If it was written by a newer version.
    """
    root = Path(path)
    if not (root / MANIFEST).is_file():
        raise ArtefactError(f"{root} is not a saved {kind}: it has no {MANIFEST}")
    manifest = read_json(root / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ArtefactError(f"{root / MANIFEST} is not a manifest")
    if manifest.get("kind") != kind:
        raise ArtefactError(f"{root} is a saved {manifest.get('kind')!r}, not a saved {kind!r}")
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ArtefactVersionError(
            f"{root} has format version {version}; this version of vflsynth reads up to "
            f"{FORMAT_VERSION}. Upgrade vflsynth to read it"
        )
    present = {
        file.relative_to(root).as_posix(): file
        for file in root.rglob("*")
        if file.is_file() and file != root / MANIFEST
    }
    if set(present) != set(manifest["files"]):
        odd = sorted(set(present) ^ set(manifest["files"]))
        raise ArtefactError(f"{root} is incomplete or has extra files: {', '.join(odd[:5])}")
    for name, file in present.items():
        if hashlib.sha256(file.read_bytes()).hexdigest() != manifest["files"][name]:
            raise ArtefactError(f"{file} is not what was saved: its digest differs")
    return root


def write_json(path: Path, content: Any) -> None:
    """Write JSON that any reader accepts: no NaN literals."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read JSON, or raise ArtefactError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()}))


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read safetensors, or raise ArtefactError."""
    try:
        return {k: v.to(device) for k, v in load_tensors(path.read_bytes()).items()}
    except (OSError, SafetensorError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from error
