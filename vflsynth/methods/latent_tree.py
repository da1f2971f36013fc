"""DPLT: a tree of latent attributes, made of noisy tables of counts in one exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vflsynth._random import RandomStreams
from vflsynth.columns import Bounds, NoisyHistogram
from vflsynth.latent_tree import group_sizes
from vflsynth.mechanisms import Asked, LatentTreePlan
from vflsynth.methods.base import Algorithm, Duration, Method
from vflsynth.methods.latent_tree_party import LatentTreeParty
from vflsynth.methods.latent_tree_server import publish_tree
from vflsynth.models.samplers import LatentTreeSampler, RowSampler
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol import Channel, Schedule
from vflsynth.protocol.messages import LatentCodes


class PublishTree(Algorithm):
    """One exchange: latent attributes of every record, and the published tree.

    Parameters
    ----------
    channel : Channel
    noise_std : float
        Of the server's tables, in counts per cell.
    noise : torch.Generator, optional
        For tests only; see `vflsynth.privacy.noise`.
    """

    def __init__(
        self, channel: Channel, noise_std: float, noise: torch.Generator | None = None
    ) -> None:
        super().__init__(channel)
        self._noise_std, self._noise = noise_std, noise

    def begin(self) -> None:
        """Publish."""
        codes = self.channel.gather(LatentCodes, 0)
        self.channel.scatter(publish_tree(codes, self._noise_std, self._noise))


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Nothing is trained step by step: all records are one batch."""

    batch_size: int


class LatentTreeMethod(Method):
    """Differentially private latent tree (DPLT)."""

    party = LatentTreeParty
    asks = frozenset({LatentCodes})

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

    def settings(self, n_records: int, widths: Mapping[str, int]) -> TreeSettings:
        """Say that all records are one batch."""
        return TreeSettings(n_records)

    def duration(self, n_records: int, settings: TreeSettings) -> Duration:
        """No training step."""
        return Duration(0, 0)

    def build(
        self,
        party: LatentTreeParty,
        settings: TreeSettings,
        schedule: Schedule,
        streams: RandomStreams,
    ) -> None:
        """Publish a party's tables, and make latent attributes of them."""
        assert self.privacy is not None
        party.publish(
            self.tree,
            self._sizes(len(party.transformer.transformers_)),
            self.parameters.n_states,
            self.parameters.n_latent_states,
            self.privacy.n_bins,
            streams.numpy_generators("latent attributes")[0],
            self.noise,
        )

    def algorithm(
        self, channel: Channel, settings: TreeSettings, streams: RandomStreams
    ) -> PublishTree:
        """Make the one exchange."""
        return PublishTree(channel, self.tree.tree_std, self.noise)

    def samplers(self, party: LatentTreeParty, settings: TreeSettings) -> list[RowSampler]:
        """Put together what a party was sent and what it keeps."""
        tree = party.structure
        assert tree is not None, "the tree was scattered to all parties"
        parents, sizes = tree.parents.tolist(), tree.sizes.tolist()
        shapes = [
            (sizes[node],) if parent < 0 else (sizes[parent], sizes[node])
            for node, parent in enumerate(parents)
        ]
        parts = torch.split(tree.shares, [int(np.prod(shape)) for shape in shapes])
        histograms = list(party.transformer.histograms_.values())
        sampler = LatentTreeSampler(
            parents,
            [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)],
            [torch.from_numpy(table) for table in party.columns],
            [tree.first + group for group in party.group_of],
            [_encoded_ends(histogram) for histogram in histograms],
            [histogram.has_missing for histogram in histograms],
        )
        return [sampler]

    def reported(self, settings: Any, duration: Duration) -> dict[str, Any]:
        """Return nothing: the tree is in every party's half."""
        return {}


def _encoded_ends(histogram: NoisyHistogram) -> tuple[float, float] | None:
    """Where the bins of a numeric column begin and end in its encoding."""
    if not isinstance(histogram.cells, Bounds):
        return None
    mean, std = histogram.mean_and_std()
    return (histogram.cells.low - mean) / std, (histogram.cells.high - mean) / std
