"""Published membership inference attacks on a synthetic table alone (VFLGAN Table 3).

Every attack is called with tables of the same columns, wherever the synthetic one comes from::

    attack(synthetic, candidates, reference=None, *, categorical=(), **options)

and returns a score per candidate, shape (candidate,): the higher, the more likely the generator was
trained on it. `reference` holds records of the same population that were not trained on; where an
attack does not need it, it gives scales only. `categorical` names numeric columns to read as
labels. The attacker needs neither the training algorithm nor other records; their knowledge, and
mostly their success, is far below that of `audit_synthetic_data`.

Definitions are those of the DOMIAS benchmark, whose numbers Table 3 reports. Columns are encoded as
standardised numbers and one-hot labels; scales are those of the reference table, or else of the
synthetic one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.neural_network import MLPClassifier

from vflsynth.adversary.encoding import (
    Booleans,
    Encoding,
    Floats,
    distance_blocks,
    nearest_distances,
)
from vflsynth.adversary.intervals import Estimate, auc_interval
from vflsynth.adversary.statistics import Kernels
from vflsynth.audit.settings import check_values
from vflsynth.columns import TableTransformer
from vflsynth.evaluation.columns import common_columns
from vflsynth.evaluation.tables import typed_table
from vflsynth.exceptions import ParameterError
from vflsynth.methods.vertigan.estimator import VertiGANSynthesizer

Attack = Callable[..., Floats]


def _attack(*, needs_reference: bool) -> Callable[[Callable[..., Floats]], Attack]:
    """Turn a function of encoded synthetic, candidate and reference records into an attack."""

    def decorate(score: Callable[..., Floats]) -> Attack:
        @wraps(score)
        def attack(
            synthetic: pd.DataFrame,
            candidates: pd.DataFrame,
            reference: pd.DataFrame | None = None,
            *,
            categorical: Sequence[Hashable] = (),
            **options: Any,
        ) -> Floats:
            if needs_reference and reference is None:
                raise ParameterError(
                    "this attack needs reference=: records of the same population that the "
                    "generator was not trained on"
                )
            encoding = Encoding(synthetic if reference is None else reference, categorical)
            others = np.empty((0, 0)) if reference is None else encoding.encode(reference)
            encoded = encoding.encode(synthetic), encoding.encode(candidates), others
            return np.asarray(score(*encoded, **options))

        del vars(attack)["__wrapped__"]  # what it is called with is not what `score` is called with
        return attack

    return decorate


@_attack(needs_reference=False)
def monte_carlo(published: Floats, asked: Floats, _: Floats) -> Floats:
    """Score by the share of synthetic records close to the candidate (MC).

    Source: Hilprecht et al. 2019. Close is what lies within the median, over candidates, of the
    distance to the nearest synthetic record.
    """
    radius = np.median(nearest_distances(asked, published))
    shares = [(block < radius).mean(axis=1) for block in distance_blocks(asked, published)]
    return np.concatenate(shares)


@_attack(needs_reference=False)
def gan_leaks(published: Floats, asked: Floats, _: Floats) -> Floats:
    """Score by minus the distance to the nearest synthetic record (GAN-leaks 0).

    Source: Chen et al. 2020, the full black-box attack. The exponential that others take of it
    ranks alike, until it underflows.
    """
    return -nearest_distances(asked, published)


@_attack(needs_reference=True)
def gan_leaks_calibrated(published: Floats, asked: Floats, others: Floats) -> Floats:
    """Score by how much closer synthetic records are than reference records (GAN-leaks CAL).

    Source: Chen et al. 2020, as a difference of squared distances; as in the DOMIAS benchmark the
    reference records themselves stand in for those of a reference generator.
    """
    squares: Floats = nearest_distances(asked, others) ** 2
    return squares - nearest_distances(asked, published) ** 2


@_attack(needs_reference=True)
def domias(published: Floats, asked: Floats, others: Floats) -> Floats:
    """Score by the logarithm of the ratio of synthetic to reference density (DOMIAS).

    Source: van Breugel et al. 2023, Eq. 2, with kernel density estimates. Their default, a block
    neural autoregressive flow, is not implemented: it would need a dependency of its own.
    """
    return Kernels(published).log_density(asked) - Kernels(others).log_density(asked)


@_attack(needs_reference=True)
def logan_d1(published: Floats, asked: Floats, others: Floats, *, random_state: int = 0) -> Floats:
    """Score by the log odds of a classifier of synthetic against reference records (LOGAN D1).

    Source: Hayes et al. 2019, with partial information: two hidden layers of 256, Adam at 1e-3,
    batches of 256, 300 passes over as many records as there are candidates.
    """
    features = np.concatenate([published, others])
    labels = np.repeat([1, 0], [len(published), len(others)])
    rng = np.random.default_rng([random_state, 4])
    network = MLPClassifier(
        (256, 256), batch_size=256, learning_rate_init=1e-3, random_state=int(rng.integers(2**31))
    )
    for _ in range(max(1, 300 * len(asked) // 256)):
        batch = rng.integers(len(features), size=256)
        network.partial_fit(features[batch], labels[batch], classes=[0, 1])
    log_odds: Floats = network.predict_log_proba(asked)
    return log_odds[:, 1] - log_odds[:, 0]


@_attack(needs_reference=False)
def logan_0(
    published: Floats, asked: Floats, _: Floats, *, epochs: int | None = None, random_state: int = 0
) -> Floats:
    """Score by the critic of another GAN that is trained on the synthetic records (LOGAN 0).

    `epochs` counts passes over the synthetic records; by default `VertiGANSynthesizer` chooses.

    Source: Hayes et al. 2019, black-box. Departs from the benchmark, whose other GAN is a CTGAN:
    here it is a WGAN-GP with the default sizes of `VertiGANSynthesizer`, which has one critic for
    all columns of its only party.
    """
    varies = published.std(axis=0) > 0  # the other GAN can learn nothing from the other features
    published, asked = published[:, varies], asked[:, varies]
    columns = [f"feature {i}" for i in range(published.shape[1])]
    gan = VertiGANSynthesizer(
        column_kinds=dict.fromkeys(columns, "continuous"),
        transformer=TableTransformer(continuous="standard", spike_share=None, extreme_records=0),
        epochs=epochs,
        model_selection="last",
        calibrate_marginals=False,  # only its critic is looked at
        structure="ignore",  # which looks at every column
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
        scores = critic(torch.tensor(rows).unsqueeze(0))
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

    Raises
    ------
    ParameterError
        If the confidence is none.
    PartyDataError
        If a table has not the columns of `members`, or has text where that has numbers.

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
    check_values("attack_auc", confidence=confidence)
    given = synthetic, members, non_members, reference
    synthetic, members, non_members, reference = map(typed_table, given)
    tables = {"synthetic": synthetic, "non-member": non_members}
    tables |= {} if reference is None else {"reference": reference}
    for name, table in tables.items():  # what one lacks would tell all of its records
        common_columns(members, table, table=name, base="member")
    candidates = pd.concat([members, non_members], ignore_index=True)
    is_member: Booleans = np.arange(len(candidates)) < len(members)
    scores = attack(synthetic, candidates, reference, categorical=categorical, **options)
    return auc_interval(scores, is_member, confidence)
