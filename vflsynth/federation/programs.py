"""Programs: what a method needs of a party and of the server, on the estimators' own code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth import _artefacts as artefacts
from vflsynth import splitdefense
from vflsynth._random import RandomStreams
from vflsynth._validation import check_parameters
from vflsynth.exceptions import ParameterError
from vflsynth.federation.job import Job
from vflsynth.frames import KeyMinter
from vflsynth.model import PartyModel
from vflsynth.parties import Settings, TrainableParty, VFLGANParty
from vflsynth.protocol import Channel, Schedule
from vflsynth.protocol.channel import Verb
from vflsynth.samplers import GeneratorSampler
from vflsynth.splitdefense import BaseSplitClassifier
from vflsynth.splitdefense.model import BottomModel
from vflsynth.splitdefense.passive import SplitParty
from vflsynth.splitdefense.settings import SplitSettings
from vflsynth.synthesizers import VFLGANSynthesizer
from vflsynth.synthesizers.gan import largest_product
from vflsynth.training import GANAlgorithm, Plan
from vflsynth.transformers import TableTransformer

_OF_SITES = ("column_kinds", "transformer", "device", "random_state", "verbose", "memory_limit")


class Program(ABC):
    """One method, across processes.

    Parameters
    ----------
    job : Job
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    @abstractmethod
    def make_party(
        self, name: str, frame: pd.DataFrame, kinds: Mapping[Hashable, str]
    ) -> TrainableParty:
        """Make the object that owns a party's table."""

    def build(self, party: Any, settings: Any, schedule: Schedule, streams: RandomStreams) -> None:
        """Make a party's networks."""
        party.build(settings, schedule, streams)

    @abstractmethod
    def settings(self, n_records: int, widths: Mapping[str, int]) -> Any:
        """Fill in what depends on the data; every node does it and gets the same."""

    @abstractmethod
    def plan(self, n_records: int, settings: Any) -> Plan:
        """Say how long to train."""

    @abstractmethod
    def steps(self, plan: Plan) -> dict[Verb, int]:
        """Say what the server may ask in training, and below which step or epoch."""

    @abstractmethod
    def multiply_adds(self, settings: Any, widths: Mapping[str, int]) -> float:
        """Return the size of a step, which decides how many threads are worth while."""

    @abstractmethod
    def save_half(
        self, party: TrainableParty, settings: Any, minter: KeyMinter, path: Path
    ) -> None:
        """Write a party's half of the model."""


class GANProgram(Program):
    """VFLGAN.

    Parameters
    ----------
    job : Job
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.synthesizer: VFLGANSynthesizer = _made(VFLGANSynthesizer, job)
        if self.synthesizer.privacy is not None:
            raise ParameterError(
                "privacy is not available across processes in this version; fit in one process"
            )
        check_parameters("job", self.synthesizer.get_params(deep=False), VFLGANSynthesizer._rules)

    def make_party(
        self, name: str, frame: pd.DataFrame, kinds: Mapping[Hashable, str]
    ) -> VFLGANParty:
        """Make a party of VFLGAN."""
        transformer = TableTransformer(kinds=dict(kinds))
        return VFLGANParty(name, frame, self.job.on, transformer)

    def settings(self, n_records: int, widths: Mapping[str, int]) -> Settings:
        """Fill in the defaults that depend on the data."""
        return self.synthesizer._settings(n_records, list(widths.values()))

    def plan(self, n_records: int, settings: Settings) -> Plan:
        """Epochs and steps."""
        epochs = self.synthesizer._epochs(n_records, settings.batch_size)
        return Plan(epochs, -(-n_records // settings.batch_size), self.synthesizer.evaluate_every)

    def steps(self, plan: Plan) -> dict[Verb, int]:
        """Every step once, every epoch's report and fakes once."""
        n_steps = plan.n_epochs * plan.steps_per_epoch
        return {
            Verb.DISCRIMINATOR_FEATURES: n_steps,
            Verb.GENERATOR_FEATURES: n_steps,
            Verb.MASKED_FAKE: plan.n_epochs + 1,
            Verb.REPORT: plan.n_epochs + 1,
            Verb.SHAPE: 1,
            Verb.MASKED_REAL: 1 if self.synthesizer.model_selection == "best" else 0,
        }

    def multiply_adds(self, settings: Settings, widths: Mapping[str, int]) -> float:
        """Return those of the largest layer, as the estimator does."""
        return largest_product(settings, list(widths.values()))

    def algorithm(
        self, channel: Channel, settings: Settings, streams: RandomStreams
    ) -> GANAlgorithm:
        """Make the algorithm and its server; asks the parties for their shapes."""
        return self.synthesizer._make_algorithm(channel, settings, streams)

    def save_half(
        self, party: TrainableParty, settings: Settings, minter: KeyMinter, path: Path
    ) -> None:
        """Write generator and encoding; `vflsynth sample` reads them."""
        assert isinstance(party, VFLGANParty)
        (sampler,) = GeneratorSampler.of_replicas(
            settings, party.transformer.spans_, party.selected
        )
        half = PartyModel(party.name, party.transformer, sampler, on=self.job.on, minter=minter)
        half.save(path)


