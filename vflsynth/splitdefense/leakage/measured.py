"""What all attacks on one training found: one row each, with a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from vflsynth.networks.layers import pulled_back
from vflsynth.splitdefense.estimator import BaseSplitClassifier
from vflsynth.splitdefense.leakage.attacks import completion_attacks, transcript_attacks
from vflsynth.splitdefense.leakage.base import (
    BATCH_ATTACKS,
    Found,
    as_frame,
    batch_measures,
    one_against_rest,
)
from vflsynth.splitdefense.leakage.columns import column_attacks
from vflsynth.splitdefense.leakage.monitor import Evidence, pooled

BROKEN, PARTLY = 0.5, 0.15
"""Share disclosed of what outputs leave open, from which labels are called disclosed, or partly."""

COALITION = "all passive parties together"
"""Who attacks with what all of them have of a training."""

OWN_OUTPUTS = "own outputs"
"""What a party sees that looks at no gradient."""

AT_THE_CUT = "outputs at the cut"
"""What the label holder sees, who attacks columns with it."""


def measured(classifier: BaseSplitClassifier, random_state: int) -> pd.DataFrame:
    """Attack as every party, and as all passive ones; columns are those of `LeakageReport`."""
    frames = []
    for name, evidence in classifier.evidence_.items():
        transcript = _transcript(evidence, random_state, classifier)
        forward = float(transcript["value"].iloc[0])
        frames += [
            transcript,
            _batch_attacks(evidence, forward).assign(sees="one message"),
            _first_layer(classifier, evidence, forward).assign(sees="first layer"),
            _completion(classifier, name, random_state).assign(sees="trained bottom model"),
            column_attacks(evidence, random_state).assign(sees=AT_THE_CUT),
        ]
    if len(classifier.evidence_) > 1:
        together = pooled(list(classifier.evidence_.values()), COALITION)
        frames.append(_transcript(together, random_state))
    frame = pd.concat(frames, ignore_index=True).fillna({"column": ""})
    open_ = (1.0 - frame["baseline"]).clip(lower=1e-9)
    frame["disclosed"] = (frame["gain"] / open_).clip(lower=0.0)
    frame["verdict"] = [
        "broken" if share >= BROKEN else "partly" if share >= PARTLY else "held"
        for share in frame["disclosed"]
    ]
    is_baseline = (frame["attack"] == "forward output") & (frame["sees"] == "whole training")
    frame.loc[is_baseline, "verdict"] = "baseline"
    frame.loc[frame["gain"].isna(), "verdict"] = "not applicable"
    return frame


def _transcript(evidence: Evidence, random_state: int, classifier: Any = None) -> pd.DataFrame:
    """Attacks on the whole training; the first, which needs no gradient, is of its own."""
    frame = transcript_attacks(evidence, random_state, classifier)
    sees = np.where(frame.index == 0, OWN_OUTPUTS, "whole training")
    return frame.assign(sees=sees)


def _batch_attacks(evidence: Evidence, forward: float) -> pd.DataFrame:
    if evidence.batches.empty:  # no batch had two classes
        return pd.DataFrame()
    values = evidence.batches[list(BATCH_ATTACKS)].quantile(0.95).to_dict()
    return as_frame(evidence.party, _set_up_with_labels(values, forward))


def _set_up_with_labels(values: Mapping[Any, float], forward: float) -> list[Found]:
    return [
        Found(name.replace("_", " "), "set up with all labels", "AUC", value, forward)
        for name, value in values.items()
    ]


def _first_layer(
    classifier: BaseSplitClassifier, evidence: Evidence, forward: float
) -> pd.DataFrame:
    """Norm and angle of the last gradients at the party's own first layer (Marvell §5)."""
    network = classifier.parties_[evidence.party].network
    records = torch.tensor(evidence.encoded).double().unsqueeze(0)
    first = network.first(records).detach().requires_grad_()
    gradients = torch.tensor(evidence.last_gradients).double().unsqueeze(0)
    (at_first,) = pulled_back([network.after_first(first)], [first], [gradients])
    found = one_against_rest(
        lambda positive: batch_measures(at_first, at_first, positive.unsqueeze(0)),
        torch.tensor(evidence.labels),
        evidence.n_classes,
    )
    both = dict(zip(BATCH_ATTACKS, found[:2, 0].tolist()))
    return as_frame(evidence.party, _set_up_with_labels(both, forward))


def _completion(classifier: BaseSplitClassifier, party: str, random_state: int) -> pd.DataFrame:
    network = classifier.parties_[party].network
    frame = completion_attacks(classifier.evidence_[party], network, random_state)
    if party in (classifier.malicious or {}):
        frame["attack"] = "active " + frame["attack"]
    return frame
