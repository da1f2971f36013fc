"""How a party's records are matched across processes, and what it verifies on the way.

The server relays the lists of blinded keys, in parts, and cannot change them: every part bears a
seal, a keyed digest under the parties' secret, of its owner, its place in the list, by how many it
was blinded, and the terms that the server told this party, with its nonce and all parties' numbers
of rows. A party blinds each other party's list once, as many points as that party declared.
Whatever the server says is common, all parties must prove to each other that they were told of the
same keys before anything else leaves; two parties find the common ones by themselves, and with more
a server that leaves keys out, alike at all of them, leaves out single points of some.

What then holds for each role is in ``docs/organisations.md``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsynth._random import KeySchedule, Purpose, derive
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
from vflsynth.federation import psi
from vflsynth.federation.limits import MAX_BYTES
from vflsynth.federation.site import Bounds
from vflsynth.frames import AlignmentReport
from vflsynth.frames.keys import check_no_repeated_key, comparable_types, intersect, key_kind
from vflsynth.privacy.padding import Padding
from vflsynth.protocol.channel import SERVER, Channel, Message, Participant, answers, takes, tell
from vflsynth.protocol.messages import (
    AlignmentNotice,
    BlindedKeys,
    CommonPositions,
    Hello,
    KeysToReblind,
    MatchProof,
    MatchProofs,
    ReblindedKeys,
    ReturnedKeys,
)
from vflsynth.run.server_run import Agreed, fact, facts


class Matching(Participant):
    """One party's side of the matching.

    `keys` are of the party's rows, in its own order; `labels` its columns, the key left out. The
    server does not know the secret `shared`. `bounds` are what the site agrees to. `verified` says
    that all parties proved that they were told of the same common keys. `dummies` are among the
    keys that the party shows, and are nobody's.
    """

    def __init__(
        self,
        name: str,
        keys: pd.Index,
        labels: Sequence[Hashable],
        shared: bytes,
        bounds: Bounds,
    ) -> None:
        self.name, self._labels, self._bounds = name, labels, bounds
        self.keys = comparable_types(keys)
        self._secret = derive(shared, "matching")
        check_no_repeated_key(name, self.keys)
        self.verified = False
        self.dummies, self._copies = psi.Dummies(), 1
        self.parts = psi.Parts({}, 1)
        self._session: bytes | None = None
        self._names: list[str] = []
        self._blinder: psi.KeyBlinder | None = None
        self._reblinded: dict[int, Tensor] = {}
        self._n_blinded, self._own_points = 0, list[Tensor]()
        self._common: pd.Index | None = None

    def facts(self, job: str) -> dict[str, Any]:
        """Return what the server needs to know to match records, and no more.

        Names of columns are keyed digests: equal ones show, and nothing else.
        """
        names = [derive(self._secret, f"column|{label!r}").hex()[:16] for label in self._labels]
        return {
            "vflsynth": __version__,
            "job": job,
            "key_kind": key_kind(self.keys),
            "columns": sorted(names),
        }

    def begin(
        self,
        agreed: Agreed,
        names: Sequence[str],
        job: str,
        padding: Padding | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Bind the matching to what the server told of the parties: others must have been told so.

        `job` is the job's digest; the padding is of what groups of parties have in common; frames
        have at most `max_bytes`. Raises ProtocolError if the terms are not about the job's parties
        and PayloadRejectedError if another party declares more rows than this site agrees to.
        """
        self._names = sorted(names)
        for of in (agreed.rows, agreed.columns, agreed.unlisted, agreed.nonces):
            if sorted(of) != self._names:
                raise ProtocolError(
                    f"the server's terms are about {', '.join(sorted(of))}, and the job's parties "
                    f"are {', '.join(self._names)}"
                )
        padded = psi.n_dummies(padding, len(self._names))
        self._copies = psi.n_copies(len(self._names))
        for name in self._names:  # what should be dummies may be guesses
            self._bounds.check_rows(name, agreed.rows[name] + padded, own=name == self.name)
        self.parts = psi.Parts.of(agreed.rows, padded, max_bytes)
        told = json.dumps({"job": job, **agreed.to_dict()}, sort_keys=True)
        keys = KeySchedule(self._secret, job, told)
        self._session = keys.key(Purpose.MATCHING)
        self.dummies = psi.Dummies.of(padding, self.name, self._names, keys.key(Purpose.DUMMIES))

    # -- blinded lists ---------------------------------------------------------------------------

    @property
    def steps(self) -> dict[type[Message], int]:
        """Below which step a server may ask for lists of keys."""
        n = self.parts.n
        return {BlindedKeys: n, ReblindedKeys: n * self.parts.turns + 1}

    @answers(BlindedKeys)
    def blind(self, step: int) -> BlindedKeys:
        """Blind a part of the own keys, in an order that tells nothing."""
        if step != self._n_blinded:
            raise ProtocolError(
                f"party {self.name!r} was asked for part {step} of its keys, or again"
            )
        if not step:
            shared = derive(self.session, "keys")
            texts, copies = self.dummies.texts, self._copies
            order = np.random.default_rng().permutation(copies * (len(self.keys) + len(texts)))
            self._blinder = psi.KeyBlinder(self.keys, order, shared, texts, copies)
        points = self._blinding("was asked for keys").blind(self.parts.slice(step))
        self._n_blinded += 1
        return BlindedKeys(self.name, SERVER, step, points, self._seal(self.name, 0, step, points))

    @takes(KeysToReblind)
    def reblind(self, message: KeysToReblind) -> None:
        """Blind a part of another party's list as well: whose turn it is, as its owner declared it.

        Raises MisalignedError if no holder of the parties' secret sealed this part for this turn.
        """
        step, last = message.step, self.parts.n * self.parts.turns
        if step != len(self._reblinded) + 1 or step > last or self._n_blinded < self.parts.n:
            raise ProtocolError(f"party {self.name!r} was sent keys of turn {step}, or again")
        (part, turn), owner = self.parts.of_step(step), self._owner(step)
        self._check_seal(owner, turn - 1, part, message.points, message.seal)
        self._reblinded[step] = self._blinding("was sent keys").reblind(message.points)

    @answers(ReblindedKeys)
    def reblinded(self, step: int) -> ReblindedKeys:
        """Send the other party's keys back; ProtocolError if none came."""
        if step not in self._reblinded:
            raise ProtocolError(f"party {self.name!r} was asked for keys that nobody sent")
        points, (part, turn) = self._reblinded[step], self.parts.of_step(step)
        if self.parts.turns > 1:  # only two parties compare lists themselves
            self._reblinded[step] = torch.empty(0)
        seal = self._seal(self._owner(step), turn, part, points)
        return ReblindedKeys(self.name, SERVER, step, points, seal)

    def _owner(self, step: int) -> str:
        """Say whose keys are blinded again in a step."""
        _, turn = self.parts.of_step(step)
        return psi.rounds(self._names)[turn - 1][self.name]

    # -- what is common --------------------------------------------------------------------------

    @takes(ReturnedKeys)
    def take_returned(self, message: ReturnedKeys) -> None:
        """Take a part of the own list, blinded by both of two parties."""
        part = message.step
        if len(self._names) != 2 or part != len(self._own_points) or part >= len(self._reblinded):
            raise ProtocolError(f"party {self.name!r} was sent its own keys back out of turn")
        self._check_seal(self.name, 1, part, message.points, message.seal)
        self._own_points.append(message.points)

    @takes(CommonPositions)
    def take_common(self, message: CommonPositions) -> None:
        """Learn which keys the server says are common.

        Raises MisalignedError if two parties' own lists say otherwise, or of more only some points
        of a key are there.
        """
        if self._common is not None:
            raise ProtocolError(f"the server told party {self.name!r} twice what is common")
        turns = self.parts.turns
        if len(self._reblinded) != self.parts.n * turns:
            raise ProtocolError(f"party {self.name!r} was told of common keys before its turns")
        if turns == 1:
            if len(self._own_points) != self.parts.n:
                raise ProtocolError(f"party {self.name!r} did not get its own keys back")
            reblinded = list(self._reblinded.values())
            lists = {"own": torch.cat(self._own_points), "other": torch.cat(reblinded)}
            self._own_points, self._reblinded = [], dict.fromkeys(self._reblinded, torch.empty(0))
            true = psi.common_positions(lists)["own"]
            if not torch.equal(message.positions.sort().values, true.sort().values):
                raise psi.wrong_match(
                    f"the server says that {len(message.positions)} records are common; by the "
                    f"lists that the parties sealed {len(true)} are"
                )
        common, dummies = self._blinding("was told of common keys").common(message.positions)
        if dummies != set(range(self.dummies.n_common)):
            raise psi.wrong_match(
                "the dummies that the server says are common are not those that all parties have"
            )
        if not len(common):
            raise nothing_common()
        # Of what the server counts: a refusal must not tell it how many of them are dummies.
        self._bounds.check_matched(self.name, len(common) + len(dummies))
        self._common = intersect({self.name: common})  # in the order that fits in one process use

    @answers(MatchProof)
    def prove(self, step: int) -> MatchProof:
        """Prove to the other parties which keys this one was told are common."""
        return MatchProof(self.name, SERVER, step, _bytes(self._proof(self.name)))

    @takes(MatchProofs)
    def compare(self, message: MatchProofs) -> None:
        """Check that all parties were told the same (MisalignedError)."""
        wrong = [
            name
            for name in self._names
            if not hmac.compare_digest(
                str(message.proofs.get(name)).encode(), self._proof(name).hex().encode()
            )
        ]
        if wrong:
            raise psi.wrong_match(
                f"no proof from {' and '.join(map(repr, wrong))} of the records that party "
                f"{self.name!r} was told are common"
            )
        self.verified = True

    def notice(self) -> AlignmentNotice:
        """Return the common keys in the common order; they stay inside the party."""
        return AlignmentNotice(SERVER, self.name, 0, self._the_common)

    def digest(self, common: pd.Index) -> bytes:
        """Return a keyed digest of the matched keys, in their order."""
        return derive(self._secret, "records|" + "\n".join(map(psi.key_text, common)))

    # -- seals -----------------------------------------------------------------------------------

    @property
    def session(self) -> bytes:
        """A secret of the parties that is new in every attempt."""
        if self._session is None:
            raise ProtocolError(f"party {self.name!r} was asked before it was told the terms")
        return self._session

    @property
    def _the_common(self) -> pd.Index:
        if self._common is None:
            raise ProtocolError(f"party {self.name!r} was not told what is common")
        return self._common

    def _mac(self, text: str, content: bytes) -> bytes:
        return hmac.digest(derive(self.session, text), content, hashlib.sha256)

    def _proof(self, name: str) -> bytes:
        return self._mac(f"matched|{name}", self.digest(self._the_common))

    def _seal(self, owner: str, times: int, part: int, points: Tensor) -> Tensor:
        """Say whose list this is, which part, and how often it was blinded since its owner did."""
        return _bytes(self._mac(f"list|{owner}|{times}|{part}", points.numpy().tobytes()))

    def _check_seal(self, owner: str, times: int, part: int, points: Tensor, seal: Tensor) -> None:
        if len(points) != self.parts.size(owner, part):
            raise _wrong_number(owner)
        right = self._seal(owner, times, part, points).numpy().tobytes()
        if not hmac.compare_digest(seal.numpy().tobytes(), right):
            raise psi.wrong_match(
                f"the list of blinded keys of party {owner!r} has no seal of a holder of the "
                "parties' secret"
            )

    def _blinding(self, what: str) -> psi.KeyBlinder:
        if self._blinder is None:
            raise ProtocolError(f"party {self.name!r} {what} before it sent any")
        return self._blinder


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def check_facts(hellos: Mapping[str, Hello], job: str) -> None:
    """Check that the parties can work together.

    Raises ProtocolMismatchError for another version or job, KeyTypeError, SharedColumnError, and
    PayloadRejectedError if facts are missing or not what they must be.
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
    channel: Channel,
    hellos: Mapping[str, Hello],
    matched_by: str,
    padding: Padding | None = None,
    max_bytes: int = MAX_BYTES,
) -> AlignmentReport:
    """Let every party know which of its records all others have; the server sees no key.

    The padding is of what groups of parties have in common; the report's number has it, too.
    Frames have at most `max_bytes`. Raises NoOverlapError; PayloadRejectedError before anybody
    blinds a key, if what is common could be larger than a frame may be.
    """
    n_padded, copies = psi.n_dummies(padding, len(hellos)), psi.n_copies(len(hellos))
    n_rows: dict[str, int] = facts(hellos, "rows", int)
    parts = psi.Parts.of(n_rows, n_padded, max_bytes)
    parts.check(max_bytes)
    received = [channel.gather(BlindedKeys, part) for part in range(parts.n)]
    lists = {name: [messages[name].points for messages in received] for name in n_rows}
    seals = {name: [messages[name].seal for messages in received] for name in n_rows}
    for name, own in lists.items():
        if [len(points) for points in own] != [parts.size(name, i) for i in range(parts.n)]:
            raise _wrong_number(name)
    owners = psi.rounds(channel.names)
    for step in range(1, parts.n * parts.turns + 1):
        part, turn = parts.of_step(step)
        owner_of = owners[turn - 1]
        sent = {
            receiver: KeysToReblind(SERVER, receiver, step, lists[owner][part], seals[owner][part])
            for receiver, owner in owner_of.items()
        }
        channel.scatter(sent)
        returned = channel.gather(ReblindedKeys, step)
        for receiver, owner in owner_of.items():
            back = returned[receiver]
            if back.points.shape != lists[owner][part].shape:
                raise _wrong_number(receiver)
            lists[owner][part], seals[owner][part] = back.points, back.seal
        if parts.turns == 1:
            channel.scatter(
                {
                    name: ReturnedKeys(SERVER, name, part, lists[name][part], seals[name][part])
                    for name in lists
                }
            )
    found = psi.common_positions({name: torch.cat(lists.pop(name)) for name in n_rows})
    n_matched = len(next(iter(found.values()))) // copies
    if not n_matched:
        raise nothing_common()
    channel.scatter(
        {name: CommonPositions(SERVER, name, 0, places) for name, places in found.items()}
    )
    given = channel.gather(MatchProof, 0)
    proofs = {name: message.proof.numpy().tobytes().hex() for name, message in given.items()}
    tell(channel, MatchProofs, 0, proofs)
    most = 0 if padding is None else padding.largest
    return AlignmentReport(matched_by, n_matched, n_rows, dict.fromkeys(n_rows, 0), most)


def nothing_common() -> NoOverlapError:
    """Return the error of parties that have no key in common."""
    return NoOverlapError(
        "the parties have no key in common",
        fix="check that the tables are about the same records and write keys in the same way",
    )


def _wrong_number(party: str) -> ExchangeError:
    return PayloadRejectedError(
        "sent another number of blinded keys than it declared",
        fix="install the same version of vflsynth at every site",
        party=party,
    )
