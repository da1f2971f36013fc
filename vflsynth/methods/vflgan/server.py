"""The server of VFLGAN: the shared discriminator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.learning.base import RunningLosses, load_network_state, network_state
from vflsynth.learning.messages import check_cut
from vflsynth.methods.gan.discriminator import Discriminator, directional_penalty, steepest
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vflgan.messages import (
    DiscriminatorFeatures,
    DiscriminatorGradients,
    FeatureSlopes,
    GeneratorFeatures,
    GeneratorGradients,
    JointSlopes,
    SampledFeatures,
    Shape,
)
from vflsynth.protocol.channel import SERVER, pack, unpack_from
from vflsynth.protocol.messages import IntermediateFeatures

C = TypeVar("C", DiscriminatorGradients, GeneratorGradients)


class VFLGANServer:
    """The server of VFLGAN: D_s and its optimiser.

    Sees intermediate features, masked records and sizes. Has no records, labels or generators.
    Streams, for initial weights and interpolation, are its own; never the parties' shared secret.
    """

    features: ClassVar[type[DiscriminatorFeatures | SampledFeatures]] = DiscriminatorFeatures
    """What the parties send of a batch with real records."""

    def __init__(
        self, settings: Settings, shapes: Mapping[str, Shape], streams: RandomStreams
    ) -> None:
        self.settings, self.streams, self.losses = settings, streams, RunningLosses()
        self.feature_dims = {name: shape.feature_dim for name, shape in sorted(shapes.items())}
        n_records = max(shape.n_records for shape in shapes.values())
        self.steps_per_epoch = -(-n_records // settings.batch_size)
        self.discriminator = Discriminator(
            sum(self.feature_dims.values()),
            settings.shared_hidden,
            bias=settings.bias,
            streams=streams,
            name="shared",
        )
        self.optimizer = settings.optimizer(self.discriminator)

    @torch.no_grad()
    def update_discriminator(
        self, step: int, received: Mapping[str, Any]
    ) -> dict[str, DiscriminatorGradients]:
        """Take the steps of D_s (Eqs. 13, 16) that belong to an exchange, one if it is synchronous.

        Returns, by party, λ_1 dL_{D_s}/df_i at the old D_s; then, if generators move in this
        window, d(-λ_2 E[D_s])/df~_i of the same fakes at the new one.
        """
        window = self.settings.window(step, self.steps_per_epoch)
        received = self._all_unpacked(received)
        replies = []
        for number in window:
            score, penalty, gradients = self.descend(number, received)
            self._take_step()
            self.losses.add(score, penalty)
            if number == step:
                replies.append(_times(gradients, self.settings.shared_weights[0]))
        if self.settings.replies_for_generators(window):
            batch = self.settings.batch_size
            features = self.join(received, self.settings.sent_blocks * batch)
            replies.append(self._fake_gradient(features[:, batch : 2 * batch]))
        return self._split(DiscriminatorGradients, step, torch.cat(replies, 1))

    def _take_step(self) -> None:
        if (weight := self.settings.shared_weights[0]) != 1.0:
            self.optimizer.gradient.mul_(weight)
        self.optimizer.step()

    def _fake_gradient(self, fakes: Tensor) -> Tensor:
        """Compute d(-λ_2 E[D_s])/df~_i."""
        return _times(self.discriminator.fake_gradient(fakes), self.settings.shared_weights[1])

    def descend(
        self, step: int, received: Mapping[str, DiscriminatorFeatures]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Set the gradients of D_s.

        Returns score and penalty, (replica,), and all features' gradients, (replica, row, feature).
        """
        batch = self.settings.batch_size
        features = self.join(received, self.settings.sent_blocks * batch)
        if self.settings.gradient_penalty == "paper":  # interpolate features, not records
            weights = self.streams.uniform("interpolation", step, (batch, 1))
            mixed = torch.lerp(features[:, batch:], features[:, :batch], weights)
            features = torch.cat([features, mixed], 1)
        return self.discriminator.critic_gradient(features, self.settings.gradient_penalty_weight)

    @torch.no_grad()
    def score_fakes(
        self, step: int, received: Mapping[str, GeneratorFeatures]
    ) -> dict[str, GeneratorGradients]:
        """Reply with d(-λ_2 E[D_s(f~)])/df~_i (Eqs. 9, 17); nothing is updated."""
        features = self.join(self._all_unpacked(received), self.settings.batch_size)
        return self._split(GeneratorGradients, step, self._fake_gradient(features))

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs."""
        return network_state("discriminator", self.discriminator, self.optimizer)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        load_network_state(state, "discriminator", self.discriminator, self.optimizer)

    def join(
        self, received: Mapping[str, IntermediateFeatures | SampledFeatures], rows: int
    ) -> Tensor:
        """Put the parties' features side by side, and check their shapes."""
        for name, dim in self.feature_dims.items():
            check_cut(name, received[name], (len(self.streams.secrets), rows, dim))
        return torch.cat([received[name].features for name in self.feature_dims], -1)

    def _split(self, kind: type[C], step: int, gradients: Tensor) -> dict[str, C]:
        parts = gradients.split_with_sizes(list(self.feature_dims.values()), -1)
        replies = {}
        for name, part in zip(self.feature_dims, parts):
            draw = partial(self.streams.uniform, f"rounding|{kind.__name__}|{name}", step)
            packed = pack(part, self.settings.wire_precision, draw)
            replies[name] = kind(SERVER, name, step, packed)
        return replies

    def _all_unpacked(self, received: Mapping[str, Any]) -> dict[str, Any]:
        precision = self.settings.wire_precision
        return {
            name: replace(message, features=unpack_from(message, message.features, precision))
            for name, message in received.items()
        }


