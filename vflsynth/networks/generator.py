"""Generator: latent → encoded row, with one activation per output span."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.networks.layers import BatchNorm, Linear
from vflsynth.networks.mlp import NEGATIVE_SLOPE
from vflsynth.transformers import OutputSpan


class SpanActivation(nn.Module):
    """Gumbel-softmax on every categorical span, identity elsewhere, then the presence gates.

    Parameters
    ----------
    spans : sequence of OutputSpan
        Cover the encoded row.
    temperature : float
        Of the Gumbel-softmax. Lower is closer to one-hot, with noisier gradients.

    Notes
    -----
    Source: VFLGAN §5.1.1 (Gumbel-softmax per categorical attribute, hard with a straight-through
    gradient). All spans are handled in a fixed number of operations: their logits are gathered into
    one padded (span, width) block.
    """

    columns: Tensor
    padding: Tensor
    filled: Tensor
    gated: Tensor
    gates: Tensor

    def __init__(self, spans: Sequence[OutputSpan], temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.width = sum(span.width for span in spans)
        softmax = [span for span in spans if span.activation == "softmax"]
        widest = max((span.width for span in softmax), default=0)
        columns = torch.zeros(len(softmax), widest, dtype=torch.long)
        padding = torch.full((len(softmax), widest), -torch.inf)
        for row, span in enumerate(softmax):
            columns[row, : span.width] = torch.arange(span.start, span.start + span.width)
            padding[row, : span.width] = 0.0
        gated = [(s.start, s.gate) for s in spans if s.gate is not None]
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("padding", padding, persistent=False)
        self.register_buffer(
            "filled", torch.nonzero(padding.reshape(-1) == 0.0).reshape(-1), persistent=False
        )
        self.register_buffer(
            "gated", torch.tensor([g[0] for g in gated], dtype=torch.long), persistent=False
        )
        self.register_buffer(
            "gates", torch.tensor([g[1] for g in gated], dtype=torch.long), persistent=False
        )

    def noise_shape(self, batch: int) -> tuple[int, int, int] | None:
        """Shape of the Gumbel noise for one replica, or None when no span needs any."""
        return (batch, *self.columns.shape) if self.columns.numel() else None

    def forward(self, raw: Tensor, gumbel: Tensor | None) -> Tensor:
        """Activate (replica, batch, width) with noise (replica, batch, span, widest)."""
        if gumbel is None:
            return raw
        logits = raw[..., self.columns] + (gumbel + self.padding)
        hard = F.one_hot(logits.argmax(-1), logits.shape[-1]).to(raw.dtype)
        if torch.is_grad_enabled() and raw.requires_grad:
            soft = torch.softmax(logits / self.temperature, -1)
            hard = hard + (soft - soft.detach())
        values = hard.flatten(-2)[..., self.filled]
        row = raw.index_copy(-1, self.columns.view(-1)[self.filled], values)
        if self.gated.numel():
            row = row.index_copy(-1, self.gated, row[..., self.gated] * row[..., self.gates])
        return row


class Generator(nn.Module):
    """Private generator G_i of one party, R replicas of it.

    Parameters
    ----------
    latent_dim : int
    hidden : sequence of int
        Hidden layer sizes; LeakyReLU(0.2) after each, batch normalisation after each but the first.
    spans : sequence of OutputSpan
        What the output row consists of.
    bias : bool
        Of the hidden layers; the output layer always has one.
    temperature : float
    batch_norm_eps : float or None
        None leaves batch normalisation out.
    streams : RandomStreams
        Initial weights.
    hidden_streams : RandomStreams, optional
        Initial weights of the hidden layers, where parties must start with the same ones
        (VertiGAN). Default: `streams`.

    Notes
    -----
    Source: VFLGAN Fig. 10 and the reference code.
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
            self.hidden.append(
                Linear(a, b, bias=bias, streams=hidden_streams, name=f"generator.{i}")
            )
            if i > 0 and batch_norm_eps is not None:
                self.hidden.append(
                    BatchNorm(len(streams.secrets), b, eps=batch_norm_eps, device=streams.device)
                )
            self.hidden.append(nn.LeakyReLU(NEGATIVE_SLOPE))
        self.activation = SpanActivation(spans, temperature).to(streams.device)
        self.output = Linear(
            dims[-1], self.activation.width, bias=True, streams=streams, name="generator.output"
        )

    def forward(self, latent: Tensor, gumbel: Tensor | None) -> Tensor:
        """Map (replica, batch, latent) to encoded rows (replica, batch, width)."""
        row: Tensor = self.activation(self.output(self.hidden(latent)), gumbel)
        return row
