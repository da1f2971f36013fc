"""Tables of several parties as one X of scikit-learn, for cross-validation and searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self, overload

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype

from vflsynth.exceptions import PartyDataError
from vflsynth.frames import key_of, party_keys
from vflsynth.splitdefense.inputs import LABEL_HOLDER, Labels, check_frames, check_labels


class AlignedFrames(Mapping[str, pd.DataFrame]):
    """Parties' tables whose rows correspond, of which rows can be taken as of an array.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        As many rows each, in the same order, without a key column.

    Attributes
    ----------
    shape : tuple of int
        Records, and columns of all parties.

    Raises
    ------
    PartyDataError
        If the tables are not as long as each other, or there is none.

    Notes
    -----
    It exists where one process has all tables: to choose parameters before a federated run, and to
    measure. Across processes nobody has such an object.
    """

    def __init__(self, frames: Mapping[str, pd.DataFrame]) -> None:
        self._frames = {name: frame.reset_index(drop=True) for name, frame in frames.items()}
        lengths = {name: len(frame) for name, frame in self._frames.items()}
        if len(set(lengths.values())) != 1:
            raise PartyDataError(
                f"tables whose rows correspond are equally long, these have {lengths} rows",
                fix="match tables with keys by vflsynth.splitdefense.aligned",
            )
        n_columns = sum(frame.shape[1] for frame in self._frames.values())
        self.shape = next(iter(lengths.values())), n_columns

    @overload
    def __getitem__(self, key: str) -> pd.DataFrame: ...
    @overload
    def __getitem__(self, key: Any) -> Self: ...
    def __getitem__(self, key: Any) -> pd.DataFrame | Self:
        """Return a party's table by its name, or all tables with some of the rows."""
        if isinstance(key, str):
            return self._frames[key]
        asked = key[0] if isinstance(key, tuple) else key  # scikit-learn asks for X[rows, ...]
        rows = np.arange(self.shape[0])[asked]
        return type(self)({name: frame.iloc[rows] for name, frame in self._frames.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        """Return the number of parties, as of any mapping; records are in `shape`."""
        return len(self._frames)


def aligned(
    frames: Mapping[str, pd.DataFrame],
    y: Any,
    on: Any = None,
    *,
    active: str | None = None,
) -> tuple[AlignedFrames, Labels]:
    """Match parties' tables and labels once, so that scikit-learn can split the records.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        One table per party.
    y : array-like or Series
        As of `BaseSplitEstimator.fit`.
    on : hashable, optional
        Key column of every table. Default: the index.
    active : str, optional
        Name of the party whose rows `y` follows. Default: a party that has labels only.

    Returns
    -------
    X : AlignedFrames
        Records that all parties have, in the order of the labels.
    y : ndarray, shape (record,)

    Raises
    ------
    PartyDataError
        If tables or labels cannot be matched.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.model_selection import cross_val_score
    >>> from vflsynth.splitdefense import SplitNNClassifier, aligned
    >>> bank = pd.DataFrame({"id": range(60), "income": [i % 7 for i in range(60)]})
    >>> shop = pd.DataFrame({"id": range(59, -1, -1), "basket": [i % 5 for i in range(60)]})
    >>> y = bank["income"] > 3
    >>> X, y = aligned({"bank": bank, "shop": shop}, y, on="id", active="bank")
    >>> len(cross_val_score(SplitNNClassifier(active="bank", epochs=2), X, y, cv=3))
    3
    """
    checked = check_frames(frames, active, on)
    numbers = is_float_dtype(np.asarray(y))
    labels, table = check_labels(y, checked, active, on, numbers=numbers)
    keys = party_keys(table, key_of(on, active or LABEL_HOLDER))
    if not keys.is_unique:
        raise PartyDataError("keys of the labels occur more than once", fix="drop the doubles")
    own = {name: party_keys(frame, key_of(on, name)) for name, frame in checked.items()}
    common = np.logical_and.reduce([keys.isin(found) for found in own.values()])
    if not common.any():
        raise PartyDataError(
            "the parties have no record in common", fix="check that the keys are of the same type"
        )
    matched = {
        name: frame.iloc[own[name].get_indexer(keys[common])].drop(
            columns=[] if key_of(on, name) is None else [key_of(on, name)]
        )
        for name, frame in checked.items()
    }
    return AlignedFrames(matched), labels[common]
