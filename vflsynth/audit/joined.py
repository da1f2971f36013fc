"""Synthesizers of other packages, which take one table, in audits."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Self

import pandas as pd
from sklearn.base import BaseEstimator

from vflsynth.exceptions import ParameterError
from vflsynth.frames import align_party_frames


class JoinedTable(BaseEstimator):  # type: ignore[misc]
    """Fits a model of one table to the joined table of all parties.

    Parameters
    ----------
    model : object
        With ``fit(table)`` and ``sample(n)``, such as those of CTGAN and SDV. Copied for each fit.
    fit_options : mapping of str to object, optional
        Passed on to its ``fit``, say CTGAN's ``discrete_columns``.
    random_state : int, optional
        Passed on by the model's ``set_random_state``, or else as its attribute ``random_state``.
        A model that has neither draws from randomness of its own.

    Examples
    --------
    >>> class Mean:
    ...     def fit(self, table):
    ...         self.table = table
    ...     def sample(self, n):
    ...         return self.table.mean().to_frame().T.loc[[0] * n]
    >>> frames = {"a": pd.DataFrame({"x": [1.0, 3.0]}), "b": pd.DataFrame({"y": [5.0, 7.0]})}
    >>> JoinedTable(Mean()).fit(frames).sample(2)["y"].tolist()
    [6.0, 6.0]
    """

    def __init__(
        self,
        model: Any,
        fit_options: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.fit_options = fit_options
        self.random_state = random_state

    def fit(self, party_frames: Mapping[str, pd.DataFrame], on: Any = None) -> Self:
        """Match the parties' records and fit a copy of the model to them, without keys."""
        if not (hasattr(self.model, "fit") and hasattr(self.model, "sample")):
            raise ParameterError(
                f"JoinedTable needs a model with fit(table) and sample(n), got {self.model!r}"
            )
        aligned, _, _ = align_party_frames(party_frames, on)
        table = pd.concat(list(aligned.values()), axis=1)
        self.model_ = deepcopy(self.model)
        if self.random_state is not None:
            if hasattr(self.model_, "set_random_state"):
                self.model_.set_random_state(self.random_state)
            elif hasattr(self.model_, "random_state"):
                self.model_.random_state = self.random_state
        self.model_.fit(table, **(self.fit_options or {}))
        self.columns_ = table.columns
        return self

    def sample(self, n: int) -> pd.DataFrame:
        """Return n synthetic records, columns in the parties' order."""
        return pd.DataFrame(self.model_.sample(n))[self.columns_]
