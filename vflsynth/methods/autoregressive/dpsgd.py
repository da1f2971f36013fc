"""DP-SGD for the split autoregressive model: every party clips each record's gradient of its own.

Opacus, which does DP-SGD for ordinary modules, does not serve: it knows no network of which every
column's first layer is a part of one masked product, no models side by side along a first
dimension, and no noise that is exact on a public grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._keys import HiddenStreams
from vflsynth._random import RandomStreams
from vflsynth.learning.base import Duration
from vflsynth.learning.private import Known, Learning, TrainedLearning
from vflsynth.mechanisms import DPSGD, Asked, Discriminators, DPSGDPlan, Mechanism
from vflsynth.mechanisms.lengths import default_epochs, power_of_two
from vflsynth.mechanisms.noisy_descent import NoisyDescent
from vflsynth.methods.autoregressive.conditional import ConditionalNetwork
from vflsynth.methods.autoregressive.contexts import FixedFeatures
from vflsynth.methods.autoregressive.layout import Layout, at_rows
from vflsynth.methods.autoregressive.messages import LikelihoodReport
from vflsynth.methods.autoregressive.method import AutoregressiveMethod, RelayFeatures
from vflsynth.methods.autoregressive.mixtures import N_COMPONENTS
from vflsynth.methods.autoregressive.party import AutoregressiveParty
from vflsynth.methods.autoregressive.sampler import AutoregressiveSampler
from vflsynth.methods.autoregressive.server import ContextServer
from vflsynth.methods.autoregressive.settings import AutoregressiveSettings
from vflsynth.models.samplers import RowSampler
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.dpsgd import LayerTrace
from vflsynth.protocol import SERVER, Channel, PlacedPoissonSchedule, answers


@torch.enable_grad()
def likelihood_traces(
    network: ConditionalNetwork, codes: Tensor, values: Tensor, context: Tensor
) -> list[LayerTrace]:
    """Trace every record's negative log-likelihood of all columns; see `ConditionalNetwork.inputs`.

    Embeddings, then first, second and last layers, each column by column: only the weights that the
    column has. `per_parameter` puts their gradients together.
    """
    seen: list[tuple[Tensor, Tensor]] = []
    found = network.log_likelihood(codes, values, context, seen=seen)
    (inputs, first), (shown, second), (upper, last) = seen
    gradients = torch.autograd.grad(-found.sum(), [inputs, first, second, last])
    inputs, shown, upper = inputs.detach(), shown.detach(), upper.detach()
    at_inputs, at_first, at_second, at_last = gradients
    traces, start = [], 0
    for width, members in network.groups.items():
        for i in members:
            one_hot = F.one_hot(codes[:, :, i], network.layout.columns[i].n_codes)
            own = at_inputs[:, :, start : start + width]
            traces.append(LayerTrace(one_hot.to(own.dtype), own, has_bias=False))
            start += width
    columns = range(len(network.layout.columns))
    for i in columns:
        own = at_first[:, :, _units(network, i)]
        traces.append(LayerTrace(inputs[:, :, _before(network, i)], own, has_bias=True))
    traces += [LayerTrace(shown[:, i], at_second[:, i], has_bias=True) for i in columns]
    for i in columns:
        own = at_last[:, i][:, :, _outputs(network, i)]
        traces.append(LayerTrace(upper[:, i], own, has_bias=True))
    return traces


def per_parameter(
    network: ConditionalNetwork, layers: Sequence[tuple[Tensor, Tensor | None]]
) -> list[Tensor]:
    """Put gradients of `likelihood_traces` together, one per parameter in the network's order.

    `layers` have the shapes of `rounded_gradient_sum`. 0 for weights that no column has.
    """
    found = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    rest = iter(layers)
    for width, members in network.groups.items():
        tables = [next(rest)[0] for _ in members]
        found[f"tables.{width}"].copy_(torch.cat(tables, 1))
    columns = range(len(network.layout.columns))
    for i in columns:
        weight, bias = _pair(next(rest))
        own = found["first"][:, :, _units(network, i)]
        own[:, _before(network, i)] = weight.to(own)
        found["first_bias"][:, :, _units(network, i)] = bias.to(own)
    for i in columns:
        weight, bias = _pair(next(rest))
        found["second"][:, i], found["second_bias"][:, i] = weight, bias
    for i in columns:
        weight, bias = _pair(next(rest))
        own, outputs = found["last"][:, i], _outputs(network, i)
        own[:, :, outputs] = weight.to(own)
        found["last_bias"][:, i][:, :, outputs] = bias.to(own)
    return list(found.values())


def _pair(layer: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor]:
    weight, bias = layer
    assert bias is not None
    return weight, bias


def _units(network: ConditionalNetwork, column: int) -> slice:
    """Return where a column's units are in the first layer."""
    return slice(column * network.hidden, (column + 1) * network.hidden)


