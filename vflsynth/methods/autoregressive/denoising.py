"""What noisy contexts may have been before their noise, by all of them together."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.models.samplers import pick

_MOST_COMPONENTS, _RECORDS_OF_ONE, _ROUNDS = 64, 200, 60
_MOST_RECORDS, _MOST_NUMBERS = 1 << 15, 1 << 21
"""Contexts that a mixture is fitted to, and numbers of them with their products."""

_PRIOR_RECORDS, _PRIOR_SHARE = 2.0, 0.1
"""What holds a component's covariance: as many records, of so much of the covariance of all."""


class NoiselessContexts:
    """A mixture of Gaussians that with the noise is distributed as the noisy contexts are.

    Noise of known variance can be taken off a distribution, if not off a record: expectation and
    maximisation of a Gaussian mixture under Gaussian noise (Bovy, Hogg and Roweis 2011), from the
    receiver's own contexts alone. `draw` says what a context may have been without its noise.
    `noisy` are (replica, record, number); the noise has `noise_std` in every number.
    """

    def __init__(self, noisy: Tensor, noise_std: float, streams: RandomStreams) -> None:
        self.noisy, self.streams, self.noise = noisy, streams, noise_std**2
        n_records = min(noisy.shape[1], _MOST_RECORDS, _MOST_NUMBERS // noisy.shape[2] ** 2)
        n_components = max(1, min(_MOST_COMPONENTS, n_records // _RECORDS_OF_ONE))
        if n_components == 1:
            n_records = min(noisy.shape[1], _MOST_RECORDS)
        starts = streams.permutation("starts", 0, n_records)[:, :n_components]
        found = [self._fit(own.double(), rows) for own, rows in zip(noisy[:, :n_records], starts)]
        logs, means, covariances = (torch.stack(own) for own in zip(*found))
        precision, gain, root = _with_noise(covariances, self.noise)
        self.coefficients = _coefficients(logs, means, precision).to(noisy.dtype)
        self.means, self.gain, self.root = (own.to(noisy.dtype) for own in (means, gain, root))

    def _fit(self, noisy: Tensor, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log weights, means and covariances of the noiseless contexts of one replica."""
        n, width = noisy.shape
        mean = noisy.mean(0, keepdim=True)
        spread = (noisy - mean).mT @ (noisy - mean) / n
        values, vectors = torch.linalg.eigh(spread)
        # What the noise's own spread leaves is not known; in the ball they sum to `width` at most.
        least = 2.0 * self.noise * math.sqrt(2.0 / n)
        values = (values - self.noise).clamp_min(least)
        overall = (vectors * (values * (width / values.sum()).clamp_max(1.0))) @ vectors.mT
        means, covariances = _in_ball(noisy[starts]), overall.expand(len(starts), -1, -1) / 4.0
        weights = torch.full_like(means[:, 0], 1.0 / len(starts))
        if len(starts) == 1:
            return weights.log(), _in_ball(mean), overall.unsqueeze(0)
        features = _features(noisy)
        for _ in range(_ROUNDS):
            precision, gain, _ = _with_noise(covariances, self.noise)
            logits = features @ _coefficients(weights.log(), means, precision).mT
            sums = logits.softmax(1).mT @ features
            counts = sums[:, 0] + 1e-9
            weights = counts / counts.sum()
            first = sums[:, 1 : 1 + width] / counts.unsqueeze(1)
            second = sums[:, 1 + width :].view(-1, width, width) / counts.view(-1, 1, 1)
            spread = second - first.unsqueeze(2) * first.unsqueeze(1)
            means = _in_ball(means + (gain @ (first - means).unsqueeze(2)).squeeze(2))
            found = gain @ spread @ gain.mT + covariances - gain @ covariances
            held, shares = _PRIOR_RECORDS * _PRIOR_SHARE * overall, counts.view(-1, 1, 1)
            covariances = (shares * found + held) / (shares + _PRIOR_RECORDS)
            covariances = (covariances + covariances.mT) / 2.0
        return weights.log(), means, covariances

    def draw(self, noisy: Tensor, name: str, index: int) -> Tensor:
        """Draw a context without noise given each of these, of shape (replica, record, number).

        Name and index say which draw of the streams.
        """
        places = self.streams.uniform(f"{name}.components", index, tuple(noisy.shape[1:2]))
        normals = self.streams.normal(f"{name}.numbers", index, tuple(noisy.shape[1:]))
        chosen = torch.zeros_like(places, dtype=torch.long)
        if self.means.shape[1] > 1:
            shares = torch.bmm(_features(noisy), self.coefficients.mT).softmax(2)
            chosen = torch.stack([pick(*own) for own in zip(shares, places)])
        drawn = []
        for r, own in enumerate(noisy):
            means = self.means[r, chosen[r]]
            off = _times(self.gain[r], chosen[r], own - means)
            drawn.append(means + off + _times(self.root[r], chosen[r], normals[r]))
        return torch.stack(drawn)


def _with_noise(covariances: Tensor, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (V + s² I)^-1, V (V + s² I)^-1, and the root of the covariance that is left.

    The symmetric root, which follows from V without a jump.
    """
    values, vectors = torch.linalg.eigh(covariances)
    values = values.clamp_min(0.0).unsqueeze(-2)
    share = values / (values + noise)
    spectra = 1.0 / (values + noise), share, (noise * share).sqrt()
    precision, gain, root = ((vectors * own) @ vectors.mT for own in spectra)
    return precision, gain, root


def _coefficients(logs: Tensor, means: Tensor, precision: Tensor) -> Tensor:
    """Return what 1, c and c c' count in a component's log density, (..., component, feature)."""
    linear = (precision @ means.unsqueeze(-1)).squeeze(-1)
    constant = logs + 0.5 * torch.linalg.slogdet(precision)[1] - 0.5 * (linear * means).sum(-1)
    return torch.cat([constant.unsqueeze(-1), linear, -0.5 * precision.flatten(-2)], -1)


def _features(of: Tensor) -> Tensor:
    """Return 1, c and c c' of contexts, (..., 1 + number + number * number)."""
    squares = (of.unsqueeze(-1) * of.unsqueeze(-2)).flatten(-2)
    return torch.cat([torch.ones_like(of[..., :1]), of, squares], -1)


def _in_ball(means: Tensor) -> Tensor:
    """Move means to where contexts without noise can have one."""
    radius = math.sqrt(means.shape[-1])
    length: Tensor = torch.linalg.vector_norm(means, dim=-1, keepdim=True)
    return means * (radius / length.clamp_min(radius))


def _times(matrices: Tensor, chosen: Tensor, vectors: Tensor) -> Tensor:
    """Multiply every vector, (record, number), by the matrix that is chosen for it."""
    if len(matrices) == 1:
        return vectors @ matrices[0].mT
    return (matrices[chosen] @ vectors.unsqueeze(2)).squeeze(2)
