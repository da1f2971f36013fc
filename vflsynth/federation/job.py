"""What all sites of a run agree on: the job."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from vflsynth._validation import Number, Optional, Rule, check_parameters
from vflsynth.configuration import DEFAULT_METHOD, known_keys, make_estimator, read_toml
from vflsynth.contract import (
    Contract,
    contract_from_content,
    contract_from_toml,
    contract_to_toml,
)
from vflsynth.exceptions import ParameterError
from vflsynth.federation.limits import MAX_BYTES, Limits
from vflsynth.federation.site import Site
from vflsynth.frames import MatchOn
from vflsynth.learning.base import Method
from vflsynth.mechanisms import HistogramMechanism
from vflsynth.methods.combinations import check_combination
from vflsynth.privacy import PublicSchema
from vflsynth.registry import Members

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RESERVED = {"active", "admin", "profile", "server", "shared"}
_OF_SITES = "belongs into the site files, not into the job"
_REFUSED = {
    "column_kinds": _OF_SITES,
    "device": _OF_SITES,
    "contract": "is no parameter here. Fix: what all parties share is the job's [contract], and "
    "what a party says of its own columns is in the file that its site file names",
    "random_state": "is for fits in one process only. Fix: leave it out",
    "verbose": "is for fits in one process only. Fix: leave it out",
    "memory_limit": "is for fits in one process only. Fix: leave it out",
}
_RESTARTS = 2
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
        Name of a registered synthesizer, classifier or regressor; 'vflsynth methods' lists them.
    on : str or dict of str to str, optional
        Key column of every table, or of each party's; a site file may name its own, `key`. Default:
        the index.
    key_form : str, default=""
        In which form all sites compare keys, see `vflsynth.MatchOn`.
    parameters : dict
        Of the method, as in `vflsynth.configuration.make_estimator`, but for `column_kinds` and
        `device`, which are in site files, and for `random_state`, `verbose` and `memory_limit`,
        which no run across processes has: a site file's secrets take the place of `random_state`.
    contract : str
        What all parties' contracts share, as TOML: rules about columns of several parties,
        `rare_records` and the limits of a release. In a job file it is a table, or the name of a
        file. What a party says of its own columns is in a file that its site file names.
    checkpoint_every : int, default=10
        Epochs.
    exchange_timeout, setup_timeout : float
        Seconds, see `Limits`.
    max_frame_bytes : int
    restarts : int, optional
        How often the run begins again by itself, from the last common checkpoint, when a party or
        the server was lost. Default: 2; 0 under privacy, where all that is computed again is paid
        for again.
    """

    name: str
    parties: tuple[str, ...]
    method: str = DEFAULT_METHOD
    on: str | dict[str, str] | None = None
    key_form: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    contract: str = ""
    checkpoint_every: int = 10
    exchange_timeout: float = 60.0
    setup_timeout: float = 300.0
    max_frame_bytes: int = MAX_BYTES
    restarts: int | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a job file.

        Raises
        ------
        ParameterError
        """
        content = read_toml(path)
        content.pop("publish", None)  # of a study: what whoever has all tables does with them
        if isinstance(content.get("parties"), dict):
            content["parties"] = list(content["parties"])
        if isinstance(file := content.get("contract"), str) and file:
            content["contract"] = read_toml(path.parent / file)
        return cls.from_dict(content, str(path))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], where: str = "job") -> Self:
        """Check what a file or another site says.

        Parameters
        ----------
        content : mapping
        where : str, default="job"
            What error messages begin with.

        Raises
        ------
        ParameterError
        """
        known_keys(content, [f.name for f in fields(cls)], where)
        name, parties = content.get("name"), content.get("parties")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError(
                f"{where}: name must be letters, digits, '-', '_' or '.', got {name!r}"
            )
        if (
            not isinstance(parties, list | tuple)
            or len(set(parties)) != len(parties)
            or not parties
            or not all(isinstance(p, str) and _NAME.fullmatch(p) for p in parties)
        ):
            raise ParameterError(
                f"{where}: parties must be a list of different names, got {parties!r}"
            )
        if set(parties) & _RESERVED:
            raise ParameterError(f"{where}: no party may be called {', '.join(sorted(_RESERVED))}")
        if not isinstance(content.get("parameters", {}), dict):
            raise ParameterError(f"{where}: parameters must be a table of names and values")
        on = content.get("on")
        if isinstance(on, dict) and not {*parties} <= {*on}:
            raise ParameterError(f"{where}: on must name a key column of every party, got {on!r}")
        names = on.values() if isinstance(on, dict) else [on]
        if on is not None and not all(isinstance(name, str) for name in names):
            raise ParameterError(
                f"{where}: on must be the name of the key column, or a table of parties and names, "
                f"got {on!r}"
            )
        MatchOn(form=content.get("key_form", ""))
        contract = _shared(content.get("contract", ""), f"{where}: contract")
        job = cls(**{**content, "parties": tuple(parties), "contract": contract})
        rules: dict[str, Rule] = {
            "checkpoint_every": Number(1, whole=True),
            "exchange_timeout": _SECONDS,
            "setup_timeout": _SECONDS,
            "max_frame_bytes": Number(1 << 16, whole=True),
            "restarts": Optional(Number(0, whole=True)),
        }
        check_parameters(where, {name: getattr(job, name) for name in rules}, rules)
        return job

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` reads, JSON-safe."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {
            "parties": list(self.parties)
        }

    @property
    def match_on(self) -> MatchOn:
        """Key columns, and the form in which keys are compared."""
        return MatchOn(self.on, self.key_form)

    def key_of(self, site: Site) -> Hashable:
        """Return the key column of a site's table; None for the index."""
        return self.match_on.of(site.party) if site.key is None else site.key

    @property
    def shared_contract(self) -> Contract:
        """What all parties' contracts share."""
        return contract_from_toml(self.contract, f"job {self.name!r}: contract")

    @property
    def has_labels(self) -> bool:
        """Whether the server is the active party of a split estimator, with labels."""
        return any(self.method in Members(group) for group in ("classifiers", "regressors"))

    @property
    def most_restarts(self) -> int:
        """How often the run begins again by itself."""
        if self.restarts is not None:
            return self.restarts
        return 0 if self.parameters.get("privacy") else _RESTARTS

    def method_for_node(self) -> Method:
        """Make the method; every node does, of the same parameters.

        Raises
        ------
        ParameterError
            If a parameter is unknown, out of range, or does not go with another.
        """
        estimator = make_estimator(self.method, self.parameters, where="job", refused=_REFUSED)
        if self.contract and self.has_labels:
            raise ParameterError(
                f"job: a contract is about synthetic rows, and {self.method} makes none. Fix: "
                "leave it out"
            )
        if isinstance(getattr(estimator, "privacy", None), HistogramMechanism):
            estimator.privacy.public_schema = PublicSchema()  # every site has its own
        check_combination(estimator, across_processes=True)
        method: Method = estimator.method()
        return method

    def check_site(self, site: Site) -> None:
        """Refuse a site that takes no frames as large as the job may send.

        Raises
        ------
        ParameterError
        """
        if self.max_frame_bytes > site.max_frame_bytes:
            raise ParameterError(
                f"site {site.party!r} takes frames of at most {site.max_frame_bytes:,} bytes; job "
                f"{self.name!r} has max_frame_bytes = {self.max_frame_bytes:,}. Fix: the same key "
                "in the site file, and prepare the kit again"
            )

    @property
    def digest(self) -> str:
        """Digest of everything that sites must agree on."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def limits(self) -> Limits:
        """How long anybody waits."""
        return Limits(self.exchange_timeout, self.setup_timeout, self.max_frame_bytes)


def _shared(said: Any, where: str) -> str:
    """Return what a job says of the parties' contracts, written in the one way that all compare."""
    if isinstance(said, str):
        made = contract_from_toml(said, where)
    else:
        made = contract_from_content(said, where)
    if made.parties:
        raise ParameterError(
            f"{where} speaks of {', '.join(made.parties)}. Fix: what a party says of its own "
            'columns belongs into a file of its own, which its site file names: contract = "FILE"'
        )
    return contract_to_toml(made) if made != Contract() else ""
