"""Published membership inference attacks on a synthetic table alone (VFLGAN Table 3).

Every attack is a function of ``(synthetic, candidates, reference)`` and returns a score per
candidate: the higher, the more likely the generator was trained on it. They work on any tables of
the same columns, wherever the synthetic one comes from. The attacker needs neither the training
algorithm nor other records, at most a reference table of the same population; their knowledge, and
mostly their success, is far below that of `audit_synthetic_data`.

Definitions are those of the DOMIAS benchmark, whose numbers Table 3 reports. Columns are encoded as
standardised numbers and one-hot labels; scales are those of the reference table, or else of the
synthetic one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import logsumexp
from sklearn.neural_network import MLPClassifier

from vflsynth.audit.distances import distance_blocks, nearest_distances
from vflsynth.audit.encoding import Booleans, Encoding, Floats
from vflsynth.audit.intervals import Estimate, auc_interval
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ParameterError
from vflsynth.synthesizers import VertiGANSynthesizer

Attack = Callable[..., Floats]


def monte_carlo(
    synthetic: pd.DataFrame,
    candidates: pd.DataFrame,
    reference: pd.DataFrame | None = None,
    *,
    categorical: Sequence[Hashable] = (),
) -> Floats:
    """Score by the share of synthetic records close to the candidate (MC).

    Parameters
    ----------
    synthetic, candidates : DataFrame
    reference : DataFrame, optional
        Gives scales only.
    categorical : sequence of hashable, default ()
        Numeric columns to read as labels.

    Returns
    -------
    ndarray, shape (candidate,)

    Notes
    -----
    Source: Hilprecht et al. 2019. Close is what lies within the median, over candidates, of the
    distance to the nearest synthetic record.
    """
    published, asked, _ = _encode(synthetic, candidates, reference, categorical)
    radius = np.median(nearest_distances(asked, published))
    return np.concatenate(
        [(block < radius).mean(axis=1) for block in distance_blocks(asked, published)]
    )


def gan_leaks(
    synthetic: pd.DataFrame,
    candidates: pd.DataFrame,
    reference: pd.DataFrame | None = None,
    *,
    categorical: Sequence[Hashable] = (),
) -> Floats:
    """Score by the distance to the nearest synthetic record (GAN-leaks 0).

    Parameters
    ----------
    synthetic, candidates, reference, categorical
        As in `monte_carlo`.

    Returns
    -------
    ndarray, shape (candidate,)
        Minus the distance; the exponential that others take of it ranks alike, until it underflows.

    Notes
    -----
    Source: Chen et al. 2020, the full black-box attack.
    """
    published, asked, _ = _encode(synthetic, candidates, reference, categorical)
    return -nearest_distances(asked, published)


def gan_leaks_calibrated(
    synthetic: pd.DataFrame,
    candidates: pd.DataFrame,
    reference: pd.DataFrame | None,
    *,
    categorical: Sequence[Hashable] = (),
) -> Floats:
    """Score by how much closer synthetic records are than reference records (GAN-leaks CAL).

    Parameters
    ----------
    synthetic, candidates, categorical
        As in `monte_carlo`.
    reference : DataFrame
        Records of the same population that were not trained on.

    Returns
    -------
    ndarray, shape (candidate,)
        Difference of squared distances.

    Notes
    -----
    Source: Chen et al. 2020; as in the DOMIAS benchmark the reference records themselves stand in
    for those of a reference generator.
    """
    published, asked, others = _encode(synthetic, candidates, _required(reference), categorical)
    return np.asarray(
        nearest_distances(asked, others) ** 2 - nearest_distances(asked, published) ** 2
    )


def domias(
    synthetic: pd.DataFrame,
    candidates: pd.DataFrame,
    reference: pd.DataFrame | None,
    *,
    categorical: Sequence[Hashable] = (),
) -> Floats:
    """Score by the ratio of synthetic to reference density (DOMIAS).

    Parameters
    ----------
    synthetic, candidates, reference, categorical
        As in `gan_leaks_calibrated`.

    Returns
    -------
    ndarray, shape (candidate,)
        Logarithm of the ratio.

    Notes
    -----
    Source: van Breugel et al. 2023, Eq. 2, with kernel density estimates. Their default, a block
    neural autoregressive flow, is not implemented: it would need a dependency of its own.
    """
    published, asked, others = _encode(synthetic, candidates, _required(reference), categorical)
    return _log_density(published, asked) - _log_density(others, asked)


def logan_d1(
    synthetic: pd.DataFrame,
    candidates: pd.DataFrame,
    reference: pd.DataFrame | None,
    *,
    categorical: Sequence[Hashable] = (),
    random_state: int = 0,
) -> Floats:
    """Score by a classifier of synthetic against reference records (LOGAN D1).

    Parameters
    ----------
    synthetic, candidates, reference, categorical
        As in `gan_leaks_calibrated`.
    random_state : int, default=0

    Returns
    -------
    ndarray, shape (candidate,)
        Log odds of "synthetic".

    Notes
    -----
    Source: Hayes et al. 2019, with partial information: two hidden layers of 256, Adam at 1e-3,
    batches of 256, 300 passes over as many records as there are candidates.
    """
    published, asked, others = _encode(synthetic, candidates, _required(reference), categorical)
    features = np.concatenate([published, others])
    labels = np.repeat([1, 0], [len(published), len(others)])
    rng = np.random.default_rng([random_state, 4])
    network = MLPClassifier(
        (256, 256), batch_size=256, learning_rate_init=1e-3, random_state=int(rng.integers(2**31))
    )
    for _ in range(max(1, 300 * len(asked) // 256)):
        batch = rng.integers(len(features), size=256)
        network.partial_fit(features[batch], labels[batch], classes=[0, 1])
    log_odds = network.predict_log_proba(asked)
    return np.asarray(log_odds[:, 1] - log_odds[:, 0])


def logan_0(
    synthetic: pd.DataFrame,
    candidates: pd.DataFrame,
    reference: pd.DataFrame | None = None,
    *,
    categorical: Sequence[Hashable] = (),
    epochs: int | None = None,
    random_state: int = 0,
) -> Floats:
    """Score by the critic of another GAN that is trained on the synthetic records (LOGAN 0).

    Parameters
    ----------
    synthetic, candidates, reference, categorical
        As in `monte_carlo`.
    epochs : int, optional
        Passes over the synthetic records. Default: as `VertiGANSynthesizer` chooses.
    random_state : int, default=0

    Returns
    -------
    ndarray, shape (candidate,)
        Score of the critic, which is higher for what looks like a synthetic record.

    Notes
    -----
    Source: Hayes et al. 2019, black-box. Departs from the benchmark, whose other GAN is a CTGAN:
    here it is a WGAN-GP with the default sizes of `VertiGANSynthesizer`, which has one critic for
    all columns of its only party.
    """
    published, asked, _ = _encode(synthetic, candidates, reference, categorical)
    varies = published.std(axis=0) > 0  # the other GAN can learn nothing from the other features
    published, asked = published[:, varies], asked[:, varies]
    columns = [f"feature {i}" for i in range(published.shape[1])]
    gan = VertiGANSynthesizer(
        column_kinds=dict.fromkeys(columns, "continuous"),
        transformer=TableTransformer(spike_share=None),
        epochs=epochs,
        model_selection="last",
        device="cpu",
        verbose=0,
    )
    (model,) = gan.fit_replicas(
        {"attacker": pd.DataFrame(published, columns=columns)},
        random_states=[random_state],
        keep_discriminators=True,
    )
    critic = model.local_discriminators_["attacker"]
    rows = model.parties_["attacker"].transformer.transform(pd.DataFrame(asked, columns=columns))
    with torch.no_grad():
        scores = critic(torch.from_numpy(rows).unsqueeze(0))
    return np.asarray(scores[0, :, 0].double())


ATTACKS: dict[str, Attack] = {
    "LOGAN 0": logan_0,
    "LOGAN D1": logan_d1,
    "MC": monte_carlo,
    "GAN-leaks 0": gan_leaks,
    "GAN-leaks CAL": gan_leaks_calibrated,
    "DOMIAS": domias,
}
"""The attacks of Table 3 by the paper's names."""


