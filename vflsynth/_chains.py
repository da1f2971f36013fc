"""Chains of records: each holds the digest of the one before it.

A record that is changed, taken out or put in later breaks the chain. Whoever can write the file can
still cut off its end or write all of it anew; that shows if somebody else has kept a later digest.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

START = "0" * 64
"""What the first record has in place of a digest before it."""


def link(n: int, previous: str, event: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Make the record number `n`, from 1, that follows another, by the digest of that one.

    The event is one word, details are JSON values. The record has the time and its own digest.
    """
    content = {
        "n": n,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "event": event,
        "details": dict(details),
        "previous": previous,
    }
    return content | {"digest": digest_of(content)}


def first_broken(records: Iterable[object]) -> int | None:
    """Return the number of the first record that is not what was written; None if all are.

    They may be anything: what is no record is broken.
    """
    last = START
    for n, record in enumerate(records, start=1):
        if not isinstance(record, Mapping):
            return n
        content = dict(record)
        digest = content.pop("digest", None)
        if (content.get("n"), content.get("previous"), digest) != (n, last, digest_of(content)):
            return n
        last = digest
    return None


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of a record without its own digest, in canonical JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
