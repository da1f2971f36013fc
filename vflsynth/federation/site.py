"""What one site alone decides: the site file."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from vflsynth import _artefacts as artefacts
from vflsynth._schema import FileTable, Parsed, checked, read_toml, toml_text
from vflsynth._signatures import PUBLIC_DIGITS
from vflsynth.columns import PublicSchema
from vflsynth.configuration import ColumnKind, Count, FrameBytes, Public
from vflsynth.exceptions import ArtefactError, ParameterError, PayloadRejectedError
from vflsynth.federation.limits import MAX_BYTES
from vflsynth.privacy import Budget
from vflsynth.registry import Choice, Number, Optional

SITE_FILE = "vflsynth.toml"
"""Name of the site file in the folder ``local`` of a FLARE start-up kit."""

_SECRET_BYTES = 32
_FILES = ("folder", "table", "contract")
_UNBOUNDED = "unbounded"
_PUBLIC = re.compile(f"[0-9a-f]{{{PUBLIC_DIGITS}}}")
_JOBS = ("any", "approved", "signed")
_OneOrMore = Annotated[int | None, Optional(Number(1, whole=True))]


def _bits(said: Any) -> float:
    if said == _UNBOUNDED:
        return math.inf
    if not (number := Number(0)).accepts(said):
        raise ParameterError(f"must be {number}, or {_UNBOUNDED!r}, got {said!r}")
    return float(said)


def _secret(text: Any) -> bytes:
    try:
        secret = bytes.fromhex(text)
    except (ValueError, TypeError):
        secret = b""
    if len(secret) < _SECRET_BYTES:
        raise ParameterError(
            f"must be at least {_SECRET_BYTES} bytes as hexadecimal digits, "
            "for example from 'openssl rand -hex 32'"
        )
    return secret


def _public_key(text: Any) -> str:
    if not isinstance(text, str) or not _PUBLIC.fullmatch(text):
        raise ParameterError(
            f"must be a public key of {PUBLIC_DIGITS} hexadecimal digits, which "
            "'vflsynth parties key' prints"
        )
    return text


@dataclass(frozen=True, slots=True)
class Bounds(FileTable):
    """What a site agrees to when records are matched.

    Parameters
    ----------
    most_rows : int, optional
        Of another party: each of its rows is a guess at one of this site's keys, and a party that
        makes rows up learns which of its guesses are right.
    least_matched : int, optional
        With fewer common records than this, dummies included, nothing is trained.
    most_counts : int, default=10
        Attempts, of all jobs together, in which dummies hide how many records are common from the
        server: it sees another sum of both in each, also if it stops the run then, and the mean of
        many would tell.
    """

    most_rows: _OneOrMore = None
    least_matched: _OneOrMore = None
    most_counts: Count = 10

    def check_rows(self, name: str, rows: int, *, own: bool) -> None:
        """Refuse a party that declares too many rows (PayloadRejectedError)."""
        if not own and self.most_rows is not None and rows > self.most_rows:
            raise PayloadRejectedError(
                f"declares {rows:,} rows; a site file agrees to match at most {self.most_rows:,}",
                fix="agree on who brings how many records, and set most_rows in [matching]",
                party=name,
            )

    def check_counts(self, name: str, before: int) -> None:
        """Refuse to have what is common counted once more (PayloadRejectedError)."""
        if before >= self.most_counts:
            raise PayloadRejectedError(
                f"the server has counted common records and dummies in {before} attempts, and the "
                "site file agrees to no more: their mean tells how many records are common",
                fix="see why runs were started again; each attempt more costs intersection_epsilon "
                "once more: raise most_counts in [matching], or do without",
                party=name,
            )

    def check_matched(self, name: str, matched: int) -> None:
        """Refuse to train on too few records (PayloadRejectedError)."""
        if self.least_matched is not None and matched < self.least_matched:
            raise PayloadRejectedError(
                f"fewer records are common than the {self.least_matched:,} of a site file",
                fix="look at how keys are written at the sites, or lower least_matched",
                party=name,
            )


@dataclass(frozen=True, slots=True)
class Telling(FileTable):
    """How much of every record a site lets leave in contexts of autoregressive runs.

    Parameters
    ----------
    bits : float, default=64
        To all receivers together, as they may pool what they have; of all attempts, jobs and
        audits. Contexts without a bound need infinity, in a site file the text "unbounded".
    days : int, default=365
        The period that it is for.
    """

    bits: Annotated[float, Parsed(_bits, {"type": ["number", "string"]})] = 64.0
    days: Count = 365


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
        The party's table, csv or parquet; for private runs parquet, or csv whose types `schema`
        has. The server has none, unless it is an active party.
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
        The site's own secret, for initial weights. Default: fresh for every run. The server draws
        of it what no other run has: it draws noise, too.
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

        Raises ParameterError.
        """
        said = checked(SiteFile, read_toml(path), str(path))
        where = path.resolve().parent
        flat = vars(said) | vars(said.secrets) | {"bounds": said.matching}
        flat |= {"budget": said.privacy.budget(), "schema": said.privacy.schema(str(path))}
        flat |= {name: where / flat[name] for name in _FILES if flat[name] is not None}
        return cls(**{f.name: flat[f.name] for f in fields(cls)})

    def write(self, path: Path) -> None:
        """Write a site file that only its owner can read."""
        own, public = self.absolute(), self.schema
        said = {f.name: getattr(own, f.name, None) for f in fields(SiteFile)}
        content = said | {name: str(said[name]) for name in _FILES if said[name] is not None}
        told = asdict(self.telling)
        content["telling"] = told if math.isfinite(told["bits"]) else told | {"bits": _UNBOUNDED}
        content["matching"] = asdict(self.bounds)
        privacy = {} if self.budget is None else asdict(self.budget)
        content["privacy"] = privacy
        for name in ("bounds", "categories", "dtypes"):
            if isinstance(values := getattr(public, name), Mapping):  # other types are the file's
                as_text = str if name == "dtypes" else list
                privacy[name] = {str(k): as_text(v) for k, v in values.items()}
        secrets = {"shared": self.shared, "own": self.own, "schedule": self.schedule}
        content["secrets"] = {name: key.hex() for name, key in secrets.items() if key}
        artefacts.replace_text(path, toml_text(content), mode=0o600)

    def absolute(self) -> Self:
        """Return the same site with absolute paths."""
        files = {name: own.resolve() for name in _FILES if (own := getattr(self, name))}
        return replace(self, **files)

    @property
    def the_shared(self) -> bytes:
        """The shared secret; ParameterError if the site file has none."""
        if self.shared is None:
            raise ParameterError(
                f"site {self.party!r}: the site file has no shared secret. Make one with "
                "'openssl rand -hex 32', give it to all parties and not to the server, and write "
                'it into every site file: [secrets] shared = "..."'
            )
        return self.shared


