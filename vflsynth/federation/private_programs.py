"""Differentially private methods across processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch
from sklearn.base import clone

from vflsynth._random import RandomStreams, derive
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ParameterError
from vflsynth.federation.gan_program import SynthesizerProgram
from vflsynth.federation.job import Job
from vflsynth.federation.kept_encoding import KeptEncoding
from vflsynth.federation.program import Agreed
from vflsynth.federation.site import Site
from vflsynth.frames import KeyMinter, infers_types, public_key_minters
from vflsynth.parties import (
    DPSGDParty,
    MeanEmbeddingParty,
    PublicEncoding,
    Settings,
    TrainableParty,
)
from vflsynth.privacy import (
    GaussianPrivacy,
    LedgerEntry,
    PrivacyLedger,
    PrivacyPlan,
    PublicSchema,
    SampledRelease,
)
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol import Channel, Schedule
from vflsynth.protocol.channel import Verb
from vflsynth.synthesizers import _mean_embedding
from vflsynth.synthesizers._vflgan_mechanisms import DPSGDMechanism
from vflsynth.synthesizers.gan import multiply_adds
from vflsynth.training import Algorithm, MeanEmbedding, Plan


def privacy_of(job: Job) -> GaussianPrivacy | None:
    """Read the privacy that a job asks for.

    Raises
    ------
    ParameterError
    """
    content = job.parameters.get("privacy")
    if content is None:
        return None
    known = [n for n in GaussianPrivacy().get_params(deep=False) if n != "public_schema"]
    if not isinstance(content, Mapping) or set(content) - set(known):
        raise ParameterError(
            f"job: privacy must be a table with some of {', '.join(known)}, got {content!r}. What "
            "is public about columns belongs into the site files"
        )
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    privacy = GaussianPrivacy(**values, public_schema=PublicSchema())
    privacy.validate()
    return privacy


class PrivateProgram(SynthesizerProgram):
    """A synthesizer with noise; every site's ledger is its own, and outlives the process.

    Parameters
    ----------
    job : Job
    privacy : GaussianPrivacy
    """

    private: ClassVar[bool] = True

    def __init__(self, job: Job, privacy: GaussianPrivacy) -> None:
        super().__init__(job)
        self.privacy = privacy
        self.privacy_plan: PrivacyPlan | None = None

    def check_site(self, site: Site) -> None:
        """Refuse a site file without a budget, and a table whose types are read off its records.

        Raises
        ------
        ParameterError
        """
        if site.budget is None:
            raise ParameterError(
                f"site {site.party!r}: job {self.job.name!r} is private, and the site file does "
                "not say how much the site agrees to: [privacy] epsilon = ..., delta = ..."
            )
        if site.table is not None and infers_types(site.table):
            raise ParameterError(
                f"site {site.party!r}: job {self.job.name!r} is private and takes the types of "
                f"columns as public, but those of {str(site.table)!r} would be read off its "
                "records: in a csv file one record can change them. Fix: store the table as "
                "parquet, with types that are fixed beforehand, for example with "
                "vflsynth.frames.write_table"
            )

    def minter(self, name: str, keys: pd.Index) -> KeyMinter:
        """Make a minter that says nothing about the keys but their type."""
        return public_key_minters({name: keys})[name]

    def key_offset(self, offsets: Sequence[int]) -> int:
        """Choose the one that the types of all parties' keys can hold."""
        return min(offsets)

    def ledger(self) -> PrivacyLedger | None:
        """Return what the whole run is planned to release."""
        return None if self.privacy_plan is None else self.privacy_plan.ledger


