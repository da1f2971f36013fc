"""Parts of a classifier: small parameter objects that can be nested, cloned, searched and saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sklearn.base import BaseEstimator

from vflsynth._validation import Rule, check_parameters


class Part(BaseEstimator):  # type: ignore[misc]
    """Parameters of one exchangeable part of a classifier; holds nothing learned.

    ``get_params``, ``set_params`` and ``clone`` reach into it, so that a grid search can go over,
    for example, ``protection__power_scale``.
    """

    registry_group: ClassVar[str] = "parameters"
    _rules: ClassVar[Mapping[str, Rule]] = {}

    def check(self) -> None:
        """Check the parameters, and those of nested parts (ParameterError)."""
        parameters = self.get_params(deep=False)
        check_parameters(type(self).__name__, parameters, self._rules)
        for value in parameters.values():
            for part in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(part, Part):
                    part.check()
