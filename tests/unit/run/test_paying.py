"""What a private run refuses of methods and mechanisms of others: nothing leaves unpaid."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from vflsynth import (
    DPLTSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    VertiGANSynthesizer,
)
from vflsynth.columns import TableTransformer
from vflsynth.columns.encoders import Standardizer
from vflsynth.exceptions import PrivacyBudgetError, ProtocolError
from vflsynth.mechanisms import DPSGD, Cover
from vflsynth.methods.latent_tree import mechanism
from vflsynth.methods.latent_tree.messages import LatentTables
from vflsynth.methods.latent_tree.method import PublishTree
from vflsynth.methods.vertigan.method import VertiGANMethod
from vflsynth.privacy import PublicSchema
from vflsynth.privacy.calibration import StepBudget

BUDGET = {
    "epsilon": 5.0,
    "delta": 1e-3,
    "public_schema": PublicSchema({"a": (0, 100)}, {"b": ("no", "yes")}, dtypes="given"),
}


def tables():
    rng = np.random.default_rng(0)
    numbers, answers = rng.integers(0, 90, 60).astype(float), rng.choice(["no", "yes"], 60)
    return {"lab": pd.DataFrame({"a": numbers}), "clinic": pd.DataFrame({"b": answers})}


def tree():
    return DPLTSynthesizer(privacy=LatentTree(**BUDGET), random_state=0)


def pairs():
    return MixtureSynthesizer(privacy=PairwiseTables(**BUDGET), n_components=4, random_state=0)


def gan(**parameters):
    privacy = DPSGD(**BUDGET, n_records=60)
    small = {"generator_hidden": (4,), "latent_dim": 2, "epochs": 2, "batch_size": 16}
    return VertiGANSynthesizer(privacy=privacy, device="cpu", verbose=0, **small, **parameters)


def test_a_message_is_not_paid_for_by_a_release_that_is_not_in_the_ledger(monkeypatch):
    """Only a law of `mechanism_checks` looked at the purpose."""
    other = {name: Cover("something else", True) for name in mechanism._COVERS}
    monkeypatch.setattr(mechanism, "_COVERS", other)
    with pytest.raises(ProtocolError, match="refuses LatentTables: the privacy ledger has no ent"):
        tree().fit(tables())


def test_a_release_is_made_once(monkeypatch):
    """Asked twice, a party drew noise twice, and the ledger counted it once."""
    begin = PublishTree.begin

    def twice(self):
        self.channel.gather(LatentTables, 0)
        begin(self)

    monkeypatch.setattr(PublishTree, "begin", twice)
    with pytest.raises(ProtocolError, match="steps once and in order, and step 0 is past"):
        tree().fit(tables())


@pytest.mark.parametrize("more", [{"n_epochs": 4}, {"steps_per_epoch": 8}])
def test_steps_are_those_of_the_plan_whatever_a_method_says(monkeypatch, more):
    """Only descents that count for themselves refused them; the ledger had the plan's."""
    planned = VertiGANMethod.duration
    monkeypatch.setattr(VertiGANMethod, "duration", lambda *given: replace(planned(*given), **more))
    monkeypatch.setattr(StepBudget, "take", lambda budget: None)
    with pytest.raises(PrivacyBudgetError, match="all 2 epochs that the privacy ledger pays for"):
        gan().fit(tables())


@pytest.mark.parametrize("synth", [tree, pairs])
def test_a_single_column_is_paid_for(synth):
    lab = {"lab": tables()["lab"]}
    made = synth().set_params(privacy__public_schema=PublicSchema({"a": (0, 100)}, dtypes="given"))
    assert len(made.fit(lab).sample(20)) == 20


def test_what_encodes_records_keeps_nothing_of_them_in_a_half():
    """Halves were made with the very object that had seen the records."""

    class Remembering(Standardizer):
        name = "remembering"

        def bend(self, numbers):
            self.seen_ = float(np.max(numbers, initial=-1.0))
            return super().bend(numbers)

    template = TableTransformer(encoders={"a": Remembering()})
    model = gan(transformer=template).fit(tables())
    half = model.parties_["lab"].transformer.transformers_["a"].histogram_
    assert not hasattr(half.curve, "seen_")
