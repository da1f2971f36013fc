"""The server that publishes the tree of all parties' latent attributes (DPLT)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import torch

from vflsynth.exceptions import ProtocolError
from vflsynth.latent_tree import (
    conditional_shares,
    joint_shares,
    mutual_information,
    spanning_tree,
)
from vflsynth.privacy.contingency import release_tables
from vflsynth.protocol import SERVER
from vflsynth.protocol.messages import LatentCodes, LatentTree


def publish_tree(
    received: Mapping[str, LatentCodes], noise_std: float, noise: torch.Generator | None = None
) -> dict[str, LatentTree]:
    """Count pairs of latent attributes, add noise, and find the tree that says most about them.

    Parameters
    ----------
    received : mapping of party to LatentCodes
        In the clear: the server sees them, and must be trusted to forget them.
    noise_std : float
        Of every cell of every table.
    noise : torch.Generator, optional
        For tests only; see `vflsynth.privacy.noise`.

    Returns
    -------
    dict of party to LatentTree
        The maximum spanning tree by noisy mutual information, with the conditional distribution of
        every latent attribute given its parent.

    Raises
    ------
    ProtocolError
        If the parties' codes are not of equally many records, or not those that they declared.
    """
    names = sorted(received)
    lengths = {len(received[name].codes) for name in names}
    if len(lengths) != 1:
        raise ProtocolError(f"latent attributes of different numbers of records: {sorted(lengths)}")
    codes = np.concatenate([received[name].codes.cpu().numpy() for name in names], axis=1)
    sizes = [size for name in names for size in received[name].sizes.tolist()]
    if np.any(codes < 0) or np.any(codes >= np.array(sizes)):
        raise ProtocolError("a party sent a latent state that it had not declared")
    n_latents = len(sizes)
    # A single attribute is counted against itself, which gives its own distribution.
    index = list(combinations(range(n_latents), 2)) or [(0, 0)]
    tables = release_tables(
        [codes[:, a] for a, _ in index],
        [codes[:, b] for _, b in index],
        [(sizes[a], sizes[b]) for a, b in index],
        noise_std=noise_std,
        rng=noise,
    )
    pairs = dict(zip(index, tables, strict=True)) | {
        (b, a): table.T for (a, b), table in zip(index, tables, strict=True)
    }
    information = np.zeros((n_latents, n_latents))
    for (a, b), table in pairs.items():
        information[a, b] = mutual_information(table)
    parents = spanning_tree(information)
    first_pair = pairs[0, min(1, n_latents - 1)]
    shares = [
        joint_shares(first_pair).sum(1) if parent < 0 else conditional_shares(pairs[parent, node])
        for node, parent in enumerate(parents)
    ]
    flat = torch.from_numpy(np.concatenate([table.ravel() for table in shares]))
    trees, first = {}, 0
    for name in names:
        trees[name] = LatentTree(
            SERVER, name, 0, torch.tensor(parents), torch.tensor(sizes), flat, first
        )
        first += len(received[name].sizes)
    return trees
