"""A party's half of a split autoregressive model: how it draws, and what it passes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from vflsynth._random import RandomStreams, derive
from vflsynth.columns import OutputSpan
from vflsynth.learning.base import section
from vflsynth.methods.autoregressive.conditional import ConditionalNetwork, network_of
from vflsynth.methods.autoregressive.contexts import FixedFeatures, Sender, into_ball
from vflsynth.methods.autoregressive.layout import Layout
from vflsynth.models.samplers import Completion, Known, RowSampler
from vflsynth.registry import register

_AT_ONCE = 128  # dimensions of a Latin hypercube


@register
class AutoregressiveSampler(RowSampler):
    """Draws columns one after the other, given what the parties before it passed on.

    Without a network the party has no column to draw; without a sender, which makes contexts of its
    features for later parties, it passes features on, as all then do. Contexts of drawn rows have
    no noise.
    """

    kind = "autoregressive"
    has_likelihood = True

    def __init__(
        self,
        spans: Sequence[OutputSpan],
        network: ConditionalNetwork | None,
        features: FixedFeatures,
        sender: Sender | None,
        *,
        senders: Sequence[str],
        receivers: Sequence[str],
        passes_features: bool,
    ) -> None:
        self.layout = Layout(spans)
        self.network, self.features, self.sender = network, features, sender
        self.senders, self.receivers = tuple(senders), tuple(receivers)
        self.passes_features = passes_features

    @property
    def latent_dim(self) -> int:
        """0: parties share nothing but what is passed on."""
        return 0

    @property
    def after(self) -> tuple[str, ...]:
        """Parties that have to draw first."""
        return self.senders

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.features.bias.device

    def draw(self, latent: Tensor, streams: RandomStreams, index: int) -> Tensor:
        """Draw encoded rows of a party that nobody comes before."""
        return self.draw_given({}, latent, streams, index)

    def draw_given(
        self, received: Mapping[str, Tensor], latent: Tensor, streams: RandomStreams, index: int
    ) -> Tensor:
        """Draw encoded rows, given what every party before passed on."""
        return self.weigh(received, latent.shape[1], streams, index)[0]

    def weigh(
        self,
        received: Mapping[str, Tensor],
        n_records: int,
        streams: RandomStreams,
        index: int,
        known: Known | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw encoded rows given what is known of them, with log importance weights (record,).

        `received` are numbers by party, (record, number); `index` says which draw of the streams.
        """
        context = torch.zeros(n_records, 0, device=self.device)
        if self.network is None:  # rows are as empty
            return context, context.new_zeros(n_records, dtype=torch.float64)
        if self.senders:
            context = self._context([received[name] for name in self.senders])
        n_columns = len(self.layout.columns)
        if known is None:
            points = _even_points(streams, index, n_records, 2 * n_columns)
        else:
            (points,) = streams.uniform("rows", index, (n_records, 2 * n_columns))
        uniforms = points.view(n_records, 2, n_columns).transpose(0, 1)
        *drawn, log_weights = self.network.draw(context.unsqueeze(0), uniforms, known=known)
        return self.layout.join(*drawn), log_weights

    def _context(self, received: list[Tensor]) -> Tensor:
        if self.passes_features:
            return torch.cat(received, 1)
        return into_ball(torch.stack(received).sum(0))

    @torch.no_grad()
    def pass_on(self, rows: Tensor) -> dict[str, Tensor]:
        """Compute what later parties need of drawn rows, by party, (row, number)."""
        if not self.receivers:
            return {}
        codes, values = self.layout.split(rows)
        features = self.features(codes.unsqueeze(0), values.unsqueeze(0))
        if self.sender is None:
            return dict.fromkeys(self.receivers, features[0])
        return {name: self.sender(features, k)[0] for k, name in enumerate(self.receivers)}

    @classmethod
    def draw_jointly(
        cls, samplers: Mapping[str, Self], asked: Completion
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Draw party by party, with the probability of what is known as a weight."""
        passed: dict[str, dict[str, Tensor]] = {name: {} for name in samplers}
        drawn: dict[str, Tensor] = {}
        total = torch.zeros(asked.n_rows, dtype=torch.float64)
        for name in sorted(samplers, key=lambda own: len(samplers[own].after)):
            sampler = samplers[name]
            streams = RandomStreams([derive(asked.secret, f"completing {name}")], sampler.device)
            known = Known.of(asked.facts[name], asked.n_draws, sampler.device)
            rows, log_weights = sampler.weigh(
                passed[name], asked.n_rows, streams, asked.number, known
            )
            total += log_weights.cpu()
            drawn[name] = rows
            for receiver, numbers in sampler.pass_on(rows).items():
                passed[receiver][name] = numbers
        return drawn, total.view(asked.n_records, asked.n_draws)

    # -- saving ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return who passes on to whom."""
        return {
            "senders": list(self.senders),
            "receivers": list(self.receivers),
            "passes_features": self.passes_features,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return weights; those of features only where somebody comes after."""
        found: dict[str, Tensor] = {}
        parts: dict[str, nn.Module | None] = {"network": self.network}
        if self.receivers:
            parts |= {"features": self.features, "sender": self.sender}
        for label, module in parts.items():
            if module is not None:
                found |= {f"{label}.{name}": v for name, v in module.state_dict().items()}
        return found

    @classmethod
    def restore(
        cls, content: Mapping[str, Any], tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]
    ) -> Self:
        """Undo `to_dict` and `tensors`; all sizes are those of the tensors."""
        layout, receivers = Layout(spans), list(content["receivers"])
        own = section(tensors, "features", ".")
        n_features = own["bias"].shape[-1] if own else 0
        device = next(iter(tensors.values())).device if tensors else torch.device("cpu")
        streams = RandomStreams([b""], device)
        features = FixedFeatures(layout, n_features, streams)
        if own:
            features.load_state_dict(own)
        weights, sender = section(tensors, "sender", "."), None
        if weights:
            hidden = weights["hidden.0.weight"].shape[-1] if "hidden.0.weight" in weights else 0
            width = weights["output.0.weight"].shape[-1]
            sender = Sender(n_features, len(receivers), hidden, width, streams, "sender")
            sender.load_state_dict(weights)
        return cls(
            spans,
            network_of(layout, section(tensors, "network", ".")),
            features,
            sender,
            senders=list(content["senders"]),
            receivers=receivers,
            passes_features=bool(content["passes_features"]),
        )


def _even_points(streams: RandomStreams, index: int, n: int, n_dimensions: int) -> Tensor:
    """Draw points that fill every dimension evenly: less is left to chance, as of more rows.

    So many dimensions at once that those of a wide table take no more memory than its rows do.
    """
    drawn = []
    for k in range(0, n_dimensions, _AT_ONCE):
        width = min(_AT_ONCE, n_dimensions - k)
        drawn.append(streams.latin_hypercube(f"rows{k or ''}", index, n, width)[0].float())
    return torch.cat(drawn, 1)
