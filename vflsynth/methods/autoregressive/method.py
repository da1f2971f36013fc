"""The split autoregressive model from the coordinator's chair: three ways to make contexts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import (
    ENCODED_AT_ONCE,
    Algorithm,
    Duration,
    Method,
    SharedDraws,
    Size,
    labelled,
    section,
)
from vflsynth.methods.autoregressive.conditional import (
    COLUMNS_AT_ONCE,
    input_widths,
    n_outputs_of,
    network_of,
)
from vflsynth.methods.autoregressive.layout import MOST_SEEING_ALL, N_SEEN, VALUE_FEATURES, Layout
from vflsynth.methods.autoregressive.messages import (
    BatchContexts,
    BatchRows,
    ContextGradients,
    ContextParts,
    HeldOutContexts,
    LikelihoodReport,
    RecordContexts,
    RecordFeatures,
    RelayedFeatures,
    SenderWeights,
)
from vflsynth.methods.autoregressive.party import (
    CHUNK,
    CHUNK_OF_MANY,
    MOST_CALIBRATED,
    MOST_CALIBRATED_OF_MANY,
    MOST_ENCODED,
    AutoregressiveParty,
)
from vflsynth.methods.autoregressive.sampler import AutoregressiveSampler
from vflsynth.methods.autoregressive.server import (
    ContextServer,
    TrainedContextServer,
    check_features,
    check_parts,
)
from vflsynth.methods.autoregressive.settings import AutoregressiveSettings
from vflsynth.models import RowSampler
from vflsynth.networks.layers import one_replica
from vflsynth.protocol.channel import SERVER, Channel, Message
from vflsynth.protocol.messages import SelectionNotice
from vflsynth.protocol.schedule import HeldOutSchedule, Schedule

_EPOCHS, _HIDDEN, _HIDDEN_OF_MANY, _N_FEATURES = 500, 96, 48, 512
_DROPOUT, _FEW_RECORDS = 0.15, 5_000
"""What is left out of few records; of more, as much less as they are more."""
_MOST_FEATURED = 1 << 15
"""Records whose features the server sees where contexts have a bound."""

_FEWEST_TO_HOLD_OUT, _MOST_HELD_OUT = 20, 1 << 14
"""Records without, and with, which it is known well enough when to stop."""

MOST_STEPS = 125
"""Of an epoch: large tables are looked at as often as one of 32,000 records, and end as soon."""


class TrainAlone(Algorithm):
    """Contexts first, if there are any, and then every party trains alone; one report an epoch."""

    def __init__(
        self, channel: Channel, settings: AutoregressiveSettings, server: ContextServer
    ) -> None:
        super().__init__(channel)
        self.settings, self.server = settings, server
        self._finished = self._resumed = False

    @property
    def finished(self) -> bool:
        """Whether no party's held-out likelihood improves any more."""
        return self._finished

    def begin(self) -> None:
        """Let every party have its contexts, once: a resumed run has them already."""
        if len(self.settings.order) > 1 and not self._resumed:
            self.exchange_contexts()

    def exchange_contexts(self) -> None:
        """Get all parties' features, and let every party have its contexts."""
        blocks = [self.gather_features(number) for number in range(self.settings.n_blocks)]
        self.send_contexts(
            {name: torch.cat([own[name] for own in blocks], 1) for name in self.settings.order}
        )

    def gather_features(self, number: int) -> dict[str, Tensor]:
        """Ask for a block of features; those of parties without columns say nothing."""
        received = self.channel.gather(RecordFeatures, number)
        features = {name: received[name].features for name in self.settings.order}
        check_features(features, self.settings, number)
        return features

    def send_contexts(self, features: dict[str, Tensor]) -> None:
        """Learn what to tell; have the parties compute it of all records; tell it through noise.

        A run that begins again sends what it sent: other noise would tell as much once more.
        ProtocolError if it is about other records or features.
        """
        kept = None if self.sent is None else self.sent.read()
        if kept is None:
            self.server.learn(features)
        else:
            self.server.load_state_dict(section(kept, "server"))
        self.send_weights()
        parts = {
            name: message.parts
            for name, message in self.channel.gather(ContextParts, 0).items()
            if name in self.settings.order
        }
        check_parts(parts, self.settings, len(self.server.streams.secrets))
        made_of = _digest([*(features[n] for n in sorted(features)), *parts.values()])
        if kept is None:
            names = self.channel.names
            contexts = {n: self.server.noisy_contexts(parts, n, self.keys) for n in names}
            if self.sent is not None:
                networks = labelled("server", dict(self.server.state_dict()))
                self.sent.write({"made of": made_of, **networks, **labelled("contexts", contexts)})
        else:
            device = self.server.streams.device
            contexts = {n: own.to(device) for n, own in section(kept, "contexts").items()}
            if not torch.equal(kept["made of"], made_of):
                raise ProtocolError(
                    "contexts of other records or features were sent in this job already, and "
                    "others would tell more. Fix: give the job another name, which counts anew"
                )
        bound = self.settings.bound
        self.tell(
            lambda name: RecordContexts(
                SERVER, name, 0, contexts[name], bound if self.settings.senders(name) else 0.0
            )
        )

    def send_weights(self) -> None:
        """Give every party what makes contexts of its features, real and synthetic."""
        self.tell(lambda name: SenderWeights(SERVER, name, 0, self.server.weights_of(name)))

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Have every party train for an epoch; log-likelihoods of its columns."""
        reports = self.channel.gather(LikelihoodReport, epoch)
        values = {}
        for name, report in reports.items():
            values[f"log_likelihood_{name}"] = report.trained
            values[f"held_out_{name}"] = report.held_out
        self._latest = torch.stack([report.held_out for report in reports.values()]).sum(0)
        values["held_out"] = self._latest
        self.judge(epoch, reports)
        return values

    def judge(self, epoch: int, reports: Mapping[str, LikelihoodReport]) -> None:
        """See whether somebody improved, and whether anybody goes on."""
        self._improved = torch.stack([r.improved for r in reports.values()]).any(0)
        self._finished = all(bool(report.waiting.all()) for report in reports.values())

    def end_epoch(self, epoch: int, *, evaluate: bool) -> dict[str, Any]:
        """Say whether the epoch's weights were kept at some party."""
        return {"kept": self._improved}

    def state(self) -> dict[str, Tensor]:
        """Return the server's networks, and whether there is more to learn."""
        finished = {"finished": torch.tensor(self._finished)}
        return finished | labelled("server", self.server.training_state())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self._finished, self._resumed = bool(state["finished"]), True
        self.server.load_training_state(section(state, "server"))


