"""What passive parties received, kept as running sums while a classifier trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from vflsynth.columns.base import OutputSpan
from vflsynth.learning.base import labelled, section
from vflsynth.registry import Number, register
from vflsynth.splitdefense.leakage.base import BATCH_MEASURES, batch_measures, one_against_rest
from vflsynth.splitdefense.settings import Part

_RIDGE = 1e-6

_BLOCK = 1 << 19
"""Numbers of gradients that are taken note of at once: small operations cost more than sums."""

EARLY_EPOCHS = 10
"""Epochs from the start over which gradients and residuals are also summed by themselves.

Attacks often work best while the model still changes little with the labels.
"""

AVERAGED = ("gradients", "early_gradients", "residuals", "all_residuals", "signs")
"""What is averaged of every record's messages; see `Evidence`."""

Floats = npt.NDArray[np.float32]


@register
@dataclass(repr=False, eq=False)
class LeakageMonitor(Part):
    """How closely leakage is watched during training.

    Parameters
    ----------
    every : int, default=20
        Steps between two batches that the per-batch attacks look at. Sums over the transcript are
        of every step in any case.
    """

    _rules: ClassVar = {"every": Number(1, whole=True)}

    every: int = 20


@dataclass(frozen=True)
class Evidence:
    """What one passive party could have kept of a training, and the truth to compare with.

    Parameters
    ----------
    party : str
    labels : ndarray of int, shape (record,)
        True classes of the training records, as positions in ``classes_``.
    n_classes : int
    encoded : ndarray, shape (record, column)
        The party's own encoded records.
    features, random_features : ndarray, shape (record, feature)
        Its bottom model's outputs after training, and before.
    mean_gradients, early_gradients : ndarray, shape (record, feature)
        Received gradients of each record, each divided by the batch's root mean square, averaged
        over all epochs, and over the first.
    all_residuals, residuals, signs : ndarray, shape (record, feature)
        The same after what the party's own outputs explain was taken out, over all epochs and over
        the first; averaged signs of the former.
    snapshots : ndarray, shape (record, snapshot · feature)
        The party's outputs as it sent them in the first, second, fourth, eighth, ... epoch.
    beside : ndarray, shape (record, column)
        The label holder's own encoded records: what attacks on columns start from.
    last_gradients, last_features : ndarray, shape (record, feature)
        Of the last time that the record was in a batch.
    spans : tuple of OutputSpan
        What the encoded columns are.
    batches : DataFrame
        One row per batch looked at: ``epoch``, the AUC of each attack on one batch, and the
        ``total_variation`` distance between the classes.
    """

    party: str
    labels: npt.NDArray[np.int64]
    n_classes: int
    encoded: Floats
    features: Floats
    random_features: Floats
    mean_gradients: Floats
    early_gradients: Floats
    residuals: Floats
    all_residuals: Floats
    signs: Floats
    snapshots: Floats
    beside: Floats
    last_gradients: Floats
    last_features: Floats
    spans: tuple[OutputSpan, ...]
    batches: pd.DataFrame


def pooled(members: Sequence[Evidence], party: str) -> Evidence:
    """Return what several passive parties of one training have if they put it together."""
    arrays = [field.name for field in fields(Evidence) if field.type == "Floats"]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(member, name) for member in members], axis=1)
        for name in arrays
    }
    none = members[0].batches.head(0)  # attacks on one message are of one party
    return replace(members[0], party=party, spans=(), batches=none, **joined)


@dataclass(frozen=True, slots=True)
class _Noted:
    """One message, as `LeakageRecord.add` documents it."""

    step: int
    rows: Tensor
    features: Tensor
    clean: Tensor
    sent: Tensor


