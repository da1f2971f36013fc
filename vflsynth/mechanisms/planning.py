"""What plans have in common: the budget of the histograms, and the words of a ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from vflsynth.exceptions import TooFewRecordsError
from vflsynth.mechanisms.base import HistogramMechanism, Mechanism
from vflsynth.privacy.accountants import Accountant
from vflsynth.privacy.calibration import calibrate_noise_multiplier, split_gaussian_budget
from vflsynth.privacy.discovery import ColumnCounts, failure_probability, split_noise, sum_columns
from vflsynth.privacy.events import (
    Composition,
    GaussianRelease,
    NeighbouringRelation,
    PrivacyEvent,
    SampledRelease,
)
from vflsynth.privacy.gaussian_dp import mu_of_gaussian
from vflsynth.privacy.histograms import FIRST_ROUND_SHARE, histogram_sensitivity
from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger
from vflsynth.privacy.noise import DISCRETE_NOISE
from vflsynth.protocol.schedule import Length

SYNTHETIC = "the synthetic data, the generators"
RECIPIENTS = "recipients of the synthetic data and of the generators"
SERVER_AND_PARTIES = (
    "the server and the other parties: they see uniformly random numbers and noisy releases"
)
IN_LEAGUE = "a party and the server together: the parties' secret takes the masks off all records"
PROVED = (
    "a party that deviates from the protocol: it proves that what it masks are codes of states of "
    "its columns, or the run ends before anything is published, but with probability 2^-33"
)
KNOWN_ANYWAY = "a party: it knows its own records and whose records the other parties have, too"
SERVER_COUNTS = (
    "the server, as to how many records the parties have in common: it sees that number, which "
    "intersection_epsilon hides"
)
WHO_JOINS = "whoever joins the tables and trains: it sees all parties' records as they are"
SERVER_SEES_FEATURES = (
    "the server: it sees intermediate features of every record in a batch without noise"
)
PARTIES_KNOW_BATCHES = (
    "the other parties: they know the batches and see protocol messages without noise"
)
ARITHMETIC = (
    "that a record's gradient is the same to the last bit whatever else is in its batch: tested, "
    "not proved"
)


class Audience(TypedDict):
    """Arguments of `ledger_of`."""

    protected_against: tuple[str, ...]
    not_protected_against: tuple[str, ...]


def audience(mechanism: HistogramMechanism, columns: Mapping[str, ColumnCounts]) -> Audience:
    """Say against whom a run protects whose records nobody sees."""
    protected = [RECIPIENTS, SERVER_AND_PARTIES]
    not_protected = [IN_LEAGUE, KNOWN_ANYWAY]
    if len(columns) > 1:  # else there is no masked sum
        protected.append(PROVED)
    padding = mechanism.padding(len(columns))
    if padding is not None:
        of = "" if len(columns) == 2 else " in every group of parties"
        protected.append(
            "the server, as to how many records the parties have in common: it sees their number"
            f"{of} plus 0 to {padding.largest} dummies, which is ε "
            f"{mechanism.intersection_epsilon:g} at δ {mechanism.delta:g} in every run, on top of "
            "what is spent above; and every party's own number of records as it is"
        )
    elif len(columns) > 1:
        not_protected.append(SERVER_COUNTS)
    return Audience(protected_against=tuple(protected), not_protected_against=tuple(not_protected))


def ledger_of(
    mechanism: HistogramMechanism,
    columns: Mapping[str, ColumnCounts],
    entries: Sequence[LedgerEntry],
    *,
    words: str,
    not_protected_against: tuple[str, ...],
    public: tuple[str, ...],
    protected_against: tuple[str, ...] = (RECIPIENTS,),
    not_covered: tuple[str, ...] = (),
    condition: str = "",
    products: str = SYNTHETIC,
) -> PrivacyLedger:
    """Write the ledger of a run that protects what it produces.

    `words` are the field's name of the mechanism. `public` and `not_covered` come besides what
    holds for every such run.
    """
    times = "running times, which depend a little on the batches"
    trains = any(entry.purpose == "training" for entry in entries)
    return PrivacyLedger(
        mechanism=words,
        claim=(
            f"ε bounds what {products} and everything else computed from the releases below "
            "reveal about one record, however long and often they are used."
        ),
        covers_synthetic_data=True,
        delta=delta_of(mechanism),
        target_epsilon=mechanism.epsilon,
        entries=tuple(entries),
        protected_against=protected_against,
        not_protected_against=not_protected_against,
        not_covered=(
            *not_covered,
            "which individuals the parties have in common",
            "errors that end a run: a key's, a file's, no common record, no memory",
            "alignment report, transcript and log: they tell numbers of records",
            *((times,) if trains else ()),
        ),
        noise=DISCRETE_NOISE,
        condition=condition,
        public=(*_public_columns(mechanism, columns), *public),
    )


def calibrate_training(
    mechanism: HistogramMechanism,
    columns: Mapping[str, ColumnCounts],
    training: Callable[[float], SampledRelease],
    accountant: Accountant,
) -> tuple[float, float | None, list[LedgerEntry]]:
    """Calibrate training and, unless public bounds do, the histograms before it.

    `training` makes all that training releases from its noise multiplier. Returns that noise
    multiplier, the histograms' or None, and the ledger's entries.
    """
    share = mechanism.preprocessing_share
    if share == 0.0:
        noise = calibrate(mechanism, training, accountant)
        return noise, None, [LedgerEntry("training", training(noise))]
    if mechanism.noise_multiplier is not None:
        noise, delta = float(mechanism.noise_multiplier), delta_of(mechanism)
        mu = mu_of_gaussian(accountant.epsilon(training(noise), delta), delta)
        histogram_noise = ((1.0 - share) / share) ** 0.5 / mu
    else:
        histogram_noise = 1.0 / (share**0.5 * mu_of_gaussian(*_gaussian_budget(mechanism, columns)))
    histograms = histogram_event(mechanism, columns, histogram_noise)
    noise = calibrate(
        mechanism, lambda noise: Composition((histograms, training(noise))), accountant
    )
    entries = [LedgerEntry("preprocessing", histograms), LedgerEntry("training", training(noise))]
    return noise, histogram_noise, entries


def calibrate(
    mechanism: Mechanism, event_for: Callable[[float], PrivacyEvent], accountant: Accountant
) -> float:
    """Return the noise multiplier that was given, or with which an event meets the budget."""
    if mechanism.noise_multiplier is not None:
        return float(mechanism.noise_multiplier)
    return calibrate_noise_multiplier(
        event_for,
        epsilon=float(mechanism.epsilon or 0.0),
        delta=delta_of(mechanism),
        accountant=accountant,
    )


def histogram_event(
    mechanism: HistogramMechanism, columns: Mapping[str, ColumnCounts], noise_multiplier: float
) -> Composition:
    """Each party's histograms in two rounds, all of a round with the same noise per cell.

    Before them, if there are any, ranges and categories that the public schema does not list.
    Decimals of floats are part of the second one's price. `noise_multiplier` is that of all rounds
    together.
    """
    unlisted = {party: own.unlisted for party, own in columns.items()}
    total = {party: own.total for party, own in columns.items()}
    n_unlisted = sum(unlisted.values())
    of_discovery, once = split_noise(noise_multiplier, n_unlisted)
    rounds = []
    if n_unlisted:
        failing = failure_probability(delta_of(mechanism), n_unlisted)
        words = "ranges or categories of {} columns that nobody stated"
        rounds.append((words, unlisted, of_discovery, failing))
    words = "histograms of {} columns, between " + ("bounds" if rounds else "public bounds")
    rounds.append((words, total, once / FIRST_ROUND_SHARE**0.5, 0.0))
    words = "decimals and finer histograms of {} columns"
    rounds.append((words, total, once / (1.0 - FIRST_ROUND_SHARE) ** 0.5, 0.0))
    return Composition(
        tuple(
            part
            for words, numbers, multiplier, failing in rounds
            for part in releases_of_counts(mechanism.relation, words, numbers, multiplier, failing)
        )
    )


def releases_of_counts(
    relation: NeighbouringRelation,
    words: str,
    numbers: Mapping[str, int],
    noise_multiplier: float,
    probability: float = 0.0,
    sensitivity_of: Callable[[int, NeighbouringRelation], float] = histogram_sensitivity,
) -> list[GaussianRelease]:
    """Each party's part of a round of tables that count every record once, with equal noise.

    `numbers` are those of the parties' tables. `noise_multiplier` and `probability`, with which
    something is revealed that the noise does not cover, are of all parties' tables together, whose
    sensitivity is a function of their number.
    """
    joint = sum(numbers.values())
    releases = []
    for party, own in numbers.items():
        if own:
            sensitivity = sensitivity_of(own, relation)
            noise_std = noise_multiplier * sensitivity_of(joint, relation)
            releases.append(
                GaussianRelease(
                    released=words.format(own),
                    party=party,
                    noise_multiplier=noise_std / sensitivity,
                    sensitivity=sensitivity,
                    relation=relation,
                    record_norm=own**0.5,
                    failure_probability=probability * own / joint,
                )
            )
    return releases


def plan_rounds(
    mechanism: HistogramMechanism,
    columns: Mapping[str, ColumnCounts],
    rounds: Mapping[str, tuple[str, Mapping[str, int]]],
    *,
    words: str,
    public: tuple[str, ...],
    sensitivity_of: Callable[[int, NeighbouringRelation], float] = histogram_sensitivity,
) -> tuple[PrivacyLedger, float, dict[str, float]]:
    """Divide what histograms leave of the budget evenly between the rounds that publish anything.

    A round is what noisy sums are published, and how many by party or by the server. Returns the
    ledger, the histograms' noise multiplier, and by round the standard deviation of its noise.
    """
    rounds = {name: own for name, own in rounds.items() if any(own[1].values())}
    share = (1.0 - mechanism.preprocessing_share) / max(1, len(rounds))
    shares = {"preprocessing": 1.0 - len(rounds) * share, **dict.fromkeys(rounds, share)}
    noise, relation = split_budget(mechanism, columns, shares), mechanism.relation
    histograms = histogram_event(mechanism, columns, noise["preprocessing"])
    entries, stds = [LedgerEntry("preprocessing", histograms)], {}
    for name, (sums, numbers) in rounds.items():
        parts = releases_of_counts(
            relation, sums, numbers, noise[name], sensitivity_of=sensitivity_of
        )
        entries.append(LedgerEntry(name, Composition(tuple(parts))))
        stds[name] = noise[name] * sensitivity_of(sum(numbers.values()), relation)
    ledger = ledger_of(
        mechanism, columns, entries, words=words, public=public, **audience(mechanism, columns)
    )
    return ledger, noise["preprocessing"], stds


def sample_rate_of(length: Length, n_records: int) -> float:
    """Return a batch's share of the records; TooFewRecordsError if it has more than there are."""
    if length.batch_size > n_records:
        raise TooFewRecordsError(
            f"{n_records} records are fewer than one batch of {length.batch_size}",
            fix="lower batch_size, or see why so few records matched (or n_records of DPSGD)",
        )
    return length.batch_size / n_records


