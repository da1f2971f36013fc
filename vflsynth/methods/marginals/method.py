"""Columns on their own, and tied together by a Gaussian copula: party and methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import Algorithm, AtOnce, OneRound
from vflsynth.learning.messages import (
    MaskedBlocks,
    MaskedReal,
    gather_masked,
    moments,
    n_masked_blocks,
)
from vflsynth.learning.party import Party
from vflsynth.methods.marginals.distributions import (
    Marginal,
    MarginalSampler,
    fit_marginals,
    marginal_scores,
)
from vflsynth.methods.marginals.messages import CopulaLoadings
from vflsynth.models.samplers import RowSampler
from vflsynth.protocol import SERVER, Channel, Schedule, answers, takes


@dataclass(frozen=True, slots=True)
class CopulaSettings(AtOnce):
    """In how many messages masked scores are sent, besides."""

    n_masked_blocks: int = 1


class MarginalParty(Party):
    """A party that knows the distribution of each of its columns; it sends nothing."""

    marginals: tuple[Marginal, ...]
    loadings: Tensor | None = None

    def build(self, settings: Any, schedule: Schedule, streams: RandomStreams) -> None:
        """Learn the marginals of the matched records."""
        self.marginals = fit_marginals(self.encode(), self.transformer.spans_)


class CopulaParty(MarginalParty):
    """A party whose columns' scores are compared with those of other parties.

    Sees its own records, the shared secret (through the schedule) and its loadings. Sends normal
    scores of its records, masked.
    """

    def build(self, settings: CopulaSettings, schedule: Schedule, streams: RandomStreams) -> None:
        """Learn the marginals, and mask scores in so many messages."""
        self.schedule = schedule
        encoded = self.encode()
        self.marginals = fit_marginals(encoded, self.transformer.spans_)
        self._scores = torch.tensor(marginal_scores(self.marginals, encoded))
        self._masked = MaskedBlocks(self._mask, settings.n_masked_blocks)

    @answers(MaskedReal)
    def masked_scores(self, step: int) -> MaskedReal:
        """Return a block of the masked scores."""
        return MaskedReal(self.name, SERVER, step, self._masked[step])

    def _mask(self) -> Tensor:
        """Return Q [1, s_i], s_i being the normal scores of the party's columns."""
        scores = F.pad(self._scores, (1, 0), value=1.0).unsqueeze(0)
        return self.schedule.rotate(scores, reuse=False)

    @takes(CopulaLoadings)
    def take_loadings(self, message: CopulaLoadings) -> None:
        """Learn how its columns depend on latents that all parties share."""
        if message.loadings.shape[1] != len(self.marginals):
            raise ProtocolError(
                f"party {self.name!r} got loadings of {message.loadings.shape[1]} columns; it has "
                f"{len(self.marginals)}"
            )
        self.loadings = message.loadings


class IndependentMethod(OneRound):
    """Every column on its own: nothing is asked of the parties."""

    party = MarginalParty

    def algorithm(self, channel: Channel, settings: Any, streams: RandomStreams) -> Algorithm:
        """Make an algorithm that does nothing."""
        return Algorithm(channel)

    def samplers(self, party: MarginalParty, settings: Any) -> list[RowSampler]:
        """Return the marginals, with the loadings of a copula if there are any."""
        width = party.transformer.width_
        return [MarginalSampler(party.marginals, party.loadings, width=width)]


class Copula(Algorithm):
    """Masked normal scores, in so many blocks, and loadings in return."""

    def __init__(self, channel: Channel, n_blocks: int) -> None:
        super().__init__(channel)
        self.n_blocks = n_blocks

    def begin(self) -> None:
        """Turn the correlations of all parties' scores into loadings for each."""
        self.channel.scatter(copula_loadings(gather_masked(self.channel, self.n_blocks)))


class CopulaMethod(IndependentMethod):
    """A Gaussian copula over the columns' own distributions."""

    party = CopulaParty
    asks = frozenset({MaskedReal})

    def settings(self, n_records: int, widths: Mapping[str, int]) -> CopulaSettings:
        """Say in how many messages masked scores are sent."""
        return CopulaSettings(n_masked_blocks=n_masked_blocks(n_records, widths))

    def algorithm(
        self, channel: Channel, settings: CopulaSettings, streams: RandomStreams
    ) -> Copula:
        """Make the one exchange."""
        return Copula(channel, settings.n_masked_blocks)

    def n_blocks(self, settings: CopulaSettings) -> int:
        """Return how many blocks of masked scores there are."""
        return settings.n_masked_blocks


def copula_loadings(received: Mapping[str, MaskedReal]) -> dict[str, CopulaLoadings]:
    """Factor the correlation matrix R of all parties' masked normal scores.

    Each party gets the part L_i, shape (all columns, own columns), of a root L with L^T L = R. It
    tells a party the correlations among its own columns, no others'.
    """
    _, covariance = moments(received)
    deviations = torch.diagonal(covariance[0]).sqrt()
    correlation = covariance[0] / torch.outer(deviations, deviations)
    eigenvalues, vectors = torch.linalg.eigh(correlation)
    root = eigenvalues.clamp_min(0.0).sqrt().unsqueeze(1) * vectors.mT
    root = root / root.norm(dim=0)  # round-off only
    names = sorted(received)
    widths = [received[name].records.shape[-1] - 1 for name in names]
    return {
        name: CopulaLoadings(SERVER, name, 0, part.contiguous())
        for name, part in zip(names, torch.split(root, widths, dim=1))
    }
