"""The GAFM classifier, which can choose its margin by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from vflsynth._random import derive, secret_from
from vflsynth.exceptions import ParameterError
from vflsynth.registry import register
from vflsynth.run.local import Options
from vflsynth.splitdefense.classifiers import PublishedClassifier
from vflsynth.splitdefense.leakage.labels import folded_auc
from vflsynth.splitdefense.leakage.monitor import LeakageMonitor
from vflsynth.splitdefense.objectives.base import Objective
from vflsynth.splitdefense.objectives.gafm import GAFM
from vflsynth.splitdefense.protections.gradients import Protection
from vflsynth.splitdefense.settings import Fusion

MARGINS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Margins that "auto" tries."""

_SHARE, _REPEATS, _LEAST_AUC = 0.1, 5, 0.6
_FEWEST_RECORDS = 50


@register
@dataclass(repr=False, eq=False, kw_only=True)
class GAFMClassifier(PublishedClassifier):
    """GAFM: cut gradients of an adversarial loss and of noisy labels, which partly cancel.

    Parameters
    ----------
    pseudo_label_margin, penalty_weight, gan_weight, label_noise_std, weight_clip
        See `GAFM`.
    discriminator_hidden : sequence of int, default=(64, 32, 16)
    protection : Protection, optional
        On top; the authors propose Marvell.
    **shared
        See `BaseSplitClassifier`. GAFM needs scalar bottom outputs in (0, 1) that are added, so the
        defaults are ``intermediate_dim=1``, ``bottom_output="sigmoid"``, ``fusion="mean"`` and
        ``top_hidden=(32, 16)``. Trains as published, like `MarvellClassifier`.

    Attributes
    ----------
    pseudo_label_margin_ : float
        The margin that was trained with: the one given, or with "auto" the one chosen.
    margins_ : DataFrame or None
        With "auto": ``train_auc``, ``leak_auc`` and their ``ratio`` of every margin tried, means
        over trainings on random tenths of the training records. None without.

    Other attributes are those of `BaseSplitClassifier`.

    Notes
    -----
    The generator learns which way up to rank from nothing but the distribution of its outputs, so
    its raw output ranks upside down for many seeds. The active party fits the probabilities' slope
    and intercept to the training labels, which `predict_proba` applies.
    """

    pseudo_label_margin: float | Literal["auto"] = 0.05
    penalty_weight: float = 1.0
    gan_weight: float = 1.0
    label_noise_std: float = 0.01
    weight_clip: float = 0.1
    discriminator_hidden: Sequence[int] = (64, 32, 16)
    protection: Protection | None = None
    intermediate_dim: int = 1
    bottom_output: Literal["linear", "sigmoid"] = "sigmoid"
    fusion: Fusion = "mean"
    top_hidden: Sequence[int] = (32, 16)

    def _choose(self, X: Any, y: Any, on: Any, rows: npt.NDArray[np.int64] | None) -> None:
        self.margins_, self.pseudo_label_margin_ = None, self.pseudo_label_margin
        if self.pseudo_label_margin == "auto":
            self.margins_ = self.margin_trials(X, y, on, rows)
            self.pseudo_label_margin_ = best_margin(self.margins_)

    def margin_trials(
        self, X: Any, y: Any, on: Any, rows: npt.NDArray[np.int64] | None = None
    ) -> pd.DataFrame:
        """Train on random tenths of the records with every margin, all at once; see `margins_`.

        `rows` are positions, among the matched records, that the classifier will be trained on, by
        default all. Source: GAFM appendix C.2. The leak AUC is that of the last epoch's batches,
        the training AUC that of the predictions; below 1/2 it counts as one above, see the class's
        notes. A tenth that lacks one of the classes enters neither. Raises ParameterError if labels
        are to be private.
        """
        if self.label_privacy is not None:
            raise ParameterError(
                "pseudo_label_margin='auto' cannot be had with label_privacy: it trains 25 times "
                "on the same labels, randomised anew, and chooses by the true ones, so that ε "
                "would not be what was given. Pass a number, such as 0.05"
            )
        if rows is None:
            probe = clone(self).set_params(pseudo_label_margin=MARGINS[0])
            matching = probe._seat([probe], X, y, on, Options())
            matching.join()
            rows = np.arange(matching.alignment.n_matched)
        rng = np.random.default_rng(list(derive(secret_from(self.random_state), "margins")))
        size = min(len(rows), max(_FEWEST_RECORDS, round(_SHARE * len(rows))))
        tenths = [rng.permutation(rows)[:size] for _ in range(_REPEATS)]
        trials = [
            clone(self).set_params(
                pseudo_label_margin=margin,
                monitor=LeakageMonitor(every=1),
                random_state=int(rng.integers(2**31)),
            )
            for margin in MARGINS
            for _ in tenths
        ]
        for trial in trials:
            trial._prepare()
        every = Options(replica_rows=np.stack(tenths * len(MARGINS)), verbose=self.verbose > 0)
        trained = trials[0]._train(trials, X, y, on, every)
        measured = []
        for replica, trial in enumerate(trials):
            evidence = next(iter(trial.evidence_.values()))
            batches = evidence.batches
            last = batches[batches["epoch"] == batches["epoch"].max()]
            leak = float(last[["norm", "mean_threshold", "median_threshold"]].mean().mean())
            features = {name: found.double() for name, found in trained.features(replica).items()}
            positive = trial.top_.probabilities(features)[:, 1:]
            measured.append(
                {
                    "margin": trial.pseudo_label_margin,
                    "train_auc": folded_auc(positive, evidence.labels, 2),
                    "leak_auc": leak,
                }
            )
        found = pd.DataFrame(measured)
        found["ratio"] = found["leak_auc"] / found["train_auc"]
        return found.groupby("margin").mean()

    def make_objective(self) -> Objective:
        """Return what is minimised, with the margin that was chosen."""
        margin = self.pseudo_label_margin
        if margin == "auto":  # chosen before training; until then the objective says "auto"
            margin = getattr(self, "pseudo_label_margin_", margin)
        return GAFM.of(self, pseudo_label_margin=margin)


def best_margin(trials: pd.DataFrame) -> float:
    """Return the margin of the lowest ratio among those that train well enough, if any does."""
    useful = trials[trials["train_auc"] >= _LEAST_AUC]
    useful = trials if useful.empty else useful
    return float(useful.index[int(useful["ratio"].to_numpy().argmin())])
