"""The file of a privacy account: one file, one lock beside it, and what was in it last.

Its records are a chain: each holds the digest of the one before it. A record that is changed, taken
out or put in later breaks it. Whoever can write the file can still cut off its end or write all of
it anew; that shows if somebody else has kept a later digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError, ParameterError

_FORMAT, _VERSION = "vflsynth privacy account", 2
OPENED, BUDGET, SHOWN, RUN, SPENT = "opened", "budget", "shown", "run", "spent"

Record: TypeAlias = dict[str, Any]


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


class Head:
    """A second file beside a chain's, with the number of records and the last one's digest.

    It is written after the chain, so that a crash between the two leaves one that the chain still
    contains, and read before it.
    """

    def __init__(self, chain: Path) -> None:
        self.path, self._chain = chain.with_name(f".{chain.name}.head"), chain

    def __str__(self) -> str:
        return str(self.path)

    def last(self) -> tuple[int, str] | None:
        """Return number and digest of the last record that was written, if anything says so.

        Raises ArtefactError if it cannot be read.
        """
        if not self.path.exists():
            return None
        try:
            head = json.loads(self.path.read_text(encoding="utf-8"))
            return int(head["records"]), str(head["digest"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            name = self._chain.name
            raise ArtefactError(
                f"{self.path} cannot be read: {error!r}. It says what {name} had last. "
                f"Fix: bring it back, or delete it if {name} is surely the latest one"
            ) from error

    def write(self, record: Mapping[str, Any]) -> None:
        """Keep the last record's number and digest."""
        head = {"records": record["n"], "digest": record["digest"]}
        artefacts.replace_json(self.path, head, mode=0o600)


def contains(records: Iterable[Mapping[str, Any]], last: tuple[int, str] | None) -> bool:
    """Whether whole records have what a head says was written last, if it says something."""
    return last is None or last in [(each["n"], each["digest"]) for each in records]


class AccountFile:
    """Where the records of an account are, whatever name leads there.

    Of a symbolic link lock, file and head are beside what it leads to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        self.head = Head(self.path)

    def lock(self, patience: float) -> TextIO:
        """Keep everybody else from writing, until what is returned is closed.

        Waits so many seconds for whoever has it, and then raises ParameterError.
        """
        from vflsynth._locks import lock  # where there is none, accounts alone are not to be had

        return lock(
            self.path.with_name(f".{self.path.name}.lock"),
            f"another private run has {self.path.name} open, or hangs. Stop it first",
            patience,
        )

    def create(self, details: Mapping[str, Any], patience: float) -> None:
        """Write the first record, as one of several processes; see `PrivacyAccount.create`."""
        artefacts.check_writable(self.path)
        self._check_new()  # without waiting for a run that has it open
        with self.lock(patience):
            self._check_new()
            self.write([link(1, START, OPENED, details)])

    def read(self) -> list[Record]:
        """Read the records; ArtefactError unless they are what was written, all of it."""
        last = self.head.last()
        try:
            status = self.path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is a link by now, or no file")
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if (content["format"], content["version"]) != (_FORMAT, _VERSION):
                raise ValueError("another format or version")
            found: list[Record] = content["records"]
            broken = first_broken(found)
            if broken is not None or not found:
                raise ValueError(f"record {broken or 1} is not what was written")
        except FileNotFoundError as error:
            raise ArtefactError(
                f"{self.path}: there is no privacy account. Fix: bring it back if there was one, "
                "for without it what was spent is unknown; for records of which nothing was ever "
                f"released make one with 'vflsynth account {self.path} --create'"
            ) from error
        except Exception as error:  # whoever wrote it, it can be anything
            raise unreadable(self.path, error) from error
        if status.st_nlink > 1:
            raise ArtefactError(
                f"{self.path} is one of {status.st_nlink} names of one file (hard links), and what "
                "is booked by one of them would not be seen by the others. Nothing was released. "
                "Fix: delete all names but one, and put symbolic links in the place of the others"
            )
        if last is not None and not contains(found, last):
            raise ArtefactError(
                f"{self.path} lacks what was in it before: when it was last written it had "
                f"{last[0]} records, as {self.head} says, and the last of them is not among these "
                f"{len(found)}. An older copy, or another account, has taken its place, and what "
                "was spent since is not in it. Nothing was released. Fix: bring the latest file "
                f"back. If it is lost, counting goes on from this one once {self.head} is deleted"
            )
        return found

    def write(self, records: Sequence[Record]) -> None:
        """Replace what is there; whoever has the lock may. ArtefactError if it is gone.

        A folder that is moved takes the account along, and the lock with it.
        """
        if len(records) > 1 and not self.path.exists():
            raise ArtefactError(
                f"{self.path} was moved or deleted while a run had it open. Nothing more is "
                "released. Fix: name the account where it is now"
            )
        if not contains(records, self.head.last()):
            raise ArtefactError(
                f"{self.path} was written by another run while this one had it open, so the lock "
                "beside it is gone, or is none on this file system. Nothing more is released. Fix: "
                "keep the account, with its lock, where all runs share both"
            )
        content = {"format": _FORMAT, "version": _VERSION, "records": records}
        artefacts.replace_json(self.path, content, mode=0o600, indent=None)
        self.head.write(records[-1])

    def _check_new(self) -> None:
        if os.path.lexists(self.path):
            raise ParameterError(f"{self.path} is there already. Fix: name another file")
        if (last := self.head.last()) is not None:
            raise ArtefactError(
                f"{self.path}: there was a privacy account of {last[0]} records, as {self.head} "
                "says. Fix: bring it back. If it is lost, counting starts anew once "
                f"{self.head} is deleted"
            )


def next_record(records: Sequence[Record], event: str, details: Mapping[str, Any]) -> Record:
    """Make the record that follows the others."""
    return link(len(records) + 1, records[-1]["digest"], event, details)


def unreadable(path: Path, error: Exception) -> ArtefactError:
    """Say that a file makes no sense as an account, and why."""
    return ArtefactError(
        f"{path} is not a privacy account: {error}. What was spent on these records "
        "is in the reports of their runs; without the account nothing more is released"
    )
