"""A party of the split autoregressive model: its columns' densities, and what it tells of them."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Hashable, Mapping

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.learning.base import (
    ENCODED_AT_ONCE,
    AveragingAdam,
    RunningMeans,
    TrainableParty,
    labelled,
    section,
)
from vflsynth.methods.autoregressive.conditional import ConditionalNetwork, network_of, pair_counts
from vflsynth.methods.autoregressive.contexts import FixedFeatures, Sender
from vflsynth.methods.autoregressive.denoising import NoiselessContexts
from vflsynth.methods.autoregressive.layout import MOST_SEEING_ALL, Layout, seen_columns
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
from vflsynth.methods.autoregressive.settings import AutoregressiveSettings
from vflsynth.networks.layers import at_rows
from vflsynth.protocol.channel import SERVER, answers, takes
from vflsynth.protocol.messages import SelectionNotice
from vflsynth.protocol.schedule import HeldOutSchedule

_LARGEST_GRADIENT = 5.0
_SMALLEST_IMPROVEMENT = 1e-3
CHUNK, CHUNK_OF_MANY = 4096, 512
"""Records that are looked at at once, but for training; fewer of wide tables."""

MOST_ENCODED = 1 << 24
"""Numbers of a wide table that are one-hot at once."""

_OTHERS_PER_RECORD, _WEIGHT_OF_OTHERS = 1, 1.0
"""Unmatched records in a batch for every matched one, and what their mean likelihood counts."""

_PROPOSALS, _LOOKS = 3, 8
"""What a noisy context may have been: new draws in a step, and draws by which it is judged."""

MOST_CALIBRATED, MOST_CALIBRATED_OF_MANY = 1 << 14, 1 << 12
"""Records that are drawn to calibrate the biases, and fewer of wide tables."""


class AutoregressiveParty(TrainableParty):
    """A party that learns p(own columns | context) by maximum likelihood.

    Sees its own records, the shared secret (through the schedule) and contexts. Every replica keeps
    the averaged weights of the epoch whose held-out likelihood was highest. A noisy context counts
    as an observation of one without noise, since drawn rows, which are nobody's, need none.
    """

    network: ConditionalNetwork | None
    schedule: HeldOutSchedule

    def __init__(self, name: str, frame: pd.DataFrame, on: Hashable | None) -> None:
        super().__init__(name, frame, on)
        self.losses = RunningMeans()

    def build(
        self, settings: AutoregressiveSettings, schedule: HeldOutSchedule, streams: RandomStreams
    ) -> None:
        """Encode the records, and make the network and its optimiser.

        The schedule is of the secret that parties share, the streams are the party's own.
        """
        self.settings, self.schedule, self.streams = settings, schedule, streams
        self.layout = Layout(self.transformer.spans_)
        codes, values = self._split(self.matched(), streams.device)
        sees = seen_columns(self.layout, codes, values)
        self.codes, self.values = codes[schedule.order], values[schedule.order]
        replicas = len(schedule.order)
        self.context_dim = settings.width_for(self.name)
        self.others: tuple[Tensor, Tensor] | None = None
        self.contexts = values.new_zeros(replicas, len(schedule.order[0]), 0)
        self.noiseless: NoiselessContexts | None = None
        self.held_out_contexts: Tensor | None = None
        self.features = FixedFeatures(self.layout, settings.n_features, streams.child("features"))
        self.sender: Sender | None = None
        if settings.receivers(self.name) and settings.protocol != "one_message":
            overwritten = RandomStreams([b""] * replicas, streams.device)  # by the server's
            self.sender = settings.sender(self.name, overwritten, "sender")
        self.best = torch.full((replicas,), -torch.inf, device=streams.device)
        self.waited = torch.zeros(replicas, dtype=torch.long, device=streams.device)
        self.network = None
        if not self.layout.columns:
            return
        if settings.unmatched == "train" and len(others := self._encodable()):
            codes, values = self._split(others, streams.device)
            self.others = codes.expand(replicas, -1, -1), values.expand(replicas, -1, -1)
        inputs = self.context_dim + (self.others is not None)
        hidden = settings.hidden if sees is None else settings.hidden_of_many
        self.network = ConditionalNetwork(self.layout, inputs, hidden, streams, sees)
        self.network.start_from(self.codes[:, settings.n_held_out :])
        rate, decay = settings.learning_rate, settings.weight_average
        self.optimizer = AveragingAdam(self.network, learning_rate=rate, decay=decay)

    def learned_from(self) -> tuple[pd.DataFrame, ...]:
        """Return the matched records, and those of the others that train the network."""
        more = () if self.others is None else (self._encodable(),)
        return (*super().learned_from(), *more)

    def _encodable(self) -> pd.DataFrame:
        """Return the unmatched records all of whose values the matched ones have a code for."""
        others = self.unmatched()
        return others[self.transformer.holds(others)]

    def _split(self, table: pd.DataFrame, device: torch.device) -> tuple[Tensor, Tensor]:
        """Encode records as codes and numbers; one-hot only a part at a time."""
        parts, at_once = [], ENCODED_AT_ONCE
        if len(self.layout.columns) > MOST_SEEING_ALL:
            at_once = min(at_once, max(1, MOST_ENCODED // self.layout.width))
        for start in range(0, len(table), at_once):
            rows = self.transformer.transform(table.iloc[start : start + at_once])
            codes, values = self.layout.split(torch.tensor(self.transformer.spread(rows)))
            parts.append((codes.int(), values))
        codes, values = (torch.cat(own) for own in zip(*parts, strict=True))
        return codes.to(device), values.to(device)

    # -- contexts --------------------------------------------------------------------------------

    @answers(RecordFeatures)
    def record_features(self, step: int) -> RecordFeatures:
        """Compute fixed features of a block of the records that the server may see of.

        Held-out ones come first.
        """
        some = self.settings.block(step)
        found = self.features(self.codes[:, some], self.values[:, some])
        return RecordFeatures(self.name, SERVER, step, found)

    @answers(ContextParts)
    @torch.no_grad()
    def context_parts(self, step: int) -> ContextParts:
        """Compute what the contexts of the parties after this one are made of, for all records."""
        replicas, n_records, _ = self.codes.shape
        shape = (replicas, n_records, len(self.settings.receivers(self.name)))
        parts = self.values.new_empty(*shape, self.settings.context_dim)
        for start in range(0, n_records if self.sender is not None else 0, CHUNK):
            some = slice(start, start + CHUNK)
            features = self.features(self.codes[:, some], self.values[:, some])
            assert self.sender is not None
            for k in range(shape[2]):
                parts[:, some, k] = self.sender(features, k)
        return ContextParts(self.name, SERVER, step, parts)

    @takes(RecordContexts)
    def take_contexts(self, message: RecordContexts) -> None:
        """Keep the one noisy snapshot, and what it may have been without its noise."""
        self.check_shape("contexts", message.contexts, (*self.codes.shape[:2], self.context_dim))
        if self.context_dim:
            self.noiseless = self._without_noise(message.contexts)
            parts = enumerate(torch.split(message.contexts, CHUNK, 1))
            drawn = [self.noiseless.draw(noisy, "first", k) for k, noisy in parts]
            self.contexts = torch.cat(drawn, 1)

    def _without_noise(self, noisy: Tensor) -> NoiselessContexts:
        return NoiselessContexts(noisy, self.settings.noise_std, self.streams.child("noiseless"))

    @takes(RelayedFeatures)
    def take_features(self, message: RelayedFeatures) -> None:
        """Keep a block of the features of the parties before this one."""
        replicas, n_records, _ = self.codes.shape
        block = self.settings.block(message.step)
        shape = (replicas, block.stop - block.start, self.context_dim)
        self.check_shape("contexts", message.features, shape)
        if self.contexts.shape[-1] != self.context_dim:
            self.contexts = self.values.new_zeros(replicas, n_records, self.context_dim)
        self.contexts[:, block] = message.features

    @takes(SenderWeights)
    def take_sender(self, message: SenderWeights) -> None:
        """Keep what makes synthetic contexts for later parties."""
        if self.sender is None:
            return
        sizes = [parameter[0].numel() for parameter in self.sender.parameters()]
        self.check_shape("weights", message.weights, (len(self.codes), sum(sizes)))
        parts = torch.split(message.weights, sizes, 1)
        with torch.no_grad():
            for parameter, own in zip(self.sender.parameters(), parts):
                parameter.copy_(own.reshape(parameter.shape))

    def snapshot(self) -> str:
        """Name what is about to be told of the records: by what, or as something new."""
        if self.sender is None or self.settings.protocol != "bounded":
            return os.urandom(16).hex()
        digest = hashlib.sha256()
        for parameter in self.sender.parameters():
            digest.update(parameter.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    # -- training alone --------------------------------------------------------------------------

    @answers(LikelihoodReport)
    def report(self, step: int) -> LikelihoodReport:
        """Train for an epoch, unless the server has led every step; look at held-out records."""
        settings = self.settings
        alone = settings.protocol != "trained"
        if alone and self.network is not None:
            per_epoch = self.schedule.steps_per_epoch
            for k in range((step - 1) * per_epoch, step * per_epoch):
                self.descend(k, self._contexts_of(k))
        found = self.losses.pop().get("log_likelihood", torch.zeros_like(self.best))
        held_out = self.held_out_likelihood()
        improved = held_out > self.best + _SMALLEST_IMPROVEMENT
        if alone:
            improved &= self.waited < settings.patience  # a replica that stopped stays as it is
            self.keep(improved)
            self.best = torch.where(improved, held_out, self.best)
            self.waited = torch.where(improved, 0, self.waited + 1)
        waiting = self.waited >= settings.patience
        return LikelihoodReport(self.name, SERVER, step, found, held_out, improved, waiting)

    @torch.no_grad()
    def _contexts_of(self, step: int) -> Tensor:
        """Look up a batch's contexts; draw anew what noisy ones may have been, and keep it.

        The present one and some that are drawn given the noisy ones compete by the likelihood of
        the columns: a step of a chain whose stationary distribution is that given both (iterated
        sampling importance resampling, Andrieu, Lee and Vihola 2018).
        """
        rows = self.schedule.rows(step)
        contexts = at_rows(self.contexts, rows)
        if self.noiseless is None:
            return contexts
        noisy, found = at_rows(self.noiseless.noisy, rows), [contexts]
        found += [self.noiseless.draw(noisy, f"proposal {j}", step) for j in range(_PROPOSALS)]
        codes, values = at_rows(self.codes, rows).long(), at_rows(self.values, rows)
        scores = torch.stack([self._likelihood(codes, values, own) for own in found], 1)
        scores += self.streams.gumbel("choice", step, tuple(scores.shape[1:]))
        chosen = scores.argmax(1, keepdim=True).unsqueeze(-1)
        kept = torch.stack(found, 1).take_along_dim(chosen, 1).squeeze(1)
        self.contexts.scatter_(1, rows.unsqueeze(-1).expand_as(kept), kept)
        return kept

    def _likelihood(self, codes: Tensor, values: Tensor, contexts: Tensor) -> Tensor:
        """Log-likelihood of matched records given their contexts, (replica, record)."""
        assert self.network is not None
        shown = contexts if self.others is None else with_flag(contexts, 0.0)
        return self.network.log_likelihood(codes, values, shown).sum(1)

    def descend(self, step: int, contexts: Tensor) -> Tensor:
        """Take a step of maximum likelihood; return the loss's gradient of the contexts."""
        assert self.network is not None
        rows, dropout = self.schedule.rows(step), self.settings.dropout
        contexts = contexts.detach().requires_grad_(self.settings.protocol == "trained")
        codes, values = at_rows(self.codes, rows), at_rows(self.values, rows)
        codes, values, shown = self._beside_others(step, codes, values, contexts)
        keep = None
        if dropout:
            shape = (2, codes.shape[1], self.network.hidden)
            drawn = self.streams.uniform("dropout", step, shape)
            factors = (drawn >= dropout).float() / (1.0 - dropout)
            keep = factors[:, 0], factors[:, 1]
        n, n_all = rows.shape[1], codes.shape[1]
        at_contexts: Tensor | None = None
        if self.network.sees is not None:
            shares = values.new_full((n_all,), 1.0 / n)
            shares[n:] = _WEIGHT_OF_OTHERS / max(1, n_all - n)
            found, at_contexts = self.network.descend_some(
                codes.long(), values, shown, shares, keep
            )
            per_replica = found[:, :n].mean(1)
        else:
            found = self.network.log_likelihood(codes.long(), values, shown, keep).sum(1)
            per_replica = found[:, :n].mean(1)
            total = per_replica.sum()
            if n_all > n:
                total = total + _WEIGHT_OF_OTHERS * found[:, n:].mean(1).sum()
            wanted = [*self.optimizer.parameters, *([contexts] if contexts.requires_grad else [])]
            gradients = torch.autograd.grad(-total, wanted, allow_unused=True)
            at_contexts = gradients[-1] if contexts.requires_grad else None
            self.optimizer.set_gradient(gradients[: len(self.optimizer.parameters)])
        self._clip()
        self.optimizer.step()
        self.losses.add({"log_likelihood": per_replica})
        if at_contexts is None:
            return torch.zeros_like(contexts)
        return at_contexts[:, :n, : contexts.shape[-1]]

    def _beside_others(
        self, step: int, codes: Tensor, values: Tensor, contexts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Append a batch of unmatched records, which have no context but a flag that says so.

        They follow from the party's own streams, and run through permutations of their own.
        """
        if self.others is None:
            return codes, values, contexts
        n_others, n = self.others[0].shape[1], _OTHERS_PER_RECORD * self.settings.batch_size
        places = torch.arange(step * n, step * n + n)
        first, last = int(places[0]) // n_others, int(places[-1]) // n_others
        drawn = [
            self.streams.permutation("unmatched", number, n_others)
            for number in range(first, last + 1)
        ]
        rows = torch.cat(drawn, 1)[:, places - first * n_others]
        nothing = contexts.new_zeros(len(codes), n, self.context_dim)
        own_codes, own_values = (at_rows(own, rows) for own in self.others)
        return (
            torch.cat([codes, own_codes], 1),
            torch.cat([values, own_values], 1),
            torch.cat([with_flag(contexts, 0.0), with_flag(nothing, 1.0)], 1),
        )

    def _clip(self) -> None:
        """Clip every replica's gradient to a largest norm."""
        gradients = [own.flatten(1) for own in self._by_name(self.optimizer.gradient).values()]
        squares = torch.stack([own.square().sum(1) for own in gradients]).sum(0)
        factors = (_LARGEST_GRADIENT / (squares.sqrt() + 1e-12)).clamp_max(1.0)
        for own in gradients:
            own.mul_(factors.unsqueeze(1))

    @torch.no_grad()
    def held_out_likelihood(self) -> Tensor:
        """Mean log-likelihood per record of the averaged weights, (replica,).

        Given noisy contexts it is estimated, a little too low, by draws of what they may have been.
        """
        if self.network is None:
            return torch.zeros_like(self.best)
        n = self.settings.n_held_out or self.codes.shape[1]
        contexts = self.contexts if self.held_out_contexts is None else self.held_out_contexts
        total = torch.zeros_like(self.best)
        at_once = CHUNK if self.network.sees is None else CHUNK_OF_MANY
        with self.optimizer.averaged():
            for start in range(0, n, at_once):
                part = slice(start, min(n, start + at_once))
                codes, values = self.codes[:, part].long(), self.values[:, part]
                looks = [contexts[:, part]]
                if self.noiseless is not None:
                    draw, noisy = self.noiseless.draw, self.noiseless.noisy[:, part]
                    looks = [draw(noisy, f"look {j}", start) for j in range(_LOOKS)]
                found = torch.stack([self._likelihood(codes, values, own) for own in looks])
                total += (found.logsumexp(0) - math.log(len(looks))).sum(1)
        return total / n

    def keep(self, chosen: Tensor) -> None:
        """Keep the averaged weights of some replicas, a bool of shape (replica,)."""
        if self.network is not None and bool(chosen.any()):
            self.optimizer.select(chosen)

    # -- training with a server that learns to make contexts ---------------------------------------

    @answers(BatchRows)
    def batch_rows(self, step: int) -> BatchRows:
        """Say which records the batch has."""
        return BatchRows(self.name, SERVER, step, self.schedule.rows(step))

    @takes(BatchContexts)
    def take_batch(self, message: BatchContexts) -> None:
        """Take a step with the contexts of a batch."""
        rows = self.schedule.rows(message.step)
        self.check_shape("contexts", message.contexts, (*rows.shape, self.context_dim))
        self._gradients = message.contexts
        if self.network is not None:
            self._gradients = self.descend(message.step, message.contexts)

    @answers(ContextGradients)
    def context_gradients(self, step: int) -> ContextGradients:
        """Return the gradients of that step."""
        return ContextGradients(self.name, SERVER, step, self._gradients)

    @takes(HeldOutContexts)
    def take_held_out(self, message: HeldOutContexts) -> None:
        """Keep the contexts of the held-out records for the next look at them."""
        n = self.settings.n_held_out or self.codes.shape[1]
        self.check_shape("contexts", message.contexts, (len(self.codes), n, self.context_dim))
        self.held_out_contexts = message.contexts

    @takes(SelectionNotice)
    def select(self, message: SelectionNotice) -> None:
        """Keep the weights of the replicas that the server names."""
        self.keep(message.keep)

    # -- the end ---------------------------------------------------------------------------------

    def calibrate(self) -> None:
        """Give drawn records the codes' shares that the training records have.

        Columns are drawn given the contexts of real records, and output biases moved one column
        after the other. Parties that were led by the server have no contexts of all records, and
        leave their biases as they are.
        """
        if self.network is None or self.settings.protocol == "trained":
            return
        most = MOST_CALIBRATED if self.network.sees is None else MOST_CALIBRATED_OF_MANY
        n = min(self.codes.shape[1], most)
        n_columns = len(self.layout.columns)
        uniforms = self.streams.child("calibration").uniform("codes", 0, (2, n, n_columns))
        own = self.codes[:, self.settings.n_held_out :]
        changed: list[dict[str, Tensor]] = []
        for replica in range(len(own)):
            network = network_of(self.layout, self.weights(replica))
            assert network is not None
            shares = [self._shares(own[replica], i) for i in range(n_columns)]
            context = self.contexts[replica : replica + 1, -n:]
            network.draw(context, uniforms[replica], shares)
            changed.append(
                {
                    name: parameter.detach()
                    for name, parameter in network.named_parameters()
                    if name == "last_bias" or name.startswith("within.")
                }
            )
        for name, kept in self._by_name(self.optimizer.selected).items():
            if name in changed[0]:
                kept.copy_(torch.cat([found[name] for found in changed]))

    def _shares(self, codes: Tensor, column: int) -> Tensor:
        """Shares of a column's codes among records, (code,), or of places by group."""
        own, within = codes[:, column], self.layout.columns[column].within
        n_codes = self.layout.columns[column].n_codes
        if within is None:
            return torch.bincount(own.long(), minlength=n_codes) / len(own)
        counts = pair_counts(codes[:, column - 1], own, len(within), n_codes)
        return counts / counts.sum(1, keepdim=True).clamp_min(1)

    # -- state -----------------------------------------------------------------------------------

    def weights(self, replica: int) -> dict[str, Tensor]:
        """Return the weights that were kept of one replica, by name."""
        if self.network is None:
            return {}
        kept = self._by_name(self.optimizer.selected)
        found = {name: own[replica : replica + 1].clone() for name, own in kept.items()}
        if self.others is not None:  # the flag, which synthetic records never have
            found["first"] = found["first"][..., :-1, :].clone()
        if self.network.sees is not None:
            found["sees"] = self.network.sees
        return found

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """View numbers that are one after the other, as the optimiser has them, by parameter."""
        assert self.network is not None
        own = dict(self.network.named_parameters())
        parts = torch.split_with_sizes(flat, [parameter.numel() for parameter in own.values()])
        return {name: part.view(own[name].shape) for name, part in zip(own, parts)}

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs; randomness is a function of the step."""
        state = {"contexts": self.contexts, "best": self.best, "waited": self.waited}
        if self.sender is not None:
            state |= labelled("sender", self.sender.state_dict())
        if self.noiseless is not None:
            state["noisy"] = self.noiseless.noisy
        if self.network is not None:
            state |= self.optimizer.state()
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.contexts, self.best = state["contexts"], state["best"]
        self.waited = state["waited"]
        if self.contexts.shape[-1] and self.settings.protocol == "bounded":
            self.noiseless = self._without_noise(state["noisy"])
        if self.sender is not None:
            self.sender.load_state_dict(section(state, "sender"))
        if self.network is not None:
            self.optimizer.load_state(state)


def with_flag(contexts: Tensor, value: float) -> Tensor:
    """Append a number that is the same for all records, (replica, record, context + 1)."""
    return F.pad(contexts, (0, 1), value=value)
