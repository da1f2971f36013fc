"""Columns on their own, and tied together by a Gaussian copula: samplers, party and methods.

A column is mapped to standard normal scores and back. Its states (categories; or missing, spikes
and "an ordinary value") divide the unit interval according to their probabilities, and an ordinary
value has a quantile within its part. Ordinary values come last, so that the score of a column which
is zero for most records rises with the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.special import ndtr, ndtri
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.columns.categorical import MANY_RECORDS, TwoPartCode
from vflsynth.columns.encoders import Encoder, NormalScores, Ranks
from vflsynth.learning.base import Algorithm, AtOnce, OneRound, Party
from vflsynth.learning.messages import (
    MaskedBlocks,
    MaskedReal,
    gather_masked,
    moments,
    n_masked_blocks,
)
from vflsynth.methods.marginals.messages import CopulaLoadings
from vflsynth.models.samplers import RowSampler
from vflsynth.protocol.channel import SERVER, Channel, answers, takes
from vflsynth.protocol.schedule import Schedule
from vflsynth.registry import register

Floats = npt.NDArray[np.float64]

# Scores stay within ±8.2 standard deviations.
_SMALLEST_SHARE = 1e-16


@dataclass(frozen=True)
class Marginal:
    """Distribution of one table column in its encoded form.

    `value` is the matrix column of the scaled value, `first_state` the first one of the one-hot
    state or category; either may be None. `probabilities` are of the states, ``[1.0]`` if there is
    only the value; with a value, state 0 is "ordinary". `quantiles` are of the ordinary values, and
    of those that enough records share as `Ranks` keep them. `code` is of categories that have one
    in two parts.
    """

    value: int | None
    first_state: int | None
    probabilities: list[float]
    quantiles: NormalScores | None
    code: TwoPartCode | None = None

    def __post_init__(self) -> None:
        shares = np.asarray(self.probabilities)
        if np.any(shares < 0) or not np.isclose(shares.sum(), 1.0):
            raise ValueError(f"not probabilities: {self.probabilities}")
        if (self.value is None) != (self.quantiles is None):
            raise ValueError("a value needs quantiles, and quantiles need a value")
        if self.code is not None and sum(self.code.sizes) != len(shares):
            raise ValueError("a code of another number of categories")

    @classmethod
    def fit(
        cls, matrix: npt.NDArray[np.float32], spans: Sequence[OutputSpan], least: int = MANY_RECORDS
    ) -> Self:
        """Learn the distribution of one column, of encoded records and the column's spans.

        They are a value, a state or category, or both; or both parts of a code. A value of `least`
        records stays one. Were it spread as far as the next knots, its rows would end at them, and
        show values of single records.
        """
        if spans[-1].within is not None:
            code, start = TwoPartCode(spans[-1].within), spans[0].start
            slots = code.read(matrix[:, start : spans[-1].stop])
            counts = np.bincount(slots, minlength=sum(code.sizes))
            return cls(None, start, (counts / len(slots)).tolist(), None, code)
        value = next((s.start for s in spans if s.role == "value"), None)
        state = next((s for s in spans if s.role != "value"), None)
        shares = [1.0]
        ordinary = np.ones(len(matrix), dtype=np.bool_)
        if state is not None:
            block = matrix[:, state.start : state.stop]
            shares = block.mean(0, dtype=np.float64).tolist()
            ordinary = block[:, 0] > 0.5
        quantiles = None
        if not ordinary.any():
            value = None  # as may be in rows drawn from noisy counts
        if value is not None:
            ordered = np.sort(matrix[ordinary, value].astype(np.float64))
            kept = Ranks() if ordered[0] < ordered[-1] else NormalScores()
            quantiles = kept.fit(ordered, least=least)
        return cls(value, None if state is None else state.start, shares, quantiles)

    def scores(self, matrix: npt.NDArray[np.float32]) -> Floats:
        """Return records' normal scores: of a value's rank, of the middle of a state's part."""
        lower, shares = self._parts()
        state = self._states(matrix)
        fraction = np.full(len(matrix), 0.5)
        if self.value is not None and self.quantiles is not None:
            ordinary = state == 0
            values = matrix[ordinary, self.value].astype(np.float64)
            fraction[ordinary] = ndtr(self.quantiles.scale(values))
        return _scores(lower[state] + shares[state] * fraction)

    def draw_into(self, scores: Floats, rows: Floats) -> None:
        """Write the encoded column that these scores stand for into rows of zeros."""
        lower, shares = self._parts()
        place = ndtr(scores)
        order = np.argsort(lower, kind="stable")
        # The last state whose part begins at or below the place, among those that have a part.
        order = order[shares[order] > 0]
        state = order[np.searchsorted(lower[order], place, side="right") - 1]
        if self.code is not None and self.first_state is not None:
            self.code.write(state, rows[:, self.first_state : self.first_state + self.code.width])
        elif self.first_state is not None:
            rows[np.arange(len(rows)), self.first_state + state] = 1.0
        if self.value is not None and self.quantiles is not None:
            ordinary = state == 0
            fraction = (place[ordinary] - lower[0]) / shares[0]
            rows[ordinary, self.value] = self.quantiles.unscale(_scores(fraction))

    def _parts(self) -> tuple[Floats, Floats]:
        """Where each state's part of the unit interval begins, and how long it is."""
        shares = np.asarray(self.probabilities)
        if self.value is None:
            return np.cumsum(shares) - shares, shares
        behind = np.roll(shares, -1)  # the ordinary state comes last
        return np.roll(np.cumsum(behind) - behind, 1), shares

    def _states(self, matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.intp]:
        if self.first_state is None:
            return np.zeros(len(matrix), dtype=np.intp)
        if self.code is not None:
            return self.code.read(matrix[:, self.first_state : self.first_state + self.code.width])
        stop = self.first_state + len(self.probabilities)
        states: npt.NDArray[np.intp] = np.argmax(matrix[:, self.first_state : stop], axis=1)
        return states

    def to_dict(self) -> dict[str, Any]:
        """Return the distribution, JSON-safe."""
        return {
            "value": self.value,
            "first_state": self.first_state,
            "probabilities": self.probabilities,
            "quantiles": None if self.quantiles is None else self.quantiles.to_dict(),
            "code": None if self.code is None else list(self.code.sizes),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        quantiles, sizes = content["quantiles"], content["code"]
        return cls(
            content["value"],
            content["first_state"],
            list(content["probabilities"]),
            None if quantiles is None else _normal_scores(quantiles),
            None if sizes is None else TwoPartCode(tuple(sizes)),
        )


def _normal_scores(content: Mapping[str, Any]) -> NormalScores:
    encoder = Encoder.from_dict(content)
    if not isinstance(encoder, NormalScores):
        raise ValueError("quantiles are normal scores")
    encoder.check_learned()
    return encoder


def fit_marginals(
    matrix: npt.NDArray[np.float32], spans: Sequence[OutputSpan], least: int = MANY_RECORDS
) -> tuple[Marginal, ...]:
    """Learn the marginals of all columns of an encoded table; constant columns have none.

    Numbers of fewer than `least` records are not kept as they are.
    """
    found = []
    gates = {span.gate for span in spans if span.gate is not None}
    states = {span.start: span for span in spans}
    second = {span.start: span for span in spans if span.within is not None}
    for span in spans:
        if span.start in gates or span.start in second:
            continue  # goes with its value, or with the first part
        both = [span] if span.gate is None else [span, states[span.gate]]
        both += [second[span.stop]] if span.stop in second else []
        found.append(Marginal.fit(matrix, both, least))
    return tuple(found)


def marginal_scores(
    marginals: Sequence[Marginal], matrix: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return normal scores of encoded records, shape (record, column)."""
    scores = np.empty((len(matrix), len(marginals)), np.float32)
    for column, marginal in enumerate(marginals):
        scores[:, column] = marginal.scores(matrix)
    return scores


def draw_marginals(marginals: Sequence[Marginal], scores: Floats, width: int) -> Floats:
    """Return the encoded rows that scores of shape (row, column) stand for."""
    rows = np.zeros((len(scores), width))
    for column, marginal in enumerate(marginals):
        marginal.draw_into(scores[:, column], rows)
    return rows


def _scores(places: Floats) -> Floats:
    return ndtri(np.clip(places, _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE))


@register
class MarginalSampler(RowSampler):
    """One marginal distribution per column, perhaps tied together by a Gaussian copula.

    `loadings`, (latent, column), have columns of unit length: ``latent @ loadings`` are the
    columns' normal scores, and over all parties they have the correlations of the copula. None
    draws scores independently. `width` is that of the encoded row.
    """

    kind = "marginals"

    def __init__(
        self, marginals: Sequence[Marginal], loadings: Tensor | None, *, width: int
    ) -> None:
        if loadings is not None and loadings.shape[1] != len(marginals):
            raise ValueError(f"{len(marginals)} columns, but loadings of {loadings.shape[1]}")
        self.marginals, self.loadings, self.width = tuple(marginals), loadings, width

    @property
    def latent_dim(self) -> int:
        """Number of columns of all parties, or 0."""
        return 0 if self.loadings is None else self.loadings.shape[0]

    def draw(self, latent: Tensor, streams: RandomStreams, index: int) -> Tensor:
        """Draw scores, and look up the quantiles they stand for."""
        if self.loadings is None:
            scores = streams.normal("scores", index, (latent.shape[1], len(self.marginals)))
        else:
            scores = latent.double() @ self.loadings.double()
        rows = draw_marginals(self.marginals, scores[0].double().numpy(), self.width)
        return torch.tensor(rows.astype(np.float32))

    def to_dict(self) -> dict[str, Any]:
        """Return the marginals."""
        return {"marginals": [m.to_dict() for m in self.marginals], "width": self.width}

    def tensors(self) -> dict[str, Tensor]:
        """Return the loadings, if there are any."""
        return {} if self.loadings is None else {"loadings": self.loadings}

    @classmethod
    def restore(
        cls, content: Mapping[str, Any], tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]
    ) -> Self:
        """Undo `to_dict` and `tensors`."""
        marginals = [Marginal.from_dict(m) for m in content["marginals"]]
        loadings = tensors.get("loadings")
        return cls(marginals, None if loadings is None else loadings.cpu(), width=content["width"])


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
        self._learn(self.encode())

    def _learn(self, encoded: npt.NDArray[np.float32]) -> None:
        columns = self.transformer.transformers_.values()
        least = max((getattr(own, "rare_records", 0) for own in columns), default=0)
        self.marginals = fit_marginals(encoded, self.transformer.spans_, max(least, MANY_RECORDS))


class CopulaParty(MarginalParty):
    """A party whose columns' scores are compared with those of other parties.

    Sees its own records, the shared secret (through the schedule) and its loadings. Sends normal
    scores of its records, masked.
    """

    def build(self, settings: CopulaSettings, schedule: Schedule, streams: RandomStreams) -> None:
        """Learn the marginals, and mask scores in so many messages."""
        self.schedule = schedule
        encoded = self.encode()
        self._learn(encoded)
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
        shape = (len(message.loadings), len(self.marginals))
        self.check_shape("loadings", message.loadings, shape)
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


@dataclass(eq=False)
class Copula(Algorithm):
    """Masked normal scores, in so many blocks, and loadings in return."""

    channel: Channel
    n_blocks: int

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
