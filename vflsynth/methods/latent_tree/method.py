"""DPLT: a tree of latent attributes, made of noisy tables of counts."""

from __future__ import annotations

from collections.abc import Mapping

from vflsynth._keys import Purpose
from vflsynth._random import RandomStreams
from vflsynth.learning.base import Algorithm, AtOnce, OneRound
from vflsynth.learning.private import Known
from vflsynth.learning.products import ASKED, ProductTerms, noisy_products, one_hot_codes
from vflsynth.mechanisms import Asked
from vflsynth.methods.latent_tree.mechanism import LatentTreePlan
from vflsynth.methods.latent_tree.messages import LatentTables
from vflsynth.methods.latent_tree.model import group_sizes
from vflsynth.methods.latent_tree.party import LatentTreeLearning, LatentTreeParty
from vflsynth.methods.latent_tree.server import LatentTreeServer
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.releases import Grid
from vflsynth.privacy.secure_sums import unit_grid
from vflsynth.protocol import Channel, Schedule

_COPIES = 2
"""Of tables, groups and blocks while they are made."""


class PublishTree(Algorithm):
    """Noisy tables of one party's attributes, secure sums for those across parties, and the tree.

    The server puts them together; the streams are its own.
    """

    def __init__(
        self,
        channel: Channel,
        server: LatentTreeServer,
        terms: ProductTerms,
        streams: RandomStreams,
    ) -> None:
        super().__init__(channel)
        self.server, self._terms, self._streams = server, terms, streams

    def begin(self) -> None:
        """Publish."""
        tables, counts = self.channel.gather(LatentTables, 0), {}
        if len(self._terms.n_columns) > 1:
            counts = noisy_products(self.channel, one_hot_codes(self._terms), self._terms)
        (rng,) = self._streams.numpy_generators("comparison of tables")
        self.channel.scatter(self.server.publish(tables, counts, rng))


class LatentTreeMethod(OneRound):
    """Differentially private latent tree (DPLT)."""

    party = LatentTreeParty
    asks = ASKED | {LatentTables}

    @property
    def tree(self) -> LatentTreePlan:
        """The plan of the three rounds of releases."""
        plan = self.private_plan
        assert isinstance(plan, LatentTreePlan)
        return plan

    def _asked(
        self, columns: Mapping[str, ColumnCounts], n_records: int, holder: str | None
    ) -> Asked:
        groups = {name: self._sizes(own.total) for name, own in columns.items()}
        return Asked(n_records=n_records, owners=self.owners, groups=groups)

    def _sizes(self, n_columns: int) -> list[int]:
        return list(group_sizes(n_columns, self.parameters.group_size))

    @property
    def n_groups(self) -> dict[str, int]:
        """How many latent attributes each party has."""
        return {name: len(self._sizes(own.total)) for name, own in sorted(self.columns.items())}

    @property
    def width(self) -> int:
        """Most states of an attribute, whatever it has: a public number."""
        return max(int(self.parameters.n_latent_states), int(self.parameters.n_states) + 1)

    @property
    def grid(self) -> Grid:
        """Of every party's noise in the tables of latent attributes."""
        return unit_grid(self.tree.tree_std)

    @property
    def terms(self) -> ProductTerms:
        """How tables across parties are computed."""
        return ProductTerms.of(self.n_records, self.n_groups, self.width, self.grid, 1)

    def n_blocks(self, settings: AtOnce) -> int:
        """Return how many blocks of records there are masked states of."""
        return len(self.terms.blocks) if len(self.n_groups) > 1 else 0

    def build(
        self,
        party: LatentTreeParty,
        settings: AtOnce,
        schedule: Schedule,
        streams: RandomStreams,
    ) -> None:
        """Let a party prepare what it releases and masks."""
        party.share(self.tree, self.terms, schedule.keys.key(Purpose.MASKS), self.noise)

    def learning(self, known: Known) -> LatentTreeLearning:
        """Return what makes latent attributes of published tables, and draws a party's columns."""
        return LatentTreeLearning(
            known,
            self._sizes(len(known.transformer.transformers_)),
            self.n_groups,
            self.width,
            self.parameters.n_states,
            self.parameters.n_latent_states,
            known.streams.numpy_generators("latent attributes")[0],
        )

    def algorithm(self, channel: Channel, settings: AtOnce, streams: RandomStreams) -> PublishTree:
        """Make the exchange, and the server that puts tables together."""
        server = LatentTreeServer(self.n_groups, self.width, self.n_records, self.grid)
        return PublishTree(channel, server, self.terms, streams)

    needs_less_memory = "use fewer columns, or lower group_size, n_states and n_latent_states"

    def memory(
        self,
        party: LatentTreeParty,
        settings: AtOnce,
        n_records: int,
        replicas: int,
        *,
        own_rows: bool,
    ) -> int:
        """Estimate the bytes of a party's codes and tables, its largest group and a block."""
        parameters, n_own = self.parameters, len(party.transformer.histograms_)
        most = int(parameters.n_states) + 1
        sizes = self._sizes(self.columns[party.name].total)
        n_others = sum(self.n_groups.values()) - len(sizes)
        codes = len(sizes) * self.width
        block = self.terms.blocks[0].stop * (codes + 2 * n_others * (self.width + 1))
        pairs = n_own * (n_own - 1) // 2 * most**2
        group = most ** max(sizes) * int(parameters.n_latent_states)
        states = n_records * (n_own + codes if n_others else n_own)
        own = super().memory(party, settings, n_records, replicas, own_rows=own_rows)
        return own + 8 * _COPIES * int(states + block + pairs + group)