class MeanEmbeddingProgram(PrivateProgram):
    """One noisy release, of which the generators learn."""

    noised: ClassVar[frozenset[str]] = frozenset(
        {"NoisyHistograms", "IndependentProjections", "FakeProjections", "ProjectionGradients"}
    )

    def make_party(
        self, name: str, frame: pd.DataFrame, site: Site, agreed: Agreed
    ) -> MeanEmbeddingParty:
        """Make a party that adds noise to its histograms."""
        privacy = clone(self.privacy).set_params(public_schema=site.schema)
        embedding, _ = _mean_embedding.agree(privacy, _columns(agreed), self._n_steps)
        kept = KeptEncoding.keeping(
            embedding.encoding, site.folder / self.job.name, again=agreed.epoch > 0
        )
        return MeanEmbeddingParty(
            name, frame, self.job.on, TableTransformer(), replace(embedding, encoding=kept)
        )

    def matched(self, agreed: Agreed, n_records: int) -> None:
        """Calibrate the noise, by numbers of columns alone."""
        _, self.privacy_plan = _mean_embedding.agree(self.privacy, _columns(agreed), self._n_steps)

    @property
    def _n_steps(self) -> int:
        plan = _mean_embedding.plan_of(self.synthesizer)
        return plan.n_epochs * plan.steps_per_epoch

    def settings(self, n_records: int, widths: Mapping[str, int]) -> Settings:
        """Fill in the defaults, which depend on no record."""
        return _mean_embedding.settings_of(self.synthesizer, list(widths.values()))

    def plan(self, n_records: int, settings: Settings) -> Plan:
        """Epochs of steps that read no record."""
        return _mean_embedding.plan_of(self.synthesizer)

    def steps(self, plan: Plan, done: int) -> dict[Verb, int]:
        """Two releases, unless a checkpoint has them, and fakes once per step."""
        once = 0 if done else 1
        return {
            Verb.NOISY_HISTOGRAMS: once,
            Verb.INDEPENDENT_PROJECTIONS: once,
            Verb.RECORD_PROJECTIONS: once,
            Verb.FAKE_PROJECTIONS: plan.n_epochs * plan.steps_per_epoch,
        }

    def multiply_adds(self, settings: Settings, widths: Mapping[str, int]) -> float:
        """Return those of the largest layer, as the estimator does."""
        return _mean_embedding.multiply_adds(settings, list(widths.values()))

    def algorithm(self, channel: Channel, settings: Settings, streams: RandomStreams) -> Algorithm:
        """Make the algorithm, and the server that adds noise to the joint release."""
        assert self.privacy_plan is not None
        server = _mean_embedding.make_server(self.privacy, self.privacy_plan, streams.device)
        return MeanEmbedding(channel, server)

    def save_half(
        self, party: TrainableParty, settings: Settings, minter: KeyMinter, path: Path
    ) -> None:
        """Give the generator the published marginals, and write."""
        assert isinstance(party, MeanEmbeddingParty)
        party.map_quantiles()
        super().save_half(party, settings, minter, path)

    def releases(self, first: int, last: int | None = None) -> tuple[LedgerEntry, ...]:
        """Everything comes before the first step."""
        assert self.privacy_plan is not None
        return self.privacy_plan.ledger.entries if first == 1 else ()


class _KeptDPSGD(DPSGDMechanism):
    """The estimator's mechanism for one node, whose party releases its encoding once per run."""

    kept_in: Path | None = None
    again = False

    def _encoding(self) -> PublicEncoding:
        encoding = super()._encoding()
        if self.kept_in is None:
            return encoding
        return KeptEncoding.keeping(encoding, self.kept_in, again=self.again)


