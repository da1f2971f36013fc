"""What all sites of a run agree on: the job."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Self

from vflsynth._schema import Parsed, Says, checked, read_toml
from vflsynth.configuration import RunFile, make_estimator
from vflsynth.contract import Contract, contract_from, contract_to_toml
from vflsynth.exceptions import ParameterError
from vflsynth.federation.limits import Limits
from vflsynth.federation.site import Site
from vflsynth.frames import MatchOn
from vflsynth.learning.base import Method
from vflsynth.mechanisms import HistogramMechanism
from vflsynth.methods.parameters import check_combination
from vflsynth.methods.synthesizer import refuse_drawn
from vflsynth.privacy import PublicSchema
from vflsynth.registry import Members

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RESERVED = {"active", "admin", "profile", "server", "shared"}
_FILES = ".json", ".jsonl"
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


def _name(text: Any) -> str:
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ParameterError(f"must be letters, digits, '-', '_' or '.', got {text!r}")
    return text


def _shared(said: Any) -> str:
    """Return what a job says of the parties' contracts, written in the one way that all compare."""
    made = contract_from(said, "")
    if made.parties:
        raise ParameterError(
            f"speaks of {', '.join(made.parties)}. Fix: what a party says of its own "
            'columns belongs into a file of its own, which its site file names: contract = "FILE"'
        )
    return contract_to_toml(made) if made != Contract() else ""


Name = Annotated[str, Parsed(_name)]
_Shared = Annotated[str, Parsed(_shared, {"type": ["string", "object"]})]


@dataclass(frozen=True)
class Job(RunFile):
    """One run, the same at every site.

    Parameters
    ----------
    name : str
        Identifies the run: a job of the same name goes on where the last one stopped.
    parties : tuple of str
        Names of the sites that hold columns, as in their certificates.
    contract : str
        What all parties' contracts share, as TOML: rules about columns of several parties,
        `rare_records` and the limits of a release. In a job file it is a table, or the name of a
        file. What a party says of its own columns is in a file that its site file names.
    **more
        As of `vflsynth.configuration.RunFile`. `parameters` have neither `column_kinds` nor
        `device`, which are in site files, nor `random_state`, `verbose` and `memory_limit`, which
        no run across processes has: a site file's secrets take the place of `random_state`.
    """

    name: Name
    parties: Annotated[tuple[Name, ...], Says("a list of different names")]
    contract: _Shared = ""

    def __post_init__(self) -> None:
        if len(set(self.parties)) != len(self.parties) or not self.parties:
            raise ParameterError(f"parties must be a list of different names, got {self.parties!r}")
        if self.name.endswith(_FILES):
            raise ParameterError(
                f"name must not end in {' or '.join(_FILES)}, as a site's own files"
            )
        if _RESERVED.intersection(self.parties):
            raise ParameterError(f"no party may be called {', '.join(sorted(_RESERVED))}")
        if isinstance(self.on, dict) and not {*self.parties} <= {*self.on}:
            raise ParameterError(f"on must name a key column of every party, got {self.on!r}")
        MatchOn(form=self.key_form)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a job file (ParameterError)."""
        content = read_toml(path)
        content.pop("publish", None)  # of a study: what whoever has all tables does with them
        if isinstance(content.get("parties"), dict):
            content["parties"] = list(content["parties"])
        if isinstance(file := content.get("contract"), str) and file:
            content["contract"] = read_toml(path.parent / file)
        return cls.from_dict(content, str(path))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], where: str = "job") -> Self:
        """Check what a file or another site says; `where` is what error messages begin with.

        Raises ParameterError.
        """
        return checked(cls, content, where)

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` reads, JSON-safe."""
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        return said | {"parties": list(self.parties)}

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
        return contract_from(self.contract, f"job {self.name!r}: contract")

    @property
    def has_labels(self) -> bool:
        """Whether the server is the active party of a split classifier, with labels."""
        return self.method in Members("classifiers")

    @property
    def most_restarts(self) -> int:
        """How often the run begins again by itself."""
        if self.restarts is not None:
            return self.restarts
        return 0 if self.parameters.get("privacy") else _RESTARTS

    def method_for_node(self) -> Method:
        """Make the method; every node does, of the same parameters.

        Raises ParameterError if a parameter is unknown, out of range, or does not go with another.
        """
        for name in self.parameters:
            if name in _REFUSED:
                raise ParameterError(f"job: {name} {_REFUSED[name]}")
        estimator = make_estimator(self.method, self.parameters, where="job")
        if self.contract and self.has_labels:
            raise ParameterError(
                f"job: a contract is about synthetic rows, and {self.method} makes none. Fix: "
                "leave it out"
            )
        if isinstance(getattr(estimator, "privacy", None), HistogramMechanism):
            estimator.privacy.public_schema = PublicSchema()  # every site has its own
        check_combination(estimator, across_processes=True)
        method: Method = estimator.method()
        if self.max_records is not None:
            if self.on is None:
                raise ParameterError(
                    "job: max_records needs a key column, of whose values it depends who is kept: "
                    "name it, on"
                )
            refuse_drawn(method)
        return method

    def check_site(self, site: Site) -> None:
        """Refuse a site that takes no frames as large as the job may send (ParameterError)."""
        if self.max_frame_bytes > site.max_frame_bytes:
            raise ParameterError(
                f"site {site.party!r} takes frames of at most {site.max_frame_bytes:,} bytes; job "
                f"{self.name!r} has max_frame_bytes = {self.max_frame_bytes:,}. Fix: the same key "
                "in the site file, and prepare the kit again"
            )

    @property
    def digest(self) -> str:
        """Digest of everything that sites must agree on."""
        said = self.to_dict() | {"contract": self.shared_contract.digest}
        text = json.dumps(said, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def limits(self) -> Limits:
        """How long anybody waits."""
        return Limits(self.exchange_timeout, self.setup_timeout, self.max_frame_bytes)
