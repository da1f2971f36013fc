"""What parties and the server tell each other of a noisy mean embedding, and what it encodes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import Bounds, Categories, NoisyHistogram, TableTransformer
from vflsynth.columns.bins import Bins
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.messages import UNIFORM
from vflsynth.methods.mean_embedding.embedding import random_frequencies
from vflsynth.methods.mean_embedding.mechanism import MeanEmbeddingPlan
from vflsynth.protocol import SERVER
from vflsynth.protocol.declaration import REAL, MadeOf, Message, When, holds, message


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    slow=True,
    masked=True,
    contents="of angles w_i^k x_i of the block's records, each with a dither that is drawn of the "
    "shared secret, points of the circle (2, b, K, bytes), masked, or turns in 2^8ths of the "
    "circle (b, K); both at parties but the first and last of three and more; at which frequencies "
    "a record counts, drawn of the secret and sorted",
    tells=UNIFORM + ", and whatever it does (`vflsynth.secure.rotations`)",
)
class MaskedPoints(Message):
    """Masked points and turns of a block of records: `vflsynth.secure.Turning`."""

    points: Tensor = holds(torch.uint8, 2, "masked record", "frequency", "byte")
    turns: Tensor = holds(torch.uint8, "turned record", "frequency")
    windows: Tensor = holds(torch.int32, "record")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    slow=True,
    contents="counts of the cells of all columns, with discrete Gaussian noise, in whole steps; "
    "the noise; which columns are numeric; where their bins begin and end, between 0 and 1; the "
    "seed of the public random frequencies",
    tells="published; the privacy ledger counts it. No name, unit or label of a column",
)
class NoisyHistograms(Message):
    """Published counts of a party's columns, one after the other, and what they are counts of.

    Counts are whole numbers of steps; those of column i are ``2**exponents[i]``, and their noise
    has standard deviation ``noise_stds[i]``, in counts. Bins of numeric columns, one column's after
    the other, are where `lows` and `highs` say, scaled to the unit interval. The encoding of the
    columns follows, but for names, units and labels. `seed`, uint8 of shape (32,), is that of the
    party's frequencies.
    """

    counts: Tensor = holds(torch.int64, "cell")
    n_cells: Tensor = holds(torch.int64, "column")
    exponents: Tensor = holds(torch.int64, "column")
    noise_stds: Tensor = holds(torch.float64, "column")
    numeric: Tensor = holds(torch.bool, "column")
    lows: Tensor = holds(torch.float64, "bin")
    highs: Tensor = holds(torch.float64, "bin")
    seed: Tensor = holds(torch.uint8, 32)


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    contents="at how many of the K random frequencies every record counts",
    tells="a function of the noisy histograms: how many records there are, about",
)
class WindowWidth(Message):
    """At how many frequencies, of those that were planned, the server lets a record count."""

    width: int


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    contents="weights of the party's generator (R, weights)",
    tells="a function of the noisy releases",
)
class GeneratorWeights(Message):
    """A party's generator, which the server trained on the noisy releases, (replica, weight)."""

    weights: Tensor = holds(REAL, "replica", "weight")


_UNIT = Bounds(0.0, 1.0)
_LARGEST_EXPONENT = 512  # whose counts are finite

DRAWN_RECORDS = 20_000
"""Records that tell a distribution: of independent columns, and of what generators have learned."""


def published_histograms(
    party: str, step: int, transformer: TableTransformer, seed: Tensor
) -> NoisyHistograms:
    """Make a party's message of the histograms that its encoding was made of."""
    histograms = list(transformer.histograms_.values())
    ends = [h.in_unit_interval() for h in histograms if isinstance(h.cells, Bins)]
    lows, highs = np.concatenate([np.zeros((2, 0)), *map(np.stack, ends)], axis=1)
    return NoisyHistograms(
        party,
        SERVER,
        step,
        counts=torch.tensor(np.concatenate([h.steps for h in histograms])),
        n_cells=torch.tensor([len(h.counts) for h in histograms]),
        exponents=torch.tensor([h.exponent for h in histograms]),
        noise_stds=torch.tensor([h.noise_std for h in histograms], dtype=torch.float64),
        numeric=torch.tensor([isinstance(h.column, Bounds) for h in histograms]),
        lows=torch.tensor(lows),
        highs=torch.tensor(highs),
        seed=seed,
    )


