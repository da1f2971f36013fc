"""How a party's records are matched across processes: facts, blinded keys, positions."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from vflsynth._random import derive
from vflsynth._version import __version__
from vflsynth.exceptions import (
    ExchangeError,
    KeyTypeError,
    NoOverlapError,
    PayloadRejectedError,
    ProtocolError,
    ProtocolMismatchError,
    SharedColumnError,
)
from vflsynth.federation.psi import KeyBlinder, common_positions, key_text, rounds
from vflsynth.frames import AlignmentReport, intersect, party_keys
from vflsynth.frames.alignment import check_no_repeated_key, key_kind
from vflsynth.protocol import SERVER, Channel, Participant, answers, takes
from vflsynth.protocol.messages import (
    AlignmentNotice,
    BlindedKeys,
    CommonPositions,
    Hello,
    KeysToReblind,
    ReblindedKeys,
)
from vflsynth.run import fact


class Matching(Participant):
    """One party's side of the matching.

    Parameters
    ----------
    name : str
    frame : DataFrame
    on : hashable
    shared : bytes
        The secret that all parties share.

    Attributes
    ----------
    keys : Index
        Of the party's rows, in its own order.
    """

    def __init__(self, name: str, frame: pd.DataFrame, on: Hashable, shared: bytes) -> None:
        self.name, self._frame, self._on = name, frame, on
        self._secret = derive(shared, "matching")
        self.keys = party_keys(frame, on)
        check_no_repeated_key(name, self.keys)
        self._blinder: KeyBlinder | None = None
        self._reblinded: ReblindedKeys | None = None

    def facts(self, job: str) -> dict[str, Any]:
        """Return what the server needs to know to match records, and no more.

        Names of columns are keyed digests: equal ones show, and nothing else.
        """
        columns = [label for label in self._frame.columns if label != self._on]
        return {
            "vflsynth": __version__,
            "job": job,
            "rows": len(self.keys),
            "key_kind": key_kind(self.keys),
            "columns": sorted(self._keyed(f"column|{label!r}")[:16] for label in columns),
        }

    @answers(BlindedKeys)
    def blind(self, step: int) -> BlindedKeys:
        """Blind the own keys, in an order that tells nothing."""
        order = np.random.default_rng().permutation(len(self.keys))
        self._blinder = KeyBlinder(self.keys, order)
        return BlindedKeys(self.name, SERVER, step, self._blinder.blind())

    @takes(KeysToReblind)
    def reblind(self, message: KeysToReblind) -> None:
        """Blind another party's list as well."""
        points = self._blinding("was sent keys").reblind(message.points)
        self._reblinded = ReblindedKeys(self.name, SERVER, message.step, points)

    @answers(ReblindedKeys)
    def reblinded(self, step: int) -> ReblindedKeys:
        """Send the other party's list back.

        Raises
        ------
        ProtocolError
            If none came.
        """
        if self._reblinded is None:
            raise ProtocolError(f"party {self.name!r} was asked for keys that nobody sent")
        return self._reblinded

    def common(self, message: CommonPositions) -> AlignmentNotice:
        """Return the common keys in the common order; they stay inside the party."""
        found = self._blinding("was told of common keys").common(message.positions)
        # In the order that fits in one process use.
        return AlignmentNotice(SERVER, self.name, message.step, intersect({self.name: found}))

    def digest(self, common: pd.Index) -> bytes:
        """Return a keyed digest of the matched keys, in their order."""
        return bytes.fromhex(self._keyed("records|" + "\n".join(map(key_text, common))))

    def _blinding(self, what: str) -> KeyBlinder:
        if self._blinder is None:
            raise ProtocolError(f"party {self.name!r} {what} before it sent any")
        return self._blinder

    def _keyed(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def check_facts(hellos: Mapping[str, Hello], job: str) -> None:
    """Check that the parties can work together.

    Raises
    ------
    ProtocolMismatchError
        Another version or job.
    KeyTypeError, SharedColumnError
    PayloadRejectedError
        If facts are missing or not what they must be.
    """
    kinds: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name, hello in hellos.items():
        version = fact(hello, "vflsynth", str)
        if version != __version__:
            raise ProtocolMismatchError(
                f"runs vflsynth {version}; the server runs {__version__}",
                fix=f"pip install 'vflsynth[flare]=={__version__}' at every site",
                party=name,
            )
        if fact(hello, "job", str) != job:
            raise ProtocolMismatchError(
                "runs a job with other parameters", fix="submit one job to all sites", party=name
            )
        kinds[name] = fact(hello, "key_kind", str)
        for column in fact(hello, "columns", list):
            other = owners.setdefault(str(column), name)
            if other != name:
                raise SharedColumnError(
                    f"a column of this name belongs to party {other!r} too",
                    fix="leave it with one of them, or rename one",
                    party=name,
                )
    first, *others = kinds
    for name in others:
        if kinds[name] != kinds[first]:
            raise KeyTypeError(
                f"keys are {kinds[name]}, but {kinds[first]} at party {first!r}",
                fix="convert one of them, so that both have the same type",
                party=name,
            )


def match_blinded(
    channel: Channel, hellos: Mapping[str, Hello], matched_by: str
) -> AlignmentReport:
    """Let every party know which of its records all others have; the server sees no key.

    Raises
    ------
    NoOverlapError
    """
    received = channel.gather(BlindedKeys, 0)
    lists = {name: message.points for name, message in received.items()}
    for name, points in lists.items():
        if len(points) != fact(hellos[name], "rows", int):
            raise _wrong_number(name)
    for step, owner_of in enumerate(rounds(channel.names), start=1):
        sent = {
            receiver: KeysToReblind(SERVER, receiver, step, lists[owner])
            for receiver, owner in owner_of.items()
        }
        channel.scatter(sent)
        returned = channel.gather(ReblindedKeys, step)
        for receiver, owner in owner_of.items():
            if returned[receiver].points.shape != lists[owner].shape:
                raise _wrong_number(receiver)
            lists[owner] = returned[receiver].points
    found = common_positions(lists)
    n_matched = len(next(iter(found.values())))
    if not n_matched:
        raise NoOverlapError(
            "the parties have no key in common",
            fix="check that the tables are about the same records and write keys in the same way",
        )
    channel.scatter(
        {name: CommonPositions(SERVER, name, 0, places) for name, places in found.items()}
    )
    n_rows = {name: len(points) for name, points in lists.items()}
    return AlignmentReport(matched_by, n_matched, n_rows, dict.fromkeys(n_rows, 0))


def _wrong_number(party: str) -> ExchangeError:
    return PayloadRejectedError(
        "sent another number of blinded keys than it was to",
        fix="install the same version of vflsynth at every site",
        party=party,
    )
