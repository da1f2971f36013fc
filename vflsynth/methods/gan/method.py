"""The training of every GAN over party frames, from the coordinator's and the server's chair."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError, TooFewRecordsError, TrainingDivergedError
from vflsynth.learning.base import Algorithm, Duration, Method
from vflsynth.learning.messages import (
    MaskedFake,
    MaskedReal,
    MaskedRecords,
    RowFeatures,
    RowScorer,
    gather_masked,
    moments,
    n_masked_blocks,
)
from vflsynth.mechanisms import Asked, Mechanism
from vflsynth.mechanisms.base import Reports
from vflsynth.methods.gan.party import GANParty, GeneratorLearning
from vflsynth.methods.gan.resampling import feature_blocks, learn_to_tell
from vflsynth.methods.gan.sampler import GeneratorSampler
from vflsynth.methods.gan.settings import Settings, estimate_memory
from vflsynth.networks.layers import frechet_distance_of_moments
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol.channel import SERVER, Channel, Message, When
from vflsynth.protocol.messages import SelectionNotice, TrainingReport
from vflsynth.protocol.schedule import DEFAULT_STEPS, Length, Schedule, default_epochs, power_of_two

_MAX_EVALUATION, _EVALUATIONS = 1 << 14, 20
"""Fakes that an evaluation looks at, and evaluations that a fit has by default, both at most."""

_RECORDS_PER_UNIT, _WIDE = 32, 128
"""A generator has a hidden unit for so many records, since fewer are learned by heart, and at most
so many units, unless its columns ask for more."""


class GANAlgorithm(Algorithm):
    """Steps, reports and model selection by masked records; subclasses say what a step is.

    Streams are the server's own; never the parties' shared secret.

    `selects` says whether the generators of the evaluation with the lowest Fréchet distance are
    kept, or those of the last epoch. `reports` is what the parties report after every epoch, under
    privacy what was paid for. A Wasserstein estimate reads records; the mean score of fakes does
    not, nor does a penalty between fakes.
    """

    advice = "Lower learning_rate or raise gradient_penalty_weight"

    def __init__(
        self,
        channel: Channel,
        settings: Settings,
        streams: RandomStreams,
        *,
        selects: bool,
        reports: Reports = "losses",
    ) -> None:
        super().__init__(channel)
        self.settings, self.streams = settings, streams
        self.selects, self.reports = selects, reports
        self.real_moments: tuple[Tensor, Tensor] | None = None
        replicas = len(streams.secrets)
        self.best_distance = torch.full((replicas,), torch.inf, dtype=torch.float64)

    def begin(self) -> None:
        """Learn the real moments that model selection compares with."""
        if self.selects:
            masked = gather_masked(self.channel, self.settings.n_masked_blocks)
            self.real_moments = moments(masked)

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Gather mean losses since the last report by name, each of shape (replica,)."""
        if self.reports == "nothing":
            return {}
        score = "wasserstein" if self.reports == "losses" else "fake_score"
        values = {}
        for name, (found, penalty) in self.losses(epoch).items():
            values[f"{score}_{name}"] = found
            if self.reports != "fake scores":
                values[f"penalty_{name}"] = penalty
        return values

    def losses(self, epoch: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Gather score and penalty of every owner of a discriminator, each of shape (replica,)."""
        return {
            name: (message.wasserstein, message.penalty)
            for name, message in self.channel.gather(TrainingReport, epoch).items()
        }

    def end_epoch(self, epoch: int, *, evaluate: bool) -> dict[str, Any]:
        """Fréchet distance of the published generators, if it is due, and whether it is the best.

        Both have shape (replica,); the distance is float64.
        """
        if not self.selects or not evaluate:
            return {"kept": not self.selects}
        received = self.channel.gather(MaskedFake, epoch)
        distance = self.frechet_distance(received).cpu()
        best = distance < self.best_distance
        self.best_distance = torch.minimum(self.best_distance, distance)
        if best.any():
            self.select(epoch, best)
        return {"frechet_distance": distance, "kept": best}

    def end(self, epoch: int) -> None:
        """Keep the last generators where none were, by selection; then learn to score their rows.

        None were kept without selection, or if no evaluation was reached.
        """
        nothing_selected = ~torch.isfinite(self.best_distance)
        if nothing_selected.any():
            self.select(epoch, nothing_selected)
        if n_blocks := self.settings.n_feature_blocks:
            blocks = [self.channel.gather(RowFeatures, block) for block in range(n_blocks)]
            received = {
                name: (
                    torch.cat([block[name].real for block in blocks], 1),
                    torch.cat([block[name].fake for block in blocks], 1),
                )
                for name in self.channel.names
            }
            weights = learn_to_tell(received, self.streams.child("resampling"))
            self.tell(lambda name: RowScorer(SERVER, name, 0, *weights[name]))

    def select(self, epoch: int, keep: Tensor) -> None:
        """Tell the parties which replicas' generators to keep, a bool of shape (replica,)."""
        keep = keep.to(self.streams.device)
        self.tell(lambda name: SelectionNotice(SERVER, name, epoch, keep))

    def frechet_distance(self, received: Mapping[str, MaskedRecords]) -> Tensor:
        """Compute the Fréchet distance (Eq. 23) of real and fake encoded records, (replica,).

        Raises TrainingDivergedError if a generator's records are no longer finite.
        """
        if self.real_moments is None:
            raise ProtocolError("the server has not received the masked real records")
        mean, covariance = moments(received)
        if not bool(torch.isfinite(covariance).all()):
            raise TrainingDivergedError("training diverged: generated records are not finite")
        return frechet_distance_of_moments(*self.real_moments, mean, covariance)

    def state(self) -> dict[str, Tensor]:
        """Return the best distance so far."""
        return {"best_distance": self.best_distance}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.best_distance = state["best_distance"].cpu()

    def fingerprint(self) -> dict[str, Any]:
        """Return how generators are selected, which the settings do not say."""
        return {"model_selection": "best" if self.selects else "last"}


class GANMethod(Method):
    """What methods with a generator at every party and discriminators somewhere have in common."""

    descents: ClassVar[Mapping[type[Mechanism], Callable[..., Any]]]
    """By mechanism, what makes the descent of a party's discriminator: of plan, batch size, noise.

    To carry a mechanism to a method is to add it here.
    """

    learner = GeneratorLearning

    default_steps: ClassVar[int] = DEFAULT_STEPS
    """Discriminator steps, if nobody says how many epochs."""

    plain_descent: ClassVar[Callable[[], Any]]
    """What makes the descent without privacy."""

    @property
    def betas(self) -> tuple[float, float]:
        """Decay rates of Adam's moments; by default with a mechanism, what it was measured with."""
        if (asked := self.parameters.betas) is not None:
            return asked[0], asked[1]
        return (0.0, 0.9) if self.privacy is None else (0.5, 0.999)

    @property
    def discriminator_steps(self) -> int:
        """How often discriminators move per step of the generators."""
        return int(self.parameters.discriminator_steps)

    largest_batch: int = 256
    """Records of a batch at most, if nobody says how many."""

    def learning_rate(self, batch_size: int) -> float:
        """Return how far a step goes, by the batches that steps are taken with."""
        rate: float = self.parameters.learning_rate
        return rate

    def _asked(self, columns: Mapping[str, ColumnCounts], n_records: int) -> Asked:
        own, parameters = self.plain_settings(n_records, [1], check=False), self.parameters
        epochs = self.default_epochs(n_records, own.batch_size)
        return Asked(
            n_records=n_records,
            owners=self.owners,
            batch_size=parameters.batch_size,
            epochs=parameters.epochs,
            learning_rate=self.learning_rate(own.batch_size),
            discriminator_steps=self.discriminator_steps,
            plain=Length.of(n_records, own.batch_size, epochs),
            default_epochs=self.default_epochs,
        )

    @property
    def selects(self) -> bool:
        """Whether the generators of the best epoch are kept, which reads records."""
        return not self.is_private and self.parameters.model_selection == "best"

    @property
    def reports(self) -> Reports:
        """What parties may report."""
        if not self.is_private:
            return "losses"
        assert self.privacy is not None
        return self.privacy.reports

    @property
    def asks(self) -> frozenset[type[Message]]:  # type: ignore[override]
        """What the server may ask a party for, besides what every run asks."""
        found: set[type[Message]] = set()
        if self.selects:
            found |= {MaskedReal, MaskedFake}
        if self.reports != "nothing":
            found.add(TrainingReport)
        if self.parameters.resample > 1:
            found.add(RowFeatures)
        return frozenset(found)

    def settings(self, n_records: int, widths: Mapping[str, int]) -> Settings:
        """Fill in the defaults that depend on the data, or on public numbers alone.

        Raises TooFewRecordsError if there are fewer records than a batch has.
        """
        length = None if self.plan is None else self.plan.length
        settings = self.plain_settings(n_records, list(widths.values()), check=length is None)
        if self.is_private:
            settings = replace(settings, n_evaluation=0)
        else:
            n_features = len(feature_blocks(n_records)) if settings.resample > 1 else 0
            settings = replace(
                settings,
                n_masked_blocks=n_masked_blocks(n_records, widths),
                n_feature_blocks=n_features,
            )
        return settings if length is None else replace(settings, batch_size=length.batch_size)

    def plain_settings(
        self, n_records: int, widths: Sequence[int], *, check: bool = True
    ) -> Settings:
        """Fill in the defaults that depend on the data, without privacy."""
        parameters = self.parameters
        batch_size = parameters.batch_size or power_of_two(n_records / 16, 8, self.largest_batch)
        if check and n_records < batch_size:
            raise TooFewRecordsError(
                f"{n_records} matched records are fewer than one batch of {batch_size}",
                fix="lower batch_size, or check why so few records matched",
            )
        scale = power_of_two(2 * max(widths), 32, 256)
        units = scale
        if self.privacy is None:  # a private one's size must not tell how many records there are
            units = max(scale, power_of_two(n_records / _RECORDS_PER_UNIT, 1, _WIDE))
        return Settings(
            batch_size=batch_size,
            latent_dim=parameters.latent_dim or min(32, max(16, sum(widths))),
            generator_hidden=tuple(parameters.generator_hidden or (units, units)),
            bias=parameters.bias,
            batch_norm_eps=parameters.batch_norm_eps,
            gumbel_temperature=parameters.gumbel_temperature,
            gradient_penalty_weight=parameters.gradient_penalty_weight,
            learning_rate=self.learning_rate(batch_size),
            betas=self.betas,
            generator_average=parameters.generator_average,
            n_evaluation=min(n_records, _MAX_EVALUATION),
            discriminator_steps=self.discriminator_steps,
            wire_precision=getattr(parameters, "wire_precision", "float32"),
            calibrates=parameters.calibrate_marginals,
            mends=getattr(parameters, "calibrate_relations", False),
            resample=parameters.resample,
            **self.discriminator_settings(scale),
        )

    @abstractmethod
    def discriminator_settings(self, scale: int) -> dict[str, Any]:
        """Return the discriminators' settings; `scale` is a layer size that suits the data."""

    def default_epochs(self, n_records: int, batch_size: int) -> int:
        """Return the epochs asked for, or as many as give about the default steps."""
        return self.parameters.epochs or default_epochs(n_records, batch_size, self.default_steps)

    def duration(self, n_records: int, settings: Settings) -> Duration:
        """Epochs and steps."""
        length = None if self.plan is None else self.plan.length
        if length is None:
            epochs = self.default_epochs(n_records, settings.batch_size)
            length = Length.of(n_records, settings.batch_size, epochs)
        every = self.parameters.evaluate_every or -(-length.epochs // _EVALUATIONS)
        return Duration(length.epochs, length.steps_per_epoch, every)

    def exchanges(self, settings: Settings, n_steps: int) -> int:
        """Return how often server and parties exchange messages in so many steps, about."""
        of_steps = sum(kind.declared.when is When.STEP for kind in self.asks)
        of_generators = n_steps // settings.discriminator_steps
        if settings.steps_per_exchange > 1:  # the reply for discriminators has both
            return (of_steps - 1) * -(-n_steps // settings.steps_per_exchange)
        return (of_steps - 1) * n_steps + of_generators

    def n_blocks(self, settings: Settings) -> int:
        """Return how many blocks of masked records or of features there are."""
        return max(settings.n_masked_blocks, settings.n_feature_blocks)

    def build(
        self, party: Any, settings: Settings, schedule: Schedule, streams: RandomStreams
    ) -> None:
        """Make a party's networks, with the descent that the mechanism has."""
        party.build_with(self.descent(settings), settings, schedule, streams)

    def descent(self, settings: Settings) -> Any:
        """Make a descent of a party's discriminator."""
        if self.privacy is None:
            return type(self).plain_descent()
        make = self.descents[type(self.privacy)]
        return make(self.private_plan, settings.batch_size, self.noise)

    @classmethod
    def reason_against(cls, parameters: Any, mechanism: Mechanism) -> str | None:
        """Refuse several steps per exchange, fewer bits and features, which no ledger counts."""
        if parameters.resample > 1:
            return (
                "resample=1: scores of rows are learned of features of records, which its ledger "
                "does not count"
            )
        if getattr(parameters, "steps_per_exchange", 1) > 1:
            return (
                "steps_per_exchange=1: the ledger counts one noisy step for every batch, and would "
                "miss those that are repeated on it"
            )
        if getattr(parameters, "wire_precision", "float32") != "float32":
            return (
                'wire_precision="float32": rounding is scaled by the largest number of a row, and '
                "the bound that noise is calibrated to was shown for exact numbers only"
            )
        return None

    @classmethod
    def without_effect(cls, mechanism: type[Mechanism] | None) -> frozenset[str]:
        """Return parameters that are not looked at: nothing is evaluated on records."""
        if mechanism is None or not mechanism.protects_synthetic_data:
            return frozenset()
        calibrations = {"calibrate_marginals", "calibrate_relations", "residuals"}
        return frozenset({"model_selection", "evaluate_every"} | calibrations)

    def multiply_adds(self, settings: Settings, widths: Mapping[str, int]) -> float:
        """Multiply-adds of the largest layer on a batch of real, fake and interpolated records."""
        networks = [
            (len(widths) * settings.first_part[-1], *settings.shared_hidden),
            *((settings.latent_dim, *settings.generator_hidden, w) for w in widths.values()),
            *((width, *settings.first_part) for width in widths.values()),
        ]
        products = (a * b for dims in networks for a, b in zip(dims[:-1], dims[1:]))
        return 3 * settings.batch_size * max(products)

    needs_less_memory = (
        "use fewer records, columns or models at once, smaller networks or a smaller batch_size; "
        "VFLGAN's generator='parallel' takes less where there are many columns"
    )
    memory = staticmethod(estimate_memory)

    def samplers(self, party: GANParty, settings: Settings) -> Sequence[GeneratorSampler]:
        """Return the generators that were kept, with scores of rows if these are resampled."""
        if settings.resample == 1:
            return party.samplers()
        if not party.scored:
            raise ProtocolError(f"party {party.name!r} was not told how drawn rows are scored")
        return party.scored

    def reported(self, settings: Settings, duration: Duration) -> dict[str, Any]:
        """Return what becomes ``settings_``."""
        return {**asdict(settings), "epochs": duration.n_epochs}
