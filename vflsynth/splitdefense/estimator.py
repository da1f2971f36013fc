"""Fitting split-learning classifiers."""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from vflsynth._random import RandomState, check_states
from vflsynth.columns import TableTransformer
from vflsynth.columns.public import typed_frames
from vflsynth.exceptions import ParameterError
from vflsynth.frames import DrawnRecords
from vflsynth.methods.parameters import check_combination, rules_of
from vflsynth.methods.synthesizer import PartyFrames, refuse_drawn
from vflsynth.privacy import PrivacyAccount
from vflsynth.registry import Choice, Map, Number, Optional, Rule, Sizes, check_parameters
from vflsynth.run.local import Options
from vflsynth.run.loop import Callback
from vflsynth.run.party_run import party_templates
from vflsynth.run.server_run import history_frame
from vflsynth.splitdefense.inputs import (
    AlignedFrames,
    are_party_frames,
    check_frames,
    numeric_kinds,
    split_table,
)
from vflsynth.splitdefense.label_privacy import RandomizedResponse
from vflsynth.splitdefense.leakage.monitor import LeakageMonitor
from vflsynth.splitdefense.method import SplitMethod
from vflsynth.splitdefense.model import FittedSplitClassifier, TopModel
from vflsynth.splitdefense.objectives.base import CrossEntropy, Objective
from vflsynth.splitdefense.passive import MaliciousSGD
from vflsynth.splitdefense.protections.gradients import Protection
from vflsynth.splitdefense.run import SplitRun
from vflsynth.splitdefense.settings import ClassWeight, Fusion, Part, SplitSettings


