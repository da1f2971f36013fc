"""Training split classifiers with all parties in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from vflsynth._device import resolve_device
from vflsynth._random import secret_from
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ParameterError
from vflsynth.privacy import PrivacyAccount, PrivacyLedger
from vflsynth.run.local import LocalRun, Options
from vflsynth.splitdefense.active import Rows, SplitLearning
from vflsynth.splitdefense.inputs import LABEL_HOLDER, check_labels
from vflsynth.splitdefense.label_privacy import RandomizedResponse
from vflsynth.splitdefense.leakage.monitor import Evidence
from vflsynth.splitdefense.method import SplitMethod
from vflsynth.splitdefense.passive import outputs_of
from vflsynth.splitdefense.settings import HoldingOut


class SplitRun(LocalRun):
    """One run of classifiers that are trained at once; the server is the active party.

    Frames are checked, of all that contribute features, in the order in which they are fused. For
    `y` see `BaseSplitClassifier.fit`; `sample_weight`, (record,), is in its order. `in_order`: so
    are all tables' rows.
    """

    method: SplitMethod
    algorithm: SplitLearning

    def __init__(
        self,
        method: SplitMethod,
        frames: Mapping[str, pd.DataFrame],
        y: Any,
        on: Any,
        *,
        templates: Mapping[str, TableTransformer],
        options: Options,
        sample_weight: Any = None,
        in_order: bool = False,
    ) -> None:
        active, stated = method.parameters.active, method.parameters.classes is not None
        labels, table = check_labels(y, frames, active, on, stated=stated, in_order=in_order)
        self.in_order = in_order
        own = LABEL_HOLDER if active is None else active
        super().__init__(
            method,
            {**frames, own: table},
            on,
            secrets=[secret_from(classifier.random_state) for classifier in method.classifiers],
            device=resolve_device(method.parameters.device),
            templates=templates,
            schema=method.public_schema,
            options=options,
            server="active party",
            own=own,
            own_has_columns=active is not None,
            identity=method.identity(),
        )
        method.take_labels(labels, self.parties[own], tuple(frames), sample_weight)

    def plan(self, n_training: int) -> None:
        """Have the method plan its noise, for the active party's own columns as well."""
        self.method.agree(self.agreed.counts, n_training)

    def ledger(self, classifier: Any) -> PrivacyLedger | None:
        """Return what one classifier's training released."""
        if self.method.plan is not None:
            return self.method.plan.ledger
        privacy: RandomizedResponse | None = classifier.label_privacy
        n_models = len(self.method.classifiers)
        return None if privacy is None else privacy.ledger().of_one_of(n_models)

    def _check_matched(self, n_matched: int) -> None:
        """Check the rows to train on, and book what is going to be released."""
        if self.method.is_private:
            super()._check_matched(n_matched)
            return
        self._check_rows(n_matched)
        account = self.options.account
        if not isinstance(account, PrivacyAccount):
            return
        ledgers: list[PrivacyLedger] = []
        for classifier in self.method.classifiers:
            if classifier.label_privacy is None:
                raise ParameterError(
                    f"account is for what has an ε, and {type(classifier).__name__} has no "
                    "label_privacy. Fix: label_privacy=RandomizedResponse(...), or leave account "
                    "out"
                )
            ledgers.append(classifier.label_privacy.ledger())
        entries = [entry for ledger in ledgers for entry in ledger.entries]
        run = f"fit of {type(self.method.parameters).__name__}"
        opened = self._opened = account.open(run, ledgers[0], earlier=self.directory.booked)
        if not self.agreed.epoch or not opened.has(entries):  # one that goes on has its responses
            opened.check(entries)
            opened.spend(entries)
            self.directory.booked.append(self.booked)

    def used(self, replica: int) -> Rows:
        """Return the positions of the records that a classifier was trained on."""
        schedule = self.algorithm.schedule
        rows = schedule.trained_on if isinstance(schedule, HoldingOut) else self.rows
        if rows is None:
            return slice(None)
        return rows[replica].cpu().numpy()

    def features(self, replica: int) -> dict[str, Tensor]:
        """Return parties' outputs for a classifier's records, (1, record, feature) each."""
        used, outputs = self.used(replica), self.algorithm.outputs
        return {name: found[replica : replica + 1, used].cpu() for name, found in outputs.items()}

    def evidence(self, replica: int) -> dict[str, Evidence]:
        """Return what each passive party could have kept of the training of one classifier."""
        active, used, features = self.algorithm, self.used(replica), self.features(replica)
        own: Any = active.own
        beside = np.empty((len(active.truth), 0), np.float32)
        beside = (beside if own is None else own.records.cpu().numpy())[used]
        evidence = {}
        for name, record in active.records.items():
            party: Any = self.parties[name].party
            untrained = outputs_of(party.untrained, party.records, len(active.labels))[replica]
            evidence[name] = Evidence(
                party=name,
                labels=active.truth.cpu().numpy()[used],
                n_classes=active.target.n_classes,
                encoded=party.records.cpu().numpy()[used],
                features=features[name][0].numpy(),
                random_features=untrained.cpu().numpy()[used],
                beside=beside,
                spans=party.transformer.spans_,
                batches=record.batches(replica),
                **{name: values[used] for name, values in record.per_record(replica).items()},
            )
        return evidence
