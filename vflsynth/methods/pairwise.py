"""A mixture of products, fitted to noisy products of all pairs of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.mechanisms import PairwisePlan
from vflsynth.methods.base import Algorithm, Duration, Method
from vflsynth.methods.latent_tree import encoded_bins
from vflsynth.methods.pairwise_party import PairwiseParty
from vflsynth.methods.pairwise_server import PairwiseServer
from vflsynth.models.samplers import LatentTreeSampler, RowSampler
from vflsynth.networks.tilts import CODE_NORM
from vflsynth.privacy.releases import Grid
from vflsynth.privacy.secure_sums import unit_arithmetic, unit_grid
from vflsynth.protocol import Channel, Schedule
from vflsynth.protocol.messages import ColumnTables, MaskedStates, SumShares
from vflsynth.secure import Arithmetic, record_blocks


class PublishPairs(Algorithm):
    """Noisy products of one party's columns, secure sums for those across parties, the mixture.

    Parameters
    ----------
    channel : Channel
    server : PairwiseServer
    streams : RandomStreams
        The server's.
    """

    def __init__(self, channel: Channel, server: PairwiseServer, streams: RandomStreams) -> None:
        super().__init__(channel)
        self.server, self._streams = server, streams

    def begin(self) -> None:
        """Publish."""
        tables = self.channel.gather(ColumnTables, 0)
        for block in range(self.server.n_blocks):
            self.server.add(block, self.channel.gather(MaskedStates, block))
        shares = self.channel.gather(SumShares, 0) if self.server.n_blocks else {}
        start = self._normal("start of the mixture", self.server.start_shape)
        split = self._normal("split of the mixture", self.server.split_shape)
        self.channel.scatter(self.server.publish(tables, shares, start, split))

    def _normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._streams.normal(name, 0, shape)[0].float().cpu()


@dataclass(frozen=True, slots=True)
class PairwiseSettings:
    """Nothing is trained step by step: all records are one batch."""

    batch_size: int


class PairwiseMethod(Method):
    """Mixture of products, of noisy sums."""

    party = PairwiseParty
    asks = frozenset({ColumnTables, MaskedStates, SumShares})

    @property
    def pairs(self) -> PairwisePlan:
        """The plan of the two rounds of releases."""
        plan = self.private_plan
        assert isinstance(plan, PairwisePlan)
        return plan

    @property
    def n_columns(self) -> dict[str, int]:
        """How many columns each party has."""
        return {name: own.total for name, own in sorted(self.columns.items())}

    @property
    def width(self) -> int:
        """States for which a masked column has room, whatever it has: a public number."""
        return int(self.parameters.n_states) + 1

    @property
    def grid(self) -> Grid | None:
        """Of every party's noise; None if there is no pair of columns."""
        std = self.pairs.pair_std
        return unit_grid(std * CODE_NORM**2) if std else None

    @property
    def arithmetic(self) -> Arithmetic | None:
        """What products across parties are computed in."""
        grid = self.grid
        return None if grid is None else unit_arithmetic(self.n_records * CODE_NORM**2, grid, 2)

    def n_blocks(self, settings: PairwiseSettings) -> int:
        """Return how many blocks of records there are masked states of."""
        return len(record_blocks(self.n_records, self.width * max(self.n_columns.values())))

    def settings(self, n_records: int, widths: Mapping[str, int]) -> PairwiseSettings:
        """Say that all records are one batch."""
        return PairwiseSettings(n_records)

    def duration(self, n_records: int, settings: PairwiseSettings) -> Duration:
        """No training step."""
        return Duration(0, 0)

    def build(
        self,
        party: PairwiseParty,
        settings: PairwiseSettings,
        schedule: Schedule,
        streams: RandomStreams,
    ) -> None:
        """Count and mask a party's records."""
        party.share(
            self.parameters.n_states,
            self.parameters.n_components,
            self.n_columns,
            self.grid,
            self.arithmetic,
            schedule.attempt,
            self.noise,
            self.n_dummies(party, schedule),
        )

    def algorithm(
        self, channel: Channel, settings: PairwiseSettings, streams: RandomStreams
    ) -> PublishPairs:
        """Make the exchange, and the server that fits the mixture."""
        server = PairwiseServer(
            self.n_columns,
            self.width,
            self.n_records,
            self.grid,
            self.arithmetic,
            self.parameters.n_components,
        )
        return PublishPairs(channel, server, streams)

    def multiply_adds(self, settings: PairwiseSettings, widths: Mapping[str, int]) -> float:
        """Return those of a step of the fit."""
        side = self.width * sum(self.n_columns.values())
        return float(self.parameters.n_components * side**2)

    def samplers(self, party: PairwiseParty, settings: PairwiseSettings) -> list[RowSampler]:
        """Put together what a party was sent and what it keeps: a tree of one latent attribute."""
        assert party.mixture is not None, "the mixture was scattered to all parties"
        histograms = list(party.transformer.histograms_.values())
        sampler = LatentTreeSampler(
            [-1],
            [party.mixture.weights],
            party.columns(),
            [0] * len(histograms),
            [encoded_bins(histogram) for histogram in histograms],
            [histogram.has_missing for histogram in histograms],
        )
        return [sampler]

    def reported(self, settings: Any, duration: Duration) -> dict[str, Any]:
        """Return nothing: the mixture is in every party's half."""
        return {}