@dataclass(eq=False)
class LeakageRecord:
    """A monitor at work for one party and R replicas, with the true classes of all records.

    `scalar_probability` says that the party's output is a probability-like scalar, which the
    residual attack exploits.
    """

    monitor: LeakageMonitor
    labels: Tensor
    dim: int
    n_replicas: int
    n_classes: int
    scalar_probability: bool
    steps_per_epoch: int

    def __post_init__(self) -> None:
        self.n_records, device = len(self.labels), self.labels.device
        zeros = torch.zeros((self.n_replicas * self.n_records, self.dim), device=device)
        self._sums = {
            name: zeros.clone() for name in (*AVERAGED, "last_gradients", "last_features")
        }
        self._counts = {name: torch.zeros_like(zeros[:, :1]) for name in AVERAGED}
        self._snapshots: dict[str, Tensor] = {}
        replicas = torch.arange(self.n_replicas, device=device)
        self._offset = replicas.unsqueeze(1) * self.n_records
        self._batches: list[Tensor] = []  # (1 + measure, replica) each
        self._pending: list[_Noted] = []

    @torch.no_grad()
    def add(self, step: int, rows: Tensor, features: Tensor, clean: Tensor, sent: Tensor) -> None:
        """Take note of one message about some rows, (replica, batch).

        `features` are what the party sent, `clean` the gradient before protection, and `sent` what
        it received, all (replica, batch, feature).
        """
        self._pending.append(_Noted(step, rows, features, clean, sent))
        if len(self._pending) * sent.numel() >= _BLOCK:
            self._sum_up()

    @torch.no_grad()
    def _sum_up(self) -> None:
        """Add what is pending to the sums, all messages in one go."""
        noted, self._pending = self._pending, []
        if not noted:
            return
        where = torch.cat([note.rows + self._offset for note in noted]).flatten()
        sent = torch.cat([note.sent for note in noted])  # (message · replica, batch, feature)
        features = torch.cat([note.features for note in noted])
        unit = sent.square().mean((1, 2), keepdim=True).sqrt().clamp_min(1e-30)
        scaled = sent / unit
        self._add("gradients", where, scaled)

        position = torch.arange(len(where), device=where.device)
        latest = torch.full_like(self._counts["gradients"][:, 0], -1, dtype=torch.int64)
        latest.scatter_reduce_(0, where, position, "amax")
        seen = (latest >= 0).nonzero()[:, 0]
        self._sums["last_gradients"][seen] = scaled.flatten(0, 1)[latest[seen]]
        self._sums["last_features"][seen] = features.flatten(0, 1)[latest[seen]]

        left = residual(scaled, features, scalar_probability=self.scalar_probability)
        self._add("all_residuals", where, left)
        self._add("signs", where, left.sign())
        self._take_snapshots(noted)
        first_steps = EARLY_EPOCHS * self.steps_per_epoch
        n_early = self.n_replicas * sum(note.step < first_steps for note in noted)
        if n_early:
            early = where[: n_early * left.shape[1]]
            self._add("residuals", early, left[:n_early])
            self._add("early_gradients", early, scaled[:n_early])
        self._look_at([note for note in noted if note.step % self.monitor.every == 0])

    def _add(self, name: str, where: Tensor, values: Tensor) -> None:
        self._sums[name].index_add_(0, where, values.flatten(0, 1))
        self._counts[name].index_add_(0, where, torch.ones_like(where[:, None], dtype=values.dtype))

    def _take_snapshots(self, noted: Sequence[_Noted]) -> None:
        """Keep the outputs of epochs that are powers of two."""
        for note in noted:
            epoch = note.step // self.steps_per_epoch + 1
            if epoch & (epoch - 1) == 0:
                kept = self._snapshots.setdefault(
                    str(epoch), torch.zeros_like(self._sums["last_features"])
                )
                kept[(note.rows + self._offset).flatten()] = note.features.flatten(0, 1)

    def _look_at(self, noted: list[_Noted]) -> None:
        """Run the attacks on single batches."""
        if not noted:
            return
        clean, sent = (torch.cat([getattr(n, k) for n in noted]) for k in ("clean", "sent"))
        labels = self.labels[torch.cat([note.rows for note in noted])]
        found = one_against_rest(
            lambda positive: batch_measures(sent, clean, positive), labels, self.n_classes
        )
        for note, measures in zip(noted, torch.split(found, self.n_replicas, 1)):
            epoch = note.step // self.steps_per_epoch + 1
            self._batches.append(torch.cat([torch.full_like(measures[:1], epoch), measures]))

    def batches(self, replica: int) -> pd.DataFrame:
        """Per-batch measures, one row per batch looked at that had all classes."""
        self._sum_up()
        rows = torch.stack([b[:, replica] for b in self._batches]).cpu().numpy()
        frame = pd.DataFrame(rows, columns=["epoch", *BATCH_MEASURES])
        frame = frame.dropna(subset="norm", ignore_index=True)
        return frame.astype({"epoch": int})

    def per_record(self, replica: int) -> dict[str, Floats]:
        """Return what `Evidence` has of every record's messages, by its names: (record, number)."""
        self._sum_up()
        own = slice(replica * self.n_records, (replica + 1) * self.n_records)
        found = {name: values[own] for name, values in self._sums.items()}
        for name in AVERAGED:
            found[name] = found[name] / self._counts[name][own].clamp_min(1.0)
        found["mean_gradients"] = found.pop("gradients")
        epochs = sorted(self._snapshots, key=int)
        found["snapshots"] = torch.cat([self._snapshots[epoch][own] for epoch in epochs], 1)
        return {name: values.cpu().numpy() for name, values in found.items()}

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs."""
        self._sum_up()
        state = {f"sum {name}": value for name, value in self._sums.items()}
        state |= {f"count {name}": value for name, value in self._counts.items()}
        state |= labelled("snapshots", self._snapshots)
        if self._batches:
            state["batches"] = torch.stack(self._batches)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        for group, values in (("sum", self._sums), ("count", self._counts)):
            for name in values:
                values[name].copy_(state[f"{group} {name}"])
        self._pending, self._snapshots = [], section(state, "snapshots")
        self._batches = list(state["batches"]) if "batches" in state else []


def residual(gradients: Tensor, features: Tensor, *, scalar_probability: bool) -> Tensor:
    """Take out of gradients what a smooth function of the party's own outputs explains.

    Both have shape (replica, batch, feature). A cross-entropy's gradient with respect to a scalar
    output h in (0, 1) has a factor 1/(h (1 - h)), which is multiplied away first.

    The passive party knows its own outputs; what they do not explain of the gradients is due to the
    labels and to noise. Regresses on powers up to the third of scalars, up to the second otherwise.
    """
    target = gradients * features * (1.0 - features) if scalar_probability else gradients
    spread = features.std(1, keepdim=True, correction=0).clamp_min(1e-6)
    scaled = (features - features.mean(1, keepdim=True)) / spread
    powers = (1, 2, 3) if features.shape[-1] == 1 else (1, 2)
    basis = torch.cat([torch.ones_like(scaled[..., :1]), *(scaled**k for k in powers)], -1)
    basis = basis.double()  # outputs of few different records: the ridge is within float32's error
    gram = basis.mT @ basis
    ridge = _RIDGE * gram.diagonal(dim1=1, dim2=2).mean(1).view(-1, 1, 1)
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    weights: Tensor = torch.linalg.solve(gram + ridge * eye, basis.mT @ target.double())
    return target - (basis @ weights).to(target.dtype)
