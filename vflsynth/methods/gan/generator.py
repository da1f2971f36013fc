"""Generator: latent → encoded row, with one activation per output span."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.networks.layers import NEGATIVE_SLOPE, BatchNorm, Linear, softmax

_SMALL_PADDING = 256  # floats per row; one more operation costs more


class SpanActivation(nn.Module):
    """Gumbel-softmax on every categorical span, identity or a bound elsewhere, then the gates.

    The spans cover the encoded row. A lower temperature is closer to one-hot, with noisier
    gradients.

    Source: VFLGAN §5.1.1 (Gumbel-softmax per categorical attribute, hard with a straight-through
    gradient). Spans of similar widths are padded to one (span, width) block, so that the number of
    operations does not grow with the number of spans, nor the memory with the widest of them.
    """

    columns: Tensor
    padding: Tensor
    filled: Tensor
    targets: Tensor
    gated: Tensor
    gates: Tensor
    bounded: Tensor
    bounds: Tensor

    def __init__(self, spans: Sequence[OutputSpan], temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.width = sum(span.width for span in spans)
        columns: list[int] = []  # of all blocks, one after the other, row by row
        padding: list[float] = []
        self._blocks = []
        for block in _grouped([span for span in spans if span.activation == "softmax"]):
            widest = max(span.width for span in block)
            self._blocks.append((len(block), widest))
            for span in block:
                empty = widest - span.width
                columns += [*range(span.start, span.stop), *[span.start] * empty]
                padding += [*[0.0] * span.width, *[-math.inf] * empty]
        self.n_noisy = len(columns)  # numbers of Gumbel noise that a row takes
        self._sizes = [n_spans * widest for n_spans, widest in self._blocks]
        gated = [(s.start, s.gate) for s in spans if s.gate is not None]
        bounded = [(s.start, s.bound) for s in spans if s.bound is not None]
        filled = [i for i, x in enumerate(padding) if x == 0.0]
        self._has_padding = len(filled) < len(columns)
        self._has_gates, self._has_bounds = bool(gated), bool(bounded)
        for name, values in {
            "columns": torch.tensor(columns, dtype=torch.long),
            "padding": torch.tensor(padding),
            "filled": torch.tensor(filled, dtype=torch.long),
            "targets": torch.tensor([columns[i] for i in filled], dtype=torch.long),
            "gated": torch.tensor([value for value, _ in gated], dtype=torch.long),
            "gates": torch.tensor([gate for _, gate in gated], dtype=torch.long),
            "bounded": torch.tensor([value for value, _ in bounded], dtype=torch.long),
            "bounds": torch.tensor([bound for _, bound in bounded]),
        }.items():
            self.register_buffer(name, values, persistent=False)

    def forward(self, raw: Tensor, gumbel: Tensor | None) -> Tensor:
        """Activate raw outputs, (replica, batch, width).

        Entry j of the Gumbel noise, (replica, batch, len(self.columns)), is added to ``raw[...,
        self.columns[j]]``.
        """
        if self._has_bounds:
            values = raw.index_select(-1, self.bounded)
            raw = raw.index_copy(-1, self.bounded, self.bounds * torch.tanh(values / self.bounds))
        if gumbel is None:
            return raw
        if self._has_padding:
            gumbel = gumbel + self.padding
        logits = raw.index_select(-1, self.columns) + gumbel
        values = torch.cat(
            [
                _one_hot(part.view(*part.shape[:-1], *block), self.temperature).flatten(-2)
                for part, block in zip(torch.split(logits, self._sizes, -1), self._blocks)
            ],
            -1,
        )
        if self._has_padding:
            values = values.index_select(-1, self.filled)
        row = raw.index_copy(-1, self.targets, values)
        if self._has_gates:
            values = row.index_select(-1, self.gated) * row.index_select(-1, self.gates)
            row = row.index_copy(-1, self.gated, values)
        return row


def _grouped(spans: Sequence[OutputSpan]) -> list[list[OutputSpan]]:
    """Group spans to be padded together: all of them, or by power of two if that wastes memory."""
    if not spans:
        return []
    used, padded = sum(s.width for s in spans), len(spans) * max(s.width for s in spans)
    if padded <= 2 * used + _SMALL_PADDING:
        return [list(spans)]
    classes: dict[int, list[OutputSpan]] = {}
    for span in spans:
        classes.setdefault((span.width - 1).bit_length(), []).append(span)
    return [classes[size] for size in sorted(classes)]


def _one_hot(logits: Tensor, temperature: float) -> Tensor:
    """One-hot of the largest logit, with the softmax's gradient (straight-through)."""
    hard = torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    if logits.requires_grad:
        soft = softmax(logits / temperature)
        hard = hard + (soft - soft.detach())
    return hard