def _before(network: ConditionalNetwork, column: int) -> Tensor:
    """Which inputs a column sees, shape (in,)."""
    return network.mask[:, column * network.hidden] > 0


def _outputs(network: ConditionalNetwork, column: int) -> Tensor:
    """Which outputs parametrise a column's distribution, shape (output,)."""
    own = torch.zeros(network.n_outputs, dtype=torch.bool, device=network.mask.device)
    own[: network.layout.columns[column].n_codes] = True
    if column in network.layout.numeric:
        own[-3 * N_COMPONENTS :] = True
    return own


_STEPS = 1_000
_HIDDEN, _N_FEATURES = 32, 32
"""Fewer weights have less noise together."""

_DRAWN_RECORDS = 2048
"""Records that are drawn from the published histograms for the networks to start from."""

_NOT_REPORTED = {
    "patience",
    "n_held_out",
    "n_featured",
    "dropout",
    "hidden_of_many",
    "context_dim",
    "sender_hidden",
    "bits_per_record",
    "unmatched",
}
"""What has no meaning here, and the number of records."""


class PrivateAutoregressiveParty(AutoregressiveParty):
    """A party whose network learns of its records by noisy sums of clipped gradients alone.

    Source: Abadi et al. 2016, Algorithm 1.

    Privacy: the encoding and the start follow from the published histograms. A record's gradient
    depends on the record and on the features that earlier parties made of the same record, and on
    no other: clipping bounds what one record moves at every party. No dropout, for which masks
    would follow from a record's place in the batch, and so from who else is in it; nothing is held
    out or calibrated, and the last averaged weights are kept.
    """

    noisy: NoisyDescent
    schedule: PlacedPoissonSchedule  # type: ignore[assignment]

    def seen_columns(self, codes: Tensor, values: Tensor) -> None:
        """Let every column see all before it: nothing pays for a choice made of the records."""

    def start(self, network: ConditionalNetwork) -> None:
        """Start from the columns' published histograms."""
        drawn = [
            self.layout.split(torch.tensor(self.transformer.draw_independent(_DRAWN_RECORDS, rng)))
            for rng in self.streams.numpy_generators("independent records")
        ]
        codes, values = (torch.stack(own).to(self.streams.device) for own in zip(*drawn))
        network.start_from(codes)
        network.start_numbers_from(codes, values)

    @answers(LikelihoodReport)
    def report(self, step: int) -> LikelihoodReport:
        """Train for an epoch, and say nothing about it."""
        if self.network is not None:
            per_epoch = self.schedule.steps_per_epoch
            for k in range((step - 1) * per_epoch, step * per_epoch):
                self.descend_noisily(self.network, k)
        trained, held_out = torch.zeros_like(self.best), torch.zeros_like(self.best)
        yes = torch.ones_like(self.waited, dtype=torch.bool)
        return LikelihoodReport(self.name, SERVER, step, trained, held_out, yes, ~yes)

    def descend_noisily(self, network: ConditionalNetwork, step: int) -> None:
        """Pay for a step, and take it."""
        self.noisy.budget.take()
        rows, n_real = self.schedule.rows(step), self.schedule.n_real(step)
        counted = torch.arange(rows.shape[1], device=rows.device) < n_real.unsqueeze(1)
        codes, values, contexts = (
            at_rows(own, rows) for own in (self.codes, self.values, self.contexts)
        )
        traces = likelihood_traces(network, codes.long(), values, contexts)
        means = self.noisy.means([traces], counted)
        with torch.no_grad():
            self.optimizer.set_gradient(per_parameter(network, means))
            self.step()

    def trained(self) -> Mapping[str, Tensor]:
        """Return the last averaged weights: choosing and calibrating would read records."""
        if self.network is None:
            return {}
        self.selected = self.average.clone()
        own = [self.weights(replica) for replica in range(len(self.codes))]
        return {name: torch.cat([weights[name] for weights in own]) for name in own[0]}


class PrivateAutoregressiveLearning(TrainedLearning):
    """A party that has its network, and neither records nor the features of others' records."""

    def __init__(self, known: Known) -> None:
        super().__init__(known)
        settings, layout = known.settings, Layout(known.transformer.spans_)
        # Nobody trains them: they are what the party passes on of synthetic records.
        self._features = FixedFeatures(layout, settings.n_features, known.streams.child("features"))
        self._senders, self._receivers = settings.senders(self.name), settings.receivers(self.name)
        self._n_replicas = len(known.streams.secrets)

    def samplers(self) -> list[RowSampler]:
        """Return the densities, and what is passed on to later parties."""
        return [
            AutoregressiveSampler.of_replica(
                self.transformer.spans_,
                {name: own[k : k + 1] for name, own in self.trained.items()},
                k,
                features=self._features,
                sender=None,
                senders=self._senders,
                receivers=self._receivers,
                noise_std=0.0,
                passes_features=True,
            )
            for k in range(self._n_replicas)
        ]