class DPSGDProgram(PrivateProgram):
    """Noisy gradients of all discriminators, at every step of another sample of the records.

    Notes
    -----
    Samples come from the shared secret and from what every party drew for this attempt: steps that
    are done again after a crash are of other records, as accounting supposes.
    """

    noised: ClassVar[frozenset[str]] = frozenset({"IntermediateFeatures"})  # of fakes alone

    def __init__(self, job: Job, privacy: GaussianPrivacy) -> None:
        super().__init__(job, privacy)
        self._mechanism: _KeptDPSGD | None = None

    @property
    def mechanism(self) -> _KeptDPSGD:
        """The estimator's, which the terms made."""
        assert self._mechanism is not None
        return self._mechanism

    def make_party(self, name: str, frame: pd.DataFrame, site: Site, agreed: Agreed) -> DPSGDParty:
        """Make a party that clips its records' gradients and adds noise to their sum."""
        privacy = clone(self.privacy).set_params(public_schema=site.schema)
        mechanism = _KeptDPSGD(self.synthesizer, privacy, _columns(agreed), None)
        mechanism.kept_in, mechanism.again = site.folder / self.job.name, agreed.epoch > 0
        self._mechanism = mechanism
        (party,) = mechanism.make_parties({name: frame}, self.job.on)
        assert isinstance(party, DPSGDParty)
        return party

    def matched(self, agreed: Agreed, n_records: int) -> None:
        """Calibrate the noise."""
        if self._mechanism is None:  # at the server
            self._mechanism = _KeptDPSGD(self.synthesizer, self.privacy, _columns(agreed), None)
        self.mechanism.agree(n_records)
        self.privacy_plan = self.mechanism.plan

    def prepare(self, party: TrainableParty) -> None:
        """Have a party make its encoding, and tell it what was calibrated."""
        self.mechanism.trainees([party])

    def schedule(
        self, site: Site, agreed: Agreed, n_records: int, settings: Settings, device: torch.device
    ) -> Schedule:
        """Make what the parties draw alike, with samples that are new in every attempt."""
        nonces = "|".join(agreed.nonces[name] for name in sorted(agreed.nonces))
        sampling = derive(site.the_shared, f"sampling|{self.job.name}|{nonces}")
        return self.mechanism.make_schedule([sampling])(
            RandomStreams([site.schedule_secret(self.job.name)], device),
            n_records=n_records,
            batch_size=settings.batch_size,
            latent_dim=settings.latent_dim,
        )

    def settings(self, n_records: int, widths: Mapping[str, int]) -> Settings:
        """Sizes and rates, of public numbers and published encodings only."""
        return self.mechanism.settings(n_records, list(widths.values()))

    def plan(self, n_records: int, settings: Settings) -> Plan:
        """Epochs and steps, of public numbers only."""
        return Plan(self.mechanism.epochs, self.mechanism.steps_per_epoch)

    def steps(self, plan: Plan, done: int) -> dict[Verb, int]:
        """Every step once, every epoch's report once."""
        n_steps = plan.n_epochs * plan.steps_per_epoch
        return {
            Verb.DISCRIMINATOR_FEATURES: n_steps,
            Verb.GENERATOR_FEATURES: n_steps,
            Verb.REPORT: plan.n_epochs + 1,
            Verb.SHAPE: 1,
        }

    def multiply_adds(self, settings: Settings, widths: Mapping[str, int]) -> float:
        """Return those of the largest layer, as the estimator does."""
        return multiply_adds(settings, list(widths.values()))

    def algorithm(self, channel: Channel, settings: Settings, streams: RandomStreams) -> Algorithm:
        """Make the algorithm, and the server that adds noise to its own gradients."""
        return self.mechanism.make_algorithm(channel, settings, streams)

    def releases(self, first: int, last: int | None = None) -> tuple[LedgerEntry, ...]:
        """Histograms before the first epoch, and noisy gradients at every step."""
        *before, training = self.mechanism.plan.ledger.entries
        assert isinstance(training.event, SampledRelease)
        n_epochs = (self.mechanism.epochs if last is None else last) - first + 1
        if n_epochs <= 0:
            return ()
        steps = n_epochs * self.mechanism.steps_per_epoch
        entry = replace(training, event=replace(training.event, steps=steps))
        return (*(before if first == 1 else ()), entry)


PRIVATE_PROGRAMS: Mapping[str, type[PrivateProgram]] = {
    "kernel_mean_embedding": MeanEmbeddingProgram,
    "dpsgd": DPSGDProgram,
}


def _columns(agreed: Agreed) -> dict[str, ColumnCounts]:
    """Numbers of the parties' columns, which are all that the noise depends on."""
    return {
        name: ColumnCounts(n, agreed.unlisted.get(name, 0)) for name, n in agreed.columns.items()
    }
