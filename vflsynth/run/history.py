"""History: one record per epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor


class History:
    """Losses, distances and times of every epoch, for every replica.

    Parameters
    ----------
    n_replicas : int
    """

    def __init__(self, n_replicas: int) -> None:
        self.n_replicas = n_replicas
        self.records: list[dict[str, Any]] = []

    def append(self, values: Mapping[str, float | int | Tensor]) -> None:
        """Add an epoch; tensors of shape (replica,) become lists."""
        self.records.append(
            {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}
        )

    def to_frame(self, replica: int = 0) -> pd.DataFrame:
        """Return one row per epoch for one replica, indexed by epoch.

        The column ``chosen`` marks the epoch whose generators were kept.
        """
        rows = [
            {k: v[replica] if isinstance(v, list) else v for k, v in record.items()}
            for record in self.records
        ]
        frame = pd.DataFrame(rows)
        if frame.empty:
            return frame
        frame = frame.set_index("epoch")
        kept = np.flatnonzero(frame.pop("kept").to_numpy(dtype=bool))
        chosen = np.zeros(len(frame), dtype=bool)
        if len(kept):
            chosen[kept[-1]] = True
        frame["chosen"] = chosen
        return frame


def history_to_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a history frame as JSON-safe records; what is missing becomes None."""
    plain = frame.reset_index().astype(object)
    records: list[dict[str, Any]] = plain.where(plain.notna(), None).to_dict("records")  # type: ignore[assignment]
    return records


def history_from_json(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Undo `history_to_json`."""
    frame = pd.DataFrame(records)
    return frame.set_index("epoch") if len(frame) else frame