def _times(values: Tensor, weight: float) -> Tensor:
    """Multiply, unless that changes nothing."""
    return values if weight == 1.0 else values * weight


class EndToEndServer(VFLGANServer):
    """The server of VFLGAN that penalises the slope of D_s o (C_1 .. C_M) at joint records.

    The slope at a joint record is ``g = [J_1^T c_1 .. J_M^T c_M]``, J_i being the derivative of a
    party's features and c_i that of D_s. Parties answer the c_i with ``J_i J_i^T c_i``: together
    with the c_i these are ``||g||^2``, and where a step along g takes the features. Both critics
    are piecewise linear, so that nothing else is needed to descend the penalty: the slope of D_s
    along that direction, over ``||g||``, is ``||g||``, and has its derivative.

    With several steps per exchange the direction stays that of the first of them.
    """

    @torch.no_grad()
    def update_discriminator(
        self, step: int, received: Mapping[str, Any]
    ) -> dict[str, DiscriminatorGradients]:
        """Reply with dL_{D_s}/df_i, and c_i at interpolated records; nothing is updated yet."""
        features = self.join(self._all_unpacked(received), 3 * self.settings.batch_size)
        judged, rows = self._judged = self.discriminator.judge(features)
        gradients, weight = judged.gradient, self.settings.shared_weights[0]
        if weight != 1.0:  # of the loss, not of the slopes c_i
            gradients = torch.cat([weight * gradients[:, :rows], gradients[:, rows:]], 1)
        return self._split(DiscriminatorGradients, step, gradients)

    @torch.no_grad()
    def settle(self, step: int, received: Mapping[str, FeatureSlopes]) -> dict[str, JointSlopes]:
        """Take the steps of D_s that belong to an exchange."""
        (judged, rows), weight = self._judged, self.settings.gradient_penalty_weight
        features, batch = judged.trace[0], self.settings.batch_size
        slopes = self.join(self._all_unpacked(received), batch)
        squared, directions = steepest(slopes, judged.gradient[:, rows:])
        window = self.settings.window(step, self.steps_per_epoch)
        for number in window:
            if number != step:
                judged, _ = self.discriminator.judge(features)
            penalty, change = directional_penalty(judged.gradient[:, rows:], directions, weight)
            self.losses.add(self.discriminator.settle(judged, rows, change), penalty)
            self._take_step()
        replies = None
        if self.settings.replies_for_generators(window):
            fakes = features[:, batch : 2 * batch]
            replies = self._split(GeneratorGradients, step, self._fake_gradient(fakes))
        return {
            name: JointSlopes(
                SERVER,
                name,
                step,
                squared.squeeze(-1),
                features.new_zeros(len(features), 0, dim)
                if replies is None
                else replies[name].gradients,
            )
            for name, dim in self.feature_dims.items()
        }
