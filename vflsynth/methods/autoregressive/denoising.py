"""What noisy contexts may have been before their noise, by all of them together."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.models.samplers import pick

_MOST_COMPONENTS, _RECORDS_OF_ONE = 64, 200
_ROUNDS, _MOST_RECORDS, _MOST_NUMBERS = 60, 1 << 15, 1 << 24
_PRIOR_RECORDS, _PRIOR_SHARE = 2.0, 0.1
"""What holds a component's covariance: as many records, of so much of the covariance of all."""


class NoiselessContexts:
    """A mixture of Gaussians that with the noise is distributed as the noisy contexts are.

    Noise of known variance can be taken off a distribution, if not off a record: expectation and
    maximisation of a Gaussian mixture under Gaussian noise (Bovy, Hogg and Roweis 2011), from the
    receiver's own contexts alone. `draw` says what a context may have been without its noise.
    Means and covariances are (replica, component, ...); the noise has `noise_std` in every number.
    """

    def __init__(self, noisy: Tensor, noise_std: float, streams: RandomStreams) -> None:
        self.noisy, self.streams, self.noise = noisy, streams, noise_std**2
        n_records = min(noisy.shape[1], _MOST_RECORDS, _MOST_NUMBERS // noisy.shape[2] ** 2)
        n_records = max(1, n_records)
        n_components = max(1, min(_MOST_COMPONENTS, n_records // _RECORDS_OF_ONE))
        starts = streams.permutation("starts", 0, n_records)[:, :n_components]
        found = [self._fit(own.double(), rows) for own, rows in zip(noisy[:, :n_records], starts)]
        logs, means, covariances = (torch.stack(own) for own in zip(*found))
        precision = torch.linalg.inv(covariances + self.noise * _eye(covariances))
        self.coefficients = _coefficients(logs, means, precision).to(noisy.dtype)
        self.gain = (covariances @ precision).to(noisy.dtype)
        rest = covariances - covariances @ precision @ covariances
        jitter = 1e-9 * _eye(covariances)
        self.root = torch.linalg.cholesky((rest + rest.mT) / 2.0 + jitter).to(noisy.dtype)
        self.means = means.to(noisy.dtype)

    def _fit(self, noisy: Tensor, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log weights, means and covariances of the noiseless contexts of one replica."""
        n, width = noisy.shape
        centred = noisy - noisy.mean(0)
        eye = torch.eye(width, dtype=noisy.dtype, device=noisy.device)
        values, vectors = torch.linalg.eigh(centred.mT @ centred / n - self.noise * eye)
        # A variance is at most 1 in a ball, and what the noise's own spread leaves is not known.
        least = min(1.0, 2.0 * self.noise * (2.0 / n) ** 0.5)
        overall = (vectors * values.clamp_min(least)) @ vectors.mT
        means, weights = noisy[starts], torch.full_like(noisy[starts, 0], 1.0 / len(starts))
        covariances = overall.expand(len(starts), width, width) / 4.0
        features = _features(noisy)
        for _ in range(_ROUNDS):
            precision = torch.linalg.inv(covariances + self.noise * eye)
            logits = features @ _coefficients(weights.log(), means, precision).mT
            sums = logits.softmax(1).mT @ features
            counts = sums[:, 0] + 1e-9
            weights = counts / counts.sum()
            first = sums[:, 1 : 1 + width] / counts.unsqueeze(1)
            second = sums[:, 1 + width :].view(-1, width, width) / counts.view(-1, 1, 1)
            spread = second - first.unsqueeze(2) * first.unsqueeze(1)
            gain = covariances @ precision
            means = means + (gain @ (first - means).unsqueeze(2)).squeeze(2)
            found = gain @ spread @ gain.mT + covariances - gain @ covariances
            held = _PRIOR_RECORDS * _PRIOR_SHARE * overall
            shares = counts.view(-1, 1, 1)
            covariances = (shares * found + held) / (shares + _PRIOR_RECORDS)
            covariances = (covariances + covariances.mT) / 2.0
        return weights.log(), means, covariances

    def draw(self, noisy: Tensor, name: str, index: int) -> Tensor:
        """Draw a context without noise given each of these, of shape (replica, record, number).

        Name and index say which draw of the streams.
        """
        places = self.streams.uniform(f"{name}.components", index, tuple(noisy.shape[1:2]))
        normals = self.streams.normal(f"{name}.numbers", index, tuple(noisy.shape[1:]))
        shares = torch.bmm(_features(noisy), self.coefficients.mT).softmax(2)
        drawn = []
        for r, own in enumerate(noisy):
            chosen = pick(shares[r], places[r])
            means = self.means[r, chosen]
            off = self.gain[r, chosen] @ (own - means).unsqueeze(2)
            spread = self.root[r, chosen] @ normals[r].unsqueeze(2)
            drawn.append(means + (off + spread).squeeze(2))
        return torch.stack(drawn)


def _features(of: Tensor) -> Tensor:
    """Return 1, c and c c' of contexts, (..., 1 + number + number * number)."""
    squares = (of.unsqueeze(-1) * of.unsqueeze(-2)).flatten(-2)
    return torch.cat([torch.ones_like(of[..., :1]), of, squares], -1)


def _eye(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def _coefficients(logs: Tensor, means: Tensor, precision: Tensor) -> Tensor:
    """Return what 1, c and c c' count in a component's log density, (..., component, feature)."""
    linear = (precision @ means.unsqueeze(-1)).squeeze(-1)
    constant = logs + 0.5 * torch.linalg.slogdet(precision)[1] - 0.5 * (linear * means).sum(-1)
    return torch.cat([constant.unsqueeze(-1), linear, -0.5 * precision.flatten(-2)], -1)
