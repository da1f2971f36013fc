"""What one site alone decides: the site file."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from vflsynth import _artefacts as artefacts
from vflsynth._random import derive
from vflsynth._signatures import PUBLIC_DIGITS
from vflsynth._validation import Choice, Number, Rule, check_parameters
from vflsynth.columns import PublicSchema
from vflsynth.configuration import known_keys, public_schema, read_toml
from vflsynth.exceptions import ArtefactError, ParameterError, PayloadRejectedError
from vflsynth.federation.limits import MAX_BYTES
from vflsynth.privacy import Budget

SITE_FILE = "vflsynth.toml"
"""Name of the site file in the folder ``local`` of a FLARE start-up kit."""

_SECRET_BYTES = 32
_FILES = ("table", "contract")
_BOUNDS = ["most_rows", "least_matched", "most_counts"]
_COUNT, _SIZE = Number(1, whole=True), Number(1 << 16, whole=True)
_TELLING: dict[str, Rule] = {"bits": Number(0), "days": _COUNT}
_UNBOUNDED = "unbounded"
_LARGEST = "max_frame_bytes"
_PUBLIC = re.compile(f"[0-9a-f]{{{PUBLIC_DIGITS}}}")
_JOBS = ("any", "approved", "signed")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a site agrees to when records are matched.

    Parameters
    ----------
    most_rows : int, optional
        Of another party: each of its rows is a guess at one of this site's keys, and a party that
        makes rows up learns which of its guesses are right.
    least_matched : int, optional
        With fewer common records than this, nothing is trained.
    most_counts : int, default=10
        Attempts, of all jobs together, in which dummies hide how many records are common from the
        server: it sees another sum of both in each, also if it stops the run then, and the mean of
        many would tell.
    """

    most_rows: int | None = None
    least_matched: int | None = None
    most_counts: int = 10

    def check_rows(self, name: str, rows: int, *, own: bool) -> None:
        """Refuse a party that declares too many rows.

        Raises
        ------
        PayloadRejectedError
        """
        if not own and self.most_rows is not None and rows > self.most_rows:
            raise PayloadRejectedError(
                f"declares {rows:,} rows; a site file agrees to match at most {self.most_rows:,}",
                fix="agree on who brings how many records, and set most_rows in [matching]",
                party=name,
            )

    def check_counts(self, name: str, before: int) -> None:
        """Refuse to have what is common counted once more.

        Raises
        ------
        PayloadRejectedError
        """
        if before >= self.most_counts:
            raise PayloadRejectedError(
                f"the server has counted common records and dummies in {before} attempts, and the "
                "site file agrees to no more: their mean tells how many records are common",
                fix="see why runs were started again; each attempt more costs intersection_epsilon "
                "once more: raise most_counts in [matching], or do without",
                party=name,
            )

    def check_matched(self, name: str, matched: int) -> None:
        """Refuse to train on too few records.

        Raises
        ------
        PayloadRejectedError
        """
        if self.least_matched is not None and matched < self.least_matched:
            raise PayloadRejectedError(
                f"fewer records are common than the {self.least_matched:,} of a site file",
                fix="look at how keys are written at the sites, or lower least_matched",
                party=name,
            )


