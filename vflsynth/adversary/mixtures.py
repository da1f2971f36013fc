"""Groups in records without any label: a mixture of as many Gaussians as there are classes."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from vflsynth.adversary.encoding import Floats

MOST_COMPONENTS = 10
_LEAST_RECORDS = 5  # per component
_FITTED_RECORDS = 5000
_STARTS = 3


def component_log_odds(
    records: Floats,
    n_components: int,
    random_state: int,
    covariance: Literal["full", "tied"] = "full",
) -> Floats | None:
    """Return how much more likely each component made a record than the others together.

    The result has shape (record, component). It is None for more than 10 components or fewer than 5
    records for each: such a mixture finds nothing. It is fitted to at most 5,000 records.

    Covariances of each component, or one for all ("tied": odds are then linear); the best of three
    starts from k-means by its likelihood.
    """
    varies = records.std(axis=0) > 0.0
    if n_components > MOST_COMPONENTS or len(records) < _LEAST_RECORDS * n_components:
        return None
    if not varies.any():
        return np.zeros((len(records), n_components))
    scaled = (records - records.mean(axis=0))[:, varies] / records.std(axis=0)[varies]
    rng = np.random.default_rng([random_state, 12])
    mixture = GaussianMixture(
        n_components,
        covariance_type=covariance,
        n_init=_STARTS,
        reg_covar=1e-5,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        # Fewer different records than components, or a start that would go on a little longer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(scaled[rng.permutation(len(scaled))[:_FITTED_RECORDS]])
    shares = mixture.predict_proba(scaled)
    tiny = np.finfo(np.float64).tiny
    odds: Floats = np.log(np.maximum(shares, tiny)) - np.log(np.maximum(1.0 - shares, tiny))
    return odds
