"""GS-WGAN: discriminators on disjoint shards, and noise on what they tell the generator.

The gap in the proof: steps compose if one in which the record's shard is not drawn looks the same
with and without the record, given all that was released before. But a discriminator is trained only
when it is drawn, so what the others answer depends on how often they were drawn. Earlier releases
tell something of that, and the record may change these. No attack is known to us; training all
shards at every step would close the gap, at K times the cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._random import HiddenStreams, RandomStreams, derive
from vflsynth.exceptions import ParameterError, TooFewRecordsError
from vflsynth.mechanisms.base import CLIPPING, Asked, Cover, HistogramMechanism, Plan
from vflsynth.mechanisms.planning import WHO_JOINS, calibrate_training, ledger_of
from vflsynth.methods.gan.critics import Critic, CriticParty
from vflsynth.methods.gan.discriminator import Discriminator
from vflsynth.methods.vertigan.messages import SummedBackboneGradients
from vflsynth.methods.vertigan.method import VertiGANParty
from vflsynth.networks.layers import FlatAdam, one_replica
from vflsynth.privacy.accountants import RDPAccountant
from vflsynth.privacy.calibration import StepBudget
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.dpsgd import clip_factors, scaled
from vflsynth.privacy.events import GaussianRelease, NeighbouringRelation, SampledRelease, Sampler
from vflsynth.privacy.releases import Grid
from vflsynth.protocol.channel import SERVER
from vflsynth.protocol.messages import AlignmentNotice
from vflsynth.protocol.schedule import Length, Schedule, SubsetSchedule, power_of_two
from vflsynth.registry import Number, Optional, register


def clip_rows(gradients: Tensor, max_grad_norm: float) -> Tensor:
    """Scale each fake's own gradient, (replica, batch, encoded), to an L2 norm of at most C.

    C is in gradient units. Rows that are not finite become zero: no factor could bound them. Raises
    PrivacyParameterError if C is not positive.
    """
    norms = torch.linalg.vector_norm(gradients.double(), dim=-1, keepdim=True)
    return scaled(gradients, clip_factors(norms, max_grad_norm))


def sanitised_gradients(
    gradients: Tensor,
    max_grad_norm: float,
    noise_multiplier: float,
    *,
    rng: torch.Generator | None = None,
) -> Tensor:
    """Clip the gradient at every fake and add discrete Gaussian noise to every coordinate.

    Gradients, (replica, batch, encoded), are of each fake's own score, not of the batch's mean. C
    is in gradient units; 1 in the paper, about the slope that the penalty asks for. The multiplier
    is the noise's standard deviation over the sensitivity of the whole batch of fakes. `rng` is for
    tests only; see `discrete_gaussian`.

    Source: Chen, Orekondy and Fritz 2020 (GS-WGAN) and their code. Their noise multiplier is over
    the sensitivity 2C of a single fake: ours times ``sqrt(B)``.
    """
    clipped = clip_rows(gradients, max_grad_norm)
    grid = Grid.of(noise_multiplier * batch_sensitivity(max_grad_norm, gradients.shape[1]))
    return grid.release_tensor(clipped, rng=rng)


def batch_sensitivity(max_grad_norm: float, batch_size: int) -> float:
    """L2 sensitivity of the clipped gradients at all B fakes of a batch, ``2 C sqrt(B)``."""
    return 2.0 * max_grad_norm * math.sqrt(batch_size)


RECORDS_PER_SHARD = 60
"""Where the number of shards is not given: that of the paper for MNIST."""

PRETRAINING_STEPS = 1_000
"""Of every shard's discriminator before the first release, for free; the paper takes 10,000."""

_GAP = (
    "what earlier draws of shards tell: ε takes every draw for independent of all that was "
    "released before (the published proof's gap, see vflsynth.methods.wgan_gp.gs_wgan)"
)


@dataclass(frozen=True, kw_only=True)
class GSWGANPlan(Plan):
    """What the holder of the joined table works with: K discriminators, one per shard.

    `max_grad_norm` bounds the gradient at each fake, and `noise_multiplier` is over the sensitivity
    of all gradients of a step together. The budget pays for `generator_steps`, each after
    `discriminator_steps` of the chosen shard's discriminator.
    """

    n_shards: int
    max_grad_norm: float
    noise_multiplier: float
    generator_steps: int
    discriminator_steps: int

    def _steps_until(self, event: SampledRelease, epoch: int) -> int:
        """Count generator steps, which come after every so many discriminator steps."""
        assert self.length is not None, "there is training"
        return epoch * self.length.steps_per_epoch // self.discriminator_steps


