"""How much memory a fit will take, before it takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vflsynth._device import available_memory
from vflsynth.exceptions import MemoryLimitError
from vflsynth.learning import Method, Party

_USABLE_SHARE = 0.9
_LARGEST_SHARE = 0.25
"""Of a party's encoded columns: where one table column takes more, it is what to change."""


def check_memory(
    method: Method,
    parties: Sequence[Party],
    settings: Any,
    n_records: int,
    replicas: int,
    limit: float | None,
    device: torch.device,
    *,
    own_rows: bool,
) -> int:
    """Estimate the bytes of a fit, and compare them with the limit.

    Raises MemoryLimitError, which names the party that takes most and its widest column.
    """
    estimates = {
        party: method.memory(party, settings, n_records, replicas, own_rows=own_rows)
        for party in parties
    }
    total = sum(estimates.values())
    free = available_memory(device)
    allowed = limit if limit is not None else (None if free is None else _USABLE_SHARE * free)
    if allowed is None or total <= allowed:
        return total
    party = max(estimates, key=lambda p: estimates[p])
    width, spans = party.transformer.width_, party.transformer.spans_
    span = max(spans, key=lambda s: s.width)
    wide = span.width > max(16, _LARGEST_SHARE * width)
    raise MemoryLimitError(
        f"the fit needs about {total / 2**30:.2f} GiB for {n_records} records and {replicas} "
        f"model(s), and {allowed / 2**30:.2f} GiB are allowed; this party needs "
        f"{estimates[party] / 2**30:.2f} of them, and this column is {span.width} of its {width} "
        "encoded columns" + (f" because it has {span.width} distinct values" if wide else ""),
        fix=(
            "pool its rare values (TableTransformer(rare_threshold=...)), declare another kind for "
            "it in column_kinds, or drop it"
            if wide
            else method.needs_less_memory
        )
        + ("" if limit is None else "; or raise memory_limit"),
        party=party.name,
        column=span.column,
    )
