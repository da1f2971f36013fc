"""An audit trail per site: what was approved, attempted, matched, sent and paid, line by line.

Every line holds the digest of the line before it, so a line that is changed, taken out or put in
later breaks the chain. Whoever can write the file can still cut off its end or write all of it
anew: keep the last digest, which `verify` returns, somewhere else from time to time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vflsynth.exceptions import ArtefactError
from vflsynth.federation.locks import locked

FILE = "audit-trail.jsonl"
"""In a site's folder."""

_START = "0" * 64
_PATIENCE = 30.0


def append(folder: Path, event: str, details: Mapping[str, Any]) -> None:
    """Add a line, on the disk before this returns.

    Parameters
    ----------
    folder : Path
        Of the site.
    event : str
        One word.
    details : mapping
        JSON values.

    Raises
    ------
    ArtefactError
        If the trail is broken, or cannot be written.
    """
    path = folder / FILE
    with locked(folder / f".{FILE}.lock", "its audit trail is in use for too long", _PATIENCE):
        n, last = verify(folder)
        content = {
            "n": n + 1,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "event": event,
            "details": dict(details),
            "previous": last,
        }
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                file.write(json.dumps(content | {"digest": _digest(content)}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ArtefactError(f"{path} cannot be written: {error}") from error


def verify(folder: Path) -> tuple[int, str]:
    """Check the chain; return how many lines there are, and the last digest.

    Raises
    ------
    ArtefactError
        If a line was changed, taken out or put in.
    """
    path, n, last = folder / FILE, 0, _START
    if not path.exists():
        return n, last
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from error
    for n, line in enumerate(lines, start=1):
        try:
            content = dict(json.loads(line))
            digest = content.pop("digest")
            good = (content["n"], content["previous"], digest) == (n, last, _digest(content))
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise ArtefactError(
                f"{path}, line {n}: is not what was written, or does not follow the line before"
            )
        last = digest
    return n, last


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return what a trail that was verified says."""
    path = folder / FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
