"""From parameters to noise and a ledger, before any record is read.

A plan depends on public sizes only: names of parties and columns, sample rate, number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vflsynth.privacy.accountants import Accountant, PLDAccountant, WangAccountant
from vflsynth.privacy.calibration import calibrate_noise_multiplier, split_gaussian_budget
from vflsynth.privacy.discovery import (
    ColumnCounts,
    failure_probability,
    split_noise,
    sum_columns,
)
from vflsynth.privacy.discriminators import RECIPIENTS, SERVER, WHO_JOINS, Discriminators
from vflsynth.privacy.dpsgd import joint_sensitivity
from vflsynth.privacy.events import (
    Composition,
    GaussianRelease,
    NeighbouringRelation,
    PrivacyEvent,
    SampledRelease,
)
from vflsynth.privacy.first_layer import first_layer_sensitivity
from vflsynth.privacy.gaussian_dp import mu_of_gaussian
from vflsynth.privacy.histograms import SUPPORT_SHARE, histogram_sensitivity
from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger
from vflsynth.privacy.mean_embedding import mean_embedding_sensitivity
from vflsynth.privacy.parameters import GaussianPrivacy

SYNTHETIC_DATA_CLAIM = (
    "ε bounds what the synthetic data, the generators and everything else computed from the "
    "releases below reveal about one record, however long and often they are used."
)
COUNTS = (
    "alignment report, transcript and log of a fit: they tell numbers of records, which a saved "
    "model holds only under replace_one"
)
FLOATING_POINT = "rounding of floating-point numbers: ε is computed for real numbers"
NOT_COVERED_BY_TRAINING = (
    "which individuals the parties have in common",
    COUNTS,
    "running times of epochs in the history, which depend a little on the batches",
    FLOATING_POINT,
)


@dataclass(frozen=True)
class PrivacyPlan:
    """Calibrated noise of a run and the ledger it will have.

    Parameters
    ----------
    noise_multiplier : float
        Of the main mechanism (gradients or feature sum): noise std over joint sensitivity.
    histogram_noise_multiplier : float or None
        Of all columns' histograms together, both rounds; None if there are none.
    ledger : PrivacyLedger
    """

    noise_multiplier: float
    histogram_noise_multiplier: float | None
    ledger: PrivacyLedger


def plan_mean_embedding(
    privacy: GaussianPrivacy,
    columns: Mapping[str, ColumnCounts],
    *,
    holder: str | None = None,
) -> PrivacyPlan:
    """Plan the one-shot release of histograms and of the mean embedding.

    Parameters
    ----------
    privacy : GaussianPrivacy
    columns : mapping of party to ColumnCounts
    holder : str, optional
        Name of the one who holds the joined table and releases everything. Default: parties and a
        server.

    Returns
    -------
    PrivacyPlan
    """
    privacy.validate()
    delta = delta_of(privacy)
    share = privacy.preprocessing_share
    noise = split_budget(privacy, columns, {"histograms": share, "features": 1.0 - share})
    relation = privacy.relation
    features = GaussianRelease(
        released=f"sum of {privacy.n_features} random Fourier features of the joint records",
        party=holder or SERVER,
        noise_multiplier=noise["features"],
        sensitivity=mean_embedding_sensitivity(relation),
        relation=relation,
        record_norm=1.0,
    )
    histograms = histogram_event(privacy, columns, noise["histograms"])
    ledger = PrivacyLedger(
        mechanism="noisy histograms and kernel mean embedding (one-shot)",
        claim=SYNTHETIC_DATA_CLAIM,
        covers_synthetic_data=True,
        delta=delta,
        target_epsilon=privacy.epsilon,
        entries=(
            LedgerEntry("preprocessing", histograms),
            LedgerEntry("mean embedding", features),
        ),
        protected_against=(
            (RECIPIENTS,)
            if holder
            else (RECIPIENTS, "the other parties, who see the noisy releases only")
        ),
        not_protected_against=(
            (WHO_JOINS,)
            if holder
            else (
                "the server: it sees projections of every record's encoded columns without noise, "
                "from which it can compute the records",
            )
        ),
        not_covered=(
            "which individuals the parties have in common",
            COUNTS,
            FLOATING_POINT,
        ),
        public=public_knowledge(privacy, columns, "random frequencies"),
    )
    return PrivacyPlan(noise["features"], noise["histograms"], ledger)


def plan_dpsgd(
    privacy: GaussianPrivacy,
    columns: Mapping[str, ColumnCounts],
    *,
    sample_rate: float,
    steps: int,
    discriminators: Discriminators = Discriminators.LOCAL_AND_SHARED,
) -> PrivacyPlan:
    """Plan DP-SGD on all discriminator parameters, with Poisson sampling.

    Parameters
    ----------
    privacy : GaussianPrivacy
    columns : mapping of party to ColumnCounts
    sample_rate : float
        Probability of each record to be in a batch.
    steps : int
        Discriminator steps.
    discriminators : Discriminators, default=Discriminators.LOCAL_AND_SHARED
        Whose they are; of a joined table, `columns` are those of its holder.

    Returns
    -------
    PrivacyPlan
    """
    privacy.validate()
    relation, bound = privacy.relation, privacy.max_grad_norm
    owners = discriminators.owners(columns)
    penalised = " and penalties" if privacy.gradient_penalty_at == "records" else ""
    factor = 2.0 if relation is NeighbouringRelation.REPLACE_ONE else 1.0
    joint = joint_sensitivity([bound] * len(owners))

    def training(noise_multiplier: float) -> SampledRelease:
        releases = tuple(
            GaussianRelease(
                released=f"clipped per-record gradients{penalised} of the {kind} discriminator",
                party=party,
                noise_multiplier=noise_multiplier * joint / bound,
                sensitivity=factor * bound,
                relation=relation,
                record_norm=bound,
            )
            for party, kind in owners.items()
        )
        return SampledRelease(releases, privacy.sampler, sample_rate, steps)

    return plan_training(
        privacy,
        columns,
        training,
        PLDAccountant(),
        mechanism="DP-SGD on all discriminator parameters",
        protected_against=discriminators.protected_by_dpsgd,
        not_protected_against=discriminators.not_protected_by_dpsgd,
        public=("rough number of records", "sample rate and number of steps"),
    )


def plan_training(
    privacy: GaussianPrivacy,
    columns: Mapping[str, ColumnCounts],
    training: Callable[[float], SampledRelease],
    accountant: Accountant,
    *,
    mechanism: str,
    not_protected_against: tuple[str, ...],
    public: tuple[str, ...],
    protected_against: tuple[str, ...] = (RECIPIENTS,),
    not_covered: tuple[str, ...] = (),
) -> PrivacyPlan:
    """Plan training that protects the synthetic data, and the histograms before it.

    Parameters
    ----------
    privacy : GaussianPrivacy
        Checked.
    columns : mapping of party to ColumnCounts
    training : callable
        From a noise multiplier to all that training releases.
    accountant : Accountant
    mechanism : str
    not_protected_against, public, protected_against, not_covered : tuple of str
        For the ledger; `public` besides what `public_knowledge` lists, `not_covered` besides
        `NOT_COVERED_BY_TRAINING`.
    """
    noise, histogram_noise = calibrate_training(privacy, training, columns, accountant)
    entries = [LedgerEntry("training", training(noise))]
    if histogram_noise is not None:
        histograms = histogram_event(privacy, columns, histogram_noise)
        entries.insert(0, LedgerEntry("preprocessing", histograms))
    ledger = PrivacyLedger(
        mechanism=mechanism,
        claim=SYNTHETIC_DATA_CLAIM,
        covers_synthetic_data=True,
        delta=delta_of(privacy),
        target_epsilon=privacy.epsilon,
        entries=tuple(entries),
        protected_against=protected_against,
        not_protected_against=not_protected_against,
        not_covered=(*not_covered, *NOT_COVERED_BY_TRAINING),
        public=public_knowledge(privacy, columns, *public),
    )
    return PrivacyPlan(noise, histogram_noise, ledger)


def plan_first_layer(
    privacy: GaussianPrivacy,
    parties: Sequence[str],
    *,
    sample_rate: float,
    steps: int,
    discriminators: Discriminators = Discriminators.LOCAL_AND_SHARED,
) -> PrivacyPlan:
    """Plan the VFLGAN paper's mechanism, with the gradients of all parties counted together.

    Parameters
    ----------
    privacy : GaussianPrivacy
    parties : sequence of str
    sample_rate : float
        Batch size over number of records.
    steps : int
        Discriminator steps.
    discriminators : Discriminators, default=Discriminators.LOCAL_AND_SHARED
        Whose they are; of a joined table, `parties` are its holder alone.

    Returns
    -------
    PrivacyPlan
        Its ledger says that ε is no guarantee for the synthetic data.

    Notes
    -----
    Departs from the paper, which states the budget of one party's gradient: the same record moves
    all parties' gradients, so that for N parties the same ε needs ``sqrt(N)`` times the noise.
    """
    privacy.validate()
    relation = privacy.relation

    def training(noise_multiplier: float) -> SampledRelease:
        releases = tuple(
            GaussianRelease(
                released="clipped batch gradient of the first layer",
                party=party,
                noise_multiplier=noise_multiplier,
                sensitivity=first_layer_sensitivity(privacy.max_grad_norm),
                relation=relation,
            )
            for party in parties
        )
        return SampledRelease(releases, privacy.sampler, sample_rate, steps)

    noise, _ = calibrate_training(privacy, training, {}, WangAccountant())
    ledger = PrivacyLedger(
        mechanism="perturbed first-layer gradients (the VFLGAN paper's)",
        claim=(
            "ε bounds what the noisy gradients of the discriminators' first layers reveal. The "
            "generators also learn through all other layers, which are trained on raw records."
        ),
        covers_synthetic_data=False,
        delta=delta_of(privacy),
        target_epsilon=privacy.epsilon,
        entries=(LedgerEntry("training", training(noise)),),
        protected_against=("nobody, as far as the synthetic data are concerned",),
        not_protected_against=discriminators.not_protected_by_first_layer,
        not_covered=(
            *discriminators.not_covered_by_first_layer,
            "scaling, category lists and the choice of the best epoch: read off the records",
            FLOATING_POINT,
        ),
        public=("number of records", "sample rate and number of steps"),
    )
    return PrivacyPlan(noise, None, ledger)


def calibrate_training(
    privacy: GaussianPrivacy,
    training: Callable[[float], SampledRelease],
    columns: Mapping[str, ColumnCounts],
    accountant: Accountant,
) -> tuple[float, float | None]:
    """Noise multipliers of training and, if the columns are scaled by histograms, of those."""
    delta, share = delta_of(privacy), privacy.preprocessing_share if columns else 0.0
    if privacy.noise_multiplier is not None:
        noise = privacy.noise_multiplier
        if share == 0.0:
            return noise, None
        mu = mu_of_gaussian(accountant.epsilon(training(noise), delta), delta)
        return noise, ((1.0 - share) / share) ** 0.5 / mu
    epsilon = privacy.epsilon or 0.0
    histogram_noise = None
    if share > 0.0:
        mu = mu_of_gaussian(*gaussian_budget(privacy, columns))
        histogram_noise = 1.0 / (share**0.5 * mu)

    def event_for(noise: float) -> PrivacyEvent:
        if histogram_noise is None:
            return training(noise)
        return Composition((histogram_event(privacy, columns, histogram_noise), training(noise)))

    noise = calibrate_noise_multiplier(
        event_for, epsilon=epsilon, delta=delta, accountant=accountant
    )
    return noise, histogram_noise


def histogram_event(
    privacy: GaussianPrivacy, columns: Mapping[str, ColumnCounts], noise_multiplier: float
) -> Composition:
    """Each party's histograms in two rounds, all of a round with the same noise per cell.

    Before them, if there are any, ranges and categories that the public schema does not list.
    `noise_multiplier` is that of all rounds together.
    """
    unlisted = {party: own.unlisted for party, own in columns.items()}
    total = {party: own.total for party, own in columns.items()}
    n_unlisted = sum(unlisted.values())
    of_discovery, once = split_noise(noise_multiplier, n_unlisted)
    rounds = []
    if n_unlisted:
        failing = failure_probability(delta_of(privacy), n_unlisted)
        words = "ranges or categories of {} columns that nobody stated"
        rounds.append((words, unlisted, of_discovery, failing))
    words = "histograms of {} columns, between " + ("bounds" if rounds else "public bounds")
    rounds.append((words, total, once / SUPPORT_SHARE**0.5, 0.0))
    words = "histograms of {} columns, where those show values"
    rounds.append((words, total, once / (1.0 - SUPPORT_SHARE) ** 0.5, 0.0))
    return Composition(
        tuple(
            _release_of_counts(privacy.relation, words, party, numbers, multiplier, probability)
            for words, numbers, multiplier, probability in rounds
            for party in columns
            if numbers[party]
        )
    )


def _release_of_counts(
    relation: NeighbouringRelation,
    words: str,
    party: str,
    numbers: Mapping[str, int],
    noise_multiplier: float,
    probability: float,
) -> GaussianRelease:
    """One party's part of a round whose noise is for all parties' columns together."""
    own, joint = numbers[party], sum(numbers.values())
    sensitivity = histogram_sensitivity(own, relation)
    return GaussianRelease(
        released=words.format(own),
        party=party,
        noise_multiplier=noise_multiplier * histogram_sensitivity(joint, relation) / sensitivity,
        sensitivity=sensitivity,
        relation=relation,
        record_norm=own**0.5,
        failure_probability=probability * own / joint,
    )


def public_knowledge(
    privacy: GaussianPrivacy, columns: Mapping[str, ColumnCounts], *more: str
) -> tuple[str, ...]:
    """List what the ledger takes as public: the user's schema, labels, types, and `more`."""
    counts = sum_columns(columns)
    known = ["names and types of columns, the type of the keys"]
    if counts.unlisted < counts.total:
        of = f"of {counts.total - counts.unlisted} columns " if counts.unlisted else ""
        given = f"bounds of numeric columns and lists of categories, {of}given by the user"
        known.insert(0, given)
    if privacy.relation is NeighbouringRelation.REPLACE_ONE:
        known.append("number of records")
    return (*known, *more)


def gaussian_budget(
    privacy: GaussianPrivacy, columns: Mapping[str, ColumnCounts]
) -> tuple[float, float]:
    """Return ε and δ of the noise alone, without what a threshold on categories may let pass."""
    delta = delta_of(privacy)
    failing = failure_probability(delta, sum_columns(columns).unlisted)
    return (privacy.epsilon or 0.0) + math.log1p(-failing), delta - failing


def split_budget(
    privacy: GaussianPrivacy, columns: Mapping[str, ColumnCounts], shares: Mapping[str, float]
) -> dict[str, float]:
    """Noise multipliers of unsampled releases, from ε or from the noise multiplier of all."""
    if privacy.epsilon is not None:
        return split_gaussian_budget(*gaussian_budget(privacy, columns), shares)
    joint = privacy.noise_multiplier or 0.0
    return {name: joint / share**0.5 for name, share in shares.items()}


def delta_of(privacy: GaussianPrivacy) -> float:
    """Return δ of parameters that were validated."""
    assert privacy.delta is not None, "validate() requires delta"
    return privacy.delta
