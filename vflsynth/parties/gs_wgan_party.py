"""The holder of a joined table whose discriminators see disjoint shards of it: GS-WGAN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._random import RandomStreams, derive
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ProtocolError
from vflsynth.networks import Discriminator
from vflsynth.networks.adam import FlatAdam
from vflsynth.networks.layers import one_replica
from vflsynth.parties.private_party import PrivateParty
from vflsynth.parties.settings import Settings
from vflsynth.parties.vertigan_party import VertiGANParty
from vflsynth.privacy import StepBudget
from vflsynth.privacy.encoding import PublicEncoding
from vflsynth.privacy.gs_wgan import sanitised_gradients
from vflsynth.protocol import (
    AlignmentNotice,
    BackboneGradients,
    Message,
    Schedule,
    SubsetSchedule,
)
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


@dataclass(frozen=True, slots=True)
class GSWGANSettings:
    """What the mechanism works with.

    Parameters
    ----------
    n_shards : int
        K, discriminators.
    max_grad_norm : float
        C, of the gradient at each fake.
    noise_multiplier : float
        Noise standard deviation over the sensitivity of a batch of fakes.
    steps : int
        Generator steps that the budget pays for.
    discriminator_steps : int
        T_d, of the shard's discriminator before each generator step.
    pretraining_steps : int
        Discriminator steps of every shard before the first release; they cost nothing.
    """

    n_shards: int
    max_grad_norm: float
    noise_multiplier: float
    steps: int
    discriminator_steps: int
    pretraining_steps: int


class GSWGANParty(PrivateParty, VertiGANParty):
    """One generator, and K discriminators that see raw records of disjoint shards.

    At every generator step a random one of them is trained on for T_d steps and then says how to
    change a batch of fakes; `vflsynth.privacy.gs_wgan` clips and perturbs that, and nothing else of
    the discriminators leaves, neither losses nor weights.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`; the transformer is replaced by one made of public knowledge.

    Notes
    -----
    Source: Chen, Orekondy and Fritz 2020 and their code: shards of equal size (records that are
    left over are not used), every discriminator pretrained against a generator of its own that is
    thrown away, one discriminator per generator step.

    Departs from them where the VFLGAN paper's comparison does, with its unconditional networks in
    place of images and labels, and in the penalty on the discriminators' squared scores, which is
    left out: what discriminators learn is not released.
    """

    schedule: SubsetSchedule

    def set_privacy(
        self, encoding: PublicEncoding, sharing: GSWGANSettings, noise: torch.Generator | None
    ) -> None:
        """Learn what was calibrated."""
        self.encoding, self.sharing, self._noise = encoding, sharing, noise
        self.budget = StepBudget(sharing.steps)

    def build(self, settings: Settings, schedule: Schedule, streams: RandomStreams) -> None:
        """Encode the records, make the generator and deal the shards."""
        super().build(settings, schedule, streams)
        n_shards = self.sharing.n_shards
        (rng,) = self.schedule.sampling.numpy_generators("shards")
        size = schedule.n_records // n_shards
        dealt = rng.permutation(schedule.n_records)[: n_shards * size].reshape(n_shards, size)
        rows = torch.from_numpy(dealt).to(streams.device)
        if schedule.replica_rows is not None:
            rows = schedule.replica_rows[0][rows]
        self.shards = rows
        self._critics: list[tuple[Discriminator, FlatAdam]] = []
        self._trained, self._shard = 0, 0

    def _pretrain(self) -> None:
        """Train an ordinary WGAN-GP on each shard, all at once, and keep its discriminator."""
        n_shards, sharing = self.sharing.n_shards, self.sharing
        (secret,) = self.schedule.sampling.secrets
        streams = RandomStreams(
            [derive(secret, f"shard {shard}") for shard in range(n_shards)], self.streams.device
        )
        table = self.matched().reset_index(drop=True)
        models = VertiGANParty(self.name, table, None, TableTransformer())
        models.take(Verb.ALIGN, AlignmentNotice(SERVER, self.name, 0, table.index))
        models.transformer = self.transformer
        schedule = Schedule(
            streams.child("schedule"),
            n_records=self.shards.shape[1],
            batch_size=self.settings.batch_size,
            latent_dim=self.settings.latent_dim,
            replica_rows=self.shards,
        )
        models.build(self.settings, schedule, streams)
        every = sharing.discriminator_steps
        for step in range(every - 1, sharing.pretraining_steps, every):
            models.update_generator(models.backbone_gradients(step))
        for shard in range(n_shards):
            critic = one_replica(models.discriminator, shard)
            self._critics.append((critic, self.settings.optimizer(critic)))

    # -- one generator step ----------------------------------------------------------------------

    def backbone_gradients(self, step: int) -> BackboneGradients:
        """Draw a shard, train its discriminator, and compute what it tells the generator."""
        self.budget.take()
        if not self._critics:
            self._pretrain()
        (rng,) = self.schedule.sampling.numpy_generators("shard", step)
        self._shard = int(rng.integers(self.sharing.n_shards))
        self.discriminator, self.discriminator_optimizer = self._critics[self._shard]
        return super().backbone_gradients(step)

    @torch.no_grad()
    def train_discriminator(self, until: int) -> None:
        """Train the discriminator of the shard that was drawn, for all steps before `until`."""
        for step in range(self._trained, until):
            self._descend_discriminator(step)
        self._trained = until

    def real(self, step: int) -> Tensor:
        """Draw records of the shard, shape (1, batch, encoded)."""
        rows = self.shards[self._shard]
        (rng,) = self.schedule.sampling.numpy_generators("rows", step)
        drawn = rng.choice(len(rows), self.settings.batch_size, replace=False)
        return F.embedding(
            rows[torch.from_numpy(drawn).to(rows.device)].unsqueeze(0), self._records
        )

    def _upstream(self, fakes: Tensor) -> Tensor:
        """d(-E[D(x~)])/dx~, clipped and perturbed."""
        batch, sharing = fakes.shape[1], self.sharing
        of_each = super()._upstream(fakes) * batch
        return (
            sanitised_gradients(
                of_each, sharing.max_grad_norm, sharing.noise_multiplier, rng=self._noise
            )
            / batch
        )

    # -- messages --------------------------------------------------------------------------------

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        if verb is Verb.REPORT:  # every loss is one of raw records or of unreleased networks
            raise ProtocolError(
                f"party {self.name!r} refuses {verb.value!r}: the privacy ledger has no entry "
                "for it"
            )
        return super().answer(verb, step)
