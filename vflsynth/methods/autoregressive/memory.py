"""How much memory a fit of the autoregressive model takes at a party."""

from __future__ import annotations

from vflsynth.learning.base import Size
from vflsynth.learning.party import ENCODED_AT_ONCE, Party
from vflsynth.methods.autoregressive.conditional import (
    COLUMNS_AT_ONCE,
    embedding_widths,
    n_outputs_of,
)
from vflsynth.methods.autoregressive.layout import MOST_SEEING_ALL, N_SEEN, VALUE_FEATURES, Layout
from vflsynth.methods.autoregressive.party import (
    CHUNK,
    CHUNK_OF_MANY,
    MOST_CALIBRATED,
    MOST_CALIBRATED_OF_MANY,
    MOST_ENCODED,
)
from vflsynth.methods.autoregressive.settings import AutoregressiveSettings

_FLOAT = 4


def estimate_memory(party: Party, settings: AutoregressiveSettings, size: Size) -> int:
    """Estimate the bytes that one party's half of a fit takes at its peak, roughly.

    Encoded records; features, at the party and of a bounded number of records at the server;
    weights with gradients, moments, averages and what was kept; and what is largest of a training
    step, a look at the held-out records, and the calibration at the end.
    """
    layout = Layout(party.transformer.spans_)
    n_columns, width = len(layout.columns), layout.width
    n_records, replicas = size.n_records, size.n_replicas
    if not n_columns:
        return 0
    n_codes = sum(column.n_codes for column in layout.columns)
    sizes = embedding_widths(layout)
    for i in layout.numeric:
        sizes[i] += VALUE_FEATURES
    context, shown = settings.width_for(party.name) + 1, sum(sizes)
    outputs = n_outputs_of(layout)
    some = n_columns > MOST_SEEING_ALL
    hidden = settings.hidden_of_many if some else settings.hidden
    seen = sum(sorted(sizes)[-N_SEEN:]) if some else shown
    first = (seen + context) * n_columns * hidden
    weights = first + n_columns * hidden * (hidden + outputs)
    at_once = min(COLUMNS_AT_ONCE, n_columns) if some else n_columns
    chunk = CHUNK_OF_MANY if some else CHUNK
    # Of a record: inputs, several times over with their gradients; layers; outputs.
    layers = at_once * ((seen if some else 0) + 4 * hidden + 4 * outputs)
    batch = settings.batch_size * (2 if settings.unmatched == "train" else 1)
    training = batch * (5 * (shown + context) + int(2.5 * layers) + n_columns * hidden)
    looking = min(chunk, settings.n_held_out or n_records) * (2 * (shown + context) + layers)
    calibrated = min(MOST_CALIBRATED_OF_MANY if some else MOST_CALIBRATED, n_records)
    calibrating = calibrated * (shown + 6 * n_columns + 4 * outputs)
    records = replicas * n_records * (n_columns + len(layout.numeric) + context)
    at_once = min(ENCODED_AT_ONCE, n_records)
    encoding = min(at_once * width, MOST_ENCODED) if some else at_once * width
    parties = len(settings.order)
    features = settings.n_features * (2 * (n_codes + VALUE_FEATURES * len(layout.numeric)))
    if parties > 1:
        features += 4 * replicas * settings.n_features * settings.n_featured
    masked = 0 if some else (3 * first if replicas == 1 else (2 + replicas) * first)
    return _FLOAT * (
        records
        + features
        + replicas * 8 * weights
        + masked
        + max(3 * encoding, replicas * training, replicas * looking, 2 * weights + calibrating)
    )
