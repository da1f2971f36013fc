"""Records of which some columns are known: how probable they are, and what the others may be.

Sequential importance sampling through the parties in their order: known columns get their values
and every draw the probability of these as a weight; the others are drawn from the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from vflsynth._random import RandomStreams, derive
from vflsynth.exceptions import ParameterError
from vflsynth.models.autoregressive import AutoregressiveSampler
from vflsynth.models.party_model import PartyModel
from vflsynth.networks.mixtures import Known

_BLOCK = 1 << 14
"""Draws at once."""


@dataclass(frozen=True)
class Draws:
    """Weighted draws of partly known records.

    Parameters
    ----------
    tables : dict of party name to DataFrame, shape (record, column)
        One draw per record, chosen by the weights; what is known is as it was given.
    log_probability : float64 array, shape (record,)
        Estimate of the log probability of what is known, a density in the unit of columns whose
        values may lie anywhere.
    effective_sample_size : float64 array, shape (record,)
        Of the draws of each record: their number where all weigh the same, 1 where one has it all.
    """

    tables: dict[str, pd.DataFrame]
    log_probability: npt.NDArray[np.float64]
    effective_sample_size: npt.NDArray[np.float64]


def complete(
    halves: Mapping[str, PartyModel], known: pd.DataFrame, n_draws: int, secret: bytes
) -> Draws:
    """Draw the columns that are not known, record by record.

    Parameters
    ----------
    halves : mapping of party name to PartyModel
        Of one autoregressive model.
    known : DataFrame, shape (record, column)
        Any columns of any parties.
    n_draws : int
        Draws per record, one of which is returned.
    secret : bytes

    Raises
    ------
    ParameterError
        If a column is of no party, or the model is of another kind.
    PartyDataError
        If a value is none that the model knows.
    """
    owned = {name: [*half.transformer.transformers_] for name, half in halves.items()}
    strange = [c for c in known.columns if not any(c in own for own in owned.values())]
    if strange:
        raise ParameterError(f"no party has columns {strange}")
    per_block = max(1, _BLOCK // n_draws)
    blocks = [
        _block(halves, owned, known.iloc[start : start + per_block], n_draws, secret, number)
        for number, start in enumerate(range(0, max(1, len(known)), per_block))
    ]
    tables = {
        name: pd.concat([block.tables[name] for block in blocks], ignore_index=True)
        for name in halves
    }
    log_probability = np.concatenate([block.log_probability for block in blocks])
    sizes = np.concatenate([block.effective_sample_size for block in blocks])
    for name, table in tables.items():
        for column in owned[name]:
            if column in known.columns:
                table[column] = known[column].array
    return Draws(tables, log_probability, sizes)


def _block(
    halves: Mapping[str, PartyModel],
    owned: Mapping[str, list[object]],
    known: pd.DataFrame,
    n_draws: int,
    secret: bytes,
    number: int,
) -> Draws:
    n = len(known) * n_draws
    passed: dict[str, dict[str, Tensor]] = {name: {} for name in halves}
    drawn: dict[str, Tensor] = {}
    total = torch.zeros(n, dtype=torch.float64)
    widths = np.zeros(len(known))
    for name in sorted(halves, key=lambda own: len(halves[own].after)):
        half = halves[name]
        sampler = half.sampler
        if not isinstance(sampler, AutoregressiveSampler):
            raise ParameterError(f"the half of party {name!r} has no likelihood")
        own = known[[column for column in known.columns if column in owned[name]]]
        evidence = half.transformer.evidence(own)
        stacks = [
            torch.from_numpy(np.stack(part, 1).repeat(n_draws, 0))
            if part
            else torch.zeros(n, 0, dtype=torch.float64)
            for part in (evidence.codes, evidence.lower, evidence.upper)
        ]
        device = sampler.device
        facts = Known(*(part.to(device) for part in (stacks[0].long(), *stacks[1:])))
        streams = RandomStreams([derive(secret, f"completing {name}")], device)
        rows, log_weights = sampler.weigh(passed[name], n, streams, number, facts)
        total += log_weights.cpu()
        widths = widths + evidence.log_width
        drawn[name] = rows
        for receiver, numbers in sampler.pass_on(rows).items():
            passed[receiver][name] = numbers
    weights = total.view(len(known), n_draws).numpy()
    largest = weights.max(1, keepdims=True) if n_draws else weights
    shares = np.exp(weights - largest)
    sums = shares.sum(1)
    generator = RandomStreams([derive(secret, "choosing")]).numpy_generators("draws", number)[0]
    places = generator.random(len(known))
    chosen = (shares.cumsum(1) / sums[:, None] < places[:, None]).sum(1).clip(0, n_draws - 1)
    rows_of = torch.from_numpy(np.arange(len(known)) * n_draws + chosen)
    kept = {name: rows[rows_of.to(rows.device)].cpu().numpy() for name, rows in drawn.items()}
    return Draws(
        {name: halves[name].transformer.inverse_transform(rows) for name, rows in kept.items()},
        largest[:, 0] + np.log(sums / n_draws) - widths,
        sums**2 / np.square(shares).sum(1),
    )
