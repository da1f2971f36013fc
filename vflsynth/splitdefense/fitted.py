"""What a split estimator can do once it is fitted: compute, save, load."""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth.frames import AlignmentReport
from vflsynth.methods.synthesizer import fitted_from_json, fitted_to_json
from vflsynth.parameters import from_json, to_json
from vflsynth.privacy import PrivacyLedger
from vflsynth.splitdefense.inputs import (
    are_party_frames,
    owned_columns,
    rows_to_predict,
    split_table,
)
from vflsynth.splitdefense.leakage.monitor import Evidence
from vflsynth.splitdefense.model import BottomModel, TopModel

CLASSIFIER_KIND = "vflsynth split classifier"

Tables = Mapping[str, pd.DataFrame | None] | pd.DataFrame | npt.ArrayLike
"""What is predicted from: a table per party, or a single one."""


class FittedSplitEstimator(BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator whose fitted form is one model per party.

    `BaseSplitEstimator` has the parameters, and a ``fit`` that sets the attributes.
    """

    registry_group: ClassVar[str]

    party_columns: Mapping[str, Sequence[Hashable]] | None
    active: str | None
    parties_: dict[str, BottomModel]
    top_: TopModel
    alignment_: AlignmentReport | None
    history_: pd.DataFrame
    settings_: dict[str, Any]
    evidence_: dict[str, Evidence]
    transcript_: pd.DataFrame | None
    privacy_ledger_: PrivacyLedger | None
    device_: str
    interrupted_: bool
    n_features_in_: int
    feature_names_in_: npt.NDArray[Any]
    _on: Any

    def _features(self, X: Tables, absent: str | Collection[str]) -> dict[str, Tensor | None]:
        """Compute the bottom models' outputs, None for parties that are absent.

        Raises PartyDataError if a party is unknown, missing, or lacks records or the key column.
        """
        check_is_fitted(self, "parties_")
        frames: Mapping[str, pd.DataFrame | None]
        if are_party_frames(X):
            frames = X
        else:
            frames = split_table(self._table(X, reset=False), self.party_columns)
        names = list(self.parties_)
        there = rows_to_predict(frames, names, absent, self.active, self._on)
        return {
            name: self.parties_[name].features(there[name]) if name in there else None
            for name in names
        }

    def _take_classes(self) -> None:
        """Set what follows from the active party's half."""

    def _table(self, X: Any, y: Any = None, *, reset: bool) -> pd.DataFrame:
        """Check a single table as scikit-learn does, and make a DataFrame of it."""
        if isinstance(X, pd.DataFrame) and X.size and X.columns.is_unique:
            table = owned_columns(X, self.party_columns)
            validate_data(self, table, reset=reset, skip_check_array=True)
            return table
        if y is None:
            return pd.DataFrame(validate_data(self, X, reset=reset, dtype="numeric"))
        return pd.DataFrame(validate_data(self, X, y, reset=reset, dtype="numeric")[0])

    # -- saving ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save as a directory of JSON and safetensors, without records, labels and evidence.

        With `privacy`, `alignment_` is left out: it tells numbers of records, which no ε covers.
        Raises ParameterError if a parameter is an object of a class that is not registered.
        """
        check_is_fitted(self, "parties_")
        alignment = self.alignment_
        if getattr(self, "privacy", None) is not None:
            alignment = None
        content = fitted_to_json(self, alignment) | {
            "settings": to_json(self.settings_),
            "on": to_json(self._on),
            "n_features": self.n_features_in_,
            "feature_names": list(getattr(self, "feature_names_in_", [])),
        }
        with artefacts.new_directory(path, CLASSIFIER_KIND) as root:
            artefacts.write_json(root / "classifier.json", content)
            self.top_.write(root / "active")
            for name, model in self.parties_.items():
                model.write(root / "parties" / name)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a classifier saved by `save`.

        Raises ArtefactError if it is none of this class, or a file is missing, extra or changed;
        ArtefactVersionError if a newer version wrote it.
        """
        root = artefacts.open_directory(path, CLASSIFIER_KIND)
        content = artefacts.read_json(root / "classifier.json")
        with artefacts.reading(root, f"a {cls.__name__}"):
            found: Self = fitted_from_json(cls, content, root)
            found.settings_ = from_json(content["settings"])
            found._on, found.n_features_in_ = from_json(content["on"]), content["n_features"]
            if content["feature_names"]:
                found.feature_names_in_ = np.array(content["feature_names"], dtype=object)
            found.top_ = TopModel.read(root / "active")
            found._take_classes()
            found.parties_ = {
                name: BottomModel.read(root / "parties" / name) for name in content["parties"]
            }
        found.evidence_, found.transcript_ = {}, None
        return found
