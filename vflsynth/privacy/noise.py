"""Gaussian noise that nobody can reconstruct."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor


def gaussian_noise(
    shape: Sequence[int],
    std: float,
    *,
    rng: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Draw independent Gaussian noise, one number per coordinate.

    Parameters
    ----------
    shape : sequence of int
    std : float
        Standard deviation.
    rng : torch.Generator, optional
        For tests only: whoever knows its state can subtract the noise. By default every draw is
        made from bytes of the operating system's cryptographic generator.
    dtype, device : optional
        Of the result; draws are made in float64 on the host.

    Returns
    -------
    Tensor, of the given shape

    Notes
    -----
    Privacy: seeding a ``torch.Generator`` from the operating system would not do. Its CPU engine
    keeps 32 bits of the seed, few enough to try them all; ``tests/unit/privacy/test_noise.py``
    shows it.

    The theory is about real numbers. Floating-point sums of signal and noise have gaps that depend
    on the signal (Mironov 2012), and ε does not account for them. Draws have 52 random bits and
    stay within ±8.2 standard deviations. Whoever publishes the noisy numbers themselves rather than
    what was trained on them should round them to a grid that is coarse against rounding errors.
    """
    if rng is not None:
        noise = torch.randn(tuple(shape), generator=rng, dtype=torch.float64, device=rng.device)
    else:
        count = int(np.prod(shape, dtype=np.int64))
        bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(12)
        # One bit fewer than float64 has: the half is kept, and no draw is infinite.
        noise = torch.from_numpy(ndtri((bits + 0.5) * 2.0**-52)).reshape(tuple(shape))
    return (noise * std).to(device=device, dtype=dtype)
