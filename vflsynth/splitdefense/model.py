"""Fitted split networks: each party's half, and the classifier that predicts with them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth._random import RandomStreams
from vflsynth.codec import as_frame, from_json, to_json
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import PartyDataError
from vflsynth.frames import AlignmentReport
from vflsynth.frames.party_frames import check_table, with_keys_in_form
from vflsynth.methods.parameters import WithParts
from vflsynth.methods.synthesizer import fitted_from_json, fitted_to_json
from vflsynth.privacy import PrivacyLedger
from vflsynth.splitdefense.active import Rows, SplitLearning
from vflsynth.splitdefense.inputs import (
    LABEL_HOLDER,
    ONLY_PARTY,
    AlignedFrames,
    Labels,
    are_party_frames,
    as_labels,
    check_labels,
    owned_columns,
    rows_to_predict,
    split_table,
)
from vflsynth.splitdefense.leakage.monitor import Evidence
from vflsynth.splitdefense.passive import SplitParty, outputs_of
from vflsynth.splitdefense.settings import Perceptron, PiecewiseLinear, SplitSettings
from vflsynth.splitdefense.targets import Calibration, Probabilities


class _Half(ABC):
    """What one party keeps of a fitted model, as a directory of its own."""

    KIND: ClassVar[str]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save this half alone: a directory of JSON and safetensors."""
        with artefacts.new_directory(path, self.KIND, private=True) as root:
            self.write(root)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a half saved by `save`.

        Raises ArtefactError if it is not one, or is damaged.
        """
        return cls.read(artefacts.open_directory(path, cls.KIND))

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the files of this half into a folder."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path) -> Self:
        """Undo `write`."""


class BottomModel(_Half):
    """One party's half: its fitted encoding and its bottom model; no record, no label."""

    KIND = "vflsynth half of a split classifier"

    def __init__(
        self,
        name: str,
        transformer: TableTransformer,
        settings: SplitSettings,
        weights: Mapping[str, Tensor],
    ) -> None:
        self.name, self.transformer, self.settings = name, transformer, settings
        self.network = Perceptron(
            [transformer.width_, *settings.bottom_hidden, settings.intermediate_dim],
            streams=RandomStreams([b""]),  # overwritten by the weights below
            name="bottom",
            output=settings.bottom_output,
            encoding=PiecewiseLinear.of(weights),
        )
        self.network.load_state_dict(dict(weights))
        self.network.double()  # so that a prediction does not depend on which others are made

    @classmethod
    def of(cls, party: SplitParty, replica: int, settings: SplitSettings) -> Self:
        """Take one replica out of a training."""
        weights = one_replica(party.bottom_model.state_dict(), replica)
        return cls(party.name, party.transformer, settings, weights)

    def features(self, frame: pd.DataFrame) -> Tensor:
        """Return outputs for a table of the party's columns, (1, record, intermediate).

        What did not occur in training is encoded as `TableTransformer.transform` says.
        """
        encoded = torch.tensor(self.transformer.transform(frame, unseen="neutral")).double()
        return outputs_of(self.network, encoded, 1)

    def write(self, folder: Path) -> None:
        """Write name, encoding, settings and weights into a folder."""
        content = {
            "name": self.name,
            "transformer": self.transformer.to_dict(),
            "settings": to_json(asdict(self.settings)),
        }
        artefacts.write_json(folder / "party.json", content)
        write_weights(folder / "bottom.safetensors", self.network)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Undo `write`."""
        content = artefacts.read_json(folder / "party.json")
        weights = artefacts.read_tensors(folder / "bottom.safetensors")
        with artefacts.reading(folder, "a party's half"):
            transformer = TableTransformer.from_dict(content["transformer"])
            settings = SplitSettings(**from_json(content["settings"]))
            return cls(content["name"], transformer, settings, weights)


class TopModel(_Half):
    """The active party's half: the top models and their calibration.

    `heads` says whose features each top model takes; ``"top"`` takes everybody's. `dims` are the
    layer sizes of each. `classes` are what users call them.
    """

    KIND = "vflsynth active party's half of a split classifier"

    def __init__(
        self,
        heads: Mapping[str, Sequence[str]],
        dims: Mapping[str, Sequence[int]],
        settings: SplitSettings,
        weights: Mapping[str, Mapping[str, Tensor]],
        calibration: Calibration,
        classes: Labels,
    ) -> None:
        self.heads = {name: tuple(parties) for name, parties in heads.items()}
        self.dims = {name: list(sizes) for name, sizes in dims.items()}
        self.settings, self.calibration, self.classes = settings, calibration, classes
        self.networks: dict[str, Perceptron] = {}
        for name in self.heads:
            network = Perceptron(self.dims[name], streams=RandomStreams([b""]), name=name)
            network.load_state_dict(dict(weights[name]))
            self.networks[name] = network.double()

    @classmethod
    def of(cls, algorithm: SplitLearning, replica: int, used: Rows) -> Self:
        """Take one replica out of a finished training, calibrated on the labels it was trained on.

        `used` are the replica's training records.
        """
        task, settings = algorithm.task, algorithm.settings
        networks = {name: task.networks[name][0] for name in task.heads}
        found = cls(
            task.heads,
            {name: network.dims for name, network in networks.items()},
            settings,
            {name: one_replica(own.state_dict(), replica) for name, own in networks.items()},
            Calibration(),
            algorithm.target.classes,
        )
        if not task.calibrated:
            outputs = [algorithm.outputs[name][replica, used] for name in task.around.parties]
            fused = settings.fuse(outputs).unsqueeze(0).cpu()
            with torch.no_grad():
                scores = found.networks["top"](fused.double())[0, :, 0].numpy()
            labels = algorithm.labels[replica].cpu().numpy()[used]
            channel = task.around.channel
            own = None if channel is None else channel.replica(replica)
            found.calibration = Calibration.learn(scores.astype(np.float64), labels, own)
        return found

    @torch.no_grad()
    def probabilities(self, features: Mapping[str, Tensor | None]) -> Probabilities:
        """Compute class probabilities from the parties' features, None for absent ones.

        The head of exactly the parties that are there is used if there is one; else the top model
        of all, with zeros for the absent.
        """
        there = tuple(name for name in self.heads["top"] if features[name] is not None)
        head = next((name for name, group in self.heads.items() if group == there), "top")
        some = next(f for f in features.values() if f is not None)
        joined = [
            torch.zeros_like(some) if (found := features[name]) is None else found
            for name in self.heads[head]
        ]
        outputs = self.networks[head](self.settings.fuse(joined))[0].numpy()
        return self.calibration.probabilities(outputs)

    def write(self, folder: Path) -> None:
        """Write classes, calibration, settings and weights into a folder."""
        times = self.classes.dtype.kind in "mM"  # written as counts of their dtype's unit
        classes = self.classes.astype(np.int64) if times else self.classes
        content: dict[str, Any] = {
            "heads": {name: list(group) for name, group in self.heads.items()},
            "dims": self.dims,
            "calibration": asdict(self.calibration),
            "settings": to_json(asdict(self.settings)),
            "classes": {"dtype": self.classes.dtype.str, "values": classes.tolist()},
        }
        artefacts.write_json(folder / "top.json", content)
        for i, network in enumerate(self.networks.values()):
            write_weights(folder / f"head_{i}.safetensors", network)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Undo `write`."""
        content = artefacts.read_json(folder / "top.json")
        weights = {
            name: artefacts.read_tensors(folder / f"head_{i}.safetensors")
            for i, name in enumerate(content["heads"])
        }
        with artefacts.reading(folder, "an active party's half"):
            settings = SplitSettings(**from_json(content["settings"]))
            calibration = Calibration(**content["calibration"])
            values = content["classes"]
            classes = np.array(values["values"], dtype=values["dtype"])
            return cls(content["heads"], content["dims"], settings, weights, calibration, classes)


