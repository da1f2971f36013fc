"""How a party encodes its columns without looking at them outside the privacy budget."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch

from vflsynth.columns import NoisyHistogram, PublicSchema
from vflsynth.columns.base import naming
from vflsynth.columns.kinds import public_columns
from vflsynth.columns.schema import PublicColumn
from vflsynth.exceptions import PartyDataError, PrivacyBudgetError
from vflsynth.privacy.discovery import (
    ColumnCounts,
    Discovery,
    discover_column,
    plan_discovery,
    split_noise,
    sum_columns,
)
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.histograms import histogram_sensitivity, release_divided_histograms


@dataclass(frozen=True, slots=True)
class PublicEncoding:
    """Public bounds and categories, and the noise of the histograms that refine them.

    A numeric column's histogram has `n_bins`. `noise_std` is of every cell, in counts, if it were
    released once; see `release_divided_histograms`. None releases no histogram: columns are scaled
    by their public bounds, as if spread evenly between them, and missing values are not
    synthesised. Without a `discovery` the schema must list all columns. `kinds` are what users
    declared, of any parties' columns; `columns` what the noise was calibrated for: a party that has
    more to release refuses. `spikes` says whether a value that half of the records share is a
    state; see `NoisyHistogram.with_spikes`.
    """

    schema: PublicSchema
    n_bins: int
    noise_std: float | None
    discovery: Discovery | None = None
    kinds: Mapping[Hashable, str] = field(default_factory=dict)
    columns: Mapping[str, ColumnCounts] = field(default_factory=dict)
    spikes: bool = False

    @classmethod
    def of(
        cls,
        noise_multiplier: float | None,
        columns: Mapping[str, ColumnCounts],
        *,
        relation: NeighbouringRelation,
        delta: float,
        schema: PublicSchema | None = None,
        n_bins: int = 32,
        kinds: Mapping[Hashable, str] | None = None,
        spikes: bool = False,
    ) -> PublicEncoding:
        """Divide a plan's noise of all preprocessing, None if there is none, over its releases.

        `columns` are those of `count_columns`, with the same kinds.
        """
        kinds = dict(kinds or {})
        schema, counts = schema or PublicSchema(), sum_columns(columns)
        if noise_multiplier is None:
            return PublicEncoding(schema, n_bins, None, kinds=kinds, spikes=spikes)
        of_discovery, of_histograms = split_noise(noise_multiplier, counts.unlisted)
        noise_std = of_histograms * histogram_sensitivity(counts.total, relation)
        discovery = None
        if counts.unlisted:
            discovery = plan_discovery(of_discovery, counts.unlisted, relation, delta)
        return PublicEncoding(schema, n_bins, noise_std, discovery, kinds, columns, spikes)

    def histograms(
        self, party: str, matched: pd.DataFrame, noise: torch.Generator | None = None
    ) -> dict[Hashable, NoisyHistogram]:
        """Release a party's noisy histograms, or make those of somebody who knows nothing.

        `matched` are its matched records; `noise` is for tests only. PartyDataError if a column has
        no public bounds or categories and cannot be given them, ColumnKindError if kind, dtype and
        schema contradict each other, PrivacyBudgetError if the noise was calibrated for fewer
        columns.
        """
        public: dict[Hashable, PublicColumn] = {}
        known = public_columns(matched.iloc[:0], self.schema, self.kinds, party=party)
        self._check_counts(party, [column for _, column in known.values()])
        for label, (kind, column) in known.items():
            with naming(party, label):
                if column is None and self.discovery is not None:
                    column = discover_column(matched[label], kind, self.discovery, rng=noise)
                if column is None:
                    raise PartyDataError(
                        "public_schema says nothing about this column, and reading its range or "
                        "categories off the records would not be private",
                        fix="give it public bounds (numbers, times) or a public list of categories",
                    )
            public[label] = column
        if self.noise_std is None:
            return {
                label: NoisyHistogram.uninformed(column, self.n_bins)
                for label, column in public.items()
            }
        found = release_divided_histograms(
            matched, public, n_bins=self.n_bins, noise_std=self.noise_std, rng=noise
        )
        if not self.spikes:
            return found
        return {label: histogram.with_spikes() for label, histogram in found.items()}

    def _check_counts(self, party: str, columns: Sequence[PublicColumn | None]) -> None:
        paid = self.columns.get(party)
        unlisted = sum(column is None for column in columns)
        if paid is not None and (len(columns) > paid.total or unlisted > paid.unlisted):
            raise PrivacyBudgetError(
                f"party {party!r} would release {len(columns)} columns, {unlisted} of which nobody "
                f"described, but the noise is for {paid.total} and {paid.unlisted}"
            )
