"""What every synthesizer can do once it is fitted: sample, save, load."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Literal, Self, overload

import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from vflsynth import _artefacts as artefacts
from vflsynth._device import resolve_device
from vflsynth._random import RandomState, derive, secret_from
from vflsynth._validation import Number, check_parameters
from vflsynth._version import __version__
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ArtefactError, ColumnKindError, ParameterError
from vflsynth.frames import AlignmentReport
from vflsynth.model import PartyModel
from vflsynth.parameters import parameters_from_json, parameters_to_json
from vflsynth.privacy import NeighbouringRelation, PrivacyLedger
from vflsynth.registry import full_name
from vflsynth.training import history_from_json, history_to_json

PartyFrames = Mapping[str, pd.DataFrame]

KIND = "vflsynth model"
"""What the manifest of a saved model says."""


class BaseSynthesizer(BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator over party frames whose fitted form is one model per party.

    Subclasses have the parameter `random_state`, those that call `_transformers` also
    `column_kinds` and `transformer`, and a `fit` that sets `parties_`, `alignment_`, `history_`,
    `settings_`, `device_`, `interrupted_`, `transcript_` and calls `_begin_samples`.
    """

    registry_group: ClassVar[str] = "synthesizers"

    column_kinds: Mapping[Any, str] | None
    transformer: TableTransformer | None
    random_state: RandomState
    parties_: dict[str, PartyModel]
    alignment_: AlignmentReport | None
    history_: pd.DataFrame
    settings_: dict[str, Any]
    device_: str
    interrupted_: bool
    transcript_: pd.DataFrame | None
    privacy_ledger_: PrivacyLedger | None = None

    def _begin_samples(self, secret: bytes) -> None:
        """Start the sequence of samples that belongs to a fit."""
        self._secret, self._n_samples = derive(secret, "samples"), 0

    def _transformers(
        self, frames: Mapping[str, pd.DataFrame], on: Hashable
    ) -> dict[str, TableTransformer]:
        """Make a transformer for every party, with the kinds that concern its columns."""
        if not isinstance(self.column_kinds, Mapping | None):
            raise ParameterError(
                f"column_kinds must be None or map labels to kinds, got {self.column_kinds!r}"
            )
        if not isinstance(self.transformer, TableTransformer | None):
            raise ParameterError(
                f"transformer must be None or a TableTransformer, got {self.transformer!r}"
            )
        template = TableTransformer() if self.transformer is None else self.transformer
        kinds = dict(template.kinds or {}) | dict(self.column_kinds or {})
        owned = {label: name for name, frame in frames.items() for label in frame if label != on}
        for label in kinds:
            if label not in owned:
                raise ColumnKindError(
                    f"column_kinds says {kinds[label]!r}, but no party has this column",
                    fix="correct the name; the key column has no kind",
                    column=label,
                )
        return {
            name: clone(template).set_params(
                kinds={label: kind for label, kind in kinds.items() if owned[label] == name}
            )
            for name in frames
        }

    # -- sampling --------------------------------------------------------------------------------

    @overload
    def sample(
        self,
        n: int,
        *,
        by_party: Literal[False] = False,
        keys: bool = False,
        random_state: RandomState = None,
    ) -> pd.DataFrame: ...

    @overload
    def sample(
        self,
        n: int,
        *,
        by_party: Literal[True],
        keys: bool = False,
        random_state: RandomState = None,
    ) -> dict[str, pd.DataFrame]: ...

    def sample(
        self,
        n: int,
        *,
        by_party: bool = False,
        keys: bool = False,
        random_state: RandomState = None,
    ) -> pd.DataFrame | dict[str, pd.DataFrame]:
        """Sample synthetic records.

        Parameters
        ----------
        n : int
            Number of records; exactly so many are returned.
        by_party : bool, default=False
            Return one table per party, row i of each being the same record.
        keys : bool, default=False
            Put fresh keys, which no real record has, into the key column (or the index). Every call
            counts from the same one, so that parties that sample apart agree; sample once for one
            table.
        random_state : int, numpy Generator, RandomState or None, default=None
            None continues the sequence that `fit`'s ``random_state`` started: two calls return
            different records, and the same calls after the same fit return the same.

        Returns
        -------
        DataFrame, shape (n, column), or dict of str to DataFrame
            All parties' columns in the order of the party frames, with their original dtypes.

        Raises
        ------
        ParameterError
            If `n` is not a whole number ≥ 0.
        KeyTypeError
            If the keys' type has no room for n fresh ones.
        """
        check_is_fitted(self, "parties_")
        check_parameters("sample", {"n": n}, {"n": Number(0, whole=True)})
        if random_state is None:
            secret = derive(self._secret, f"call {self._n_samples}")
            self._n_samples += 1
        else:
            secret = secret_from(random_state)
        parts = {name: model.sample_from_secret(n, secret) for name, model in self.parties_.items()}
        if by_party:
            if keys:
                parts = {name: self.parties_[name].add_keys(part) for name, part in parts.items()}
            return parts
        table = pd.concat(list(parts.values()), axis=1)
        return next(iter(self.parties_.values())).add_keys(table) if keys else table

    # -- saving ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model as a directory of JSON and safetensors, written aside and renamed.

        Parameters
        ----------
        path : path-like
            Replaced if it is a saved model; refused if it holds anything else.

        Notes
        -----
        Holds every party's generator and encoding, no record, and no discriminator. To save a
        single party's half use ``parties_[name].save(path)``.

        Where a privacy guarantee makes the number of records private, `alignment_` and
        `transcript_`, which tell it, are left out and None after loading.
        """
        check_is_fitted(self, "parties_")
        alignment, transcript = self.alignment_, self.transcript_
        if self._number_of_records_is_private():
            alignment = transcript = None
        content = {
            "class": full_name(type(self)),
            "version": __version__,
            "parameters": parameters_to_json(self),
            "settings": self.settings_,
            "alignment": None if alignment is None else asdict(alignment),
            "history": history_to_json(self.history_),
            "device": self.device_,
            "interrupted": self.interrupted_,
            "transcript": None if transcript is None else transcript.to_dict("records"),
            "samples": {"secret": self._secret.hex(), "drawn": self._n_samples},
            "privacy_ledger": (
                None if self.privacy_ledger_ is None else self.privacy_ledger_.to_dict()
            ),
            "parties": list(self.parties_),
        }
        with artefacts.new_directory(path, KIND) as root:
            artefacts.write_json(root / "synthesizer.json", content)
            for name, model in self.parties_.items():
                model.write(root / "parties" / name)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "auto") -> Self:
        """Load a saved model, on a CPU or a GPU whichever it was trained on.

        Parameters
        ----------
        path : path-like
        device : str, default="auto"

        Raises
        ------
        ArtefactError
            If it is no saved model of this class, or a file is missing, extra or changed.
        ArtefactVersionError
            If a newer version wrote it.
        """
        where = resolve_device(device)
        root = artefacts.open_directory(path, KIND)
        content = artefacts.read_json(root / "synthesizer.json")
        with artefacts.reading(root, f"a {cls.__name__}"):
            if content["class"] != full_name(cls):
                raise ArtefactError(f"{root} holds a {content['class']}, not a {cls.__name__}")
            synth = cls(**parameters_from_json(content["parameters"]))
            alignment = content["alignment"]
            synth.alignment_ = None if alignment is None else AlignmentReport(**alignment)
            synth.history_ = history_from_json(content["history"])
            synth.settings_ = dict(content["settings"])
            synth.device_, synth.interrupted_ = str(content["device"]), bool(content["interrupted"])
            transcript = content["transcript"]
            synth.transcript_ = None if transcript is None else pd.DataFrame(transcript)
            synth._secret = bytes.fromhex(content["samples"]["secret"])
            synth._n_samples = int(content["samples"]["drawn"])
            ledger = content.get("privacy_ledger")
            synth.privacy_ledger_ = None if ledger is None else PrivacyLedger.from_dict(ledger)
            names = content["parties"]
            if not names or sorted(names) != sorted(f.name for f in (root / "parties").iterdir()):
                raise ArtefactError(f"{root} does not hold exactly the parties {names}")
        synth.parties_ = {name: PartyModel.read(root / "parties" / name, where) for name in names}
        return synth

    def _number_of_records_is_private(self) -> bool:
        ledger = self.privacy_ledger_
        return (
            ledger is not None
            and ledger.covers_synthetic_data
            and ledger.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE
        )