class RelayFeatures(TrainAlone):
    """The server hands the features on as they are."""

    def exchange_contexts(self) -> None:
        """Hand on a block after the other: the server never holds more than one."""
        for number in range(self.settings.n_blocks):
            features = self.gather_features(number)
            some = next(iter(features.values()))
            nothing = some.new_zeros(*some.shape[:2], 0)
            messages = {}
            for name in self.channel.names:
                shown = [nothing, *(features[s] for s in self.settings.senders(name))]
                messages[name] = RelayedFeatures(SERVER, name, number, torch.cat(shown, 2))
            self.channel.scatter(messages)


class TrainTogether(TrainAlone):
    """The server learns to make contexts, from gradients that the parties return."""

    server: TrainedContextServer

    def send_contexts(self, features: dict[str, Tensor]) -> None:
        """Keep the features."""
        self.server.features = features

    def step(self, step: int) -> None:
        """Contexts of a batch, and what every party's step says about them."""
        rows = next(iter(self.channel.gather(BatchRows, step).values())).rows
        contexts = self.server.batch_contexts(rows) if self.server.features else {}
        nothing = torch.zeros(*rows.shape, 0, device=self.server.streams.device)
        self.tell(lambda name: BatchContexts(SERVER, name, step, contexts.get(name, nothing)))
        received = self.channel.gather(ContextGradients, step)
        if contexts:
            self.server.descend({name: received[name].gradients for name in contexts})

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Let all look at held-out records with the current contexts."""
        contexts = self.server.held_out_contexts()
        some = next(iter(self.server.features.values()), None)
        if some is not None:
            nothing = some.new_zeros(len(some), self.settings.n_held_out or some.shape[1], 0)
            self.tell(
                lambda name: HeldOutContexts(SERVER, name, epoch, contexts.get(name, nothing))
            )
        return super().report(epoch)

    def judge(self, epoch: int, reports: Mapping[str, LikelihoodReport]) -> None:
        """Keep all parties' weights of the epoch whose joint likelihood is highest."""
        self._improved = self.server.judge(self._latest)
        self.tell(lambda name: SelectionNotice(SERVER, name, epoch, self._improved))
        self._finished = bool((self.server.waited >= self.settings.patience).all())

    def end(self, epoch: int) -> None:
        """Take the weights that were kept, and give them to the parties."""
        if epoch:
            self.server.optimizer.flat.copy_(self.server.optimizer.selected)
        if self.server.features:
            self.send_weights()


