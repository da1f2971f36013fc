"""What one party alone brings into a run, what all know of each other, and their checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

import pandas as pd
import torch
from sklearn.base import clone
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth.columns import PublicSchema, TableTransformer, check_encoders, check_kinds
from vflsynth.exceptions import ArtefactError, ParameterError, PayloadRejectedError, ProtocolError
from vflsynth.frames import key_of
from vflsynth.learning.party import EncodingSource
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol import Schedule
from vflsynth.protocol.messages import Hello


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all nodes of an attempt know of the parties.

    Of each party: `rows` before matching, `columns` without the key, `unlisted` ones about which
    nobody stated anything public (0 without privacy), a nonce that is new in every attempt, and
    what its privacy account and its contract showed, if it has one. The run goes on after `epoch`,
    0 to start; minted keys start at `key_offset`.
    """

    rows: dict[str, int]
    columns: dict[str, int]
    unlisted: dict[str, int]
    nonces: dict[str, str]
    epoch: int
    key_offset: int
    accounts: dict[str, dict[str, Any]]
    contracts: dict[str, dict[str, Any]]

    @classmethod
    def of_hellos(
        cls,
        hellos: Mapping[str, Hello],
        epoch: int,
        choose_offset: Callable[[Sequence[int]], int],
    ) -> Self:
        """Put together what the parties said of themselves."""
        return cls(
            rows={name: fact(hello, "rows", int) for name, hello in hellos.items()},
            columns={name: fact(hello, "n_columns", int) for name, hello in hellos.items()},
            unlisted={name: fact(hello, "unlisted", int) for name, hello in hellos.items()},
            nonces={name: fact(hello, "nonce", str) for name, hello in hellos.items()},
            epoch=epoch,
            key_offset=choose_offset([int(fact(h, "key_offset", str)) for h in hellos.values()]),
            accounts=shown_accounts(accounts_of(hellos)),
            contracts={
                name: fact(hello, "contract", dict)
                for name, hello in hellos.items()
                if "contract" in hello.facts
            },
        )

    @classmethod
    def of(cls, terms: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote and another node sent; ProtocolError if it cannot be read."""
        try:
            return cls(
                {str(name): int(n) for name, n in terms["rows"].items()},
                {str(name): int(n) for name, n in terms["columns"].items()},
                {str(name): int(n) for name, n in terms["unlisted"].items()},
                {str(name): str(nonce) for name, nonce in terms["nonces"].items()},
                int(terms["epoch"]),
                int(terms["key_offset"]),
                {str(name): _shown(account) for name, account in terms["accounts"].items()},
                {str(name): dict(told) for name, told in terms["contracts"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"the server's terms cannot be read: {error!r}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; the offset as text, for it may have more than 53 bits."""
        return asdict(self) | {"key_offset": str(self.key_offset)}

    @property
    def nonce(self) -> str:
        """All parties' nonces: new in every attempt for each of them."""
        return "|".join(self.nonces[name] for name in sorted(self.nonces))

    @property
    def counts(self) -> dict[str, ColumnCounts]:
        """Numbers of the parties' columns, which are all that the noise depends on."""
        return {
            name: ColumnCounts(n, self.unlisted.get(name, 0)) for name, n in self.columns.items()
        }


def accounts_of(hellos: Mapping[str, Hello]) -> dict[str, Any]:
    """Return what the hellos of parties that have a privacy account show of it."""
    return {n: hello.facts["account"] for n, hello in hellos.items() if "account" in hello.facts}


def shown_accounts(accounts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Read what parties showed of their privacy accounts; PayloadRejectedError if it is no such."""
    found = {}
    for name, account in accounts.items():
        try:
            found[name] = _shown(account)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PayloadRejectedError(
                "shows something else than a privacy account",
                fix="install the same version of vflsynth at every site",
                party=name,
            ) from error
    return found


def _shown(account: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `PrivacyAccount.show` returned elsewhere."""
    heads = [str(head) for head in account["heads"]]
    if not heads:
        raise ValueError("no head")
    return {"account": str(account["account"]), "heads": heads}


def fact(hello: Hello, name: str, kind: type) -> Any:
    """Return one fact of a hello; PayloadRejectedError if it is of another type than this."""
    value = hello.facts.get(name)
    if type(value) is not kind:
        raise PayloadRejectedError(
            f"its hello says {name} = {str(value)[:80]!r}",
            fix="install the same version of vflsynth at every site",
            party=hello.sender,
        )
    return value


@dataclass(frozen=True)
class Saved:
    """A node's state after an epoch, of which run it is, and the history, which the server has."""

    epoch: int
    tensors: Mapping[str, Tensor]
    fingerprint: Mapping[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)


class Checkpoints(Protocol):
    """Where one node keeps its state."""

    def epochs(self) -> list[int]:
        """Return the epochs after which there is a complete checkpoint, in order."""

    def write(self, saved: Saved) -> None:
        """Write a checkpoint."""

    def load(
        self, epoch: int, fingerprint: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Return state and history, if they are of the same run."""

    def forget_after(self, epoch: int) -> None:
        """Drop checkpoints that other nodes do not have."""


@dataclass(frozen=True)
class Seat:
    """What one party alone brings into a run; nothing of it is sent anywhere.

    Its `own` secrets, one per replica, make its weights and noise; `make_schedule`, of method,
    number of records, settings and `Agreed`, makes what the parties draw alike, and
    `padding_secret`, of `Agreed`, what they draw the number of dummies of. `fingerprint` keys the
    digest by which a checkpoint knows the records, and `identity`, JSON-safe, must be equal, too.
    The `template` has the declared kinds of the party's columns, `schema` what is public about
    them; `encoder` takes the place of the method's. `n_training` records per replica are by default
    all matched ones; with fewer than `least_records` no model without a guarantee is fitted. An
    active party that has labels only has no columns.
    """

    name: str
    frame: pd.DataFrame
    on: Hashable
    own: Sequence[bytes]
    make_schedule: Callable[[Any, int, Any, Agreed], Schedule]
    fingerprint: bytes
    device: torch.device
    checkpoints: Checkpoints
    template: TableTransformer = field(default_factory=TableTransformer)
    schema: PublicSchema | None = None
    encoder: EncodingSource | None = None
    n_training: int | None = None
    has_columns: bool = True
    identity: Mapping[str, Any] = field(default_factory=dict)
    least_records: int = 1
    padding_secret: Callable[[Agreed], bytes] | None = None


def party_templates(
    transformer: Any, column_kinds: Any, frames: Mapping[str, pd.DataFrame], on: Any
) -> dict[str, TableTransformer]:
    """Clone a transformer for every party, with the kinds that concern its columns.

    `column_kinds` come before the transformer's own. Raises ColumnKindError if there is no such
    column or kind.
    """
    template = TableTransformer() if transformer is None else transformer
    if not isinstance(column_kinds, Mapping | None):
        raise ParameterError(
            f"column_kinds must be None or map labels to kinds, got {column_kinds!r}"
        )
    if not isinstance(template, TableTransformer):
        raise ParameterError(f"transformer must be None or a TableTransformer, got {template!r}")
    owned = {
        name: [c for c in frame.columns if c != key_of(on, name)] for name, frame in frames.items()
    }
    everything = [label for labels in owned.values() for label in labels]
    encoders = check_encoders(template.encoders, everything)
    kinds = dict(template.kinds or {}) | dict(column_kinds or {})
    made = {}
    for name, labels in owned.items():
        own: dict[Hashable, str] = {c: kinds.pop(c) for c in labels if c in kinds}
        made[name] = (
            clone(template)
            .set_output(transform="default")
            .set_params(
                kinds=check_kinds(own, labels, party=name),
                encoders={c: encoders[c] for c in labels if c in encoders} or None,
            )
        )
    check_kinds(kinds, everything)  # of nobody
    return made


KIND = "vflsynth checkpoint"
_FIX = "Resume with the same tables, parameters, integer random_state and version"


class CheckpointDirectory:
    """Collects the parties' states, and writes all together when the server's comes.

    Without a path nothing is written; `resume` is where to go on from, `server` the name of the
    node whose state comes last, and `fix` what to do about a directory of another run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        resume: str | os.PathLike[str] | None,
        server: str,
        fix: str = _FIX,
    ) -> None:
        self.server, self._path, self._fix = server, path, fix
        self._root = None if resume is None else artefacts.open_directory(resume, KIND)
        if path is not None:
            artefacts.check_target(path, KIND)
        self._pending: dict[str, Saved] = {}

    def of(self, node: str) -> NodeState:
        """Return one node's part."""
        return NodeState(self, node)

    def epochs(self) -> list[int]:
        """Return the one epoch, if there is something to go on from."""
        return [] if self._root is None else [int(self._progress()["epoch"])]

    def collect(self, node: str, saved: Saved) -> None:
        """Keep a party's state; with the server's, write all, aside and renamed."""
        self._pending[node] = saved
        if node != self.server or self._path is None:
            return
        with artefacts.new_directory(self._path, KIND, private=True) as root:
            runs = {name: dict(own.fingerprint) for name, own in self._pending.items()}
            progress = {"epoch": saved.epoch, "history": saved.history, "runs": runs}
            artefacts.write_json(root / "progress.json", progress)
            for name, own in self._pending.items():
                artefacts.write_tensors(_file(root, name, self.server), own.tensors)
        self._pending.clear()

    def load(
        self, node: str, epoch: int, fingerprint: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Return a node's state, and the history, of the one epoch that there is.

        Raises ArtefactError if it is of another run.
        """
        assert self._root is not None
        root, progress = self._root, self._progress()
        with artefacts.reading(root, "a run"):
            runs, file = progress["runs"], _file(root, node, self.server)
            if node not in runs:
                raise ArtefactError(
                    f"{root} belongs to another run, of {', '.join(map(repr, sorted(runs)))} and "
                    f"not of {node!r}. {self._fix}"
                )
            check_same_run(file, dict(runs[node]), fingerprint, self._fix)
            return artefacts.read_tensors(file, device), list(progress["history"])

    def _progress(self) -> dict[str, Any]:
        assert self._root is not None
        content: dict[str, Any] = artefacts.read_json(self._root / "progress.json")
        with artefacts.reading(self._root, "a run"):
            int(content["epoch"]), content["history"], dict(content["runs"])
        return content


class NodeState:
    """One node's part of a `CheckpointDirectory`, as `Checkpoints` has it."""

    def __init__(self, directory: CheckpointDirectory, node: str) -> None:
        self.epochs = directory.epochs
        self.write = partial(directory.collect, node)
        self.load = partial(directory.load, node)

    def forget_after(self, epoch: int) -> None:
        """Do nothing: all nodes' states are of one epoch."""


def check_same_run(
    path: Path, saved: Mapping[str, Any], fingerprint: Mapping[str, Any], fix: str
) -> None:
    """Raise ArtefactError, naming the first difference, if a checkpoint is of another run."""
    now = artefacts.json_equal(dict(fingerprint))
    for key in [*now, *saved]:
        if key not in saved or key not in now or saved[key] != now[key]:
            was, is_ = (repr(run[key]) if key in run else "absent" for run in (saved, now))
            raise ArtefactError(
                f"{path} belongs to another run: {key} was {was} and is {is_}. {fix}"
            )


def _file(root: Path, node: str, server: str) -> Path:
    return root / ("" if node == server else "parties") / f"{node}.safetensors"
