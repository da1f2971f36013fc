"""The server of the Gaussian copula: correlations of masked scores, and how to draw from them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from vflsynth.parties.gan_server import moments
from vflsynth.protocol import CopulaLoadings, MaskedRecords
from vflsynth.protocol.messages import SERVER


def copula_loadings(received: Mapping[str, MaskedRecords]) -> dict[str, CopulaLoadings]:
    """Factor the correlation matrix of all parties' normal scores.

    Parameters
    ----------
    received : mapping of party name to MaskedRecords
        Masked normal scores; the rows of no party can be read from them.

    Returns
    -------
    dict of str to CopulaLoadings
        For each party the part L_i, shape (all columns, own columns), of a root L with L^T L = R,
        the correlation matrix. It tells a party the correlations among its own columns, no others'.
    """
    _, covariance = moments(received)
    deviations = torch.diagonal(covariance[0]).sqrt()
    correlation = covariance[0] / torch.outer(deviations, deviations)
    eigenvalues, vectors = torch.linalg.eigh(correlation)
    root = eigenvalues.clamp_min(0.0).sqrt().unsqueeze(1) * vectors.mT
    root = root / root.norm(dim=0)  # round-off only
    names = sorted(received)
    widths = [received[name].records.shape[-1] - 1 for name in names]
    return {
        name: CopulaLoadings(SERVER, name, 0, part.contiguous())
        for name, part in zip(names, torch.split(root, widths, dim=1))
    }
