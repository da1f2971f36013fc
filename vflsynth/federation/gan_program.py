"""VFLGAN across processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from vflsynth._random import RandomStreams
from vflsynth._validation import check_parameters
from vflsynth.columns import TableTransformer
from vflsynth.federation.job import Job
from vflsynth.federation.program import Agreed, Program, make_method
from vflsynth.federation.site import Site
from vflsynth.frames import KeyMinter
from vflsynth.model import PartyModel
from vflsynth.parties import GANParty, Settings, TrainableParty, VFLGANParty
from vflsynth.protocol import Channel
from vflsynth.protocol.channel import Verb
from vflsynth.samplers import GeneratorSampler
from vflsynth.synthesizers import VFLGANSynthesizer
from vflsynth.synthesizers.gan import multiply_adds
from vflsynth.training import Algorithm, Plan


class SynthesizerProgram(Program):
    """A method that trains a generator at every party, and something at the server.

    Parameters
    ----------
    job : Job
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # What concerns privacy is the subclass's.
        self.synthesizer: VFLGANSynthesizer = make_method(VFLGANSynthesizer, job, privacy=None)
        check_parameters("job", self.synthesizer.get_params(deep=False), VFLGANSynthesizer._rules)

    @abstractmethod
    def algorithm(self, channel: Channel, settings: Settings, streams: RandomStreams) -> Algorithm:
        """Make the algorithm and its server."""

    def save_half(
        self, party: TrainableParty, settings: Settings, minter: KeyMinter, path: Path
    ) -> None:
        """Write generator and encoding; `vflsynth sample` reads them."""
        assert isinstance(party, GANParty)
        (sampler,) = GeneratorSampler.of_replicas(
            settings, party.transformer.spans_, party.selected
        )
        half = PartyModel(party.name, party.transformer, sampler, on=self.job.on, minter=minter)
        half.save(path)


class GANProgram(SynthesizerProgram):
    """VFLGAN, without privacy."""

    def make_party(self, name: str, frame: pd.DataFrame, site: Site, agreed: Agreed) -> VFLGANParty:
        """Make a party of VFLGAN."""
        transformer = TableTransformer(kinds=dict(site.column_kinds))
        return VFLGANParty(name, frame, self.job.on, transformer)

    def settings(self, n_records: int, widths: Mapping[str, int]) -> Settings:
        """Fill in the defaults that depend on the data."""
        return self.synthesizer._settings(n_records, list(widths.values()))

    def plan(self, n_records: int, settings: Settings) -> Plan:
        """Epochs and steps."""
        epochs = self.synthesizer._epochs(n_records, settings.batch_size)
        return Plan(epochs, -(-n_records // settings.batch_size), self.synthesizer.evaluate_every)

    def steps(self, plan: Plan, done: int) -> dict[Verb, int]:
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
        return multiply_adds(settings, list(widths.values()))

    def algorithm(self, channel: Channel, settings: Settings, streams: RandomStreams) -> Algorithm:
        """Make the algorithm and its server; asks the parties for their shapes."""
        return self.synthesizer._make_algorithm(channel, settings, streams)
