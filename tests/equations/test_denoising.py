"""Contexts without their noise: the fit, the draws, and the chain that training goes on with."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest, multivariate_normal, norm

from vflsynth._random import RandomStreams
from vflsynth.methods.autoregressive import denoising
from vflsynth.methods.autoregressive.denoising import NoiselessContexts
from vflsynth.methods.autoregressive.party import AutoregressiveParty


def contexts_of(clean, noise_std, seed=0, replicas=1):
    rng = np.random.default_rng(seed)
    noisy = clean + noise_std * rng.normal(size=(replicas, *clean.shape))
    return torch.from_numpy(noisy).float()


def fitted(noisy, noise_std):
    streams = RandomStreams([bytes([r]) for r in range(len(noisy))])
    return NoiselessContexts(noisy, noise_std, streams)


def in_ball(x):
    return x * min(1.0, np.sqrt(len(x)) / np.linalg.norm(x))


def slow_round(noisy, noise, weights, means, covariances, overall):
    """Equations 13 to 16 of Bovy, Hogg and Roweis (2011), one record after the other."""
    n, width = noisy.shape
    shares = np.array(
        [
            [w * multivariate_normal(m, v + noise * np.eye(width)).pdf(x)
             for w, m, v in zip(weights, means, covariances, strict=True)]
            for x in noisy
        ]
    )  # fmt: skip
    shares /= shares.sum(1, keepdims=True)
    found = []
    for k, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        inverse = np.linalg.inv(covariance + noise * np.eye(width))
        places = [mean + covariance @ inverse @ (x - mean) for x in noisy]
        left = covariance - covariance @ inverse @ covariance
        count = shares[:, k].sum()
        new_mean = sum(q * b for q, b in zip(shares[:, k], places, strict=True)) / count
        off = [b - new_mean for b in places]
        total = sum(q * (np.outer(o, o) + left) for q, o in zip(shares[:, k], off, strict=True))
        held = denoising._PRIOR_RECORDS * denoising._PRIOR_SHARE * overall
        found.append(
            (count / n, in_ball(new_mean), (total + held) / (count + denoising._PRIOR_RECORDS))
        )
    return [np.array(own) for own in zip(*found, strict=True)]


def test_a_fit_is_the_published_rounds(monkeypatch):
    """Three rounds of three components, from where the fit starts."""
    monkeypatch.setattr(denoising, "_ROUNDS", 3)
    monkeypatch.setattr(denoising, "_RECORDS_OF_ONE", 20)
    noisy = contexts_of(np.random.default_rng(1).uniform(-1.5, 1.5, (60, 2)), 0.4)
    found = fitted(noisy, 0.4)
    starts = RandomStreams([b"\0"]).permutation("starts", 0, 60)[0, :3]
    x = noisy[0].double().numpy()
    overall = np.cov(x.T, bias=True) - 0.16 * np.eye(2)
    means = np.array([in_ball(x[k]) for k in starts])
    weights, covariances = np.full(3, 1 / 3), np.array([overall / 4.0] * 3)
    for _ in range(3):
        weights, means, covariances = slow_round(x, 0.16, weights, means, covariances, overall)
    log_weights, own_means, own_covariances = found._fit(noisy[0].double(), starts)
    np.testing.assert_allclose(log_weights.exp(), weights, rtol=1e-6)
    np.testing.assert_allclose(own_means, means, rtol=1e-6)
    np.testing.assert_allclose(own_covariances, covariances, rtol=1e-6)


def test_draws_are_of_the_posterior(monkeypatch):
    """One number, three components: the distribution by Bayes' rule on a fine grid."""
    monkeypatch.setattr(denoising, "_RECORDS_OF_ONE", 500)
    clean = np.random.default_rng(2).choice([-1.0, 0.2, 1.3], (1500, 1))
    noisy = contexts_of(clean, 0.5)
    found = fitted(noisy, 0.5)
    starts = RandomStreams([b"\0"]).permutation("starts", 0, 1500)[0, :3]
    logs, means, covariances = (own.numpy() for own in found._fit(noisy[0].double(), starts))
    grid = np.linspace(-4.0, 4.0, 8001)
    density = sum(
        np.exp(w) * norm.pdf(grid, m, v**0.5)
        for w, m, v in zip(logs, means[:, 0], covariances[:, 0, 0], strict=True)
    )
    for seen in (-1.4, 0.7):
        posterior = np.cumsum(density * norm.pdf(seen, grid, 0.5))
        drawn = found.draw(torch.full((1, 4000, 1), seen), "test", 0)[0, :, 0].numpy()
        wanted = np.interp(drawn, grid, posterior / posterior[-1])
        assert kstest(wanted, "uniform").pvalue > 1e-3