@dataclass(repr=False, eq=False, kw_only=True)
class BaseSplitClassifier(FittedSplitClassifier):
    """A classifier whose columns lie with several parties and whose labels lie with one.

    Every party has a bottom model over its own columns; the active party, which has the labels, has
    a top model over what the bottom models put out. Only those outputs and their gradients cross a
    party boundary. Three places are open to methods that protect labels: the labels before training
    (``label_privacy``), the objective, and a protection of the gradients before they are sent.

    Parameters
    ----------
    party_columns : mapping of str to sequence, optional
        For a single table instead of party frames: which party owns which columns. Columns that no
        party gets are left out. Default: one passive party owns them all.
    active : str, optional
        Name of the party that has the labels. Default: a party that has nothing else.
    numeric_bins : int, optional
        Intervals, between quantiles of the column, in which each party cuts its own numbers: how
        far a value is through each of them is a further input of the bottom model, which so learns
        steps as trees do. 0 for none. Default: 32, but none with `label_privacy`, where steps fit
        the responses' noise, and with `privacy`.
    bottom_hidden : sequence of int, default=(64, 32)
        Hidden sizes of each bottom model.
    intermediate_dim : int, default=16
        Outputs of each bottom model: the width of the cut.
    bottom_output : {"linear", "sigmoid"}, default="linear"
    fusion : {"concat", "sum", "mean"}, default="concat"
        How the top model's input is made of the parties' outputs. Parties that are added receive
        the same gradient, and the same draw of noise on it.
    top_hidden : sequence of int, default=(32,)
        Hidden sizes of the top model.
    label_privacy : RandomizedResponse, optional
        Labels are randomised once before training: the one protection with a guarantee for the
        whole transcript. Networks learn the true classes through it.
    party_dropout : float or mapping of str to float, default=0.0
        Probability that a passive party's output is replaced by zeros for a batch, so that the
        model learns to do without (DIMIP §4.1).
    absent : {"zero", "multihead"}, default="zero"
        What takes the place of a party that has quit: zeros, or a top model of its own for every
        subset of passive parties (at most 4 parties).
    malicious : mapping of str to MaliciousSGD, optional
        For audits: passive parties that amplify their updates, so that the completion attacks of
        `leakage_report` are active ones.
    monitor : LeakageMonitor or bool, default=True
        Whether and how closely leakage is watched; see `leakage_report`.
    classes : sequence, optional
        Which classes there are, if that is not to be learned from `y`: needed with `privacy`, and
        best with `label_privacy`. With either, a label that is missing or none of them counts as
        the first, and the active party is told of it; else it is refused.
    class_weight : mapping of class to float or "balanced", optional
        What a record of each class counts; "balanced" gives all classes the same sum. Predicted
        probabilities are those of the table so weighted.
    epochs : int, default=200
        At most.
    patience : int or None, default=10
        Epochs without a lower loss on held-out records after which training stops; all parties keep
        the networks of the best epoch. None holds no records out and trains all epochs. So does a
        table of fewer than 100 records.
    validation_fraction : float, default=0.1
        Share of the matched records that are held out. Under label privacy the loss is that of
        their randomised labels, which spends nothing.
    batch_size : int, default=256
        At most the number of records.
    learning_rate : float, default=1e-3
        Of Adam, for all networks.
    betas : tuple of float, default=(0.9, 0.999)
    weight_decay : float, default=0.01
        Of all networks' weights, decoupled from the gradients (AdamW).
    transformer : TableTransformer, optional
        Cloned for every party, with those of its ``kinds`` that concern the party's columns.
        Default: ``TableTransformer()``.
    device : str, default="auto"
    random_state : int, numpy Generator, RandomState or None, default=None
        Every role has its own stream: a protection does not change batches or initial weights.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : ndarray, shape (class,)
    parties_ : dict of str to BottomModel
        Each party's half.
    top_ : TopModel
        The active party's half.
    alignment_ : AlignmentReport or None
        None of a model that was trained with `privacy` and loaded, pickled or copied.
    history_ : DataFrame
        One row per epoch: losses, ``held_out_loss`` if records are held out, ``chosen`` for the
        epoch that was kept, ``seconds`` without a guarantee, and what a protection says about
        itself.
    settings_ : dict
    privacy_ledger_ : PrivacyLedger or None
        What was released of labels, with `label_privacy`, or of records, with `privacy`; print it.
    evidence_ : dict of str to Evidence
        What each passive party could have kept; input of `leakage_report`. It is in no model that
        is saved, pickled or copied.
    transcript_ : DataFrame or None
        Messages and bytes per boundary, if ``fit(transcript=True)``.
    device_ : str
    interrupted_ : bool
    n_features_in_ : int
        Columns of all parties; of an array, also those that no party gets.
    feature_names_in_ : ndarray of str
        Their names, for a single DataFrame.

    Notes
    -----
    Nobody certifies anything here: protections of gradients bound what one message tells, and the
    passive parties' own outputs tell more about labels than any of them hides. Which epoch was the
    best, by the held-out labels as they are trained on, is told to all parties.

    At prediction a party's table may lack values and hold categories that did not occur in
    training; see `TableTransformer.transform`.
    """

    _rules: ClassVar[Mapping[str, Rule]] = {
        "party_columns": Optional(Map("party to list of columns", Collection)),
        "malicious": Optional(Map("party to MaliciousSGD")),
        "numeric_bins": Optional(Number(0, whole=True)),
        "bottom_hidden": Sizes(at_least=0),
        "intermediate_dim": Number(1, whole=True),
        "bottom_output": Choice(("linear", "sigmoid")),
        "fusion": Choice(("concat", "sum", "mean")),
        "top_hidden": Sizes(at_least=0),
        "absent": Choice(("zero", "multihead")),
        "epochs": Number(1, whole=True),
        "patience": Optional(Number(1, whole=True)),
        "validation_fraction": Number(0, 1, closed=(False, False)),
        "batch_size": Number(1, whole=True),
        "weight_decay": Number(0),
    }
    """What parameters may be that synthesizers do not have, or with other numbers."""

    party_columns: Mapping[str, Sequence[Hashable]] | None = None
    active: str | None = None
    numeric_bins: int | None = None
    bottom_hidden: Sequence[int] = (64, 32)
    intermediate_dim: int = 16
    bottom_output: Literal["linear", "sigmoid"] = "linear"
    fusion: Fusion = "concat"
    top_hidden: Sequence[int] = (32,)
    label_privacy: RandomizedResponse | None = None
    party_dropout: float | Mapping[str, float] = 0.0
    absent: Literal["zero", "multihead"] = "zero"
    malicious: Mapping[str, MaliciousSGD] | None = None
    monitor: LeakageMonitor | bool = True
    classes: Sequence[Any] | None = None
    class_weight: ClassWeight = None
    epochs: int = 200
    patience: int | None = 10
    validation_fraction: float = 0.1
    batch_size: int = 256
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    transformer: TableTransformer | None = None
    device: str = "auto"
    random_state: RandomState = None
    verbose: int = 0

    # -- what subclasses preset ------------------------------------------------------------------

    def make_objective(self) -> Objective:
        """Return what is minimised: the parameter `objective`, if there is one."""
        objective: Objective | None = getattr(self, "objective", None)
        return CrossEntropy() if objective is None else objective

    def make_protection(self) -> Protection | None:
        """Return what is done to gradients before they are sent: the parameter `protection`."""
        return getattr(self, "protection", None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        parts = (self.make_objective(), self.make_protection())
        tags.classifier_tags.multi_class = not any(part and part.binary_only for part in parts)
        return tags

    # -- fitting ---------------------------------------------------------------------------------

    def fit(
        self,
        X: PartyFrames | pd.DataFrame | npt.ArrayLike,
        y: Any,
        on: Any = None,
        *,
        sample_weight: npt.ArrayLike | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 10,
        resume: str | os.PathLike[str] | None = None,
        transcript: bool = False,
        account: PrivacyAccount | str | os.PathLike[str] | None = None,
    ) -> Self:
        """Match the parties' records and train.

        Parameters
        ----------
        X : mapping of str to DataFrame, or DataFrame or array, shape (record, column)
            One table per party; or a single table, see `party_columns`. In a single table columns
            of numbers are numbers, as everywhere in scikit-learn; a party's table may hold codes.
        y : array-like, shape (record,)
            Labels, in the order of the active party's table. Where the active party has labels
            only, a Series whose index holds the keys.
        on : hashable, optional
            Key column of every table. Default: the index. Not for a single table.
        sample_weight : array-like, shape (record,), optional
            What each record counts, in the order of `y`; only ratios matter. Known to the active
            party alone, but gradients show it.
        callbacks, checkpoint, checkpoint_every, resume, transcript
            As in `VFLGANSynthesizer.fit`.
        account : PrivacyAccount or path-like, optional
            With `label_privacy`: the randomised labels are booked there before they are drawn, and
            a fit that would overshoot the budget in it is refused. Epsilons of labels add up, and
            have an account of their own, which counts nothing of columns. With `privacy` as in
            `VFLGANSynthesizer.fit`.

        Returns
        -------
        self

        Raises
        ------
        PartyDataError
            One of its children for every way in which tables can be unusable.
        ParameterError
            If a parameter is out of range, or the method is not defined for so many classes.
        ArtefactError
            If `resume` is damaged or belongs to another run.
        TrainingDivergedError
            If a loss is no longer finite.
        """
        before = self.__dict__.copy()
        try:
            self._prepare()
            options = Options(
                callbacks=callbacks,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
                resume=resume,
                transcript=transcript,
                account=account,
                verbose=self.verbose > 0,
            )
            self._train([self], X, y, on, options, sample_weight)
        except BaseException:  # what was fitted before still predicts
            self.__dict__ = before
            raise
        return self

    def fit_replicas(
        self,
        X: PartyFrames | pd.DataFrame | npt.ArrayLike,
        y: Any,
        on: Any = None,
        *,
        random_states: Sequence[RandomState],
        parameters: Sequence[Mapping[str, Any]] | None = None,
        replica_rows: npt.ArrayLike | None = None,
        callbacks: Sequence[Callback] = (),
        account: PrivacyAccount | str | os.PathLike[str] | None = None,
    ) -> list[Self]:
        """Train many classifiers at once and return each as a fitted classifier of its own.

        Parameters
        ----------
        X, y, on, callbacks
            As in `fit`.
        account : PrivacyAccount or path-like, optional
            As in `fit`; every classifier's labels are booked.
        random_states : sequence
            One per classifier.
        parameters : sequence of mapping, optional
            What differs between classifiers besides the seed, one mapping for `set_params` each:
            protections, label privacy, dropout, and numbers of the objective. Networks and schedule
            must be the same.
        replica_rows : array of int, shape (classifier, record), optional
            Positions, among the matched records in key order, that each is trained on. Default:
            all. Encodings are learned from all records in any case.

        Returns
        -------
        list of classifiers
            Clones of this one, fitted.

        Raises
        ------
        PartyDataError, TrainingDivergedError
            As in `fit`.
        ParameterError
            As in `fit`; or if there is no random state, `parameters` are not as many, the
            classifiers cannot be trained at once, or `replica_rows` does not fit.

        Examples
        --------
        A trade-off curve over the power of Marvell's noise, in the time of a few models:

        >>> from sklearn.datasets import load_breast_cancer
        >>> from vflsynth.splitdefense import MarvellClassifier
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> curve = MarvellClassifier(epochs=2).fit_replicas(
        ...     X, y, random_states=[0, 0], parameters=[{"power_scale": 1.0}, {"power_scale": 4.0}]
        ... )
        >>> [model.power_scale for model in curve]
        [1.0, 4.0]
        """
        check_states(random_states)
        if parameters is not None and len(parameters) != len(random_states):
            raise ParameterError(
                f"parameters has {len(parameters)} entries and random_states {len(random_states)}; "
                "give one of each per classifier"
            )
        models = []
        for i, state in enumerate(random_states):
            model = clone(self)
            if parameters is not None:
                model.set_params(**parameters[i])
            models.append(model.set_params(random_state=state))
            model._prepare()
        options = Options(
            callbacks=callbacks,
            replica_rows=replica_rows,
            account=account,
            verbose=self.verbose > 0,
        )
        self._train(models, X, y, on, options)
        return models

    def _prepare(self) -> None:
        """Check parameters."""
        rules = rules_of(type(self), self._rules)
        check_parameters(type(self).__name__, self.get_params(deep=False), rules)
        check_combination(self)
        parts: tuple[tuple[str, Any, Any, str], ...] = (
            ("classes", self.classes, Collection, "a sequence of labels"),
            ("class_weight", self.class_weight, Mapping | str, "a mapping, or 'balanced'"),
            ("objective", self.make_objective(), Objective, "an Objective"),
            ("protection", self.make_protection(), Protection, "a Protection"),
            ("label_privacy", self.label_privacy, RandomizedResponse, "a RandomizedResponse"),
            ("monitor", self.leakage_monitor(), LeakageMonitor, "a LeakageMonitor, or a bool"),
        )
        for name, part, kind, fix in parts:
            if not isinstance(part, kind | None):
                raise ParameterError(
                    f"{type(self).__name__}: {name} cannot be {part!r}. Fix: give {fix}"
                )
            if isinstance(part, Part):
                part.check()

    def _train(
        self,
        models: Sequence[Self],
        X: Any,
        y: Any,
        on: Any,
        options: Options,
        sample_weight: Any = None,
    ) -> SplitRun:
        """Train models of this class at once, and give each what it learned."""
        if getattr(self, "privacy", None) is not None:
            check_combination(self, options=options)
        for replica, model in enumerate(models):
            rows = options.replica_rows
            model._choose(X, y, on, None if rows is None else np.asarray(rows)[replica])
        run = self._seat(models, X, y, on, options, sample_weight)
        run.run()
        halves = run.halves()
        for replica, model in enumerate(models):
            model.parties_ = {name: found[replica] for name, found in halves.items()}
            model.top_ = TopModel.of(run.algorithm, replica, run.used(replica))
            model.evidence_ = run.evidence(replica)
            model.alignment_ = run.alignment
            history = history_frame(run.history, replica)
            if not run.settings.n_held_out:  # the last epoch is kept
                history = history.drop(columns="chosen", errors="ignore")
            model.privacy_ledger_ = run.ledger(model)
            if model.privacy_ledger_ is not None:  # times depend on batches
                history = history.drop(columns="seconds", errors="ignore")
            model.history_ = history
            model.settings_ = run.method.reported(run.settings, run.duration)
            model.device_, model.interrupted_ = str(run.device), run.interrupted
            model.transcript_ = None if run.transcript is None else run.transcript.to_frame()
            model._on = run.on
            if are_party_frames(X):
                widths = [len(half.transformer.kinds_) for half in model.parties_.values()]
                model.n_features_in_ = sum(widths)
                model.__dict__.pop("feature_names_in_", None)  # of an earlier fit
            else:  # the first one's table was checked
                names = {"n_features_in_", "feature_names_in_"} & {*vars(models[0])}
                model.__dict__.update({name: getattr(models[0], name) for name in names})
        return run

    def _choose(self, X: Any, y: Any, on: Any, rows: npt.NDArray[np.int64] | None) -> None:
        """Choose parameters that are left to trials, by the records that are trained on."""

    def _seat(
        self,
        models: Sequence[Self],
        X: Any,
        y: Any,
        on: Any,
        options: Options,
        sample_weight: Any = None,
    ) -> SplitRun:
        """Check the tables, and seat the parties."""
        kinds: dict[Any, str] = {}
        method = SplitMethod(models)
        private = method.is_private
        if are_party_frames(X):
            frames = check_frames(X, self.active, on, private=private)
        else:
            if on is not None:
                raise ParameterError(
                    "on names a key column of parties' tables, and X is a single table, "
                    "whose rows are numbered. Fix: leave on out, and the key column out of X"
                )
            table = models[0]._table(X, reset=True)
            parts = split_table(table, self.party_columns)
            frames = check_frames(parts, self.active, None, private=private)
            declared = getattr(self.transformer, "kinds", None) or {}
            for frame in frames.values():
                kinds |= {k: v for k, v in numeric_kinds(frame).items() if k not in declared}
        in_order = isinstance(X, AlignedFrames) or not are_party_frames(X)
        if in_order and isinstance(y, (pd.Series, pd.DataFrame)):
            y = y.to_numpy()  # rows were taken of X: they are numbered anew
        if isinstance(X, DrawnRecords):
            refuse_drawn(method)
        if private:
            frames = typed_frames(frames, method.public_schema, on)
        templates = party_templates(self.transformer, kinds, frames, on, method.public_schema)
        return SplitRun(
            method,
            frames,
            y,
            on,
            templates=templates,
            options=options,
            sample_weight=sample_weight,
            in_order=in_order,
        )

    def method(self) -> SplitMethod:
        """Return how every node of a run takes part in training this classifier."""
        return SplitMethod([self])

    def settings(self) -> SplitSettings:
        """Return sizes and rates as they are before the number of records is known."""
        plain = self.label_privacy is None and getattr(self, "privacy", None) is None
        default = 32 if plain else 0
        return SplitSettings(
            batch_size=self.batch_size,
            n_held_out=0,
            bottom_hidden=tuple(self.bottom_hidden),
            intermediate_dim=self.intermediate_dim,
            bottom_output=self.bottom_output,
            fusion=self.fusion,
            top_hidden=tuple(self.top_hidden),
            learning_rate=self.learning_rate,
            betas=(self.betas[0], self.betas[1]),
            weight_decay=self.weight_decay,
            numeric_bins=default if self.numeric_bins is None else self.numeric_bins,
        )

    def leakage_monitor(self) -> LeakageMonitor | None:
        """Return how closely leakage is watched; None if it is not."""
        if getattr(self, "privacy", None) is not None:
            return None
        return LeakageMonitor() if self.monitor is True else self.monitor or None
