"""Saved directories: JSON and safetensors, a manifest with digests, written to a side and renamed.

Nothing here can execute code on reading: JSON and safetensors hold data only.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vflsynth.exceptions import ArtefactError, ArtefactVersionError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MANIFEST = "manifest.json"
FORMAT_VERSION = 3


@contextmanager
def new_directory(
    path: str | os.PathLike[str], kind: str, *, private: bool = False
) -> Iterator[Path]:
    """Yield an empty directory that becomes `path`, complete with a manifest, or leaves no trace.

    `check_target` accepts the path; what is there stays as it is until the new one is complete.
    `open_directory` checks the kind. Only its owner may read a `private` one: half a model and
    checkpoints have seen records. Raises ArtefactError if `path` holds something else, or cannot be
    written.
    """
    target = check_target(path, kind)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        side = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        yield side
        files = {name: file_digest(file) for name, file in _files(side).items()}
        manifest = {"kind": kind, "format_version": FORMAT_VERSION, "files": files}
        write_json(side / MANIFEST, manifest)
        for file in _files(side).values():
            if private:  # nobody else could look so far: `mkdtemp` made the directory
                file.chmod(0o600)
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        if not private:
            side.chmod(0o755)
        _replace(target, side)
    except BaseException as error:
        shutil.rmtree(side, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise


def check_target(path: str | os.PathLike[str], kind: str) -> Path:
    """Check that `new_directory` may write to `path`, before long work rather than after it.

    Returns `path` without links: behind a link, the directory that it points to is written. Raises
    ArtefactError if `path` exists and is neither an artefact of this kind, without foreign files,
    nor an empty directory; if it holds the working folder; or if nothing can be made beside it.
    """
    target = Path(path).resolve()
    check_writable(target)
    if _holds_working_folder(target):
        raise ArtefactError(
            f"{target} holds the working folder, which would be replaced; choose a folder in it"
        )
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return target
    try:
        manifest = _read_manifest(target, kind)
    except ArtefactError as error:
        raise ArtefactError(
            f"{target} exists and is not a saved {kind}; choose another path"
        ) from error
    if foreign := sorted(set(_files(target)) - {MANIFEST, *manifest["files"]}):
        raise ArtefactError(
            f"{target} also holds {', '.join(foreign[:5])}, which would be lost; choose another "
            "path, or move it away"
        )
    return target


def _holds_working_folder(target: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(target)
    except FileNotFoundError:  # it is gone
        return False


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that something can be made at `path`, by making and removing a directory beside it.

    Folders that are missing are not made: the nearest that exists is tried instead. Raises
    ArtefactError if not.
    """
    target = Path(path).absolute()
    try:
        parent = target.parent.resolve()
        folder = next(each for each in (parent, *parent.parents) if each.exists())
        if not folder.is_dir():
            raise ArtefactError(
                f"{target} cannot be written: {folder} is not a folder; choose another path"
            )
        os.rmdir(tempfile.mkdtemp(prefix=f".{target.name}.", dir=folder))
    except OSError as error:
        raise ArtefactError(f"{target} cannot be written: {error}; choose another path") from error


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return what a directory says it is; `open_directory` checks that it is so.

    Raises ArtefactError if it has no manifest.
    """
    return str(_read_manifest(Path(path))["kind"])


def open_directory(path: str | os.PathLike[str], kind: str) -> Path:
    """Check that `path` is a complete, unchanged artefact of this kind and a readable version.

    Raises ArtefactError if it is missing, of another kind, or a file is missing, extra or changed;
    ArtefactVersionError if it was written by a newer version.
    """
    root = Path(path)
    manifest = _read_manifest(root, kind)
    present = _files(root)
    del present[MANIFEST]
    if set(present) != set(manifest["files"]):
        odd = sorted(set(present) ^ set(manifest["files"]))
        raise ArtefactError(f"{root} is incomplete or has extra files: {', '.join(odd[:5])}")
    for name, file in present.items():
        if file_digest(file) != manifest["files"][name]:
            raise ArtefactError(f"{file} is not what was saved: its digest differs")
    return root


@contextmanager
def refusing(problem: str) -> Iterator[None]:
    """Turn whatever goes wrong while making sense of foreign content into ArtefactError.

    Its message begins with the problem.
    """
    try:
        yield
    except ArtefactError:
        raise
    except Exception as error:
        raise ArtefactError(f"{problem}: {error!r}") from error


def reading(source: Path | str, what: str) -> AbstractContextManager[None]:
    """Refuse a file's content that does not describe something.

    Digests tell what was damaged, not who wrote it, so the content can be anything.
    """
    return refusing(f"{source} does not describe {what}")


def _read_manifest(root: Path, kind: str | None = None) -> dict[str, Any]:
    """Read a manifest of this kind, or of any, in a version that can be read."""
    if not (root / MANIFEST).is_file():
        if root.exists():
            raise ArtefactError(f"{root} was not saved by vflsynth: it has no {MANIFEST}")
        raise ArtefactError(f"{root} does not exist{_left_behind(root)}")
    manifest = read_json(root / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("kind"), str):
        raise ArtefactError(f"{root / MANIFEST} is not a manifest")
    if kind is not None and manifest["kind"] != kind:
        raise ArtefactError(f"{root} is a saved {manifest['kind']!r}, not a saved {kind!r}")
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ArtefactVersionError(
            f"{root} has format version {version}; this version of vflsynth reads up to "
            f"{FORMAT_VERSION}. Upgrade vflsynth to read it"
        )
    if version < FORMAT_VERSION:
        raise ArtefactVersionError(
            f"{root} has format version {version}, whose names of classes and parameters are not "
            f"those of {FORMAT_VERSION}. Fit again, or read it with the version that wrote it"
        )
    if not isinstance(manifest.get("files"), dict):
        raise ArtefactError(f"{root / MANIFEST} is not a manifest")
    return manifest


def _left_behind(root: Path) -> str:
    """Say what to do where nothing is: a process that replaced `root` may have been killed.

    Moving it back by ourselves could pull it away from a process that is replacing it right now.
    """
    for attic in sorted(root.parent.glob(f".{glob.escape(root.name)}.old.*")):
        if (attic / root.name / MANIFEST).is_file():
            return (
                f". Saving it was cut off; move the earlier version back from {attic / root.name}"
            )
    return ". Fix: check the path"


def _files(root: Path) -> dict[str, Path]:
    """All files below a directory by relative name; links could lead anywhere and are refused."""
    found = {}
    for file in sorted(root.rglob("*")):
        if file.is_symlink():
            raise ArtefactError(f"{file} is a link; a saved directory holds only files")
        if not file.is_dir():
            found[file.relative_to(root).as_posix()] = file
    return found


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file, or of what a folder holds; ArtefactError if it is none."""
    if file.is_dir():
        inside = sorted(own for own in file.rglob("*") if own.is_file())
        said = [[str(own.relative_to(file)), file_digest(own)] for own in inside]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise ArtefactError(f"{file} cannot be read: {error.strerror}") from error


