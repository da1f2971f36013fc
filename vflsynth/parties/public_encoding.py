"""How a party encodes its columns without looking at them outside the privacy budget."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import pandas as pd
import torch

from vflsynth.exceptions import ColumnKindError, PartyDataError
from vflsynth.privacy.histograms import (
    NoisyHistogram,
    release_narrowed_histograms,
    uninformed_histograms,
)
from vflsynth.privacy.schema import PublicSchema
from vflsynth.transformers import TableTransformer


@dataclass(frozen=True, slots=True)
class PublicEncoding:
    """Public bounds and categories, and the noise of the histograms that refine them.

    Parameters
    ----------
    schema : PublicSchema
    n_bins : int
        Bins of a numeric column's histogram.
    noise_std : float or None
        Of every cell, in counts, if it were released once; see `release_narrowed_histograms`. None
        releases no histogram: columns are scaled by their public
        bounds, as if spread evenly between them, and missing values are not synthesised.
    """

    schema: PublicSchema
    n_bins: int
    noise_std: float | None

    def histograms(
        self, party: str, matched: pd.DataFrame, noise: torch.Generator | None = None
    ) -> dict[Hashable, NoisyHistogram]:
        """Release a party's noisy histograms, or make those of somebody who knows nothing.

        Parameters
        ----------
        party : str
            For error messages.
        matched : DataFrame, shape (record, column)
            The party's matched records.
        noise : torch.Generator, optional
            For tests only.

        Raises
        ------
        PartyDataError
            If a column has no public bounds or categories, or they do not fit its type.
        """
        for label in matched.columns:
            if label not in self.schema.bounds and label not in self.schema.categories:
                raise PartyDataError(
                    "public_schema says nothing about this column, and reading its range or "
                    "categories off the records would not be private",
                    fix="give it public bounds (numbers) or a public list of categories",
                    party=party,
                    column=label,
                )
        if self.noise_std is None:
            return uninformed_histograms(matched.columns, self.schema, self.n_bins)
        try:
            return release_narrowed_histograms(
                matched, self.schema, n_bins=self.n_bins, noise_std=self.noise_std, rng=noise
            )
        except ColumnKindError as error:
            raise ColumnKindError(
                error.problem, fix=error.fix, party=party, column=error.column
            ) from None

    def transformer(
        self, party: str, matched: pd.DataFrame, histograms: Mapping[Hashable, NoisyHistogram]
    ) -> TableTransformer:
        """Make the encoding of labels, dtypes and histograms alone."""
        return TableTransformer.from_histograms(matched, histograms, party=party)