Adjust: TypeAlias = Callable[[slice, Tensor, Tensor], Tensor]
"""Changes what activations are applied to: given which encoded columns these are, what the
generator would have, (replica, batch, column), and rows up to these columns at least."""


class Generator(nn.Module):
    """Private generator G_i of one party, R replicas of it, that makes rows of some spans.

    LeakyReLU(0.2) follows each hidden layer, batch normalisation each but the first, none if
    `batch_norm_eps` is None. `bias` is of the hidden layers without it; the output layer always has
    one. `hidden_streams` draw the initial weights of the hidden layers, where parties must start
    with the same ones (VertiGAN). Source: VFLGAN Fig. 10 and the reference code.
    """

    def __init__(
        self,
        latent_dim: int,
        hidden: Sequence[int],
        spans: Sequence[OutputSpan],
        *,
        bias: bool,
        temperature: float,
        batch_norm_eps: float | None,
        streams: RandomStreams,
        hidden_streams: RandomStreams | None = None,
    ) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        hidden_streams = streams if hidden_streams is None else hidden_streams
        dims = [latent_dim, *hidden]
        self.hidden = nn.Sequential()
        for i, (a, b) in enumerate(zip(dims[:-1], dims[1:])):
            normalised = i > 0 and batch_norm_eps is not None
            own = bias and not normalised  # it would be taken out again
            self.hidden.append(
                Linear(a, b, bias=own, streams=hidden_streams, name=f"generator.{i}")
            )
            if batch_norm_eps is not None and normalised:
                self.hidden.append(
                    BatchNorm(len(streams.secrets), b, eps=batch_norm_eps, device=streams.device)
                )
            self.hidden.append(nn.LeakyReLU(NEGATIVE_SLOPE))
        self.width = sum(span.width for span in spans)
        self.output = Linear(
            dims[-1], self.width, bias=True, streams=streams, name="generator.output"
        )
        self._build(dims[-1], spans, temperature, streams)

    def _build(
        self, width: int, spans: Sequence[OutputSpan], temperature: float, streams: RandomStreams
    ) -> None:
        """Make what draws rows, given the last hidden layer and what the output makes of it."""
        self.activation = SpanActivation(spans, temperature).to(streams.device)

    @property
    def n_noisy(self) -> int:
        """Numbers of Gumbel noise that a row takes."""
        return self.activation.n_noisy

    def noise(self, streams: RandomStreams, name: str, index: int, batch: int) -> Tensor | None:
        """Draw the Gumbel noise of a batch, or None when no column needs any."""
        return streams.gumbel(name, index, (batch, self.n_noisy)) if self.n_noisy else None

    def forward(
        self, latent: Tensor, gumbel: Tensor | None, adjust: Adjust | None = None
    ) -> Tensor:
        """Map (replica, batch, latent) to encoded rows (replica, batch, width)."""
        raw = self.output.forward(self._hidden(latent))
        if adjust is not None:
            rows = self.activation.forward(raw, gumbel)
            raw = adjust(slice(0, self.width), raw, rows)
        return self.activation.forward(raw, gumbel)

    def _hidden(self, latent: Tensor) -> Tensor:
        for layer in self.hidden:  # without the hooks of module calls, which show in the profile
            latent = layer.forward(latent)
        return latent


@torch.no_grad()
def sample_encoded(
    generator: Generator,
    latent: Tensor,
    streams: RandomStreams,
    index: int,
    adjust: Adjust | None = None,
) -> Tensor:
    """Generate encoded rows in evaluation mode, shape (replica, n, encoded).

    The latent has shape (replica, n, latent). Streams are the party's own, for Gumbel noise, and
    `index` says which draw of them.
    """
    gumbel = generator.noise(streams, "gumbel.evaluation", index, latent.shape[1])
    generator.eval()
    rows: Tensor = generator.forward(latent, gumbel, adjust)
    generator.train()
    return rows
