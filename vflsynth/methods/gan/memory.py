"""How much memory a fit of a GAN takes at a party."""

from __future__ import annotations

from vflsynth.learning import Party
from vflsynth.methods.gan.settings import Settings

_FLOAT = 4


def estimate_memory(
    party: Party, settings: Settings, n_records: int, replicas: int, *, own_rows: bool
) -> int:
    """Estimate the bytes that one party's half of a fit takes at its peak, roughly.

    Encoded records, and four copies while they are masked (of each replica's own rows, if it has
    some); weights with gradients, moments and copies; the activations of a batch; and the fakes of
    an evaluation.
    """
    width = party.transformer.width_
    layers = [settings.latent_dim, *settings.generator_hidden, width, *settings.first_part]
    weights = sum(a * b for a, b in zip(layers[:-1], layers[1:]))
    padded = sum(span.width for span in party.transformer.spans_ if span.activation == "softmax")
    per_row = sum(layers) + 4 * padded
    return _FLOAT * (
        (1 + 4 * (replicas if own_rows else 1)) * n_records * width
        + replicas * weights * 7
        + replicas * per_row * 2 * (3 * settings.batch_size + settings.n_evaluation)
    )
