"""How a party's records are matched across processes: facts, blinded keys, positions."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Hashable, Mapping
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
from vflsynth.federation.program import Agreed
from vflsynth.federation.psi import KeyBlinder, common_positions, key_text, rounds
from vflsynth.frames import AlignmentReport, KeyMinter, intersect, party_keys
from vflsynth.frames.alignment import check_no_repeated_key, key_kind
from vflsynth.protocol import (
    AlignmentNotice,
    BlindedKeys,
    Channel,
    CommonPositions,
    Hello,
    Message,
)
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER

_NONCE_BYTES = 16


class Matching:
    """One party's side of the matching.

    Parameters
    ----------
    name : str
    frame : DataFrame
    on : hashable
        Key column; None for the index.
    shared : bytes
        The secret that parties share.
    learn_minter : callable
        Called with the party's name and keys; says how keys of that type are minted.
    n_unlisted : int, default=0
        Columns of which the site file does not say what is public, in a private run.

    Raises
    ------
    DuplicateKeyError
    """

    def __init__(
        self,
        name: str,
        frame: pd.DataFrame,
        on: Hashable,
        shared: bytes,
        learn_minter: Callable[[str, pd.Index], KeyMinter],
        n_unlisted: int = 0,
    ) -> None:
        self.name, self._frame, self._on, self._n_unlisted = name, frame, on, n_unlisted
        self._secret = derive(shared, "matching")
        self.keys = party_keys(frame, on)
        check_no_repeated_key(name, self.keys)
        self.minter = learn_minter(name, self.keys)
        self.nonce = os.urandom(_NONCE_BYTES).hex()
        self._blinder: KeyBlinder | None = None
        self._reblinded: BlindedKeys | None = None

    def facts(self, job: str, checkpoints: list[int]) -> dict[str, Any]:
        """Return what the server needs to know, and no more."""
        columns = [label for label in self._frame.columns if label != self._on]
        return {
            "vflsynth": __version__,
            "job": job,
            "rows": len(self.keys),
            "key_kind": key_kind(self.keys),
            "key_offset": str(self.minter.offset),
            # Whoever lacks the secret cannot even try names.
            "columns": sorted(self._keyed(f"column|{label!r}")[:16] for label in columns),
            "unlisted": self._n_unlisted,
            "checkpoints": checkpoints,
            "nonce": self.nonce,
        }

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        if verb is Verb.BLIND_KEYS:
            order = np.random.default_rng().permutation(len(self.keys))
            self._blinder = KeyBlinder(self.keys, order)
            return BlindedKeys(self.name, SERVER, step, self._blinder.blind())
        if verb is Verb.REBLIND_KEYS and self._reblinded is not None:
            return self._reblinded
        raise ProtocolError(f"party {self.name!r} cannot answer {verb.value!r} while matching")

    def take(self, verb: Verb, message: Message) -> None:
        """Blind another party's list as well; `common` takes what comes after it."""
        if self._blinder is None or not isinstance(message, BlindedKeys):
            raise ProtocolError(f"party {self.name!r} cannot take {verb.value!r} while matching")
        points = self._blinder.reblind(message.points)
        self._reblinded = BlindedKeys(self.name, SERVER, message.step, points)

    def common(self, message: CommonPositions) -> AlignmentNotice:
        """Return the common keys in the common order; they stay inside the party."""
        if self._blinder is None:
            raise ProtocolError(f"party {self.name!r} was told of common keys before it sent any")
        common = intersect({self.name: self._blinder.common(message.positions)})
        return AlignmentNotice(SERVER, self.name, message.step, common)

    def digest(self, common: pd.Index) -> bytes:
        """Return a keyed digest of the matched keys, in their order."""
        return bytes.fromhex(self._keyed("records|" + "\n".join(map(key_text, common))))

    def check_terms(self, agreed: Agreed) -> None:
        """Check what the server says of this party, and that it is about this attempt.

        Raises
        ------
        ProtocolError
        """
        n_columns = sum(label != self._on for label in self._frame.columns)
        own = (n_columns, self._n_unlisted, self.nonce)
        stated = (agreed.columns, agreed.unlisted, agreed.nonces)
        if tuple(of.get(self.name) for of in stated) != own:
            raise ProtocolError(
                f"the server's terms misstate the columns of party {self.name!r}, or are of "
                "another attempt"
            )

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


def agree(
    hellos: Mapping[str, Hello], epoch: int, choose_offset: Callable[[list[int]], int]
) -> Agreed:
    """Put together what every party is to know of the others.

    Parameters
    ----------
    hellos : mapping of party name to Hello
        Checked.
    epoch : int
        The run goes on after it.
    choose_offset : callable
        One offset of minted keys from all parties' own.
    """
    return Agreed(
        columns={name: len(fact(h, "columns", list)) for name, h in hellos.items()},
        unlisted={name: fact(h, "unlisted", int) for name, h in hellos.items()},
        nonces={name: fact(h, "nonce", str) for name, h in hellos.items()},
        epoch=epoch,
        key_offset=choose_offset([int(fact(h, "key_offset", str)) for h in hellos.values()]),
    )


def fact(hello: Hello, name: str, kind: type) -> Any:
    """Return one fact, of the type that it must have."""
    value = hello.facts.get(name)
    if type(value) is not kind:
        raise PayloadRejectedError(
            f"its hello says {name} = {str(value)[:80]!r}",
            fix="install the same version of vflsynth at every site",
            party=hello.sender,
        )
    return value


def match_blinded(
    channel: Channel, hellos: Mapping[str, Hello], matched_by: str
) -> AlignmentReport:
    """Let every party know which of its records all others have; the server sees no key.

    Raises
    ------
    NoOverlapError
    """
    received = channel.gather(Verb.BLIND_KEYS, 0, BlindedKeys)
    lists = {name: message.points for name, message in received.items()}
    for name, points in lists.items():
        if len(points) != fact(hellos[name], "rows", int):
            raise _wrong_number(name)
    for step, owner_of in enumerate(rounds(channel.names), start=1):
        sent = {
            receiver: BlindedKeys(SERVER, receiver, step, lists[owner])
            for receiver, owner in owner_of.items()
        }
        channel.scatter(Verb.REBLIND_KEYS, sent)
        received = channel.gather(Verb.REBLIND_KEYS, step, BlindedKeys)
        for receiver, owner in owner_of.items():
            if received[receiver].points.shape != lists[owner].shape:
                raise _wrong_number(receiver)
            lists[owner] = received[receiver].points
    found = common_positions(lists)
    n_matched = len(next(iter(found.values())))
    if not n_matched:
        raise NoOverlapError(
            "the parties have no key in common",
            fix="check that the tables are about the same records and write keys in the same way",
        )
    channel.scatter(
        Verb.ALIGN,
        {name: CommonPositions(SERVER, name, 0, places) for name, places in found.items()},
    )
    n_rows = {name: len(points) for name, points in lists.items()}
    return AlignmentReport(matched_by, n_matched, n_rows, dict.fromkeys(n_rows, 0))


def _wrong_number(party: str) -> ExchangeError:
    return PayloadRejectedError(
        "sent another number of blinded keys than it was to",
        fix="install the same version of vflsynth at every site",
        party=party,
    )
