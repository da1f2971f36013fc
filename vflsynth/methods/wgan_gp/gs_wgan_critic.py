"""GS-WGAN: discriminators that see raw records of disjoint shards, and a noisy way to tell."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._keys import HiddenStreams
from vflsynth._random import RandomStreams, derive
from vflsynth.methods.gan.critics import Critic, CriticParty
from vflsynth.methods.gan.discriminator import Discriminator
from vflsynth.methods.vertigan.messages import SummedBackboneGradients
from vflsynth.methods.vertigan.party import VertiGANParty
from vflsynth.methods.wgan_gp.gs_wgan import GSWGANPlan, sanitised_gradients
from vflsynth.networks.adam import FlatAdam
from vflsynth.networks.layers import one_replica
from vflsynth.privacy import StepBudget
from vflsynth.protocol import SERVER, Schedule, SubsetSchedule
from vflsynth.protocol.messages import AlignmentNotice


class GSWGANCritic(Critic):
    """K discriminators; at every generator step a random one is trained on and then asked.

    It is trained for T_d steps and then says how to change a batch of fakes; `gs_wgan_gradients`
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
        rows = torch.tensor(dealt).to(party.streams.device)
        if schedule.replica_rows is not None:
            rows = schedule.replica_rows[0][rows]
        self.shards = rows

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
        batch = fakes.shape[1]
        of_each = super().upstream(party, fakes) * batch
        return (
            sanitised_gradients(
                of_each, self.plan.max_grad_norm, self.plan.noise_multiplier, rng=self._noise
            )
            / batch
        )

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
        for step in range(every - 1, self.plan.pretraining_steps, every):
            own = models.backbone_gradients(step)
            models.update_generator(
                SummedBackboneGradients(SERVER, party.name, step, own.gradients)
            )
        for shard in range(n_shards):
            critic = one_replica(models.discriminator, shard)
            self._critics.append((critic, settings.optimizer(critic)))

    @staticmethod
    def _sampling(party: CriticParty) -> HiddenStreams:
        assert isinstance(party.schedule, SubsetSchedule)
        return party.schedule.sampling
