"""VFLGAN: Algorithm 1 from the coordinator's chair, and which mechanisms it can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.mechanisms import DPSGD, Discriminators, DPSGDPlan, FirstLayer, Mechanism
from vflsynth.methods.gan.discriminator import Penalty
from vflsynth.methods.gan.method import GANAlgorithm, GANMethod
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vflgan.dpsgd import DPSGDCut, DPSGDServer
from vflsynth.methods.vflgan.messages import FeatureSlopes, GeneratorFeatures, Shape
from vflsynth.methods.vflgan.party import Cut, FirstLayerCut, VFLGANParty
from vflsynth.methods.vflgan.server import EndToEndServer, VFLGANServer
from vflsynth.protocol.channel import Channel, Message

_HEAD = 64
"""Hidden units of each column's head, where columns are drawn one after the other."""

_GENERATOR_STEPS = 3_600
"""If nobody says how many epochs; an exchange each, and two for every discriminator step."""

_SMALL_BATCH, _LARGE_BATCH = 128, 512
"""Records of batches that tell so little or so much that steps are twice or half as many."""

_LEARNING_RATE = 5e-4

_MOST_ONE_BY_ONE = 256
"""Encoded width of the widest table whose columns are drawn so by default."""


class VFLGAN(GANAlgorithm):
    """What happens in a training step, without a word about how.

    Source: VFLGAN Algorithm 1. The reference code updates the generators after the first of every
    five discriminator steps, the listing after the last; this follows the listing. Both use the
    latents of that step.
    """

    def __init__(self, channel: Channel, server: VFLGANServer, **told: Any) -> None:
        super().__init__(channel, server.settings, server.streams, **told)
        self.server = server

    def step(self, step: int) -> None:
        """Train the discriminators, and after every T_d steps the generators.

        With several steps per exchange the first step of a window does all that the window has.
        """
        settings = self.settings
        window = settings.window(step, self.server.steps_per_epoch)
        if step == window[0]:
            self.update_discriminators(step)
        if settings.moves_generators(step) and not settings.replies_for_generators(window):
            self.update_generators(step)

    def update_discriminators(self, step: int) -> None:
        """Train D_1..D_M and D_s, as Algorithm 1 does, for the window that begins with `step`."""
        features = self.channel.gather(self.server.features, step)
        self.channel.scatter(self.server.update_discriminator(step, features))
        if isinstance(self.server, EndToEndServer):
            slopes = self.channel.gather(FeatureSlopes, step)
            self.channel.scatter(self.server.settle(step, slopes))

    def update_generators(self, step: int) -> None:
        """Train G_1..G_M, as Algorithm 1 does."""
        features = self.channel.gather(GeneratorFeatures, step)
        self.channel.scatter(self.server.score_fakes(step, features))

    def losses(self, epoch: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Gather score and penalty of the shared and of the local discriminators."""
        return {"shared": self.server.losses.pop()} | super().losses(epoch)

    def state(self) -> dict[str, Tensor]:
        """Return the server's state, too."""
        return self.server.state() | super().state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        super().load_state(state)
        self.server.load_state(state)


class VFLGANMethod(GANMethod):
    """Vertical federated WGAN-GP with a shared discriminator (VFLGAN)."""

    party = VFLGANParty
    owners = Discriminators.LOCAL_AND_SHARED
    plain_descent = Cut
    encoding: ClassVar = {"continuous": "ranks"}
    descents: ClassVar = {DPSGD: DPSGDCut, FirstLayer: FirstLayerCut}

    @property
    def asks(self) -> frozenset[type[Message]]:  # type: ignore[override]
        """What the server may ask a party for, besides what every run asks."""
        of_batch = (DPSGDServer if isinstance(self.privacy, DPSGD) else VFLGANServer).features
        jointly = {FeatureSlopes} if self.gradient_penalty == "end_to_end" else set()
        return super().asks | {Shape, GeneratorFeatures, of_batch} | jointly

    @property
    def gradient_penalty(self) -> Penalty:
        """The penalty asked for, or the default: with a mechanism, one that it is accounted for."""
        penalty: Penalty | None = self.parameters.gradient_penalty
        return penalty or ("end_to_end" if self.privacy is None else "layerwise")

    @property
    def discriminator_steps(self) -> int:
        """T_d asked for, or the default: with a mechanism, what it was measured with."""
        return int(self.parameters.discriminator_steps or (1 if self.privacy is None else 2))

    @property
    def default_steps(self) -> int:  # type: ignore[override]
        """Discriminator steps, if nobody says how many epochs."""
        return _GENERATOR_STEPS * self.discriminator_steps

    @property
    def _goes_far(self) -> bool:
        """Whether large batches take fewer and longer steps.

        Not with a mechanism, which was measured without, nor with several steps per exchange, whose
        later ones go by gradients of the others' part from before.
        """
        return self.privacy is None and self.parameters.steps_per_exchange == 1

    def _length(self, batch_size: int) -> float:
        """How many times the usual steps are taken by default."""
        if self.privacy is None and batch_size <= _SMALL_BATCH:
            return 2.0
        return 0.5 if self._goes_far and batch_size >= _LARGE_BATCH else 1.0

    @property
    def largest_batch(self) -> int:  # type: ignore[override]
        """Records of a batch at most, if nobody says."""
        return _LARGE_BATCH if self._goes_far else super().largest_batch

    def learning_rate(self, batch_size: int) -> float:
        """Return how far a step goes, by default twice as far where half as many are taken."""
        asked: float | None = self.parameters.learning_rate
        return asked or _LEARNING_RATE / min(1.0, self._length(batch_size))

    def default_epochs(self, n_records: int, batch_size: int) -> int:
        """Return the epochs asked for, or what makes about the default steps."""
        usual = super().default_epochs(n_records, batch_size)
        return self.parameters.epochs or max(1, round(usual * self._length(batch_size)))

    def draws_one_by_one(self, widths: Sequence[int]) -> bool:
        """Whether a row's columns are drawn one after the other.

        By default without a mechanism, and unless a party's table is wide: weights grow with the
        square of its encoded width, and time with the number of its columns.
        """
        if self.parameters.generator is not None:
            return bool(self.parameters.generator == "sequential")
        return self.privacy is None and max(widths) <= _MOST_ONE_BY_ONE

    def plain_settings(
        self, n_records: int, widths: Sequence[int], *, check: bool = True
    ) -> Settings:
        """Fill in the defaults that depend on the data, without privacy."""
        settings = super().plain_settings(n_records, widths, check=check)
        head = _HEAD if self.draws_one_by_one(widths) else None
        residuals = self.privacy is None and self.parameters.residuals
        return replace(settings, generator_head=head, residuals=residuals)

    @classmethod
    def reason_against(cls, parameters: Any, mechanism: Mechanism) -> str | None:
        """Refuse the end-to-end penalty, too, which no ledger counts."""
        if parameters.gradient_penalty == "end_to_end":
            return (
                'gradient_penalty="layerwise" or "paper": slopes at joint records reach the server '
                "in an exchange of their own, which its ledger does not count"
            )
        return super().reason_against(parameters, mechanism)

    def algorithm(self, channel: Channel, settings: Settings, streams: RandomStreams) -> VFLGAN:
        """Make the algorithm and the shared discriminator; asks the parties for their shapes."""
        shapes: Mapping[str, Shape] = channel.gather(Shape, 0)
        if isinstance(self.plan, DPSGDPlan):
            server: VFLGANServer = DPSGDServer(settings, shapes, streams, self.plan, self.noise)
        else:
            kind = EndToEndServer if settings.end_to_end else VFLGANServer
            server = kind(settings, shapes, streams)
        return VFLGAN(channel, server, selects=self.selects, reports=self.reports)

    def discriminator_settings(self, scale: int) -> dict[str, Any]:
        """Return sizes of the cut discriminator."""
        # What relates parties is learned after the cut: an early one, and two layers behind it.
        parameters, size = self.parameters, min(256, max(128, 2 * scale))
        shared_hidden = parameters.shared_hidden
        return {
            "first_part": tuple(parameters.first_part or (size,)),
            "shared_hidden": tuple((size, size) if shared_hidden is None else shared_hidden),
            "private_heads": parameters.private_heads,
            "gradient_penalty": self.gradient_penalty,
            "steps_per_exchange": parameters.steps_per_exchange,
            "shared_weights": (parameters.shared_weights[0], parameters.shared_weights[1]),
        }
