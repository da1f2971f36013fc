"""A passive party that does not follow the protocol: active model completion."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.callbacks import StopAfter
from vflsynth._random import RandomStreams
from vflsynth.codec import to_json
from vflsynth.exceptions import ArtefactError, ParameterError, PartyNameError
from vflsynth.splitdefense import MaliciousSGD, SplitNNClassifier, leakage_report
from vflsynth.splitdefense.settings import Perceptron

FAST = {"active": "bank", "epochs": 3, "random_state": 0}


@pytest.mark.parametrize("most", [1.0, 5.0])
def test_update_is_the_attacks(most):
    """v = m v + g;  w = w - lr v min(max(1 + v / v_before, 1), most), entry by entry."""
    network = Perceptron([3, 2], streams=RandomStreams([b"a"]), name="bottom")
    optimizer = MaliciousSGD(0.1, 0.5, most).optimizer(network)
    weights = [float(w) for w in optimizer.flat]
    velocity = [0.0] * len(weights)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        gradient = torch.randn(len(weights), generator=generator)
        optimizer.set_gradient([gradient[:6], gradient[6:]])
        optimizer.step()
        for i, g in enumerate(gradient.tolist()):
            before, velocity[i] = velocity[i], 0.5 * velocity[i] + g
            growth = velocity[i] / before if before else 0.0
            weights[i] -= 0.1 * velocity[i] * min(max(1.0 + growth, 1.0), most)
        assert optimizer.flat.tolist() == pytest.approx(weights, rel=1e-4, abs=1e-6)
    assert network.linears[0].weight.flatten().tolist() == pytest.approx(weights[:6], rel=1e-4)


@pytest.mark.slow
def test_model_comes_to_rely_on_the_attacker(digits):
    """Same descent, amplified: the others are worth less without it (Fu et al. 2022)."""
    frames, y = digits

    def without_it(most):
        models = SplitNNClassifier(
            active="left",
            numeric_bins=0,  # as published: with more inputs such large steps diverge
            malicious={"right": MaliciousSGD(0.2, most=most)},
            epochs=12,
            batch_size=64,
            monitor=False,
        ).fit_replicas(frames, y, random_states=range(4))
        return np.mean([(m.predict(frames, absent={"right"}) == y).mean() for m in models])

    assert without_it(5.0) < without_it(1.0)


@pytest.mark.slow
def test_report_says_so(tables, short_attacks):
    classifier = SplitNNClassifier(malicious={"shop": MaliciousSGD()}, **FAST)
    report = leakage_report(classifier.fit(*tables, on="id"))
    found = report.to_frame().query("sees == 'trained bottom model'")
    active = found["attack"].str.startswith("active ")
    assert set(found[active]["party"]) == {"shop"}
    assert set(found[~active]["party"]) == {"web"}
    assert sum("did not follow the protocol" in s for s in report.sentences) == 1


def test_saving_and_resuming(tables, tmp_path):
    frames, y = tables
    classifier = SplitNNClassifier(malicious={"shop": MaliciousSGD()}, **FAST)
    whole = classifier.fit(frames, y, on="id").predict_proba(frames)
    classifier.save(tmp_path / "model")
    loaded = SplitNNClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(frames), whole)
    assert to_json(loaded.malicious["shop"]) == to_json(MaliciousSGD())

    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 1, "callbacks": [StopAfter(2)]}
    classifier.fit(frames, y, on="id", **options)
    classifier.fit(frames, y, on="id", resume=tmp_path / "run")
    assert np.array_equal(classifier.predict_proba(frames), whole)
    with pytest.raises(ArtefactError, match="belongs to another run"):
        SplitNNClassifier(**FAST).fit(frames, y, on="id", resume=tmp_path / "run")


def test_errors(tables):
    with pytest.raises(PartyNameError, match="malicious names a party that is not passive"):
        SplitNNClassifier(malicious={"bank": MaliciousSGD()}, **FAST).fit(*tables, on="id")
    with pytest.raises(ParameterError, match=r"give it a MaliciousSGD\(\)"):
        SplitNNClassifier(malicious={"shop": True}, **FAST).fit(*tables, on="id")
    with pytest.raises(ParameterError, match="MaliciousSGD: most"):
        SplitNNClassifier(malicious={"shop": MaliciousSGD(most=0.5)}, **FAST).fit(*tables, on="id")
