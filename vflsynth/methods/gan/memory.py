"""How much memory a fit of a GAN takes at a party."""

from __future__ import annotations

from vflsynth.learning import Party
from vflsynth.methods.gan import sampler
from vflsynth.methods.gan.sequential import turns_of
from vflsynth.methods.gan.settings import Settings

_FLOAT = 4

NEEDS_LESS_MEMORY = (
    "use fewer records, columns or models at once, smaller networks or a smaller batch_size; "
    "VFLGAN with generator='parallel' draws all columns at once, which takes less where there are "
    "many"
)


def estimate_memory(
    party: Party, settings: Settings, n_records: int, replicas: int, *, own_rows: bool
) -> int:
    """Estimate the bytes that one party's half of a fit takes at its peak, roughly.

    Encoded records, and four copies while they are masked (of each replica's own rows, if it has
    some); weights with gradients, moments and copies; a batch in the discriminator, of real, fake
    and interpolated records there and back, and in the generator; and the fakes of an evaluation or
    a calibration.
    Of a generator that draws columns one after the other, also the weights of every column's head,
    and what it makes of a row.
    """
    spans, width = party.transformer.spans_, party.transformer.width_
    drawing = [settings.latent_dim, *settings.generator_hidden, width]
    layers = [*drawing, *settings.first_part]
    weights = sum(a * b for a, b in zip(layers[:-1], layers[1:]))
    padded = sum(span.width for span in spans if span.activation == "softmax")
    hidden_of_heads = 0
    if settings.generator_head is not None:
        starts = [turn[0].start for turn in turns_of(spans)]
        weights += settings.generator_head * (drawing[-2] * len(starts) + sum(starts) + width)
        hidden_of_heads = settings.generator_head * len(starts)
    drawn = sum(drawing) + hidden_of_heads + 2 * width + 2 * padded
    looked_at = max(settings.n_evaluation, sampler.CALIBRATION_ROWS) if settings.n_evaluation else 0
    judged = width + sum(settings.first_part)
    return _FLOAT * (
        (1 + 4 * (replicas if own_rows else 1)) * n_records * width
        + replicas * weights * 7
        + replicas * settings.batch_size * (12 * judged + 3 * drawn)
        + replicas * looked_at * drawn
    )