@dataclass
class _Secrets(FileTable):
    """Hexadecimal digits."""

    documented_by: ClassVar[Any] = Site

    shared: Annotated[bytes | None, Parsed(_secret)] = None
    own: Annotated[bytes | None, Parsed(_secret)] = None
    schedule: Annotated[bytes | None, Parsed(_secret)] = None


@dataclass(kw_only=True)
class _Privacy(Public):
    """What is public about columns, and what the site agrees to spend: both numbers, or none.

    Parameters
    ----------
    epsilon, delta : float
        The site's budget, of all jobs together.
    """

    epsilon: float | None = None
    delta: float | None = None

    def budget(self) -> Budget | None:
        if self.epsilon is None and self.delta is None:
            return None
        if self.epsilon is None or self.delta is None:
            raise ParameterError("a budget needs both epsilon and delta")
        return Budget(self.epsilon, self.delta)

    def __post_init__(self) -> None:
        self.budget()


@dataclass(kw_only=True)
class SiteFile(FileTable):
    """A site file: what a `Site` has, by tables."""

    documented_by: ClassVar[Any] = Site

    party: str
    folder: str
    table: str | None = None
    key: str | None = None
    labels: str | None = None
    sample_weight: str | None = None
    column_kinds: dict[str, ColumnKind] = field(default_factory=dict)
    device: str = "cpu"
    contract: str | None = None
    max_frame_bytes: FrameBytes = MAX_BYTES
    jobs: Annotated[str, Choice(_JOBS)] = "approved"
    privacy: _Privacy = field(default_factory=_Privacy)
    matching: Bounds = field(default_factory=Bounds)
    telling: Telling = field(default_factory=Telling)
    proposers: dict[str, Annotated[str, Parsed(_public_key)]] = field(default_factory=dict)
    secrets: _Secrets = field(default_factory=_Secrets)

    def __post_init__(self) -> None:
        if self.jobs == "signed" and not self.proposers:
            raise ParameterError(
                'jobs = "signed" needs the public keys of those who may sign. Fix: '
                '[proposers] name = "..."'
            )


def kept_secret(path: Path, *, anew: bool = False) -> bytes:
    """Return a node's own secret of a run, fresh from the operating system on the first start.

    It is fresh `anew` for a run that begins anew: noise that was drawn of it hides nothing twice.
    """
    if anew or not path.exists():
        artefacts.replace_text(path, os.urandom(_SECRET_BYTES).hex(), mode=0o600)
    try:
        secret = bytes.fromhex(path.read_text(encoding="utf-8"))
    except ValueError:  # no hexadecimal digits
        secret = b""
    if len(secret) != _SECRET_BYTES:  # a guess would be as good
        raise ArtefactError(
            f"{path} holds {len(secret)} bytes instead of {_SECRET_BYTES}. Delete it, and give the "
            "run another name"
        )
    return secret
