"""Sizes and rates on which all nodes of a GAN agree before training, and the memory it takes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from vflsynth.learning import Party
from vflsynth.learning.base import Size
from vflsynth.methods.gan import sampler
from vflsynth.methods.gan.discriminator import Penalty
from vflsynth.methods.gan.sampler import GeneratorSpec
from vflsynth.methods.gan.sequential import turns_of
from vflsynth.networks.layers import FlatAdam
from vflsynth.protocol.channel import Precision


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes and rates, resolved; `VFLGANSynthesizer` documents them.

    For a discriminator that is not cut, `first_part` is all of its hidden layers.
    """

    batch_size: int
    latent_dim: int
    generator_hidden: tuple[int, ...]
    first_part: tuple[int, ...]
    shared_hidden: tuple[int, ...]
    private_heads: bool
    bias: bool
    batch_norm_eps: float | None
    gumbel_temperature: float
    gradient_penalty: Penalty
    gradient_penalty_weight: float
    learning_rate: float
    betas: tuple[float, float]
    generator_average: float
    n_evaluation: int
    discriminator_steps: int = 5
    steps_per_exchange: int = 1
    wire_precision: Precision = "float32"
    n_masked_blocks: int = 1
    generator_head: int | None = None
    shared_weights: tuple[float, float] = (1.0, 1.0)
    residuals: bool = False
    calibrates: bool = True
    mends: bool = False
    resample: int = 1
    n_feature_blocks: int = 0

    def window(self, step: int, steps_per_epoch: int) -> range:
        """Return the discriminator steps that are taken with the exchange that `step` belongs to.

        A window does not go on in the next epoch, before which checkpoints may be written.
        """
        epoch, place = divmod(step, steps_per_epoch)
        first = step - place % self.steps_per_exchange
        return range(first, min(first + self.steps_per_exchange, (epoch + 1) * steps_per_epoch))

    def moves_generators(self, step: int) -> bool:
        """Whether a generator step follows this discriminator step."""
        return (step + 1) % self.discriminator_steps == 0

    def replies_for_generators(self, window: range) -> bool:
        """Whether the reply to a window's features says how the generators are to move."""
        return self.steps_per_exchange > 1 and any(map(self.moves_generators, window))

    @property
    def sent_blocks(self) -> int:
        """Blocks of a batch that parties send: real, fake and, mostly, interpolated."""
        return 2 if self.gradient_penalty == "paper" else 3

    @property
    def end_to_end(self) -> bool:
        """Whether slopes at joint records are penalised, which takes an exchange of its own."""
        return self.gradient_penalty == "end_to_end"

    @property
    def generator(self) -> GeneratorSpec:
        """What a generator is built from."""
        return GeneratorSpec(
            self.latent_dim,
            self.generator_hidden,
            self.bias,
            self.gumbel_temperature,
            self.batch_norm_eps,
            self.generator_head,
        )

    def optimizer(self, module: nn.Module) -> FlatAdam:
        """Make a network's optimiser."""
        return FlatAdam(module, learning_rate=self.learning_rate, betas=self.betas)


def estimate_memory(party: Party, settings: Settings, size: Size) -> int:
    """Estimate the bytes that one party's half of a fit takes at its peak, roughly.

    Encoded records, and four copies while they are masked (of each replica's own rows, if it has
    some); weights with gradients, moments and copies; a batch in the discriminator, of real, fake
    and interpolated records there and back, and in the generator; and the fakes of an evaluation or
    a calibration. A generator that draws columns one after the other has besides the weights of
    every column's head, and what it makes of a row.
    """
    spans, width = party.transformer.spans_, party.transformer.width_
    judging = [width, *settings.first_part]
    weights = settings.generator.n_weights(spans)
    weights += sum(a * b for a, b in zip(judging[:-1], judging[1:]))
    padded = sum(span.width for span in spans if span.activation == "softmax")
    hidden = sum(settings.generator_hidden) + (settings.generator_head or 0) * len(turns_of(spans))
    drawn = settings.latent_dim + hidden + 3 * width + 2 * padded
    looked_at = max(settings.n_evaluation, sampler.CALIBRATION_ROWS) if settings.n_evaluation else 0
    judged, replicas = sum(judging), size.n_replicas
    return 4 * (  # bytes of a float32
        (1 + 4 * (replicas if size.own_rows else 1)) * size.n_records * width
        + replicas * weights * 7
        + replicas * settings.batch_size * (12 * judged + 3 * drawn)
        + replicas * looked_at * drawn
    )
