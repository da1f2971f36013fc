"""DPLT: a tree of latent attributes, made of noisy tables of counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from vflsynth._random import RandomStreams
from vflsynth.learning.base import Algorithm, AtOnce, Known, Size
from vflsynth.learning.messages import states_of, tables_of
from vflsynth.learning.products import (
    ASKED,
    ProductsMethod,
    ProductTerms,
    noisy_products,
    one_hot_codes,
    unit_grid,
)
from vflsynth.mechanisms import Asked
from vflsynth.methods.latent_tree.mechanism import LatentTreePlan
from vflsynth.methods.latent_tree.messages import LatentTables, LatentTree
from vflsynth.methods.latent_tree.model import (
    Floats,
    Pair,
    conditional_shares,
    counts_of,
    group_sizes,
    information_of,
    joint_shares,
    pairs_of_one_party,
    spanning_tree,
)
from vflsynth.methods.latent_tree.party import LatentTreeLearning, LatentTreeParty
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol.channel import SERVER, Channel
from vflsynth.protocol.schedule import Schedule


def publish_tree(
    sizes: Mapping[str, list[int]],
    pairs: Mapping[Pair, Floats],
    compared: Mapping[Pair, Floats] | None = None,
) -> dict[str, LatentTree]:
    """Find the maximum spanning tree, by noisy mutual information, of parties' latent attributes.

    `pairs` are noisy counts, (state, state), of every pair with the smaller number first, or of the
    only one with itself; `compared` are the same with equal noise: noise looks like mutual
    information. Every party gets the conditional distributions of all attributes given the parents.
    """
    flat_sizes = [size for own in sizes.values() for size in own]
    n_latents = len(flat_sizes)
    parents = spanning_tree(information_of(compared or pairs, n_latents))
    root = joint_shares(pairs[0, min(1, n_latents - 1)]).sum(1)
    shares = [
        root if parent < 0 else conditional_shares(counts_of(pairs, parent, node))
        for node, parent in enumerate(parents)
    ]
    flat = torch.tensor(np.concatenate([table.ravel() for table in shares]))
    trees, first = {}, 0
    for name, own in sizes.items():
        trees[name] = LatentTree(
            SERVER, name, 0, torch.tensor(parents), torch.tensor(flat_sizes), flat, first
        )
        first += len(own)
    return trees


_COPIES = 2
"""Of tables, groups and blocks while they are made."""


@dataclass(eq=False)
class PublishTree(Algorithm):
    """Noisy tables of one party's attributes, secure sums for those across parties, and the tree.

    The server puts them together, and finds the tree that says most about them; the streams are its
    own. Sees published tables of pairs of one party's attributes, and of pairs across parties those
    with the noise of both, which `vflsynth.learning.products` computes.
    """

    channel: Channel
    terms: ProductTerms
    n_records: int
    streams: RandomStreams

    def begin(self) -> None:
        """Publish."""
        tables, counts = self.channel.gather(LatentTables, 0), {}
        if len(self.terms.n_columns) > 1:
            counts = noisy_products(self.channel, one_hot_codes(self.terms), self.terms)
        self.channel.scatter(self.put_together(tables, counts))

    def put_together(
        self,
        tables: Mapping[str, LatentTables],
        counts: Mapping[tuple[str, str], list[list[Floats]]],
    ) -> dict[str, LatentTree]:
        """Put all tables together and find the tree; ProtocolError names a party that is wrong.

        `counts` are those of `noisy_products`, empty if there is one party.
        """
        n_groups, width, grid = self.terms.n_columns, self.terms.width, self.terms.grid
        sizes = {n: states_of(m, n_groups[n], width) for n, m in tables.items()}
        starts = dict(zip(sizes, np.cumsum([0, *map(len, sizes.values())]).tolist()))
        pairs: dict[Pair, Floats] = {}
        for name, message in tables.items():
            index = pairs_of_one_party(len(sizes[name]), len(n_groups))
            shapes = [(sizes[name][a], sizes[name][b]) for a, b in index]
            published = tables_of(message, shapes, self.n_records, grid)
            for (a, b), table in zip(index, published, strict=True):
                pairs[starts[name] + a, starts[name] + b] = table
        of_one = set(pairs)
        for (one, other), own in counts.items():
            for a, b in np.ndindex(len(own), len(own[0])):
                shape = sizes[one][a], sizes[other][b]
                pairs[starts[one] + a, starts[other] + b] = own[a][b][: shape[0], : shape[1]]
        # Tables across parties have the noise of two; nothing depends on the secrecy of this one's.
        more = grid.noise_std if counts else 0.0
        (rng,) = self.streams.numpy_generators("comparison of tables")
        compared = {
            pair: table + (more * rng.standard_normal(table.shape) if pair in of_one else 0.0)
            for pair, table in pairs.items()
        }
        return publish_tree(sizes, pairs, compared)


class LatentTreeMethod(ProductsMethod):
    """Differentially private latent tree (DPLT)."""

    party = LatentTreeParty
    asks = ASKED | {LatentTables}

    @property
    def tree(self) -> LatentTreePlan:
        """The plan of the three rounds of releases."""
        plan = self.private_plan
        assert isinstance(plan, LatentTreePlan)
        return plan

    def _asked(self, columns: Mapping[str, ColumnCounts], n_records: int) -> Asked:
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
    def terms(self) -> ProductTerms:
        """How tables across parties are computed."""
        grid = unit_grid(self.tree.tree_std)
        return ProductTerms.of(self.n_records, self.n_groups, self.width, grid, 1)

    def build(
        self, party: LatentTreeParty, settings: AtOnce, schedule: Schedule, streams: RandomStreams
    ) -> None:
        """Tell a party its noise, and let it prepare what it releases and masks."""
        party.plan = self.tree
        super().build(party, settings, schedule, streams)

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
        """Make the exchange."""
        return PublishTree(channel, self.terms, self.n_records, streams)

    needs_less_memory = "use fewer columns, or lower group_size, n_states and n_latent_states"

    def memory(self, party: LatentTreeParty, settings: AtOnce, size: Size) -> int:
        """Estimate the bytes of a party's codes and tables, its largest group and a block."""
        parameters, n_own = self.parameters, len(party.transformer.histograms_)
        most = int(parameters.n_states) + 1
        sizes = self._sizes(self.columns[party.name].total)
        n_others = sum(self.n_groups.values()) - len(sizes)
        codes = len(sizes) * self.width
        block = self.terms.blocks[0].stop * (codes + 2 * n_others * (self.width + 1))
        pairs = n_own * (n_own - 1) // 2 * most**2
        group = most ** max(sizes) * int(parameters.n_latent_states)
        states = size.n_records * (n_own + codes if n_others else n_own)
        own = super().memory(party, settings, size)
        return own + 8 * _COPIES * int(states + block + pairs + group)
