"""A party of a private run in two: one object has the records, another one learns.

`Learning` makes the party's half of the model, and answers all that does not need records. It is
made of public numbers and of the encoding, which follows from published histograms. What it learns
of records passes through `Releasing`: values with noise on a public grid, and weights of networks
that noisy sums of gradients moved. It has no other way to the records, nor to their number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ProtocolError
from vflsynth.frames import KeyMinter
from vflsynth.learning.party import Party, TrainableParty
from vflsynth.models import PartyModel, RowSampler
from vflsynth.privacy.releases import Release
from vflsynth.protocol import Participant


class Releasing:
    """What may be asked of a party that has records: releases that are paid for.

    The party adds noise to what it releases, by `Grid.release`. It is let go of after `end`.
    """

    def __init__(self, party: Party) -> None:
        self.__of: Party | None = party

    @property
    def __party(self) -> Party:
        if self.__of is None:
            raise ProtocolError("a party was asked for more after it had given its releases")
        return self.__of

    def end(self) -> None:
        """Let go of the party: what is asked from then on is refused."""
        self.__of = None

    def release(self, what: str, *public: Any) -> list[Release]:
        """Have the party publish by its method `what`.

        The arguments follow from earlier releases and public numbers. ProtocolError if something
        else than releases comes back: it would have no noise.
        """
        found = list(getattr(self.__party, what)(*public))
        for own in found:
            if not isinstance(own, Release):
                raise ProtocolError(
                    f"{type(self.__party).__name__}.{what} gives a {type(own).__name__}; what "
                    "leaves the records of a private run is a Release. Fix: Grid.release"
                )
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return copies of weights that training with noise left, of shapes that are public.

        ProtocolError if the party has no networks that are trained.
        """
        if not isinstance(self.__party, TrainableParty):
            raise ProtocolError(f"{type(self.__party).__name__} has no networks that are trained")
        return {name: own.detach().clone() for name, own in self.__party.trained().items()}


@dataclass(frozen=True, slots=True)
class Known:
    """What a party of a private run knows besides its records.

    The transformer is of published histograms, the settings as the method returns them. `streams`
    are the party's own, `shared` what all parties draw alike.
    """

    name: str
    transformer: TableTransformer
    settings: Any
    streams: RandomStreams
    shared: RandomStreams


class Learning(Participant, ABC):
    """A party of a private run without its records."""

    def __init__(self, known: Known) -> None:
        self.name, self.transformer = known.name, known.transformer

    def learn(self, records: Releasing) -> None:
        """Have published, once, what does not wait for other parties; `records` ends with it."""

    def conclude(self, records: Releasing) -> None:
        """Take what was trained, once, when training is over; `records` ends with it."""

    @abstractmethod
    def samplers(self) -> Sequence[RowSampler]:
        """Return what draws the party's columns, one per replica."""

    def halves(self, on: Hashable, minter: KeyMinter) -> list[Any]:
        """Return the party's half of the model, one per replica: it is saved and loaded alone."""
        return [
            PartyModel(self.name, self.transformer, sampler, on=on, minter=minter)
            for sampler in self.samplers()
        ]


class TrainedLearning(Learning):
    """A party of a private run that trains: the weights that noisy gradients moved are all it has.

    They must fit the settings, which are public numbers.
    """

    trained: dict[str, Tensor]

    def conclude(self, records: Releasing) -> None:
        """Take the networks that noisy gradients trained."""
        self.trained = records.weights()
