"""The server of the split autoregressive model: it owns no table, and makes contexts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from vflsynth._random import KeySchedule, Purpose, RandomStreams, hidden_normal
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import AveragingAdam, labelled, section
from vflsynth.methods.autoregressive.contexts import PairCritic, Sender, into_ball
from vflsynth.methods.autoregressive.settings import AutoregressiveSettings
from vflsynth.networks.layers import FlatAdam, at_rows, pulled_back

_LEARNING_RATE = 1e-3
_BATCH_SIZE, _MAX_STEPS, _PATIENCE = 512, 3000, 500
"""Records of a step; steps at most, and without a better look at held-out records."""
_CRITIC_HIDDEN, _CRITIC_OUT = 256, 64
_NO_SHARE = 45.0
"""By which a score is below the largest where its share is nothing beside that one's."""


class ContextServer(nn.Module):
    """Senders of all parties, which make contexts of features.

    The server's own streams give initial weights, and noise for learning.
    """

    def __init__(self, settings: AutoregressiveSettings, streams: RandomStreams) -> None:
        super().__init__()
        self.settings, self.streams = settings, streams
        self.senders = nn.ModuleDict()
        for k, name in enumerate(settings.order[:-1]):
            self.senders[f"sender {k}"] = settings.sender(name, streams, f"sender.{k}")

    def sender(self, party: str) -> Sender:
        """Return what makes contexts of one party's features."""
        found = self.senders[f"sender {self.settings.order.index(party)}"]
        assert isinstance(found, Sender)
        return found

    def contexts(self, features: Mapping[str, Tensor], receiver: str) -> Tensor:
        """Make a later party's contexts without noise, (replica, record, context) in a ball."""
        parts = [
            self.sender(name)(features[name], self.settings.receivers(name).index(receiver))
            for name in self.settings.senders(receiver)
        ]
        return into_ball(functools.reduce(torch.add, parts))

    @torch.no_grad()
    def noisy_contexts(
        self, parts: Mapping[str, Tensor], receiver: str, keys: Sequence[KeySchedule]
    ) -> Tensor:
        """Make a receiver's contexts of all records, with the noise that bounds what they tell.

        `parts` are what the parties' senders make of their features, (replica, record, receiver,
        context); `keys` are those of the noise, one per replica.
        """
        names = self.settings.senders(receiver)
        if not names:
            some = next(iter(parts.values()))
            return some.new_zeros(*some.shape[:2], 0)
        total = torch.zeros_like(parts[names[0]][:, :, 0])
        for name in names:
            total += parts[name][:, :, self.settings.receivers(name).index(receiver)]
        drawn = [
            hidden_normal(own.key(Purpose.CONTEXT_NOISE, receiver), total.shape[1:]) for own in keys
        ]
        noise = torch.tensor(np.stack(drawn), device=total.device)
        # In float64, and rounded once: sums of float32 leave gaps that tell more than the bound.
        return (into_ball(total) + self.settings.noise_std * noise).to(total.dtype)

    def learn(self, features: Mapping[str, Tensor]) -> None:
        """Learn to tell, through the noise, what says most about every receiver's features.

        Every receiver has a channel and a critic of its own, which is shown noisy contexts and
        features of a batch of records and learns which belong together: a bound on the information
        that a context has about the features (van den Oord et al. 2018). What nobody else knows of
        the receiver's columns does not help. A tenth of the records says when to stop.
        """
        for receiver in self.settings.order[1:]:
            self._learn_channel(features, receiver)

    def _learn_channel(self, features: Mapping[str, Tensor], receiver: str) -> None:
        settings, place = self.settings, self.settings.order.index(receiver)
        names = settings.senders(receiver)
        targets = _standardised(features[receiver])
        replicas, n_records, n_targets = targets.shape
        streams = self.streams.child(f"channel {place}")
        critic = PairCritic(settings.context_dim, n_targets, _CRITIC_HIDDEN, _CRITIC_OUT, streams)
        parts = nn.ModuleList()
        for name in names:
            sender, k = self.sender(name), settings.receivers(name).index(receiver)
            if sender.hidden is not None:
                parts.append(sender.hidden[k])
            parts.append(sender.output[k])
        parts.append(critic)
        optimizer = FlatAdam(parts, learning_rate=_LEARNING_RATE)
        n_held_out = n_records // 10
        judged = slice(0, n_held_out or n_records)
        wanted = targets[:, judged]
        held_out = {name: features[name][:, judged] for name in names}
        noise_of_held_out = streams.normal(
            "held-out noise", 0, (wanted.shape[1], settings.context_dim)
        )
        batch = min(_BATCH_SIZE, n_records - n_held_out)
        best = torch.full((replicas,), torch.inf, device=targets.device)
        waited = torch.zeros(replicas, dtype=torch.long, device=targets.device)
        selected = optimizer.flat.clone()
        # After two passes over the records: what few of them say is soon known.
        look_every = max(5, min(100, 2 * (n_records - n_held_out) // _BATCH_SIZE))
        for step in range(_MAX_STEPS):
            drawn = streams.uniform("rows", step, (batch,))
            rows = n_held_out + (drawn * (n_records - n_held_out)).long()
            rows = rows.clamp_max(n_records - 1)
            clean = self.contexts({name: at_rows(features[name], rows) for name in names}, receiver)
            noise = streams.normal("noise", step, (batch, settings.context_dim))
            scores = critic(clean + settings.noise_std * noise, at_rows(targets, rows))
            upstream = _confusion_gradient(scores.detach(), rows)
            optimizer.set_gradient(pulled_back([scores], optimizer.parameters, [upstream]))
            optimizer.step()
            if (step + 1) % look_every:
                continue
            with torch.no_grad():
                noisy = self.contexts(held_out, receiver) + settings.noise_std * noise_of_held_out
                batches = _batches(wanted.shape[1])
                losses = [_confusion(critic(noisy[:, own], wanted[:, own])) for own in batches]
                loss = torch.stack(losses).mean(0)
                improved = (loss < best - 1e-4) & (waited < _PATIENCE)
                best = torch.where(improved, loss, best)
                waited = torch.where(improved, 0, waited + look_every)
                selected = torch.where(improved[optimizer.replica_of], optimizer.flat, selected)
            if bool((waited >= _PATIENCE).all()):
                break
        optimizer.flat.copy_(selected)

    def weights_of(self, party: str) -> Tensor:
        """Return what a party needs to make synthetic contexts, (replica, weight)."""
        replicas = len(self.streams.secrets)
        if party not in self.settings.order[:-1]:
            return torch.zeros(replicas, 0, device=self.streams.device)
        parameters = self.sender(party).parameters()
        return torch.cat([p.detach().reshape(replicas, -1) for p in parameters], 1)

    def training_state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs: here the senders, which are trained once."""
        return dict(self.state_dict())

    def load_training_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `training_state`."""
        self.load_state_dict(dict(state))


class TrainedContextServer(ContextServer):
    """Senders that learn from what the receivers' training steps say about their contexts."""

    def __init__(self, settings: AutoregressiveSettings, streams: RandomStreams) -> None:
        super().__init__(settings, streams)
        replicas = len(streams.secrets)
        rate, decay = settings.learning_rate, settings.weight_average
        self.optimizer = AveragingAdam(self, learning_rate=rate, decay=decay)
        self.best = torch.full((replicas,), -torch.inf, device=streams.device)
        self.waited = torch.zeros(replicas, dtype=torch.long, device=streams.device)
        self.features: dict[str, Tensor] = {}

    def batch_contexts(self, rows: Tensor) -> dict[str, Tensor]:
        """Make the contexts of a batch; gradients of them are expected next."""
        given = {name: at_rows(own, rows) for name, own in self.features.items()}
        order = self.settings.order
        self._pending = {name: self.contexts(given, name) for name in order[1:]}
        return {name: context.detach() for name, context in self._pending.items()}

    def descend(self, gradients: Mapping[str, Tensor]) -> None:
        """Take a step along what the receivers said; ProtocolError names one that is wrong."""
        for name, output in self._pending.items():
            if gradients[name].shape != output.shape:
                raise ProtocolError(
                    f"party {name!r} sent gradients of shape {tuple(gradients[name].shape)}; "
                    f"expected {tuple(output.shape)}"
                )
        outputs = list(self._pending.values())
        upstream = [gradients[name] for name in self._pending]
        found = pulled_back(outputs, self.optimizer.parameters, upstream, allow_unused=True)
        self.optimizer.set_gradient(found)
        self.optimizer.step()

    @torch.no_grad()
    def held_out_contexts(self) -> dict[str, Tensor]:
        """Make the contexts of the held-out records by the averaged weights."""
        n = self.settings.n_held_out
        given = {name: own[:, :n] if n else own for name, own in self.features.items()}
        with self.optimizer.averaged():
            return {name: self.contexts(given, name) for name in self.settings.order[1:]}

    def judge(self, held_out: Tensor) -> Tensor:
        """Keep the averaged weights of the replicas whose joint likelihood improved; (replica,)."""
        improved = (held_out > self.best + 1e-3) & (self.waited < self.settings.patience)
        self.best = torch.where(improved, held_out, self.best)
        self.waited = torch.where(improved, 0, self.waited + 1)
        self.optimizer.select(improved)
        return improved

    def training_state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs: optimiser, features and what was best so far."""
        state = {"best": self.best, "waited": self.waited, **labelled("features", self.features)}
        if self.optimizer.parameters:  # a single party has no senders
            state |= self.optimizer.state()
        return state

    def load_training_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `training_state`."""
        self.best, self.waited = state["best"], state["waited"]
        self.features = section(state, "features")
        if self.optimizer.parameters:
            self.optimizer.load_state(state)


def check_features(
    features: Mapping[str, Tensor], settings: AutoregressiveSettings, number: int
) -> None:
    """Refuse, with ProtocolError, a block of features of another shape, or that is not finite."""
    shapes = {name: tuple(own.shape) for name, own in features.items()}
    block = settings.block(number)
    expected = (block.stop - block.start, settings.n_features)
    if len({shape[0] for shape in shapes.values()}) != 1 or any(
        shape[1:] != expected for shape in shapes.values()
    ):
        raise ProtocolError(f"the parties' features do not go together: {shapes}")
    _check_finite(features, "features")


def check_parts(
    parts: Mapping[str, Tensor], settings: AutoregressiveSettings, n_replicas: int
) -> None:
    """Refuse what contexts are made of if it is of another shape than asked for, or not finite.

    The ProtocolError names the party, unless two differ in their numbers of records.
    """
    for name, own in parts.items():
        expected = (n_replicas, len(settings.receivers(name)), settings.context_dim)
        if own.ndim != 4 or (len(own), *own.shape[2:]) != expected:
            raise ProtocolError(
                f"party {name!r} sent parts of contexts of shape {tuple(own.shape)}; expected "
                f"{expected} without the records"
            )
    _check_finite(parts, "parts of contexts")
    numbers = {name: own.shape[1] for name, own in parts.items()}
    if len({*numbers.values()}) > 1:
        raise ProtocolError(f"the parties' parts of contexts are of different records: {numbers}")


def _check_finite(sent: Mapping[str, Tensor], what: str) -> None:
    for name, own in sent.items():
        if not bool(own.isfinite().all()):
            raise ProtocolError(f"party {name!r} sent {what} that are not finite")


def _standardised(features: Tensor) -> Tensor:
    mean, deviation = features.mean(1, keepdim=True), features.std(1, keepdim=True, correction=0)
    return (features - mean) / (deviation + 1e-6)


def _batches(n_records: int) -> list[slice]:
    """Places of as many whole batches as there are, of one at least."""
    size = min(_BATCH_SIZE, n_records)
    return [slice(k * size, (k + 1) * size) for k in range(n_records // size)]


def _confusion(scores: Tensor) -> Tensor:
    """Mean cross-entropy of finding a context's features, and the reverse, (replica,)."""
    found = scores.diagonal(dim1=1, dim2=2)
    rest = (scores.logsumexp(1) + scores.logsumexp(2)) / 2.0
    return (rest - found).mean(1)


def _confusion_gradient(scores: Tensor, rows: Tensor) -> Tensor:
    """Return the derivative of `_confusion` by scores (replica, context, record).

    A record that a batch has twice, by `rows`, is not to be told from itself.
    """
    twice = rows.unsqueeze(1) == rows.unsqueeze(2)
    twice.diagonal(dim1=1, dim2=2).fill_(False)
    scores = scores.masked_fill(twice, -torch.inf)
    found = _softmax(scores, 1) + _softmax(scores, 2)
    found.diagonal(dim1=1, dim2=2).sub_(2.0)
    return found.div_(2.0 * scores.shape[-1])


def _softmax(scores: Tensor, dim: int) -> Tensor:
    """Return shares of which none is so small that processors are slow with it."""
    least = scores.amax(dim, keepdim=True) - _NO_SHARE
    return torch.maximum(scores, least).softmax(dim)
