"""How much memory a fit of a GAN takes at a party."""

from __future__ import annotations

from vflsynth.learning import Party
from vflsynth.methods.gan.generator import turns_of
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
    some); weights with gradients, moments and copies; the activations of a batch; and the fakes of
    an evaluation. Of a generator that draws columns one after the other, also the weights of every
    column's head, and what each sees of the row so far, which a batch keeps for the gradient.
    """
    spans, width = party.transformer.spans_, party.transformer.width_
    layers = [settings.latent_dim, *settings.generator_hidden, width, *settings.first_part]
    weights = sum(a * b for a, b in zip(layers[:-1], layers[1:]))
    padded = sum(span.width for span in spans if span.activation == "softmax")
    per_row = sum(layers) + 4 * padded
    kept_of_rows = 0
    if settings.generator_head is not None:
        starts = [turn[0].start for turn in turns_of(spans)]
        head, last = settings.generator_head, [settings.latent_dim, *settings.generator_hidden][-1]
        weights += head * (last * len(starts) + sum(starts) + width)
        per_row += 3 * head * len(starts)
        kept_of_rows = 2 * sum(starts)  # and their gradients
    return _FLOAT * (
        (1 + 4 * (replicas if own_rows else 1)) * n_records * width
        + replicas * weights * 7
        + replicas * per_row * 4 * (3 * settings.batch_size + settings.n_evaluation)
        + replicas * kept_of_rows * settings.batch_size
    )
