"""The file of a study: what ``vflsynth publish`` is to do, and ``vflsynth new`` asks for."""

from __future__ import annotations

import inspect
import logging
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd
from joblib import cpu_count

from vflsynth.cli.fit import draw_records
from vflsynth.cli.tables import label, match_on, read_party_frames
from vflsynth.configuration import Configuration, Publishing, read_configuration
from vflsynth.contract import Contract, read_contract
from vflsynth.exceptions import ParameterError, UnusableFileError
from vflsynth.frames import read_table
from vflsynth.privacy import PrivacyAccount
from vflsynth.reporting import duration_text, quiet, size_text
from vflsynth.run.loop import Trial

logger = logging.getLogger("vflsynth")

_FEW_ROWS = 300
_TRIAL_SECONDS = 5.0
_LEAST, _ENOUGH = 10, 90
"""Trainings that an audit of memberships takes: 30 of one epoch at once at the very least, and as
many as find an AUC of .8, with all records and without each of two, one after the other.
"""


@dataclass(frozen=True, kw_only=True)
class Study(Publishing):
    """What is published of which tables.

    Parameters
    ----------
    path : Path
        The file; other paths in it are relative to its folder.
    content : mapping
        What `Configuration` reads.
    **more
        As of `Publishing`, whose paths are relative to the file's folder.
    """

    path: Path
    content: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a study file.

        Raises ParameterError, naming each key that is wrong, and what there is instead.
        """
        if not path.is_file():
            raise UnusableFileError(f"there is no study {path}. Fix: 'vflsynth new' writes one")
        content = read_configuration(path)
        Configuration({str(path): content})  # names of parameters
        study = cls(path=path, content=content, **content.pop("publish", {}))
        if not isinstance(content.get("parties"), Mapping):
            raise ParameterError(
                f"{path}: a study needs all parties' tables. Fix: [parties] with a line PARTY = "
                "\"FILE\" for each; parties that never meet use 'vflsynth parties'"
            )
        if study.is_private and study.rows is None:
            raise ParameterError(
                f"{path}: publish: a private study needs rows = N: how many records there are is "
                "private"
            )
        if study.account_file is not None:
            if not study.is_private:
                raise ParameterError(
                    f"{path}: publish.account is of private studies. Fix: [parameters.privacy]"
                )
            PrivacyAccount(study.account_file).records()
        return study

    @property
    def account_file(self) -> Path | None:
        """Where a private study books its fits."""
        return None if self.account is None else self.path.parent / self.account

    @property
    def private_key(self) -> Path | None:
        """What signs the release."""
        return None if self.key is None else self.path.parent / self.key

    @property
    def held_out(self) -> dict[str, Path]:
        """Tables of records that the model is not fitted on, by party."""
        return {name: self.path.parent / file for name, file in self.holdout.items()}

    @cached_property
    def configuration(self) -> Configuration:
        """The fit."""
        return Configuration({str(self.path): {**self.content, "method": self.method}})

    @property
    def parties(self) -> dict[str, Path]:
        """Tables by party."""
        return {name: Path(file) for name, file in self.content["parties"].items()}

    @property
    def contract(self) -> Path | None:
        """The contract that the file names."""
        said = self.content.get("contract")
        if said is None or isinstance(said, str):
            return Path(said) if said else None
        raise ParameterError(f"{self.path}: contract must be one file, got {said!r}")

    @property
    def is_private(self) -> bool:
        """Whether differential privacy is asked for."""
        return bool(self.content.get("parameters", {}).get("privacy"))

    @property
    def on_options(self) -> list[str]:
        """Key columns as ``--on`` takes them."""
        on = self.content.get("on")
        if isinstance(on, Mapping):
            return [f"{party}={column}" for party, column in on.items()]
        return [] if on is None else [on]

    @cached_property
    def choice(self) -> tuple[str, str]:
        """The method, and why."""
        if (method := self.content.get("method")) is not None:
            return method, "as the study says"
        if self.is_private:
            return "MixtureSynthesizer", "the default under differential privacy"
        fewest = min(len(read_table(path)) for path in self.parties.values())
        if fewest < _FEW_ROWS:
            return (
                "GaussianCopulaSynthesizer",
                f"networks learn fewer than {_FEW_ROWS} rows by heart, and there are {fewest:,}",
            )
        return "AutoregressiveSynthesizer", "single rows hold together, which readers look at"

    @property
    def method(self) -> str:
        """Name of the synthesizer."""
        return self.choice[0]

    @property
    def audits(self) -> str | None:
        """What attacks are made, for the plan; None without any."""
        if self.audit_minutes is None:
            return "ask whether records can be singled out, linked, inferred: one more training"
        if not self.audit_minutes:
            return None
        return f"attack models like it, for at most {self.audit_minutes:g} minutes"

    @cached_property
    def _takes(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(type(self.configuration.make()).fit).parameters

    @property
    def goes_on(self) -> bool:
        """Whether an interrupted training goes on from a checkpoint."""
        return "checkpoint" in self._takes and not self.is_private

    def said_of(self, step: str) -> Any:
        """Return what the file says that changes a step."""
        # Tables and contract are looked at themselves.
        fitted = {"on": None, **self.content, "parties": list(self.parties)}
        fitted.pop("contract", None)
        fitted |= {} if self.account is None else {"account": self.account}
        everything: dict[str, Any] = {
            "inspect": [fitted["on"], fitted.get("key_form"), fitted["parties"]],
            "fit": [self.seed, self.method, fitted],
            "sample": [self.seed, self.rows],
            "evaluate": [self.target],
            "audit": [self.seed, self.audit_minutes, self.target],
            "release": [self.target, self.title],
        }
        return everything.get(step, [])

    def roles(self, contract: Path | None) -> dict[str, list[str]]:
        """Return names of columns by two roles of the contract."""
        found: dict[str, list[str]] = {"sensitive": [], "quasi-identifier": []}
        if contract is not None:
            for part in read_contract(contract).parties.values():
                for name, column in part.columns.items():
                    if column.role in found:
                        found[column.role].append(str(name))
        return found

    def read_tables(self) -> Mapping[str, pd.DataFrame]:
        """Read the tables, or as many of their records as are fitted; say nothing of them."""
        n_drawn = self.configuration.max_records
        with quiet(logging.ERROR), warnings.catch_warnings(action="ignore"):
            if n_drawn is None:
                return read_party_frames(self.configuration.parties)
            return draw_records(self.configuration, n_drawn, self.seed)

    def estimate(
        self, read: Callable[[], Mapping[str, pd.DataFrame]], contract: Path | None
    ) -> str:
        """Say how long the training takes and how much memory, by a trial of some seconds.

        `read` returns what `read_tables` does. A private study is not tried: what is read of its
        records has to be paid for. Raises ParameterError if an audit in the time that the study
        allows could not say anything.
        """
        if self.is_private:
            return "fit: not tried, which would be paid for; once cut off, it is paid for again"
        if "callbacks" not in self._takes:
            return "fit: in one go, without epochs"
        logger.info("trying the training for some seconds, to say how long it takes")
        frames = read()
        synth: Any = self.configuration.make(lambda text: label(frames.values(), text))
        synth.set_params(verbose=0, random_state=self.seed)
        if contract is not None and contract.is_file():
            agreed: Contract = read_contract(contract, lambda text: label(frames.values(), text))
            synth.set_params(contract=agreed)
        on = match_on(frames, self.configuration.on, self.configuration.key_form)
        with quiet(logging.ERROR), warnings.catch_warnings(action="ignore"):
            estimate = getattr(synth, "estimate_memory", None)
            memory = "" if estimate is None else f", {size_text(estimate(frames, on))} of memory"
            trial = Trial(_TRIAL_SECONDS, own=True)
            synth.fit(frames, on, callbacks=[trial])
        if synth.interrupted_:
            raise KeyboardInterrupt
        seconds = trial.of(trial.n_epochs)
        said = f"fit: at most {trial.n_epochs:,} epochs, {duration_text(seconds)}{memory}"
        if self.audit_minutes is None:
            return f"{said}; audit: as long again at the most"
        workers = cpu_count()
        least, most = _LEAST * trial.taken[0] / workers, _ENOUGH * seconds / workers
        if 0 < 60 * self.audit_minutes < least:
            raise ParameterError(
                f"{self.path}: publish.audit_minutes = {self.audit_minutes:g} is too short: models "
                f"of one epoch take {duration_text(least)}, and an audit that counts in a release "
                f"up to {duration_text(most)}. Fix: audit_minutes = {math.ceil(most / 60)}, a "
                "method that trains faster, or no audit_minutes, which asks the three questions, "
                "and a waiver of membership"
            )
        if 0 < 60 * self.audit_minutes < most:
            said += (
                f"; audit: up to {duration_text(most)} if it is to count in the release: one whose "
                "models are trained for fewer epochs, to keep to the time, does not"
            )
        return said
