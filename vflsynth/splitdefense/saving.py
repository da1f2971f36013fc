"""Split classifiers as directories of JSON and safetensors."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from vflsynth import _artefacts as artefacts
from vflsynth._version import __version__
from vflsynth.exceptions import ArtefactError
from vflsynth.frames import AlignmentReport
from vflsynth.splitdefense._parts import from_plain, to_plain
from vflsynth.splitdefense.model import BottomModel, TopModel
from vflsynth.splitdefense.settings import SplitSettings
from vflsynth.training import history_from_json, history_to_json

if TYPE_CHECKING:
    from vflsynth.splitdefense.base import BaseSplitClassifier

    Classifier = TypeVar("Classifier", bound=BaseSplitClassifier)

_KIND = "vflsynth split classifier"


def write_classifier(classifier: BaseSplitClassifier, path: str | os.PathLike[str]) -> None:
    """Write a fitted classifier, without records, labels and evidence."""
    parameters = classifier.get_params(deep=False)
    del parameters["transformer"]  # each party's fitted encoding has it
    if not isinstance(classifier.random_state, (int, np.integer)):
        parameters["random_state"] = None
    content = {
        "class": type(classifier).__name__,
        "version": __version__,
        "parameters": to_plain(parameters),
        "classes": classes_to_json(classifier.classes_),
        "settings": to_plain(classifier.settings_),
        "alignment": asdict(classifier.alignment_),
        "history": history_to_json(classifier.history_),
        "device": classifier.device_,
        "interrupted": classifier.interrupted_,
        "on": classifier._on,
        "n_features": classifier.n_features_in_,
        "feature_names": list(getattr(classifier, "feature_names_in_", [])),
        "parties": list(classifier.parties_),
    }
    with artefacts.new_directory(path, _KIND) as root:
        artefacts.write_json(root / "classifier.json", content)
        classifier.top_.write(root / "active")
        for name, model in classifier.parties_.items():
            model.write(root / "parties" / name)


def classes_to_json(classes: npt.NDArray[Any]) -> dict[str, Any]:
    """Return dtype and values of the classes; times as counts of their dtype's unit."""
    values = classes.astype(np.int64) if classes.dtype.kind in "mM" else classes
    return {"dtype": classes.dtype.str, "values": values.tolist()}


def read_classifier(kind: type[Classifier], path: str | os.PathLike[str]) -> Classifier:
    """Undo `write_classifier`.

    Raises
    ------
    ArtefactError
        If it is none of this class, or a file is missing, extra or changed.
    ArtefactVersionError
        If a newer version wrote it.
    """
    root = artefacts.open_directory(path, _KIND)
    content = artefacts.read_json(root / "classifier.json")
    if content.get("class") != kind.__name__:
        raise ArtefactError(f"{root} holds a {content.get('class')}, not a {kind.__name__}")
    try:
        found = kind(**from_plain(content["parameters"]))
        settings_: dict[str, Any] = dict(content["settings"])
        found.settings_ = settings_
        sizes: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in settings_.items()
        }
        sizes.pop("epochs")
        settings = SplitSettings(**sizes)
        classes = content["classes"]
        found.classes_ = np.array(classes["values"], dtype=classes["dtype"])
        found.alignment_ = AlignmentReport(**content["alignment"])
        found.history_ = history_from_json(content["history"])
        found.device_, found.interrupted_ = content["device"], content["interrupted"]
        found._on, found.n_features_in_ = content["on"], content["n_features"]
        names = content["parties"]
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{root} does not describe a {kind.__name__}: {error}") from error
    if content["feature_names"]:
        found.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    found.top_ = TopModel.read(root / "active", settings)
    found.parties_ = {name: BottomModel.read(root / "parties" / name, settings) for name in names}
    found.evidence_, found.transcript_ = {}, None
    return found