def attack_auc(
    attack: Attack,
    synthetic: pd.DataFrame,
    members: pd.DataFrame,
    non_members: pd.DataFrame,
    reference: pd.DataFrame | None = None,
    *,
    categorical: Sequence[Hashable] = (),
    confidence: float = 0.95,
    **options: Any,
) -> Estimate:
    """Judge an attack by records whose membership is known.

    Parameters
    ----------
    attack : callable
        One of `ATTACKS`, or of the same form.
    synthetic : DataFrame
    members, non_members : DataFrame
        Records that the generator was, and was not, trained on; of one population.
    reference : DataFrame, optional
        More records that it was not trained on, for attacks that need some.
    categorical : sequence of hashable, default ()
        Numeric columns to read as labels.
    confidence : float, default=0.95
    **options
        For the attack.

    Returns
    -------
    Estimate
        Area under the ROC curve; chance is 0.5. The interval is about other records of the
        population and this one generator, not about other generators.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> tables = [pd.DataFrame(rng.normal(size=(50, 3)), columns=list("abc")) for _ in range(2)]
    >>> attack_auc(gan_leaks, tables[0], *tables).value
    1.0
    """
    candidates = pd.concat([members, non_members], ignore_index=True)
    is_member: Booleans = np.arange(len(candidates)) < len(members)
    scores = attack(synthetic, candidates, reference, categorical=categorical, **options)
    return auc_interval(scores, is_member, confidence)


def _encode(
    synthetic: pd.DataFrame,
    candidates: pd.DataFrame,
    reference: pd.DataFrame | None,
    categorical: Sequence[Hashable],
) -> tuple[Floats, Floats, Floats]:
    """Encode all tables alike; without a reference its part is empty."""
    encoding = Encoding(synthetic if reference is None else reference, categorical)
    others = np.empty((0, 0)) if reference is None else encoding.encode(reference)
    return encoding.encode(synthetic), encoding.encode(candidates), others


def _required(reference: pd.DataFrame | None) -> pd.DataFrame:
    if reference is None:
        raise ParameterError(
            "this attack needs reference=: records of the same population that the generator was "
            "not trained on"
        )
    return reference


def _log_density(sample: Floats, points: Floats) -> Floats:
    """Return a Gaussian kernel density estimate with Scott's bandwidth, up to a constant factor.

    In directions in which the sample has next to no spread, such as between dependent one-hot
    columns, a floor takes its place.
    """
    n, d = sample.shape
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(sample, rowvar=False)))
    bandwidth = np.sqrt(np.maximum(values, 1e-3)) * n ** (-1.0 / (d + 4))
    scale = vectors / bandwidth
    densities = [
        logsumexp(-0.5 * block**2, axis=1)
        for block in distance_blocks(points @ scale, sample @ scale)
    ]
    constant: Floats = np.concatenate(densities) - np.log(bandwidth).sum() - np.log(n)
    return constant