class PrivateRelay(RelayFeatures):
    """Features are handed on; then every party trains alone and reports nothing."""

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Have every party train for an epoch."""
        self.channel.gather(LikelihoodReport, epoch)
        return {}

    def end_epoch(self, epoch: int, *, evaluate: bool) -> dict[str, Any]:
        """Say that the last weights are those that are kept."""
        return {"kept": True}


class PrivateAutoregressiveMethod(AutoregressiveMethod):
    """Split autoregressive model with DP-SGD at every party, given features of earlier parties."""

    party = PrivateAutoregressiveParty
    learner = PrivateAutoregressiveLearning
    owners = Discriminators.DENSITIES

    def _asked(
        self, columns: Mapping[str, ColumnCounts], n_records: int, holder: str | None
    ) -> Asked:
        assert isinstance(self.privacy, DPSGD)
        public, parameters = self.privacy.public_number(n_records), self.parameters
        batch_size = parameters.batch_size or power_of_two(public / 8, 8, 1024)
        return Asked(
            n_records=n_records,
            owners=self.owners,
            batch_size=batch_size,
            epochs=parameters.epochs or default_epochs(public, batch_size, _STEPS),
            learning_rate=parameters.learning_rate,
            holder=holder,
        )

    def learning(self, known: Known) -> Learning:
        """Return what keeps a party's network, without telling it how many records there are."""
        return super().learning(replace(known, settings=replace(known.settings, n_featured=0)))

    @property
    def descent_plan(self) -> DPSGDPlan:
        """The plan of the descents."""
        plan = self.private_plan
        assert isinstance(plan, DPSGDPlan)
        return plan

    def settings(self, n_records: int, widths: Mapping[str, int]) -> AutoregressiveSettings:
        """Fill in defaults: from public numbers, but for how many records features are sent of."""
        parameters, length = self.parameters, self.descent_plan.length
        assert length is not None
        return replace(
            super().settings(n_records, widths),
            batch_size=length.batch_size,
            hidden=parameters.hidden or _HIDDEN,
            n_features=parameters.n_features or _N_FEATURES,
            dropout=0.0,
            n_held_out=0,
        )

    def duration(self, n_records: int, settings: AutoregressiveSettings) -> Duration:
        """As long as the plan pays for."""
        length = self.descent_plan.length
        assert length is not None
        return Duration(length.epochs, 0)

    def schedule(
        self,
        streams: RandomStreams,
        sampling: Any,
        n_records: int,
        settings: AutoregressiveSettings,
        replica_rows: Tensor | None = None,
    ) -> PlacedPoissonSchedule:
        """Make Poisson samples of the records, which the parties draw alike."""
        rate = self.descent_plan.sample_rate
        assert rate is not None
        return PlacedPoissonSchedule(
            streams,
            sampling=HiddenStreams(sampling),
            sample_rate=rate,
            n_records=n_records,
            batch_size=settings.batch_size,
            replica_rows=replica_rows,
        )

    def build(self, party: Any, settings: Any, schedule: Any, streams: RandomStreams) -> None:
        """Make a party's network, with its noise."""
        party.build(settings, schedule, streams)
        party.noisy = NoisyDescent(self.descent_plan, settings.batch_size, self.noise)

    def algorithm(
        self, channel: Channel, settings: AutoregressiveSettings, streams: RandomStreams
    ) -> PrivateRelay:
        """Make the algorithm and the server, which hands features on."""
        return PrivateRelay(channel, settings, ContextServer(settings, streams))

    @classmethod
    def without_effect(cls, mechanism: type[Mechanism] | None) -> frozenset[str]:
        """Return parameters that are not looked at: nothing is held out, and features are sent."""
        return frozenset({"bits_per_record", "context_dim", "dropout", "patience"})

    @classmethod
    def reason_against(cls, parameters: Any, mechanism: Mechanism) -> str | None:
        """Say that features cross, what was not planned for, and that no penalty is descended."""
        assert isinstance(mechanism, DPSGD)
        if parameters.protocol != "one_message":
            return (
                f"protocol='one_message', got {parameters.protocol!r}: no noise pays for what a "
                "server learns of records to make contexts. ε then covers recipients of the "
                "synthetic data and of the halves, and neither the server nor the later parties, "
                "who see features of all records. If they must not: MixtureSynthesizer, or "
                "VFLGANSynthesizer with MeanEmbedding"
            )
        if parameters.unmatched == "train":
            return (
                "unmatched='ignore', got 'train': sampling rate and noise are planned from the "
                "public number of matched records, and nobody has stated how many others there are"
            )
        if mechanism.gradient_penalty_at != "fakes":
            return "gradient_penalty_at='fakes': it has no gradient penalty"
        return None

    def reported(self, settings: AutoregressiveSettings, duration: Duration) -> dict[str, Any]:
        """Return what becomes ``settings_``, without the number of records."""
        found = super().reported(settings, duration)
        return {name: value for name, value in found.items() if name not in _NOT_REPORTED}
