"""What a party publishes about its columns: noisy histograms, and the encoding that they tell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import Bounds, Categories, NoisyHistogram, TableTransformer
from vflsynth.columns.bins import Bins
from vflsynth.exceptions import ProtocolError
from vflsynth.mechanisms import MeanEmbeddingPlan
from vflsynth.privacy.mean_embedding import random_frequencies
from vflsynth.protocol import SERVER
from vflsynth.protocol.messages import NoisyHistograms

SEED_BYTES = 32
"""Of the seed of a party's frequencies."""

_UNIT = Bounds(0.0, 1.0)
_LARGEST_EXPONENT = 512  # whose counts are finite, and their squares

DRAWN_RECORDS = 20_000
"""Records that tell a distribution: of independent columns, and of what generators have learned."""


def published_histograms(
    party: str, step: int, transformer: TableTransformer, seed: Tensor
) -> NoisyHistograms:
    """Make a party's message of the histograms that its encoding was made of."""
    histograms = list(transformer.histograms_.values())
    ends = [h.cells.in_unit_interval() for h in histograms if isinstance(h.cells, Bins)]
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


def published_encoding(message: NoisyHistograms) -> TableTransformer:
    """Return the encoding of a party's columns, as far as it is published.

    Parameters
    ----------
    message : NoisyHistograms

    Returns
    -------
    TableTransformer
        Of the party's spans and marginals. Columns are numbered; a numeric column lies in the unit
        interval, on which standard scores do not depend, and categories are numbers.

    Raises
    ------
    ProtocolError
        If the party sent what it must not, naming it.
    """
    if not _are_histograms(message):
        raise ProtocolError(
            f"party {message.sender!r} sent noisy histograms that are none: "
            f"{message.counts.dtype} counts of shape {tuple(message.counts.shape)}, cells of "
            f"shape {tuple(message.n_cells.shape)}. Fix: install the same version of vflsynth at "
            "every site"
        )
    columns, histograms = {}, {}
    ends = iter(_ends_of_bins(message))
    steps = torch.split(message.counts.cpu(), message.n_cells.tolist())
    per_column = (message.exponents, message.noise_stds, message.numeric)
    for number, (own, exponent, noise_std, numeric) in enumerate(
        zip(steps, *(values.tolist() for values in per_column), strict=True)
    ):
        counts = np.ldexp(own.numpy().astype(np.float64), exponent)
        column = _UNIT if numeric else Categories(tuple(range(len(counts) - 1)))
        bins = Bins(_UNIT, *next(ends).numpy()) if numeric else None
        columns[number] = np.zeros(0, np.float64 if numeric else np.int64)
        histograms[number] = NoisyHistogram(column, counts, noise_std, bins)
    return TableTransformer.from_histograms(pd.DataFrame(columns), histograms, party=message.sender)


def _are_histograms(message: NoisyHistograms) -> bool:
    """Whether types, shapes and ranges are those of a message of `published_histograms`."""
    n_cells = message.n_cells
    per_column = (n_cells, message.exponents, message.noise_stds, message.numeric)
    types = (torch.int64, torch.int64, torch.float64, torch.bool)
    return (
        n_cells.dim() == 1
        and len(n_cells) > 0
        and all(values.shape == n_cells.shape for values in per_column)
        and all(values.dtype == kind for values, kind in zip(per_column, types, strict=True))
        and message.counts.dtype == torch.int64
        and bool((n_cells >= 2).all())
        and tuple(message.counts.shape) == (int(n_cells.sum()),)
        and bool((message.exponents.abs() < _LARGEST_EXPONENT).all())
        and bool((message.noise_stds.isfinite() & (message.noise_stds >= 0.0)).all())
        and message.lows.dtype == message.highs.dtype == torch.float64
        and message.lows.dim() == message.highs.dim() == 1
        and len(message.lows) == len(message.highs) == int((n_cells - 1)[message.numeric].sum())
        and all(map(_ascend, _ends_of_bins(message)))
        and message.seed.dtype == torch.uint8
        and tuple(message.seed.shape) == (SEED_BYTES,)
    )


def _ends_of_bins(message: NoisyHistograms) -> tuple[Tensor, ...]:
    """Where the bins of every numeric column begin and end, each of shape (2, bin)."""
    n_bins = (message.n_cells - 1)[message.numeric].tolist()
    return torch.split(torch.stack([message.lows, message.highs]).cpu(), n_bins, dim=1)


def _ascend(ends: Tensor) -> bool:
    """Whether bins are in the unit interval, one after the other."""
    inside = bool(((ends >= 0.0) & (ends <= 1.0)).all())
    return inside and bool((ends.T.flatten().diff() >= 0.0).all())