def frequencies_of(seed: Tensor, encoded_dim: int, embedding: MeanEmbeddingPlan) -> Tensor:
    """Draw the public frequencies of a party's encoded columns, float32, (encoded, frequency)."""
    (rng,) = RandomStreams([seed.cpu().numpy().tobytes()]).numpy_generators("frequencies")
    drawn = random_frequencies(encoded_dim, embedding.n_features, embedding.bandwidths, rng)
    return drawn.float()


def published_encoding(message: NoisyHistograms, largest: float) -> TableTransformer:
    """Return the encoding of a party's columns, as far as it is published: spans and marginals.

    Columns are numbered; a numeric column lies in the unit interval, on which standard scores do
    not depend, and categories are numbers. `largest` is the count that there can be, of either
    sign. ProtocolError names a party that sent what it must not.
    """
    counts = _counts(message) if _are_histograms(message) else None
    if counts is None or np.abs(counts).max() > largest:
        raise ProtocolError(
            f"party {message.sender!r} sent noisy histograms that cannot be: "
            f"{len(message.counts)} counts of {len(message.n_cells)} columns; expected those of "
            f"all columns' cells, of at most {largest:.4g} records, noise included, in bins that "
            "follow one another in the unit interval. Fix: install the same version of vflsynth "
            "at every site"
        )
    columns, histograms = {}, {}
    ends = iter(_ends_of_bins(message))
    per_column = np.split(counts, np.cumsum(message.n_cells.tolist())[:-1])
    noise_stds, are_numeric = message.noise_stds.tolist(), message.numeric.tolist()
    for number, (own, noise_std, numeric) in enumerate(
        zip(per_column, noise_stds, are_numeric, strict=True)
    ):
        column = _UNIT if numeric else Categories(tuple(range(len(own) - 1)))
        bins = Bins(_UNIT, *next(ends).numpy()) if numeric else None
        columns[number] = np.zeros(0, np.float64 if numeric else np.int64)
        histograms[number] = NoisyHistogram(column, own, noise_std, bins)
    return TableTransformer.from_histograms(pd.DataFrame(columns), histograms, party=message.sender)


def _are_histograms(message: NoisyHistograms) -> bool:
    """Whether lengths and ranges are those of a message of `published_histograms`."""
    n_cells = message.n_cells
    return (
        len(n_cells) > 0
        # None is more than all are, so that their sum is below 2^63.
        and bool(((n_cells >= 2) & (n_cells <= len(message.counts))).all())
        and len(message.counts) == int(n_cells.sum())
        and bool((message.exponents < _LARGEST_EXPONENT).all())
        and bool((message.exponents > -_LARGEST_EXPONENT).all())
        and bool((message.noise_stds.isfinite() & (message.noise_stds >= 0.0)).all())
        and len(message.lows) == int((n_cells - 1)[message.numeric].sum())
        and all(map(_ascend, _ends_of_bins(message)))
    )


def _counts(message: NoisyHistograms) -> npt.NDArray[np.float64]:
    """Return the counts of all columns, one column's cells after the other's."""
    steps, exponents = message.counts.cpu().numpy(), message.exponents.cpu().numpy()
    per_cell = np.repeat(exponents, message.n_cells.cpu().numpy())
    counts: npt.NDArray[np.float64] = np.ldexp(steps.astype(np.float64), per_cell)
    return counts


def _ends_of_bins(message: NoisyHistograms) -> tuple[Tensor, ...]:
    """Where the bins of every numeric column begin and end, each of shape (2, bin)."""
    n_bins = (message.n_cells - 1)[message.numeric].tolist()
    return torch.split(torch.stack([message.lows, message.highs]).cpu(), n_bins, dim=1)


def _ascend(ends: Tensor) -> bool:
    """Whether bins are in the unit interval, one after the other."""
    inside = bool(((ends >= 0.0) & (ends <= 1.0)).all())
    return inside and bool((ends.T.flatten().diff() >= 0.0).all())
