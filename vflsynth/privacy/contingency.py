"""Noisy contingency tables of pairs of discrete columns, and the budget of a latent tree (DPLT)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.discriminators import RECIPIENTS, SERVER
from vflsynth.privacy.events import Composition, GaussianRelease, NeighbouringRelation
from vflsynth.privacy.histograms import histogram_sensitivity
from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger
from vflsynth.privacy.noise import gaussian_noise
from vflsynth.privacy.parameters import GaussianPrivacy
from vflsynth.privacy.plan import (
    COUNTS,
    FLOATING_POINT,
    SYNTHETIC_DATA_CLAIM,
    histogram_event,
    public_knowledge,
    split_budget,
)

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


def exact_tables(
    one: Sequence[Codes], other: Sequence[Codes], shapes: Sequence[tuple[int, int]]
) -> list[Floats]:
    """Count the records in every cell of every table.

    Parameters
    ----------
    one, other : sequence of int64 array, shape (record,)
        Codes of the first and of the second column of each table.
    shapes : sequence of (int, int)
        Numbers of states.

    Returns
    -------
    list of float64 array, shape (state, state)
        Without noise: not for publication. A record is in exactly one cell of each table, so that
        all together have the sensitivity of as many histograms (`histogram_sensitivity`).
    """
    tables = []
    for first, second, (n_first, n_second) in zip(one, other, shapes, strict=True):
        cells = np.bincount(first * n_second + second, minlength=n_first * n_second)
        tables.append(cells.reshape(n_first, n_second).astype(np.float64))
    return tables


def release_tables(
    one: Sequence[Codes],
    other: Sequence[Codes],
    shapes: Sequence[tuple[int, int]],
    *,
    noise_std: float,
    rng: torch.Generator | None = None,
) -> list[Floats]:
    """Publish contingency tables with Gaussian noise in every cell.

    Parameters
    ----------
    one, other, shapes
        As in `exact_tables`.
    noise_std : float
        In counts; the noise multiplier times `histogram_sensitivity` of *all* tables.
    rng : torch.Generator, optional
        For tests only; see `gaussian_noise`.

    Returns
    -------
    list of float64 array, shape (state, state)
    """
    return [
        table + gaussian_noise(table.shape, noise_std, rng=rng).numpy()
        for table in exact_tables(one, other, shapes)
    ]


@dataclass(frozen=True)
class LatentTreePlan:
    """Noise of the three rounds of a DPLT fit, and the ledger it will have.

    Parameters
    ----------
    histogram_noise_multiplier : float
        Of all preprocessing together.
    pair_std : float
        In counts, of the tables of all pairs of columns of one party; 0 if there is no such pair.
    tree_std : float
        In counts, of the tables of pairs of latent attributes, and of latent attribute and column.
    ledger : PrivacyLedger
    """

    histogram_noise_multiplier: float
    pair_std: float
    tree_std: float
    ledger: PrivacyLedger


def plan_latent_tree(
    privacy: GaussianPrivacy,
    columns: Mapping[str, ColumnCounts],
    groups: Mapping[str, Sequence[int]],
) -> LatentTreePlan:
    """Plan the three rounds of releases of a differentially private latent tree.

    Parameters
    ----------
    privacy : GaussianPrivacy
        ``preprocessing_share`` of the budget goes to the histograms; the two rounds of tables
        divide the rest evenly.
    columns : mapping of party to ColumnCounts
    groups : mapping of party to the sizes of its groups of columns
        Public, because computed from numbers of columns.

    Returns
    -------
    LatentTreePlan
    """
    privacy.validate()
    assert privacy.delta is not None, "validate() requires delta"
    relation = privacy.relation
    n_latents = sum(len(sizes) for sizes in groups.values())
    rounds = {
        "pairs": {party: math.comb(own.total, 2) for party, own in columns.items()},
        "tree": {
            **{party: sum(size for size in sizes if size > 1) for party, sizes in groups.items()},
            SERVER: max(1, n_latents * (n_latents - 1) // 2),
        },
    }
    share = privacy.preprocessing_share
    tables = [name for name in ("pairs", "tree") if sum(rounds[name].values())]
    shares = {name: (1.0 - share) / len(tables) for name in tables}
    shares["histograms"] = 1.0 - sum(shares.values())
    noise = split_budget(privacy, columns, shares)
    stds = {
        name: noise[name] * histogram_sensitivity(sum(rounds[name].values()), relation)
        for name in tables
    }
    words = {
        "pairs": ("latent attributes", "contingency tables of {} pairs of columns"),
        "tree": ("latent tree", "contingency tables of {} pairs with a latent attribute"),
    }
    entries = [LedgerEntry("preprocessing", histogram_event(privacy, columns, noise["histograms"]))]
    entries += [
        LedgerEntry(
            words[name][0], _tables_event(words[name][1], rounds[name], stds[name], relation)
        )
        for name in tables
    ]
    ledger = PrivacyLedger(
        mechanism="differentially private latent tree (DPLT), with Gaussian noise",
        claim=SYNTHETIC_DATA_CLAIM,
        covers_synthetic_data=True,
        delta=privacy.delta,
        target_epsilon=privacy.epsilon,
        entries=tuple(entries),
        protected_against=(RECIPIENTS, "the other parties, who see noisy tables only"),
        not_protected_against=(
            "the server: it sees every record's latent attributes without noise",
        ),
        not_covered=("which individuals the parties have in common", COUNTS, FLOATING_POINT),
        public=public_knowledge(privacy, columns, "numbers of states and of latent states"),
    )
    return LatentTreePlan(
        noise["histograms"], stds.get("pairs", 0.0), stds.get("tree", 0.0), ledger
    )


def _tables_event(
    words: str, counts: Mapping[str, int], noise_std: float, relation: NeighbouringRelation
) -> Composition:
    """Each party's tables, all with the same noise in every cell."""
    events = []
    for party, n_tables in counts.items():
        if n_tables:
            sensitivity = histogram_sensitivity(n_tables, relation)
            events.append(
                GaussianRelease(
                    released=words.format(n_tables),
                    party=party,
                    noise_multiplier=noise_std / sensitivity,
                    sensitivity=sensitivity,
                    relation=relation,
                    record_norm=n_tables**0.5,
                )
            )
    return Composition(tuple(events))