def split_budget(
    mechanism: HistogramMechanism, columns: Mapping[str, ColumnCounts], shares: Mapping[str, float]
) -> dict[str, float]:
    """Noise multipliers of unsampled releases, from ε or from the noise multiplier of all."""
    if mechanism.epsilon is not None:
        return split_gaussian_budget(*_gaussian_budget(mechanism, columns), shares)
    joint = float(mechanism.noise_multiplier or 0.0)
    return {name: joint / share**0.5 for name, share in shares.items()}


def delta_of(mechanism: Mechanism) -> float:
    """Return δ of parameters that were checked."""
    assert mechanism.delta is not None, "check() requires delta"
    return float(mechanism.delta)  # small types of NumPy make all that follows as coarse


def _gaussian_budget(
    mechanism: HistogramMechanism, columns: Mapping[str, ColumnCounts]
) -> tuple[float, float]:
    """Return ε and δ of the noise alone, without what a threshold on categories may let pass."""
    delta = delta_of(mechanism)
    failing = failure_probability(delta, sum_columns(columns).unlisted)
    return float(mechanism.epsilon or 0.0) + math.log1p(-failing), delta - failing


def _public_columns(
    mechanism: HistogramMechanism, columns: Mapping[str, ColumnCounts]
) -> list[str]:
    """List what is public about columns and records: the user's schema, labels, types."""
    counts = sum_columns(columns)
    known = ["names and types of columns, the type of the keys"]
    if counts.unlisted < counts.total:
        of = f"of {counts.total - counts.unlisted} columns " if counts.unlisted else ""
        given = f"bounds of numeric columns and lists of categories, {of}given by the user"
        known.insert(0, given)
    if mechanism.relation is NeighbouringRelation.REPLACE_ONE:
        known.append("number of records")
    return known
