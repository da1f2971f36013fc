"""The server that puts noisy tables of all parties' latent attributes together in a tree (DPLT)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from vflsynth.learning.received import states_of, tables_of
from vflsynth.methods.latent_tree.messages import LatentTables, LatentTree
from vflsynth.methods.latent_tree.model import (
    Floats,
    Pair,
    conditional_shares,
    joint_shares,
    mutual_information,
    pairs_of_one_party,
    spanning_tree,
)
from vflsynth.privacy.releases import Grid
from vflsynth.protocol import SERVER


class LatentTreeServer:
    """Collects noisy tables of pairs, and finds the tree that says most about them.

    Parties have `n_groups` latent attributes of at most `width` states; the grid is that of every
    party's noise. Sees published tables of pairs of one party's attributes, and of pairs across
    parties those with the noise of both, which `vflsynth.learning.products` computes.
    """

    def __init__(self, n_groups: Mapping[str, int], width: int, n_records: int, grid: Grid) -> None:
        self.n_groups, self.width, self.n_records, self.grid = n_groups, width, n_records, grid

    def publish(
        self,
        tables: Mapping[str, LatentTables],
        counts: Mapping[tuple[str, str], list[list[Floats]]],
        rng: np.random.Generator,
    ) -> dict[str, LatentTree]:
        """Put all tables together and find the tree; ProtocolError names a party that is wrong.

        `counts` are those of `noisy_products`, empty if there is one party. `rng` makes tables
        comparable, see `publish_tree`; nothing depends on its secrecy.
        """
        sizes = {n: states_of(m, self.n_groups[n], self.width) for n, m in tables.items()}
        starts = dict(zip(sizes, np.cumsum([0, *map(len, sizes.values())]).tolist()))
        pairs: dict[Pair, Floats] = {}
        for name, message in tables.items():
            for (a, b), table in self._own(message, sizes[name]).items():
                pairs[starts[name] + a, starts[name] + b] = table
        of_one = set(pairs)
        for (one, other), own in counts.items():
            for a, b in np.ndindex(len(own), len(own[0])):
                shape = sizes[one][a], sizes[other][b]
                pairs[starts[one] + a, starts[other] + b] = own[a][b][: shape[0], : shape[1]]
        # Tables across parties have the noise of two.
        more = self.grid.noise_std if counts else 0.0
        compared = {
            pair: table + (more * rng.standard_normal(table.shape) if pair in of_one else 0.0)
            for pair, table in pairs.items()
        }
        return publish_tree(sizes, pairs, compared)

    def _own(self, message: LatentTables, sizes: list[int]) -> dict[Pair, Floats]:
        index = pairs_of_one_party(len(sizes), len(self.n_groups))
        shapes = [(sizes[a], sizes[b]) for a, b in index]
        return dict(zip(index, tables_of(message, shapes, self.n_records, self.grid), strict=True))


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
    information = np.zeros((n_latents, n_latents))
    for (a, b), table in (compared or pairs).items():
        information[a, b] = information[b, a] = mutual_information(table)
    parents = spanning_tree(information)

    def counts(parent: int, node: int) -> Floats:
        return pairs[parent, node] if parent < node else pairs[node, parent].T

    first_pair = pairs[0, min(1, n_latents - 1)]
    shares = [
        joint_shares(first_pair).sum(1) if parent < 0 else conditional_shares(counts(parent, node))
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
