"""Protections and label privacy: what they promise, on tensors whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from tests.callbacks import StopAfter
from vflsynth._random import HiddenStreams, RandomStreams
from vflsynth.exceptions import ParameterError
from vflsynth.splitdefense import (
    PPDL,
    DiscreteSGD,
    GradientCompression,
    Isotropic,
    Marvell,
    MaxNorm,
    NoisyGradient,
    RandomizedResponse,
    SplitNNClassifier,
    method,
)
from vflsynth.splitdefense.active import SplitLearning
from vflsynth.splitdefense.label_privacy import LabelChannel
from vflsynth.splitdefense.objectives.base import cross_entropy
from vflsynth.splitdefense.protections.gradients import Draws
from vflsynth.splitdefense.targets import Calibration
from vflsynth.testing import parametrize_with_checks, protection_checks
from vflsynth.testing.protections import ProtectionCase, toy_gradients

STOPS = {"active": "bank", "monitor": False, "random_state": 0}
PROTECTIONS = [
    GradientCompression(0.1),
    DiscreteSGD(2),
    Isotropic(4.0),
    MaxNorm(),
    NoisyGradient(1.0),
    DiscreteSGD(1, noise_scale=1.0),
    PPDL(),
    Marvell(1.0),
]


@parametrize_with_checks({str(each): protection_checks(each) for each in PROTECTIONS})
def test_laws(check):
    check()


@pytest.mark.parametrize("protection", [GradientCompression(0.1), DiscreteSGD(2)], ids=str)
def test_nothing_is_drawn_where_there_is_no_noise(protection):
    assert protect(protection, toy_gradients()).equal(protect(protection, toy_gradients(), step=1))


def protect(protection, values, step=0):
    return ProtectionCase(protection).protect(values, step=step)


def mean_square(protection, values, steps=300):
    return torch.stack(
        [protect(protection, values, step).square().sum(-1) for step in range(steps)]
    )


def test_max_norm_makes_norms_equal():
    """E‖g~‖² = max‖g‖² for every record."""
    values = toy_gradients()[:1]
    found = mean_square(MaxNorm(), values, 2000).mean(0)
    largest = values.square().sum(-1).max()
    assert float((found / largest).mean()) == pytest.approx(1, abs=0.05)
    assert float((found / largest).min()) > 0.8


@pytest.mark.parametrize(
    "protection", [MaxNorm(), Isotropic(1.0), NoisyGradient(0.5), Marvell(1.0)], ids=str
)
def test_noise_is_around_the_gradient(protection):
    """E[g~ | g] = g for every record, to five standard errors of the mean."""
    values = toy_gradients()[:1, :60]
    sent = torch.stack([protect(protection, values, step) for step in range(1500)])
    error = (sent.mean(0) - values).abs()
    assert bool((error <= 5 * sent.std(0) / 1500**0.5 + 1e-6).all())


def test_isotropic_power():
    values = toy_gradients()[:1]
    sent = torch.stack([protect(Isotropic(9.0), values, step) for step in range(200)])
    power = (sent - values).square().sum(-1).mean()
    assert float(power) == pytest.approx(9 * float(values.square().sum(-1).max()), rel=0.02)


def test_noisy_gradient_scale():
    values = toy_gradients()[:1]
    noise = torch.stack([protect(NoisyGradient(0.5), values, s) for s in range(100)]) - values
    scale = 0.5 * float(values.square().mean().sqrt())
    assert float(noise.abs().mean()) == pytest.approx(scale, rel=0.02)  # E|Laplace(b)| = b
    assert float(noise.std()) == pytest.approx(math.sqrt(2) * scale, rel=0.02)


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 1.0])
def test_compression_keeps_the_largest(keep):
    values = toy_gradients()[:1]
    sent = protect(GradientCompression(keep), values)
    kept = sent != 0
    assert int(kept.sum()) == round(keep * values.numel())
    assert torch.equal(sent[kept], values[kept])
    if 0 < keep < 1:
        assert float(values[kept].abs().min()) >= float(values[~kept].abs().max())


def test_discrete_sgd_has_few_values():
    values = toy_gradients()[:1]
    sent = protect(DiscreteSGD(2, bound=1.0), values)
    unit = values.square().mean().sqrt() / 2
    assert len(torch.unique((sent / unit).round())) == 5
    inside = values.abs() < 2 * unit
    assert float((sent - values)[inside].abs().max()) <= float(unit) / 2 * 1.0001


def test_ppdl_sends_at_most_its_share_within_its_bounds():
    values = toy_gradients()[:1]
    sent = protect(PPDL(fraction=0.1, clip=0.5), values)
    assert 0 < int((sent != 0).sum()) <= round(0.1 * values.numel())
    assert float(sent.abs().max()) <= 0.5 * float(values.square().mean().sqrt()) * 1.0001
    exact = protect(PPDL(fraction=1.0, noise_scale=0.0, threshold=0.0, clip=1e9), values)
    assert torch.equal(exact, values)


# -- label privacy -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomized_response(n_classes, epsilon):
    labels = torch.arange(180_000) % n_classes
    privacy = RandomizedResponse(epsilon)
    drawn = privacy.transform(labels, n_classes)
    counts = np.zeros((n_classes, n_classes))
    np.add.at(counts, (labels.numpy(), drawn.numpy()), 1)
    rates = counts / counts.sum(1, keepdims=True)
    keep = math.exp(epsilon) / (math.exp(epsilon) + n_classes - 1)
    expected = np.full((n_classes, n_classes), (1 - keep) / (n_classes - 1))
    np.fill_diagonal(expected, keep)
    assert rates == pytest.approx(expected, abs=0.03)  # eight standard errors
    # ε-DP: no output is more than e^ε times as likely under one label as under another.
    assert (expected.max(0) / expected.min(0)).max() == pytest.approx(math.exp(epsilon))
    assert privacy.keep_probability(n_classes) == pytest.approx(keep)


def test_an_epsilon_that_rounding_makes_infinite_is_refused():
    """From 37 on, every label stayed what it was."""
    assert RandomizedResponse(30.0).keep_probability(2) < 1.0 - 2.0**-52
    RandomizedResponse(30.0).check()
    with pytest.raises(ParameterError, match=r"epsilon must be a number in \[1e-06, 30\]"):
        RandomizedResponse(37.0).check()
    with pytest.raises(ParameterError, match="epsilon must be a number in"):
        RandomizedResponse(1e-9).check()  # training diverged, once the labels were booked
    RandomizedResponse(1e-6).check()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_forward_correction_is_the_loss_of_the_responses(n_classes):
    """Against the matrix T of the channel, record by record; a replica without it is plain."""
    privacies = [RandomizedResponse(1.0), None, RandomizedResponse(0.2)]
    rng = np.random.default_rng(0)
    n_outputs = 1 if n_classes == 2 else n_classes
    logits = torch.from_numpy(rng.normal(0, 3, (3, 20, n_outputs)))
    labels = torch.from_numpy(rng.integers(0, n_classes, (3, 20)))
    weights = torch.from_numpy(rng.uniform(0, 2, (3, 20)))
    channel = LabelChannel.of(privacies, n_classes, torch.device("cpu"))
    found = cross_entropy(logits, labels, channel, weights)
    for replica, privacy in enumerate(privacies):
        expected = 0.0
        for record in range(20):
            scores = logits[replica, record]
            if n_outputs == 1:
                scores = torch.tensor([0.0, scores[0]])
            probabilities = scores.softmax(0).numpy()
            response = np.eye(n_classes)
            if privacy is not None:
                keep, change = privacy.shares(n_classes)
                response = change + (keep - change) * response
            seen = probabilities @ response
            expected -= weights[replica, record] * np.log(seen[labels[replica, record]]) / 20
        assert float(found[replica]) == pytest.approx(float(expected), rel=1e-5)


def test_networks_of_responses_start_from_the_shares_of_the_classes():
    privacies = [RandomizedResponse(1.0), None]
    truth = torch.tensor([[0.7, 0.2, 0.1]] * 2)
    channel = LabelChannel.of(privacies, 3, torch.device("cpu"))
    keep, change = privacies[0].shares(3)
    responses = torch.stack([change + (keep - change) * truth[0], truth[1]])
    own = torch.full((2, 1, 3), 5.0)
    found = channel.start_from(responses, own)
    torch.testing.assert_close(found[0, 0].softmax(0), truth[0])
    assert found[1].equal(own[1])
    two = LabelChannel.of(privacies[:1], 2, torch.device("cpu"))
    keep, change = privacies[0].shares(2)
    responses = change + (keep - change) * torch.tensor([[0.9, 0.1]])
    odds = two.start_from(responses, torch.zeros(1, 1, 1))
    assert float(odds.sigmoid()) == pytest.approx(0.1, rel=1e-5)
    never = two.start_from(torch.tensor([[0.99, 0.01]]), torch.zeros(1, 1, 1))
    assert np.isfinite(float(never))


def test_calibration_is_logistic_regression_and_sees_through_the_response():
    rng = np.random.default_rng(0)
    scores = rng.normal(2, 3, 20_000)
    truth = (rng.random(20_000) < expit(0.8 * scores - 1)).astype(np.int64)
    plain = Calibration.learn(scores, truth)
    spread = scores.std()
    model = LogisticRegression(C=10, tol=1e-8).fit(((scores - 2) / spread)[:, None], truth)
    assert plain.slope == pytest.approx(model.coef_[0, 0] / spread, rel=1e-4)
    assert plain.intercept == pytest.approx(
        model.intercept_[0] - 2 * model.coef_[0, 0] / spread, rel=1e-3
    )
    privacy = RandomizedResponse(1.0)
    responses = privacy.transform(torch.from_numpy(truth), 2).numpy()
    channel = LabelChannel.of([privacy], 2, torch.device("cpu"))
    found = Calibration.learn(scores, responses, channel)
    assert (found.slope, found.intercept) == pytest.approx((0.8, -1.0), abs=0.15)
    assert Calibration.learn(scores, responses).slope < 0.6, "not through the response"
    share = Calibration.learn(np.zeros(5), np.array([0, 0, 0, 0, 1]))
    assert share.probabilities(np.zeros((1, 1)))[0, 1] == pytest.approx(0.2, abs=1e-4)
    one_class = Calibration.learn(np.arange(5.0), np.ones(5, np.int64))
    assert one_class.probabilities(np.zeros((1, 1)))[0, 1] > 0.99


def test_laplace_noise_is_finite_at_every_uniform_number():
    class Extremes(HiddenStreams):
        def uniform(self, name, index, shape):
            return [np.array([2.0**-53, 2.0**-24, 0.25, 0.5, 0.75, 1.0 - 2.0**-53])]

    noise = Draws(Extremes([b"any"]), 0).laplace("x", (6,))
    assert noise.isfinite().all()
    torch.testing.assert_close(noise[0, 2:5], torch.tensor([-np.log(2), 0.0, np.log(2)]).float())
    assert noise[0, 0] < noise[0, 1] < -15
    assert noise[0, 5] > 35


# -- where draws come from -----------------------------------------------------------------------


def test_responses_are_drawn_anew_whatever_the_random_state(tables, fresh_responses):
    """Of two fits with one random_state: about half of the labels get another response at ε 0.1."""
    frames, y = tables
    one, other = (
        SplitNNClassifier(label_privacy=RandomizedResponse(0.1), epochs=1, **STOPS).fit(
            frames, y, on="id"
        )
        for _ in range(2)
    )
    assert not np.array_equal(one.predict_proba(frames), other.predict_proba(frames))


def test_a_run_that_goes_on_has_the_responses_that_it_had(tables, fresh_responses, tmp_path):
    """Others would be a second release, which nobody pays for."""
    seen = []

    class Noted(SplitLearning):
        def step(self, step):
            seen[-1] = self.labels.clone(), self.task.around.label_shares.clone()
            super().step(step)

    def fit(**options):
        seen.append(None)
        model = SplitNNClassifier(label_privacy=RandomizedResponse(0.1), epochs=3, **STOPS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(method, "SplitLearning", Noted)
            model.fit(*tables, on="id", **options)

    fit(callbacks=[StopAfter(1)], checkpoint=tmp_path / "run", checkpoint_every=1)
    fit(resume=tmp_path / "run")
    for before, after in zip(*seen):
        assert torch.equal(before, after)
    fit()
    assert not torch.equal(seen[0][0], seen[2][0])


def test_nothing_that_hides_is_drawn_of_philox(tables, monkeypatch):
    """Noise of gradients: the cryptographic generator, of a key that only the active party has."""
    used = []
    honest = HiddenStreams.normal
    monkeypatch.setattr(
        HiddenStreams, "normal", lambda *given: used.append(given[1]) or honest(*given)
    )
    philox = RandomStreams.normal

    def drawn(streams, name, *given):
        assert not any(word in name for word in ("marvell", "isotropic", "shared")), name
        return philox(streams, name, *given)

    monkeypatch.setattr(RandomStreams, "normal", drawn)
    for protection in (Isotropic(1.0), Marvell()):
        SplitNNClassifier(protection=protection, epochs=1, **STOPS).fit(*tables, on="id")
    assert {name.split(".", 1)[1] for name in used} >= {"isotropic", "marvell.along"}
