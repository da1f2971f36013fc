"""What a run across processes needs to know of a method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd
import torch

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site
from vflsynth.frames import KeyMinter, learn_key_minters
from vflsynth.parties import TrainableParty
from vflsynth.privacy import LedgerEntry, PrivacyLedger
from vflsynth.protocol import Schedule
from vflsynth.protocol.channel import Verb
from vflsynth.training import Plan

_OF_SITES = ("column_kinds", "device")
_OF_ONE_PROCESS = ("transformer", "random_state", "verbose", "memory_limit")


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the server tells every party of the others when all have joined.

    Parameters
    ----------
    columns : dict of str to int
        How many every party has.
    unlisted : dict of str to int
        Of how many of them the site file does not say what is public; 0 without privacy.
    nonces : dict of str to str
        What every party drew for this attempt.
    epoch : int
        The run goes on after it; 0 to start.
    key_offset : int
        The first key that is minted for synthetic records.
    """

    columns: dict[str, int]
    unlisted: dict[str, int]
    nonces: dict[str, str]
    epoch: int
    key_offset: int

    @classmethod
    def of(cls, terms: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote and another node sent.

        Raises
        ------
        ProtocolError
        """
        try:
            return cls(
                {str(name): int(n) for name, n in terms["columns"].items()},
                {str(name): int(n) for name, n in terms["unlisted"].items()},
                {str(name): str(nonce) for name, nonce in terms["nonces"].items()},
                int(terms["epoch"]),
                int(terms["key_offset"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"the server's terms cannot be read: {error!r}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        # The offset may be larger than what readers of JSON take for a whole number.
        return asdict(self) | {"key_offset": str(self.key_offset)}


class Program(ABC):
    """One method, across processes. Every node has one, for one attempt.

    Parameters
    ----------
    job : Job
    """

    noised: ClassVar[frozenset[str]] = frozenset()
    """Kinds of messages in which nothing depends on records but by way of noise."""
    private: ClassVar[bool] = False
    """Whether records may be read only as a privacy ledger says: errors would tell of them, too."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def check_site(self, site: Site) -> None:
        """Refuse to take part if that is not what the site file agrees to.

        Raises
        ------
        ParameterError
        """
        if site.budget is not None:
            raise ParameterError(
                f"site {site.party!r} takes part in private runs only, as its site file has a "
                f"privacy budget; job {self.job.name!r} has no privacy among its parameters"
            )

    def minter(self, name: str, keys: pd.Index) -> KeyMinter:
        """Learn how to mint keys like a party's."""
        return learn_key_minters({name: keys})[name]

    def key_offset(self, offsets: Sequence[int]) -> int:
        """Choose one offset of minted keys for all parties from their own."""
        return max(offsets)

    @abstractmethod
    def make_party(
        self, name: str, frame: pd.DataFrame, site: Site, agreed: Agreed
    ) -> TrainableParty:
        """Make the object that owns a party's table."""

    def matched(self, agreed: Agreed, n_records: int) -> None:  # noqa: B027
        """Do what is to be done at every node once it knows how many records are matched."""

    def prepare(self, party: TrainableParty) -> None:
        """Have a party make its encoding."""
        party.prepare()

    def build(self, party: Any, settings: Any, schedule: Schedule, streams: RandomStreams) -> None:
        """Make a party's networks."""
        party.build(settings, schedule, streams)

    def schedule(
        self, site: Site, agreed: Agreed, n_records: int, settings: Any, device: torch.device
    ) -> Schedule:
        """Make what the parties draw alike."""
        return Schedule(
            RandomStreams([site.schedule_secret(self.job.name)], device),
            n_records=n_records,
            batch_size=settings.batch_size,
            latent_dim=getattr(settings, "latent_dim", 0),
        )

    @abstractmethod
    def settings(self, n_records: int, widths: Mapping[str, int]) -> Any:
        """Fill in what depends on the data; every node does it and gets the same."""

    @abstractmethod
    def plan(self, n_records: int, settings: Any) -> Plan:
        """Say how long to train."""

    @abstractmethod
    def steps(self, plan: Plan, done: int) -> dict[Verb, int]:
        """Say what the server may ask in training after epoch `done`, and below which step."""

    @abstractmethod
    def multiply_adds(self, settings: Any, widths: Mapping[str, int]) -> float:
        """Return the size of a step, which decides how many threads are worth while."""

    @abstractmethod
    def save_half(
        self, party: TrainableParty, settings: Any, minter: KeyMinter, path: Path
    ) -> None:
        """Write a party's half of the model."""

    # -- privacy ---------------------------------------------------------------------------------

    def ledger(self) -> PrivacyLedger | None:
        """Return what the whole run is planned to release, once records are matched."""
        return None

    def releases(self, first: int, last: int | None = None) -> tuple[LedgerEntry, ...]:
        """Return what epochs `first` to `last`, counted from 1, release; by default to the end.

        What comes before the first epoch belongs to it.
        """
        return ()


def make_method(kind: type[Any], job: Job, **values: Any) -> Any:
    """Make the estimator that has a job's parameters.

    Parameters
    ----------
    kind : type
    job : Job
    values
        In place of parameters of the job.

    Raises
    ------
    ParameterError
        If it has no such parameter, or a job must not choose it.
    """
    known = kind().get_params(deep=False)
    for name in job.parameters:
        if name in _OF_SITES:
            raise ParameterError(f"job: {name} belongs into the site files, not into the job")
        if name in _OF_ONE_PROCESS:
            raise ParameterError(f"job: {name} is for fits in one process only. Fix: leave it out")
        if name not in known:
            raise ParameterError(
                f"job: {kind.__name__} has no parameter {name!r}; there are {', '.join(known)}"
            )
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in job.parameters.items()}
    return kind(**given | values, verbose=0)
