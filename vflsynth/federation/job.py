"""What all sites agree on (the job), and what each site alone decides (the site file)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from vflsynth._random import derive
from vflsynth._validation import Number, check_parameters
from vflsynth.exceptions import ParameterError
from vflsynth.federation.exchange import Limits

SITE_FILE = "vflsynth.toml"
"""Name of the site file in the folder ``local`` of a FLARE start-up kit."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RESERVED = {"active", "server", "shared"}
_SECRET_BYTES = 32
_SECONDS = Number(0, closed=(False, True))


@dataclass(frozen=True, slots=True)
class Job:
    """One run, the same at every site.

    Parameters
    ----------
    name : str
        Identifies the run: a job of the same name goes on where the last one stopped.
    parties : tuple of str
        Names of the sites that hold columns, as in their certificates.
    method : str
        ``"VFLGANSynthesizer"`` or the name of a classifier of `vflsynth.splitdefense`.
    on : str, optional
        Key column of every table. Default: the index.
    parameters : dict
        Of the method, but for what belongs to a site (`column_kinds`, `device`, `random_state`).
    checkpoint_every : int, default=10
        Epochs.
    exchange_timeout, setup_timeout : float
        Seconds, see `Limits`.
    max_frame_bytes : int
    """

    name: str
    parties: tuple[str, ...]
    method: str = "VFLGANSynthesizer"
    on: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    checkpoint_every: int = 10
    exchange_timeout: float = 60.0
    setup_timeout: float = 300.0
    max_frame_bytes: int = 1 << 28

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Check what a file or another site says.

        Raises
        ------
        ParameterError
        """
        _known(content, [f.name for f in fields(cls)], "job")
        name, parties = content.get("name"), content.get("parties")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError(
                f"job: name must be letters, digits, '-', '_' or '.', got {name!r}"
            )
        if (
            not isinstance(parties, list | tuple)
            or len(set(parties)) != len(parties)
            or not parties
            or not all(isinstance(p, str) and _NAME.fullmatch(p) for p in parties)
        ):
            raise ParameterError(f"job: parties must be a list of different names, got {parties!r}")
        if set(parties) & _RESERVED:
            raise ParameterError(f"job: no party may be called {', '.join(sorted(_RESERVED))}")
        if not isinstance(content.get("parameters", {}), dict):
            raise ParameterError("job: parameters must be a table of names and values")
        on = content.get("on")
        if on is not None and not isinstance(on, str):
            raise ParameterError(f"job: on must be the name of the key column, got {on!r}")
        job = cls(**{**content, "parties": tuple(parties)})
        rules = {
            "checkpoint_every": Number(1, whole=True),
            "exchange_timeout": _SECONDS,
            "setup_timeout": _SECONDS,
            "max_frame_bytes": Number(1 << 16, whole=True),
        }
        check_parameters("job", {name: getattr(job, name) for name in rules}, rules)
        return job

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` reads, JSON-safe."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {
            "parties": list(self.parties)
        }

    @property
    def digest(self) -> str:
        """Short digest of everything that sites must agree on."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def limits(self) -> Limits:
        """How long anybody waits."""
        return Limits(self.exchange_timeout, self.setup_timeout, self.max_frame_bytes)


@dataclass(frozen=True, slots=True)
class Site:
    """What one site alone decides; nothing of it is sent anywhere.

    Parameters
    ----------
    party : str
        The site's name.
    folder : Path
        Checkpoints, this site's half of the model and its reports.
    table : Path, optional
        The party's table, csv or parquet. The server has none, unless it is an active party.
    labels : str, optional
        At an active party: the column of the table that holds the labels.
    column_kinds : dict
    device : str, default="cpu"
    shared : bytes, optional
        The secret that all parties share and the server does not know: at least 32 bytes.
    own : bytes, optional
        The site's own secret, for initial weights. Default: fresh for every run.
    schedule : bytes, optional
        Only to reproduce a run in one process: the exact secret of batches and latents, which
        otherwise is derived from `shared` and the job's name.
    """

    party: str
    folder: Path
    table: Path | None = None
    labels: str | None = None
    column_kinds: dict[Hashable, str] = field(default_factory=dict)
    device: str = "cpu"
    shared: bytes | None = None
    own: bytes | None = None
    schedule: bytes | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a site file; paths in it are relative to its folder.

        Raises
        ------
        ParameterError
        """
        content = read_toml(path)
        secrets = content.pop("secrets", {})
        _known(content, ["party", "folder", "table", "labels", "column_kinds", "device"], str(path))
        _known(secrets, ["shared", "own", "schedule"], f"{path}: secrets")
        for name in ("party", "folder"):
            if not isinstance(content.get(name), str):
                raise ParameterError(f"{path}: {name} must be a text, got {content.get(name)!r}")
        where = path.resolve().parent
        paths = {n: where / content[n] for n in ("folder", "table") if n in content}
        keys = {name: _secret(path, name, text) for name, text in secrets.items()}
        return cls(**(content | paths | keys))

    def write(self, path: Path) -> None:
        """Write a site file that only its owner can read."""
        # Texts of JSON are texts of TOML.
        lines = [f"party = {_quoted(self.party)}", f"folder = {_quoted(self.folder.resolve())}"]
        if self.table is not None:
            lines.append(f"table = {_quoted(self.table.resolve())}")
        if self.labels is not None:
            lines.append(f"labels = {_quoted(self.labels)}")
        lines += [f"device = {_quoted(self.device)}", "", "[column_kinds]"]
        lines += [f"{_quoted(k)} = {_quoted(kind)}" for k, kind in self.column_kinds.items()]
        lines += ["", "[secrets]"]
        secrets = {"shared": self.shared, "own": self.own, "schedule": self.schedule}
        lines += [f"{k} = {_quoted(secret.hex())}" for k, secret in secrets.items() if secret]
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")

    def schedule_secret(self, run: str) -> bytes:
        """Return the secret of batches, latents and rotations of a run."""
        return self.schedule or derive(self.the_shared, f"schedule|{run}")

    @property
    def the_shared(self) -> bytes:
        """The shared secret.

        Raises
        ------
        ParameterError
            If the site file has none.
        """
        if self.shared is None:
            raise ParameterError(
                f"site {self.party!r}: the site file has no shared secret. Make one with "
                "'openssl rand -hex 32', give it to all parties and not to the server, and write "
                'it into every site file: [secrets] shared = "..."'
            )
        return self.shared


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    ParameterError
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path} cannot be read: {error}") from error


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _known(content: Mapping[str, Any], names: Collection[str], where: str) -> None:
    for name in content:
        if name not in names:
            raise ParameterError(f"{where}: unknown {name!r}; there are {', '.join(names)}")


def _secret(path: Path, name: str, text: Any) -> bytes:
    try:
        secret = bytes.fromhex(text)
    except (ValueError, TypeError):
        secret = b""
    if len(secret) < _SECRET_BYTES:
        raise ParameterError(
            f"{path}: secrets.{name} must be at least {_SECRET_BYTES} bytes as hexadecimal digits, "
            "for example from 'openssl rand -hex 32'"
        )
    return secret


def kept_secret(path: Path) -> bytes:
    """Return a node's own secret of a run, fresh from the operating system on the first start."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        side = path.with_name(f".{path.name}")
        side.touch(mode=0o600)
        side.write_text(os.urandom(_SECRET_BYTES).hex())
        side.rename(path)
    return bytes.fromhex(path.read_text())