class AutoregressiveMethod(Method):
    """Split autoregressive model: columns in order, each party given a context of those before."""

    party = AutoregressiveParty
    encoding: ClassVar = {
        "continuous": "ranks", "spike_share": 0.01, "max_levels": 60, "spike_records": 300,
    }  # fmt: skip
    copies = True

    _PROTOCOLS: ClassVar[
        Mapping[str, tuple[type[TrainAlone], type[ContextServer], set[type[Message]]]]
    ] = {
        "bounded": (TrainAlone, ContextServer, {ContextParts}),
        "trained": (TrainTogether, TrainedContextServer, {BatchRows, ContextGradients}),
        "one_message": (RelayFeatures, ContextServer, set()),
    }
    """What the coordinator does, what the server is, and what it asks for besides features."""

    @property
    def selects(self) -> bool:
        """As of `Method`: the best of records that are held out."""
        return True

    @property
    def trains_unmatched(self) -> bool:
        """Whether every party's network learns of all its records."""
        return bool(self.parameters.unmatched != "ignore")

    @property
    def asks(self) -> frozenset[type[Message]]:  # type: ignore[override]
        """What the server may ask a party for, besides what every run asks."""
        *_, own = self._PROTOCOLS[self.parameters.protocol]
        return frozenset({RecordFeatures, LikelihoodReport} | own)

    def settings(self, n_records: int, widths: Mapping[str, int]) -> AutoregressiveSettings:
        """Fill in the defaults that depend on the data."""
        parameters = self.parameters
        n_held_out = min(n_records // 10, _MOST_HELD_OUT)
        n_held_out = max(1, n_held_out) if n_records >= _FEWEST_TO_HOLD_OUT else 0
        n_training = n_records - n_held_out
        batch_size = parameters.batch_size or min(256, max(32, n_training // 20))
        dropout = parameters.dropout
        if dropout is None:
            dropout = _DROPOUT * min(1.0, _FEW_RECORDS / n_training)
        bounded = parameters.protocol == "bounded"
        bits = float(parameters.bits_per_record) if bounded else None
        context_dim = parameters.context_dim
        if context_dim is None:
            context_dim = 32 if bits is None else max(2, round(2.0 * math.sqrt(bits)))
        return AutoregressiveSettings(
            protocol=parameters.protocol,
            order=tuple(name for name in sorted(widths) if widths[name]),
            batch_size=min(batch_size, n_training),
            hidden=parameters.hidden or _HIDDEN,
            hidden_of_many=parameters.hidden or _HIDDEN_OF_MANY,
            dropout=float(dropout),
            learning_rate=float(parameters.learning_rate),
            weight_average=float(parameters.weight_average),
            patience=parameters.patience,
            n_held_out=n_held_out,
            n_featured=min(n_records, _MOST_FEATURED) if bounded else n_records,
            n_features=parameters.n_features or _N_FEATURES,
            context_dim=context_dim,
            sender_hidden=256 if bounded else 0,
            bits_per_record=bits,
            unmatched="train" if self.trains_unmatched else "ignore",
        )

    def duration(self, n_records: int, settings: AutoregressiveSettings) -> Duration:
        """At most so many epochs; parties that train alone take no step that the server leads."""
        led = settings.protocol == "trained"
        whole = -(-(n_records - settings.n_held_out) // settings.batch_size)
        steps = min(whole, MOST_STEPS) if led else 0
        return Duration(self.parameters.epochs or _EPOCHS, steps)

    def schedule(
        self, shared: SharedDraws, n_records: int, settings: AutoregressiveSettings
    ) -> Schedule:
        """Make what the parties draw alike: batches, and which records are held out."""
        return HeldOutSchedule(
            shared.streams,
            n_records=n_records,
            n_held_out=settings.n_held_out,
            batch_size=settings.batch_size,
            most_steps=MOST_STEPS,
            replica_rows=shared.replica_rows,
        )

    @property
    def telling(self) -> frozenset[type[Message]]:  # type: ignore[override]
        """Messages of which contexts are made."""
        bounded = self.parameters.protocol == "bounded"
        return frozenset({ContextParts if bounded else RecordFeatures})

    def told(self, settings: AutoregressiveSettings, party: str) -> dict[str, float]:
        """Return the bound of the contexts of all parties after this one; without noise, none."""
        bits = math.inf if settings.bits_per_record is None else settings.bound
        return dict.fromkeys(settings.receivers(party), bits) if party in settings.order else {}

    def n_blocks(self, settings: AutoregressiveSettings) -> int:
        """Return how many messages of features a party sends."""
        return settings.n_blocks

    def algorithm(
        self, channel: Channel, settings: AutoregressiveSettings, streams: RandomStreams
    ) -> TrainAlone:
        """Make the algorithm and what the server computes."""
        algorithm, server, _ = self._PROTOCOLS[settings.protocol]
        return algorithm(channel, settings, server(settings, streams))

    def multiply_adds(self, settings: AutoregressiveSettings, widths: Mapping[str, int]) -> float:
        """Multiply-adds of the first layer of all columns on a batch, roughly."""
        widest = max(widths.values(), default=1)
        return settings.batch_size * widest * settings.hidden * max(1, widest // 8)

    needs_less_memory = (
        "fit fewer columns, let a party have more than 64 of them (each then sees the 16 that tell "
        "most of it), or use a smaller hidden, batch_size or n_features"
    )

    def memory(
        self, party: AutoregressiveParty, settings: AutoregressiveSettings, size: Size
    ) -> int:
        """Estimate the bytes that one party's half of a fit takes at its peak, roughly.

        Encoded records; features, at the party and of a bounded number of records at the server;
        weights with gradients, moments, averages and what was kept; and what is largest of a
        training step, a look at the held-out records, and the calibration at the end.
        """
        layout = Layout(party.transformer.spans_)
        n_columns, width = len(layout.columns), layout.width
        n_records, replicas = size.n_records, size.n_replicas
        if not n_columns:
            return 0
        n_codes = sum(column.n_codes for column in layout.columns)
        sizes = input_widths(layout)
        context, shown = settings.width_for(party.name) + 1, sum(sizes)
        outputs = n_outputs_of(layout)
        some = n_columns > MOST_SEEING_ALL
        hidden = settings.hidden_of_many if some else settings.hidden
        seen = sum(sorted(sizes)[-N_SEEN:]) if some else shown
        first = (seen + context) * n_columns * hidden
        weights = first + n_columns * hidden * (hidden + outputs)
        at_once = min(COLUMNS_AT_ONCE, n_columns) if some else n_columns
        chunk = CHUNK_OF_MANY if some else CHUNK
        # Of a record: inputs, several times over with their gradients; layers; outputs.
        layers = at_once * ((seen if some else 0) + 4 * hidden + 4 * outputs)
        batch = settings.batch_size * (2 if settings.unmatched == "train" else 1)
        training = batch * (5 * (shown + context) + int(2.5 * layers) + n_columns * hidden)
        looking = min(chunk, settings.n_held_out or n_records) * (2 * (shown + context) + layers)
        calibrated = min(MOST_CALIBRATED_OF_MANY if some else MOST_CALIBRATED, n_records)
        calibrating = calibrated * (shown + 6 * n_columns + 4 * outputs)
        # Contexts with noise and without.
        records = replicas * n_records * (n_columns + len(layout.numeric) + 2 * context)
        at_once = min(ENCODED_AT_ONCE, n_records)
        encoding = min(at_once * width, MOST_ENCODED) if some else at_once * width
        parties = len(settings.order)
        features = settings.n_features * (2 * (n_codes + VALUE_FEATURES * len(layout.numeric)))
        if parties > 1:
            features += 4 * replicas * settings.n_features * settings.n_featured
        masked = 0 if some else (3 * first if replicas == 1 else (2 + replicas) * first)
        return 4 * (  # bytes of a float32
            records
            + features
            + replicas * 8 * weights
            + masked
            + max(3 * encoding, replicas * training, replicas * looking, 2 * weights + calibrating)
        )

    def samplers(
        self, party: AutoregressiveParty, settings: AutoregressiveSettings
    ) -> list[RowSampler]:
        """Calibrate; return the densities that were kept, and what is passed on to later ones."""
        party.calibrate()
        return [
            AutoregressiveSampler(
                party.transformer.spans_,
                network_of(party.layout, party.weights(replica)),
                one_replica(party.features, replica),
                None if party.sender is None else one_replica(party.sender, replica),
                senders=settings.senders(party.name),
                receivers=settings.receivers(party.name),
                passes_features=settings.protocol == "one_message",
            )
            for replica in range(len(party.codes))
        ]

    def reported(self, settings: AutoregressiveSettings, duration: Duration) -> dict[str, Any]:
        """Return what becomes ``settings_``."""
        return {**asdict(settings), "order": list(settings.order), "epochs": duration.n_epochs}


def _digest(tensors: Sequence[Tensor]) -> Tensor:
    """Return a digest of tensors, as a tensor."""
    digest = hashlib.sha256()
    for own in tensors:
        digest.update(own.detach().cpu().contiguous().numpy().data)
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)
