"""How a party encodes its columns without looking at them outside the privacy budget."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import pandas as pd
import torch

from vflsynth.columns import TableTransformer
from vflsynth.exceptions import PartyDataError
from vflsynth.privacy.discovery import (
    ColumnCounts,
    Discovery,
    discover_schema,
    plan_discovery,
    split_noise,
    sum_columns,
)
from vflsynth.privacy.histograms import (
    NoisyHistogram,
    histogram_sensitivity,
    release_narrowed_histograms,
    uninformed_histograms,
)
from vflsynth.privacy.parameters import GaussianPrivacy
from vflsynth.privacy.schema import PublicSchema


@dataclass(frozen=True, slots=True)
class PublicEncoding:
    """Public bounds and categories, and the noise of the histograms that refine them.

    Parameters
    ----------
    schema : PublicSchema
        What is known without looking at the records.
    n_bins : int
        Bins of a numeric column's histogram.
    noise_std : float or None
        Of every cell, in counts, if it were released once; see `release_narrowed_histograms`. None
        releases no histogram: columns are scaled by their public bounds, as if spread evenly
        between them, and missing values are not synthesised.
    discovery : Discovery, optional
        Noise of the ranges and categories of columns that the schema does not list. Default: it
        must list all of them.
    """

    schema: PublicSchema
    n_bins: int
    noise_std: float | None
    discovery: Discovery | None = None

    @classmethod
    def of(
        cls,
        privacy: GaussianPrivacy,
        noise_multiplier: float | None,
        columns: Mapping[str, ColumnCounts],
    ) -> PublicEncoding:
        """Divide the noise of all preprocessing, None if there is none, over its releases.

        Parameters
        ----------
        privacy : GaussianPrivacy
        noise_multiplier : float or None
            From a plan.
        columns : mapping of party to ColumnCounts
        """
        schema, counts = privacy.public_schema or PublicSchema(), sum_columns(columns)
        if noise_multiplier is None:
            return PublicEncoding(schema, privacy.n_bins, None)
        of_discovery, of_histograms = split_noise(noise_multiplier, counts.unlisted)
        noise_std = of_histograms * histogram_sensitivity(counts.total, privacy.relation)
        discovery = None
        if counts.unlisted:
            discovery = plan_discovery(privacy, of_discovery, counts.unlisted)
        return PublicEncoding(schema, privacy.n_bins, noise_std, discovery)

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
            If a column has no public bounds or categories and cannot be given them, or they do not
            fit its type.
        """
        schema = self.schema
        try:
            if self.discovery is not None:
                schema = discover_schema(matched, schema, self.discovery, rng=noise)
            for label in matched.columns:
                if label not in schema:
                    raise PartyDataError(
                        "public_schema says nothing about this column, and reading its range or "
                        "categories off the records would not be private",
                        fix="give it public bounds (numbers) or a public list of categories",
                        column=label,
                    )
            if self.noise_std is None:
                return uninformed_histograms(matched.columns, schema, self.n_bins)
            return release_narrowed_histograms(
                matched, schema, n_bins=self.n_bins, noise_std=self.noise_std, rng=noise
            )
        except PartyDataError as error:
            raise type(error)(
                error.problem, fix=error.fix, party=party, column=error.column
            ) from None

    def transformer(
        self, party: str, matched: pd.DataFrame, histograms: Mapping[Hashable, NoisyHistogram]
    ) -> TableTransformer:
        """Make the encoding of labels, dtypes and histograms alone."""
        return TableTransformer.from_histograms(matched, histograms, party=party)