@dataclass(frozen=True, slots=True)
class Telling:
    """How much of every record a site lets leave in contexts of autoregressive runs.

    Parameters
    ----------
    bits : float, default=64
        To all receivers together, as they may pool what they have; of all attempts, jobs and
        audits. Contexts without a bound need infinity, in a site file the text "unbounded".
    days : int, default=365
        The period that it is for.
    """

    bits: float = 64.0
    days: int = 365


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
        The party's table, csv or parquet; for private runs parquet. The server has none, unless it
        is an active party.
    key : str, optional
        Key column of the table, where it has another name than the job says.
    labels : str, optional
        At an active party: the column of the table that holds the labels.
    sample_weight : str, optional
        At an active party: the column that says what each record counts.
    column_kinds : dict
    device : str, default="cpu"
    shared : bytes, optional
        The secret that all parties share and the server does not know: at least 32 bytes.
    own : bytes, optional
        The site's own secret, for initial weights. Default: fresh for every run.
    budget : Budget, optional
        With it the site takes part in private runs only, and only as far as the budget goes, all
        runs of its folder together.
    schema : PublicSchema
        Bounds, categories and types of this party's columns that are known without looking at the
        records. A parquet file fixes types, a csv file does not.
    bounds : Bounds
        What the site agrees to when records are matched.
    telling : Telling
        How much of every record leaves in contexts.
    max_frame_bytes : int, default=256 MiB
        The largest frame that this site takes memory for; jobs that ask for more are refused.
    jobs : {"any", "approved", "signed"}
        Which jobs it takes part in: all, those that were approved there, or those that one of
        `proposers` signed, see `vflsynth.federation.consent`. In a site file the default is
        "approved".
    proposers : dict of str to str
        Names and public keys. With any, jobs that none of them signed are refused, whatever `jobs`
        says.
    schedule : bytes, optional
        Only to reproduce a run in one process: the exact secret of batches, latents and rotations,
        at the server that of its noise. Then these are the same in every attempt, and what two
        attempts hide shows by its difference: for made-up records only.
    contract : Path, optional
        A TOML file with what this party says of its own columns, see `vflsynth.contract.files`. Of
        what all parties share it says nothing, or the same as the job.
    """

    party: str
    folder: Path
    table: Path | None = None
    key: str | None = None
    labels: str | None = None
    sample_weight: str | None = None
    column_kinds: dict[Hashable, str] = field(default_factory=dict)
    device: str = "cpu"
    shared: bytes | None = None
    own: bytes | None = None
    budget: Budget | None = None
    schema: PublicSchema = field(default_factory=PublicSchema)
    bounds: Bounds = field(default_factory=Bounds)
    telling: Telling = field(default_factory=Telling)
    max_frame_bytes: int = MAX_BYTES
    jobs: str = "any"
    proposers: dict[str, str] = field(default_factory=dict)
    schedule: bytes | None = None
    contract: Path | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a site file; paths in it are relative to its folder.

        Raises
        ------
        ParameterError
        """
        content = read_toml(path)
        secrets = content.pop("secrets", {})
        privacy = content.pop("privacy", {})
        matching = content.pop("matching", {})
        proposers, telling = content.pop("proposers", {}), content.pop("telling", {})
        known = [
            "party",
            "folder",
            *_FILES,
            "key",
            "labels",
            "sample_weight",
            "column_kinds",
            "device",
        ]
        known += [_LARGEST, "jobs"]
        content.setdefault("jobs", "approved")
        known_keys(content, known, str(path))
        known_keys(secrets, ["shared", "own", "schedule"], f"{path}: secrets")
        known_keys(
            privacy, ["epsilon", "delta", "bounds", "categories", "dtypes"], f"{path}: privacy"
        )
        known_keys(matching, _BOUNDS, f"{path}: matching")
        check_parameters(f"{path}: matching", matching, dict.fromkeys(matching, _COUNT))
        if telling.get("bits") == _UNBOUNDED:
            telling["bits"] = math.inf
        known_keys(telling, list(_TELLING), f"{path}: telling")
        finite = {n: value for n, value in telling.items() if value != math.inf}
        check_parameters(f"{path}: telling", finite, {n: _TELLING[n] for n in finite})
        rules: dict[str, Rule] = {_LARGEST: _SIZE, "jobs": Choice(_JOBS)}
        given = {_LARGEST: content.get(_LARGEST, MAX_BYTES), "jobs": content["jobs"]}
        check_parameters(str(path), given, rules)
        _check_proposers(path, proposers, content["jobs"])
        for name in ("party", "folder", *(file for file in _FILES if file in content)):
            if not isinstance(content.get(name), str):
                raise ParameterError(f"{path}: {name} must be a text, got {content.get(name)!r}")
        where = path.resolve().parent
        paths = {n: where / content[n] for n in ("folder", *_FILES) if n in content}
        keys = {name: _secret(path, name, text) for name, text in secrets.items()}
        agreed = {"bounds": Bounds(**matching), "proposers": proposers}
        agreed["telling"] = Telling(**telling)
        return cls(**(content | paths | keys | agreed | _privacy(path, privacy)))

    def write(self, path: Path) -> None:
        """Write a site file that only its owner can read."""
        # Texts of JSON are texts of TOML.
        lines = [f"party = {_quoted(self.party)}", f"folder = {_quoted(self.folder.resolve())}"]
        files = {name: getattr(self, name) for name in _FILES}
        lines += [f"{name} = {_quoted(file.resolve())}" for name, file in files.items() if file]
        columns = {"key": self.key, "labels": self.labels, "sample_weight": self.sample_weight}
        lines += [f"{name} = {_quoted(text)}" for name, text in columns.items() if text is not None]
        lines += [f"device = {_quoted(self.device)}", f"{_LARGEST} = {self.max_frame_bytes}"]
        lines.append(f"jobs = {_quoted(self.jobs)}")
        lines += ["", "[column_kinds]"]
        lines += [f"{_quoted(k)} = {_quoted(kind)}" for k, kind in self.column_kinds.items()]
        if self.budget is not None:
            lines += ["", "[privacy]", f"epsilon = {self.budget.epsilon!r}"]
            lines += [f"delta = {self.budget.delta!r}"]
        for name in ("bounds", "categories"):
            public = getattr(self.schema, name)
            lines += ["", f"[privacy.{name}]"] if public else []
            lines += [f"{_quoted(k)} = {json.dumps(list(v))}" for k, v in public.items()]
        if isinstance(dtypes := self.schema.dtypes, Mapping) and dtypes:  # others are the file's
            lines += ["", "[privacy.dtypes]"]
            lines += [f"{_quoted(k)} = {_quoted(str(v))}" for k, v in dtypes.items()]
        lines += ["", "[matching]"]
        agreed = {name: getattr(self.bounds, name) for name in _BOUNDS}
        lines += [f"{name} = {n}" for name, n in agreed.items() if n is not None]
        bits = self.telling.bits
        told = repr(bits) if math.isfinite(bits) else _quoted(_UNBOUNDED)
        lines += ["", "[telling]", f"bits = {told}", f"days = {self.telling.days}"]
        lines += ["", "[proposers]"]
        lines += [f"{_quoted(name)} = {_quoted(public)}" for name, public in self.proposers.items()]
        lines += ["", "[secrets]"]
        secrets = {"shared": self.shared, "own": self.own, "schedule": self.schedule}
        lines += [f"{k} = {_quoted(secret.hex())}" for k, secret in secrets.items() if secret]
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")

    def absolute(self) -> Self:
        """Return the same site with absolute paths."""
        files = {name: getattr(self, name) for name in _FILES}
        found: dict[str, Any] = {
            name: None if file is None else file.resolve() for name, file in files.items()
        }
        return replace(self, folder=self.folder.resolve(), **found)

    def schedule_secret(self, run: str) -> bytes:
        """Return the secret of batches and latents of a run, which hide nothing."""
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


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


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