def _replace(target: Path, side: Path) -> None:
    """Rename `side` to `target`; should that fail, what was there is put back."""
    if not target.exists():
        side.rename(target)
        return
    attic = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    try:
        target.rename(attic / target.name)
        side.rename(target)
    except BaseException:  # perhaps another process put its own there
        if (attic / target.name).exists() and not target.exists():
            (attic / target.name).rename(target)
        shutil.rmtree(attic)
        raise
    shutil.rmtree(attic)


def numbered(folder: Path, name: str) -> dict[int, Path]:
    """Return what a folder has of a name with a star in place of a number, by that, in order."""
    before, after = name.split("*")
    found = {path.name.removeprefix(before).removesuffix(after): path for path in folder.glob(name)}
    return {int(n): found[n] for n in sorted(filter(str.isdecimal, found), key=int)}


def write_json(path: Path, content: Any) -> None:
    """Write JSON that any reader accepts: no NaN literals."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_dump_json(content), encoding="utf-8")


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Yield a name beside a file, of this process alone; what is written to it takes its place.

    After a failure nothing of it is left, and the file is as it was.
    """
    side = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    side.unlink(missing_ok=True)  # what a crash left may have another mode
    try:
        yield side
        side.replace(path)
    finally:
        side.unlink(missing_ok=True)


def replace_json(path: Path, content: Any, *, mode: int = 0o666, indent: int | None = 1) -> None:
    """Write JSON as `replace_text` writes text; without an indent in a ninth of the time."""
    replace_text(path, _dump_json(content, indent), mode=mode)


def replace_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a text to a side and rename it; neither a crash nor a power failure leaves half of it.

    Its folder is made if missing. `mode` says who may do what with the file, less the process's
    umask. Raises ArtefactError if it cannot be written, as on a full disk.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with aside(path) as side, open(os.open(side, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # else the name could be that of the old file after a power failure
        finally:
            os.close(folder)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ArtefactError:
    """Name what was to be written: the error of a full disk does not."""
    return ArtefactError(f"{path} cannot be written: {error}")


def json_equal(content: Any) -> Any:
    """Return what will be read where `content` is written: lists for tuples, plain numbers."""
    return json.loads(_dump_json(content))


def _dump_json(content: Any, indent: int | None = 1) -> str:
    return json.dumps(content, indent=indent, allow_nan=False, default=np.generic.item)


def read_json(path: Path) -> Any:
    """Read JSON, or raise ArtefactError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from error
    return parse_json(content, path)


def parse_json(content: bytes, source: Path) -> Any:
    """Parse JSON in which no key is there twice, or raise ArtefactError.

    Of a repeated key, readers take one or the other: what one checks, another does not see.
    """
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{source} cannot be read: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for k, (key, _) in enumerate(pairs) if key in dict(pairs[:k]))
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as safetensors."""
    from safetensors.torch import save

    return save({k: v.detach().cpu().contiguous() for k, v in tensors.items()})


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tensor_bytes(tensors))


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read safetensors, or raise ArtefactError."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        found = load(path.read_bytes())
        # Cloned: products round by where memory starts, and these start anywhere in the file.
        return {k: v.clone().to(device) for k, v in found.items()}
    except (OSError, SafetensorError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from error