def test_noise_is_taken_off_the_distribution_and_not_off_records():
    """Of 5,000 corners of a square: draws are as wide as these are, and lie near corners."""
    clean = np.random.default_rng(3).choice([-1.0, 1.0], (5000, 2))
    noisy = contexts_of(clean, 0.6, replicas=2)
    drawn = fitted(noisy, 0.6).draw(noisy, "test", 0)
    assert noisy.var(1).mean() > 1.3
    assert (drawn.var(1) - 1.0).abs().max() < 4.0 * 1.36 * (2 / 5000) ** 0.5

    def near(x):
        return float(((x.abs() - 1.0).abs() < 0.5).all(2).float().mean())

    assert near(noisy) < 0.4
    assert near(drawn) > 0.9
    wrong = (drawn.sign() != torch.from_numpy(clean).sign()).float().mean()
    # One draw per record cannot know better than Bayes' rule does.
    assert wrong > 0.5 * norm.sf(1.0 / 0.6)


@pytest.mark.parametrize("noise_std", [1e-12, 1e-3, 0.4, 1e3])
@pytest.mark.parametrize(
    ("n", "width"), [(1, 2), (3, 6), (450, 1), (300, 40), (900, 40), (50, 300)]
)
def test_ugly_contexts_have_finite_draws(n, width, noise_std):
    """Few of them, many numbers, hardly any noise or hardly anything else; and all alike."""
    rng = np.random.default_rng(4)
    for clean in (np.zeros((n, width)), rng.normal(size=(n, width))):
        noisy = contexts_of(clean, noise_std)
        drawn = fitted(noisy, noise_std).draw(noisy, "test", 0)
        assert drawn.shape == noisy.shape
        assert drawn.isfinite().all()
        assert drawn.square().sum(2).max() < 50 * width  # contexts have a sum of `width` at most
    if noise_std < 0.01:
        assert (drawn - noisy).abs().max() < 20 * noise_std + 1e-5


def test_replicas_are_alone():
    """What one has does not depend on the others."""
    noisy = contexts_of(np.random.default_rng(5).normal(size=(400, 3)), 0.5, replicas=2)
    together = NoiselessContexts(noisy, 0.5, RandomStreams([b"x", b"y"])).draw(noisy, "test", 1)
    for r, secret in enumerate([b"x", b"y"]):
        own = noisy[r : r + 1]
        alone = NoiselessContexts(own, 0.5, RandomStreams([secret])).draw(own, "test", 1)
        torch.testing.assert_close(alone[0], together[r])


class AllRecords:
    """A schedule whose every batch is all records."""

    def __init__(self, n):
        self.n = n

    def rows(self, step):
        return torch.arange(self.n).unsqueeze(0)


def test_the_chain_ends_at_what_columns_and_noise_say_together():
    """Gaussian contexts, noise and columns: the posterior is known."""
    n, noise_std, spread = 4000, 0.8, 0.5
    clean = np.random.default_rng(6).normal(size=(n, 1))
    seen = torch.from_numpy(clean + spread * np.random.default_rng(7).normal(size=(n, 1))).float()
    party = AutoregressiveParty.__new__(AutoregressiveParty)
    party.streams, party.schedule = RandomStreams([b"x"]), AllRecords(n)
    party.noiseless = fitted(contexts_of(clean, noise_std), noise_std)
    party.contexts = party.noiseless.noisy.clone()
    party.codes, party.values, party.others = torch.zeros(1, n, 1), seen.unsqueeze(0), None

    def likelihood(codes, values, contexts):
        return -0.5 * ((values - contexts) / spread).square().squeeze(2)

    party._likelihood = likelihood
    for step in range(30):
        assert (party._contexts_of(step) == party.contexts).all()
    precision = 1.0 + noise_std**-2 + spread**-2
    mean = (party.noiseless.noisy[0, :, 0] / noise_std**2 + seen[:, 0] / spread**2) / precision
    scores = (party.contexts[0, :, 0] - mean) * precision**0.5
    assert abs(float(scores.mean())) < 0.1
    assert float(scores.std()) == pytest.approx(1.0, abs=0.08)
