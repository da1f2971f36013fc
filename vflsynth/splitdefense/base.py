"""What all split classifiers share: how they predict."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
from sklearn.base import ClassifierMixin

from vflsynth.splitdefense.calibration import Probabilities
from vflsynth.splitdefense.estimator import BaseSplitEstimator
from vflsynth.splitdefense.fitted import Tables
from vflsynth.splitdefense.objectives import CrossEntropy
from vflsynth.splitdefense.settings import AS_PUBLISHED
from vflsynth.splitdefense.targets import Classes


class BaseSplitClassifier(ClassifierMixin, BaseSplitEstimator):  # type: ignore[misc]
    """A classifier whose columns lie with several parties and whose labels lie with one.

    `BaseSplitEstimator` has the parameters and the other attributes.

    Attributes
    ----------
    classes_ : ndarray, shape (class,)
    """

    registry_group: ClassVar[str] = "classifiers"
    target = Classes
    default_objective = CrossEntropy

    classes_: npt.NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        parts = (self.make_objective(), self.make_protection())
        tags.classifier_tags.multi_class = not any(part and part.binary_only for part in parts)
        return tags

    def predict_proba(self, X: Tables, *, absent: str | Collection[str] = ()) -> Probabilities:
        """Predict class probabilities.

        Parameters
        ----------
        X : mapping of str to DataFrame, or DataFrame or array
            As in `fit`. None as a party's table says that it is absent.
        absent : str or collection of str, default=()
            Parties that have quit, or one of them.

        Returns
        -------
        ndarray, shape (record, class)
            Rows in the order of the active party's table, or of the first one that is there;
            columns in the order of `classes_`.

        Raises
        ------
        PartyDataError
            If a party is unknown, missing, or lacks records or the key column.
        """
        features = self._features(X, absent)
        return self.top_.probabilities(features)

    def predict(self, X: Tables, *, absent: str | Collection[str] = ()) -> npt.NDArray[Any]:
        """Predict classes; see `predict_proba`."""
        probabilities = self.predict_proba(X, absent=absent)
        found: npt.NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return found

    def _take_classes(self) -> None:
        """Set the classes, which the active party's half knows."""
        assert self.top_.classes is not None
        self.classes_ = self.top_.classes


@dataclass(repr=False, eq=False, kw_only=True)
class PublishedClassifier(BaseSplitClassifier):
    """A classifier of a paper, which trains as it was published."""

    numeric_bins: int | None = AS_PUBLISHED["numeric_bins"]
    epochs: int = AS_PUBLISHED["epochs"]
    patience: int | None = AS_PUBLISHED["patience"]
    weight_decay: float = AS_PUBLISHED["weight_decay"]