def _check_proposers(path: Path, proposers: Any, jobs: str) -> None:
    keys = proposers.values() if isinstance(proposers, dict) else [None]
    for public in keys:
        if not isinstance(public, str) or not _PUBLIC.fullmatch(public):
            raise ParameterError(
                f"{path}: proposers must be names with public keys of {PUBLIC_DIGITS} hexadecimal "
                "digits, which 'vflsynth parties key' prints"
            )
    if jobs == "signed" and not proposers:
        raise ParameterError(
            f'{path}: jobs = "signed" needs the public keys of those who may sign. Fix: '
            '[proposers] name = "..."'
        )


def _privacy(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Read budget and public knowledge."""
    found: dict[str, Any] = {"schema": public_schema(content, str(path))}
    try:
        if "epsilon" in content or "delta" in content:
            found["budget"] = Budget(content["epsilon"], content["delta"])
    except (KeyError, TypeError, ValueError) as error:
        raise ParameterError(
            f"{path}: privacy needs both epsilon and delta for a budget: {error}"
        ) from error
    return found


def kept_secret(path: Path, *, anew: bool = False) -> bytes:
    """Return a node's own secret of a run, fresh from the operating system on the first start.

    Parameters
    ----------
    path : Path
    anew : bool, default=False
        For a run that begins anew: noise that was drawn of the secret hides nothing twice.
    """
    if anew or not path.exists():
        artefacts.replace_text(path, os.urandom(_SECRET_BYTES).hex(), mode=0o600)
    secret = bytes.fromhex(path.read_text())
    if len(secret) != _SECRET_BYTES:  # a guess would be as good
        raise ArtefactError(
            f"{path} holds {len(secret)} bytes instead of {_SECRET_BYTES}. Delete it, and give the "
            "run another name"
        )
    return secret