def one_replica(state: Mapping[str, Tensor], replica: int) -> dict[str, Tensor]:
    """Take one replica out of a network's state, with a replica dimension of 1, on the CPU."""
    return {name: value[replica : replica + 1].cpu() for name, value in state.items()}


def write_weights(path: Path, network: Perceptron) -> None:
    """Write weights in the precision they were trained in."""
    weights = {name: value.float() for name, value in network.state_dict().items()}
    artefacts.write_tensors(path, weights)


CLASSIFIER_KIND = "vflsynth split classifier"

Tables = Mapping[str, pd.DataFrame | None] | pd.DataFrame | npt.ArrayLike
"""What is predicted from: a table per party, or a single one."""


class FittedSplitClassifier(ClassifierMixin, WithParts):  # type: ignore[misc]
    """A scikit-learn classifier whose fitted form is one model per party.

    `BaseSplitClassifier` has the parameters, and a ``fit`` that sets the attributes.
    """

    registry_group: ClassVar[str] = "classifiers"

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

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the evidence, which has labels and encoded rows: no pickle takes it along.

        With `privacy` also what tells numbers of records.
        """
        state: dict[str, Any] = dict(super().__getstate__())
        gone: dict[str, Any] = {"evidence_": {}}
        if getattr(self, "privacy", None) is not None:
            gone |= {"alignment_": None, "transcript_": None}
        return state | {name: gone[name] for name in gone if name in state}

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, which the active party's half knows."""
        return self.top_.classes

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
            If a party is unknown, missing, or lacks records or the key column; or there is one
            table for a classifier that was fitted on several.
        """
        check_is_fitted(self, "parties_")
        frames: Mapping[str, pd.DataFrame | None]
        if are_party_frames(X):
            frames = X
        elif self.party_columns is None and ONLY_PARTY not in self.parties_:
            raise PartyDataError(
                "this is one table, and the classifier was fitted on a table of each party",
                fix=f"pass a mapping of {', '.join(map(repr, self.parties_))} to their tables",
            )
        else:
            frames = split_table(self._table(X, reset=False), self.party_columns)
        names = list(self.parties_)
        return self._probabilities(rows_to_predict(frames, names, absent, self.active, self._on))

    def _probabilities(self, there: Mapping[str, pd.DataFrame]) -> Probabilities:
        """Predict for parties' tables whose rows correspond."""
        return self.top_.probabilities(
            {
                name: half.features(there[name]) if name in there else None
                for name, half in self.parties_.items()
            }
        )

    def predict(self, X: Tables, *, absent: str | Collection[str] = ()) -> npt.NDArray[Any]:
        """Predict classes; see `predict_proba`."""
        probabilities = self.predict_proba(X, absent=absent)
        found: npt.NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return found

    def score(self, X: Tables, y: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the accuracy; labels belong to records as in `fit`, those with an index by it.

        Raises PartyDataError as `predict_proba`, or if a labelled record is in no table, or the
        index is not that of the active party's table.
        """
        keyed = isinstance(y, pd.Series | pd.DataFrame)
        if not keyed or isinstance(X, AlignedFrames) or not are_party_frames(X):
            return float(super().score(X, as_labels(y), sample_weight))
        check_is_fitted(self, "parties_")
        if (own := self.active) is not None:
            found = self.predict(X)
            if X.get(own) is not None:
                table = with_keys_in_form(as_frame(X[own], own), self._on, own)
                y, _ = check_labels(y, {own: table}, own, self._on, stated=True)
        else:
            y, keys = check_labels(y, {}, None, self._on, stated=True)
            names = [*self.parties_, LABEL_HOLDER]
            there = rows_to_predict({**X, LABEL_HOLDER: keys}, names, (), LABEL_HOLDER, self._on)
            found = self.classes_[self._probabilities(there).argmax(1)]
        return float(accuracy_score(y, found, sample_weight=sample_weight))

    def _table(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """Check a single table as scikit-learn does, and make a DataFrame of it."""
        private = getattr(self, "privacy", None) is not None
        if private and isinstance(X, np.ndarray | list) and np.ndim(X) == 2:
            X = pd.DataFrame(np.asarray(X))  # no value ends a private fit
        X = as_frame(X, ONLY_PARTY, by_value=not private)
        if isinstance(X, pd.DataFrame) and X.size:
            check_table(X, ONLY_PARTY)
            table = owned_columns(X, self.party_columns)
            validate_data(self, table, reset=reset, skip_check_array=True)
            return table
        return pd.DataFrame(validate_data(self, X, reset=reset, dtype="numeric"))

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
            found.parties_ = {
                name: BottomModel.read(root / "parties" / name) for name in content["parties"]
            }
        found.evidence_, found.transcript_ = {}, None
        return found
