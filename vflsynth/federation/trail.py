"""An audit trail per site: what was approved, attempted, matched, sent and paid, line by line.

Every line holds the digest of the line before it, so a line that is changed, taken out or put in
later breaks the chain. Whoever can write the file can still cut off its end or write all of it
anew: keep the last digest, which `verify` returns, somewhere else from time to time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vflsynth._locks import locked
from vflsynth.exceptions import ArtefactError
from vflsynth.privacy.account_file import START, first_broken, link

FILE = "audit-trail.jsonl"
"""In a site's folder."""

_PATIENCE = 30.0


def append(folder: Path, event: str, details: Mapping[str, Any]) -> None:
    """Add a line to a site's trail, an event of one word and JSON details, on the disk on return.

    Raises ArtefactError if the trail is broken, or cannot be written.
    """
    path = folder / FILE
    with locked(folder / f".{FILE}.lock", "its audit trail is in use for too long", _PATIENCE):
        n, last = verify(folder)
        line = json.dumps(link(n + 1, last, event, details)).encode() + b"\n"
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ArtefactError(f"{path} cannot be written: {error}") from error


def verify(folder: Path) -> tuple[int, str]:
    """Check the chain; return how many lines there are, and the last digest.

    Raises ArtefactError if a line was changed, taken out or put in.
    """
    path = folder / FILE
    if not path.exists():
        return 0, START
    try:
        records = [_parsed(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from error
    if (n := first_broken(records)) is not None:
        raise ArtefactError(
            f"{path}, line {n}: is not what was written, or does not follow the line before"
        )
    return len(records), records[-1]["digest"] if records else START


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return what a trail that was verified says."""
    path = folder / FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