@register
@dataclass(repr=False, eq=False, kw_only=True)
class GSWGAN(HistogramMechanism):
    """Discriminators on disjoint shards, and noise on what they answer; **its ε is conditional**.

    At every generator step one discriminator, drawn at random, says how to change a batch of fakes.
    That answer, a gradient for each fake, is clipped and perturbed, and it is all that leaves: the
    discriminators are trained on raw records and never released. Of one joined table only.

    Parameters
    ----------
    **shared
        See `HistogramMechanism`; the neighbouring relation is "replace_one".
    max_grad_norm : float, default=1.0
        Clipping bound C, in gradient units, of the gradient at each fake.
    n_shards : int, optional
        Discriminators K, each with records of its own. Default: so many that each has about 60, as
        published for MNIST.

    Notes
    -----
    Source: Chen, Orekondy and Fritz 2020 (GS-WGAN) and their code.

    Privacy: recipients of the synthetic data and of the generators are protected. Whoever joins the
    tables is not: it sees all of them. ε is conditional: it takes every draw of a shard for
    independent of all that was released before, which the published proof does not show. The ledger
    says so, and `vflsynth.methods.wgan_gp.gs_wgan` explains the gap.

    Departs from the paper's accounting, which counts the gradients at a batch of fakes as releases
    of shards drawn afresh for each: here they are one release, which the same shard answers. Every
    discriminator is pretrained for 1,000 steps, not 10,000. By default a batch of fakes is the
    largest power of two that is at most a shard's number of records, between 8 and 32.
    """

    name = "gs_wgan"
    sampler = Sampler.WITHOUT_REPLACEMENT
    default_relation = NeighbouringRelation.REPLACE_ONE
    one_release = True
    rules = HistogramMechanism.rules | {
        "max_grad_norm": CLIPPING,
        "n_shards": Optional(Number(2, whole=True)),
    }

    max_grad_norm: float = 1.0
    n_shards: int | None = None

    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> GSWGANPlan:
        """Deal the shards, and calibrate the noise; see `Mechanism.plan`."""
        self.check()
        (holder,) = columns
        n_shards = self.n_shards or max(2, asked.n_records // RECORDS_PER_SHARD)
        size = asked.n_records // n_shards
        batch_size = asked.batch_size or power_of_two(size, 8, 32)
        if size < batch_size:
            raise TooFewRecordsError(
                f"{asked.n_records} matched records in {n_shards} shards are fewer than one batch "
                f"of {batch_size} each",
                fix="lower n_shards of GSWGAN, or batch_size",
            )
        epochs = asked.epochs or asked.default_epochs(asked.n_records, batch_size)
        length = Length.of(asked.n_records, batch_size, epochs)
        steps = length.steps // asked.discriminator_steps
        if not steps:
            raise ParameterError(
                f"discriminator_steps is {asked.discriminator_steps}, and all {epochs} epochs have "
                f"{length.steps} steps, so that nothing would be learned. Fix: fewer of these, or "
                "more epochs"
            )

        def training(noise_multiplier: float) -> SampledRelease:
            release = GaussianRelease(
                released=f"clipped gradients at {batch_size} fakes, from one of {n_shards} "
                "discriminators on disjoint shards",
                party=holder,
                noise_multiplier=noise_multiplier,
                sensitivity=batch_sensitivity(self.max_grad_norm, batch_size),
                relation=self.relation,
            )
            return SampledRelease((release,), self.sampler, 1.0 / n_shards, steps)

        noise, histogram_noise, entries = calibrate_training(
            self, columns, training, RDPAccountant()
        )
        return GSWGANPlan(
            ledger=ledger_of(
                self,
                columns,
                entries,
                words="sanitised generator gradients (GS-WGAN)",
                not_protected_against=(WHO_JOINS,),
                not_covered=(_GAP,),
                condition="conditional on a proof with a gap, see what its ledger does not cover",
                public=("sample rate and number of steps",),
            ),
            histogram_noise_multiplier=histogram_noise,
            length=length,
            covers={"BackboneGradients": Cover("training", noised=True)},
            n_shards=n_shards,
            max_grad_norm=self.max_grad_norm,
            noise_multiplier=noise,
            generator_steps=steps,
            discriminator_steps=asked.discriminator_steps,
        )


class GSWGANCritic(Critic):
    """K discriminators; at every generator step a random one is trained on and then asked.

    It is trained for T_d steps and then says how to change a batch of fakes; `sanitised_gradients`
    clips and perturbs that, and nothing else of the discriminators leaves, neither losses nor
    weights. `noise` is for tests only, see `vflsynth.privacy.noise`.

    Source: Chen, Orekondy and Fritz 2020 and their code: shards of equal size (records that are
    left over are not used), every discriminator pretrained against a generator of its own that is
    thrown away, one discriminator per generator step.

    Departs from them where the VFLGAN paper's comparison does, with its unconditional networks in
    place of images and labels, and in the penalty on the discriminators' squared scores, which is
    left out: what discriminators learn is not released.
    """

    def __init__(self, plan: GSWGANPlan, noise: torch.Generator | None = None) -> None:
        self.plan, self._noise = plan, noise
        self.budget = StepBudget(plan.generator_steps)
        self._critics: list[tuple[Discriminator, FlatAdam]] = []
        self._trained, self._shard = 0, 0

    def start(self, party: CriticParty) -> None:
        """Deal the shards."""
        schedule, n_shards = party.schedule, self.plan.n_shards
        n_records, size = schedule.n_records, schedule.n_records // n_shards
        (order,) = self._sampling(party).subset("shards", 0, n_records, n_records)
        dealt = order[: n_shards * size].reshape(n_shards, size)
        self.shards = torch.tensor(dealt).to(party.streams.device)

    def done(self, party: CriticParty) -> int:
        """Return how many steps were taken, by all discriminators together."""
        return self._trained

    def before_generator_step(self, party: CriticParty, step: int) -> None:
        """Pay for the step and draw a shard."""
        self.budget.take()
        if not self._critics:
            self._pretrain(party)
        ((shard,),) = self._sampling(party).subset("shard", step, self.plan.n_shards, 1)
        self._shard = int(shard)
        party.discriminator, party.discriminator_optimizer = self._critics[self._shard]

    def descend(self, party: CriticParty, step: int) -> tuple[Tensor, Tensor]:
        """Set the gradients of the discriminator that was drawn, of records of its shard."""
        self._trained = step + 1
        rows = self.shards[self._shard]
        (drawn,) = self._sampling(party).subset("rows", step, len(rows), party.settings.batch_size)
        rows = rows[torch.tensor(drawn).to(rows.device)].unsqueeze(0)
        real, fake = F.embedding(rows, party.records), party.fake(step, "discriminator")
        return self._of_batch(party, step, real, fake)

    def upstream(self, party: CriticParty, fakes: Tensor) -> Tensor:
        """d(-E[D(x~)])/dx~, clipped and perturbed."""
        plan, batch = self.plan, fakes.shape[1]
        of_each = super().upstream(party, fakes) * batch
        noisy = sanitised_gradients(
            of_each, plan.max_grad_norm, plan.noise_multiplier, rng=self._noise
        )
        return noisy / batch

    def _pretrain(self, party: CriticParty) -> None:
        """Train an ordinary WGAN-GP on each shard, all at once, and keep its discriminator."""
        n_shards = self.plan.n_shards
        settings = replace(party.settings, generator_average=0.0)  # the generators go to waste
        (secret,) = self._sampling(party).secrets
        streams = RandomStreams(
            [derive(secret, f"shard {shard}") for shard in range(n_shards)], party.streams.device
        )
        table = party.matched().reset_index(drop=True)
        models = VertiGANParty(party.name, table, None)
        models.align(AlignmentNotice(SERVER, party.name, 0, table.index))
        models.transformer = party.transformer
        schedule = Schedule(
            streams.child("schedule"),
            n_records=self.shards.shape[1],
            batch_size=settings.batch_size,
            latent_dim=settings.latent_dim,
            replica_rows=self.shards,
        )
        models.build_with(Critic(), settings, schedule, streams)
        every = self.plan.discriminator_steps
        for step in range(every - 1, PRETRAINING_STEPS, every):
            own = models.backbone_gradients(step)
            models.update_generator(
                SummedBackboneGradients(SERVER, party.name, step, own.gradients)
            )
        critics = [one_replica(models.discriminator, shard) for shard in range(n_shards)]
        self._critics = [(critic, settings.optimizer(critic)) for critic in critics]

    @staticmethod
    def _sampling(party: CriticParty) -> HiddenStreams:
        assert isinstance(party.schedule, SubsetSchedule)
        return party.schedule.sampling