class SplitProgram(Program):
    """A split classifier, whose server is the active party.

    Parameters
    ----------
    job : Job
    """

    KIND = "vflsynth half of a split classifier"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.classifier: BaseSplitClassifier = _made(getattr(splitdefense, job.method), job)
        if self.classifier.monitor:
            raise ParameterError(
                "job: set monitor = false in parameters: nobody has what leakage is measured with "
                "when parties are in processes of their own"
            )
        check_parameters("job", self.classifier.get_params(deep=False), BaseSplitClassifier._rules)
        self.classifier.method().check()

    def make_party(
        self, name: str, frame: pd.DataFrame, kinds: Mapping[Hashable, str]
    ) -> SplitParty:
        """Make a passive party."""
        return SplitParty(name, frame, self.job.on, TableTransformer(kinds=dict(kinds)))

    def settings(self, n_records: int, widths: Mapping[str, int]) -> SplitSettings:
        """Fill in the batch size."""
        return self.classifier.resolve(n_records)

    def plan(self, n_records: int, settings: SplitSettings) -> Plan:
        """Epochs and steps."""
        return Plan(self.classifier.epochs, -(-n_records // settings.batch_size))

    def steps(self, plan: Plan) -> dict[Verb, int]:
        """Every step once, and all outputs at the end."""
        return {
            Verb.BOTTOM_OUTPUT: plan.n_epochs * plan.steps_per_epoch,
            Verb.ALL_BOTTOM_OUTPUTS: plan.n_epochs + 1,
        }

    def multiply_adds(self, settings: SplitSettings, widths: Mapping[str, int]) -> float:
        """Split networks are small: one thread."""
        return 0.0

    def save_half(
        self, party: TrainableParty, settings: SplitSettings, minter: KeyMinter, path: Path
    ) -> None:
        """Write bottom model and encoding."""
        assert isinstance(party, SplitParty)
        with artefacts.new_directory(path, self.KIND) as root:
            artefacts.write_json(root / "settings.json", asdict(settings))
            BottomModel.of(party, 0, settings).write(root)


def program_of(job: Job) -> GANProgram | SplitProgram:
    """Find the program of a job.

    Raises
    ------
    ParameterError
        If there is no such method.
    """
    if job.method == "VFLGANSynthesizer":
        return GANProgram(job)
    found = getattr(splitdefense, job.method, None) if job.method in splitdefense.__all__ else None
    if isinstance(found, type) and issubclass(found, BaseSplitClassifier):
        return SplitProgram(job)
    raise ParameterError(
        f"job: method must be 'VFLGANSynthesizer' or a classifier of vflsynth.splitdefense, got "
        f"{job.method!r}"
    )


def _made(kind: type[Any], job: Job) -> Any:
    known = kind().get_params(deep=False)
    for name in job.parameters:
        if name in _OF_SITES:
            raise ParameterError(f"job: {name} belongs into the site files, not into the job")
        if name not in known:
            raise ParameterError(
                f"job: {kind.__name__} has no parameter {name!r}; there are {', '.join(known)}"
            )
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in job.parameters.items()}
    return kind(**values, verbose=0)
