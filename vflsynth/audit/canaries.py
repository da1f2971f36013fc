"""An audit in one training run: put canaries in by coin flips, and guess which ones.

For when hundreds of models are too many. The bound is weaker than that of a leave-one-out audit of
the same mechanism, and holds for whichever records the canaries are. What guesses about many of
them in one run prove is of Steinke, Nasr and Jagielski 2023.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from vflsynth.adversary.encoding import Booleans, Encoding, Floats, nearest_distances
from vflsynth.adversary.intervals import Estimate, auc_interval
from vflsynth.audit.findings import RELATION_WORDS, Claim, vars_of
from vflsynth.audit.game import RELEASES, THREAT_MODELS, PartyFrames, columns_left_out, train
from vflsynth.audit.settings import check_values
from vflsynth.exceptions import ParameterError
from vflsynth.frames import align_party_frames, key_of
from vflsynth.frames.keys import learn_key_minters
from vflsynth.frames.party_frames import check_party_frames, party_keys
from vflsynth.privacy import NeighbouringRelation
from vflsynth.privacy.gaussian_dp import last_safe

GUESS_SHARES = (1.0, 0.8, 0.5, 0.2, 0.05)
"""Shares of canaries that are guessed, the others passed over."""

N_WAYS = 2 * len(GUESS_SHARES)
"""Ways to guess that are tried: each share with guesses of both kinds, and with those of "in"
alone, since a copy is surer evidence than that there is none. The bound pays for all of them."""


def one_run_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Return how likely so many right guesses are at most under (ε, δ)-differential privacy.

    `m` canaries, `r` guesses about them, `v` right ones. Source: Steinke et al. 2023, Theorem 5.2
    in the form of its Appendix D: the binomial tail of randomised response, plus ``2 m δ`` times
    the largest mean of the probabilities just below v.
    """
    rate = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(v - 1, r, rate))
    if delta == 0.0 or v == 0:
        return min(1.0, tail)
    below = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, rate))
    return min(1.0, tail + 2.0 * m * delta * float((below / np.arange(1, v + 1)).max()))


def one_run_epsilon(m: int, r: int, v: int, *, delta: float, p_value: float) -> float:
    """Return the largest epsilon that so many right guesses contradict, rounded down.

    `m`, `r` and `v` as in `one_run_p_value`; `p_value` is one minus the confidence. 0 if nothing is
    contradicted.
    """

    def contradicted(epsilon: float) -> bool:
        return one_run_p_value(m, r, v, epsilon, delta) < p_value

    return last_safe(contradicted, zero_is_safe=True) if contradicted(0.0) else 0.0


def best_bound(
    scores: Floats, is_in: Booleans, delta: float, confidence: float
) -> tuple[float, int, int]:
    """Return the largest bound over all ways to guess, with its guesses and right ones.

    The theorem holds for any guesses that are made from what was published, also none about some of
    the canaries (Steinke et al. 2023, §5). Which way is best is seen from the coins, so that each
    way is tested at ``1 / N_WAYS`` of the error probability.
    """
    m = len(scores)
    order = np.argsort(scores, kind="stable")
    best = (0.0, 0, 0)
    for share in GUESS_SHARES:
        each = max(1, round(share * m / 2))
        low, high = order[: min(each, m // 2)], order[-min(each, m - m // 2) :]
        for called_out in (low, low[:0]):
            guesses = len(called_out) + len(high)
            right = int(is_in[high].sum() + (~is_in[called_out]).sum())
            p_value = (1.0 - confidence) / N_WAYS
            bound = one_run_epsilon(m, guesses, right, delta=delta, p_value=p_value)
            if bound > best[0] or not best[1]:
                best = (bound, guesses, right)
    return best


Score = Callable[[pd.DataFrame, pd.DataFrame, pd.DataFrame], Floats]
"""``score(synthetic, candidates, known)``: one number per candidate, higher for "was put in"."""


@dataclass(frozen=True, eq=False)
class CanaryAudit:
    """What one training run showed.

    Parameters
    ----------
    n_canaries, n_guesses, n_correct : int
        Canaries, and guesses made in the way that gave the largest bound.
    epsilon : float
        Lower bound.
    delta, confidence : float
    relation : NeighbouringRelation
        What the bound is about.
    auc : Estimate
        Of the scores; a description, since one run's canaries are not independent.
    claim : Claim or None
    """

    n_canaries: int
    n_guesses: int
    n_correct: int
    epsilon: float
    delta: float
    confidence: float
    relation: NeighbouringRelation
    auc: Estimate
    claim: Claim | None

    @property
    def epsilon_ceiling(self) -> float:
        """The bound if every guess were right: so few canaries cannot show more."""
        m = self.n_canaries
        p_value = (1.0 - self.confidence) / N_WAYS
        return one_run_epsilon(m, m, m, delta=self.delta, p_value=p_value)

    @property
    def contradicts_claim(self) -> bool:
        """Whether the bound is above the claimed epsilon."""
        return self.claim is not None and self.claim.contradicted_by(self.epsilon, self.relation)

    def conclusion(self) -> list[str]:
        """Say in sentences what may, and what may not, be concluded."""
        sentences = [
            f"Of {self.n_guesses} guesses about {self.n_canaries} canaries {self.n_correct} were "
            f"right, where guessing gets {self.n_guesses / 2:g}.",
            f"Measured lower bound: ε ≥ {self.epsilon:.2f}"
            + (f" at δ = {self.delta:g}" if self.delta else "")
            + f" with {self.confidence:.0%} confidence, about {RELATION_WORDS[self.relation]}, for "
            f"whoever sees {RELEASES['canaries']}; this many canaries cannot show more than "
            f"{self.epsilon_ceiling:.2f}.",
        ]
        if self.epsilon == 0.0:
            sentences.append(
                "These guesses were not shown to be better than chance. That is no proof of "
                "safety: other scores, other canaries or an audit of a single record may succeed."
            )
        if self.claim is not None:
            sentences.append(self.claim.verdict(self.epsilon, self.relation, self.confidence))
        return sentences

    def to_json(self) -> str:
        """Return every number and sentence as JSON."""
        content = vars_of(self) | {
            "relation": self.relation.value,
            "auc": vars_of(self.auc),
            "claim": None if self.claim is None else vars_of(self.claim),
            "epsilon_ceiling": self.epsilon_ceiling,
            "conclusion": self.conclusion(),
            "threat_model": THREAT_MODELS["canaries"],
        }
        return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)

    def __str__(self) -> str:
        return "\n".join([*self.conclusion(), "", THREAT_MODELS["canaries"]])


def audit_with_canaries(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Any = None,
    *,
    n_canaries: int = 500,
    score: Score | None = None,
    relation: NeighbouringRelation | str = NeighbouringRelation.ADD_OR_REMOVE_ONE,
    categorical: Sequence[Hashable] = (),
    n_synthetic: int | None = None,
    claim: Claim | None = None,
    confidence: float = 0.95,
    random_state: int = 0,
) -> CanaryAudit:
    """Bound epsilon from below with a single training run.

    Canaries are made of the values of real records, each column shuffled by itself: valid values in
    unlikely combinations. A coin decides for each whether it is put in.

    Source: Steinke, Nasr and Jagielski 2023, Algorithm 1 and Theorem 5.2. Only canaries of which
    the attacker is sure are guessed: those with the highest scores, and with the lowest or none of
    them; the others are passed over. How many, and which, is chosen after the fact from ten ways
    (`best_bound`), for which each is tested at a tenth of the error probability.

    Parameters
    ----------
    synthesizer : estimator or callable
        As in `audit_synthetic_data`; it is trained once.
    party_frames : mapping of str to DataFrame
        These records are always in.
    on, categorical
        As in `audit_synthetic_data`.
    n_canaries : int, default=500
        About half of them are put in. They are also what the synthetic data then are like, so the
        model of this run is not for publishing.
    score : callable, optional
        ``score(synthetic, candidates, known)``, see `Score`. Default: `closeness`.
    relation : {"add_or_remove_one", "replace_one"}, default="add_or_remove_one"
        What neighbouring tables are in the guarantee to be tested. With "replace_one" the coin puts
        in one of two canaries, so that the number of records does not depend on it.
    n_synthetic : int, optional
        Synthetic records. Default: as many as there are always-in records.
    claim : Claim, optional
        As in `audit_synthetic_data`; the bound is computed at its δ.
    confidence : float, default=0.95
    random_state : int, default=0

    Returns
    -------
    CanaryAudit

    Raises
    ------
    ParameterError
        If a parameter is out of range, or the scores are not one finite number per candidate.
    PartyDataError
        If the tables are unusable.

    Examples
    --------
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(100, 2, random_state=0)
    >>> def leak(party_frames, random_state):
    ...     tables = [frame.set_index("record_id") for frame in party_frames.values()]
    ...     return pd.concat(tables, axis=1)
    >>> audit = audit_with_canaries(leak, frames, "record_id", n_canaries=100)
    >>> audit.n_correct == audit.n_guesses, audit.epsilon > 2
    (True, True)
    """
    check_values(
        "audit_with_canaries",
        n_canaries=n_canaries,
        n_synthetic=n_synthetic,
        confidence=confidence,
        random_state=random_state,
    )
    relation = NeighbouringRelation(relation)
    rng = np.random.default_rng([random_state, 3])
    aligned, _, _ = align_party_frames(party_frames, on)
    known = pd.concat(list(aligned.values()), axis=1)
    replace = relation is NeighbouringRelation.REPLACE_ONE
    n = n_canaries * (1 + replace)
    shuffled = {  # each column by itself, by position: names may be anything
        i: known.iloc[rng.integers(len(known), size=n), i].reset_index(drop=True)
        for i in range(known.shape[1])
    }
    candidates = pd.concat(shuffled, axis=1).set_axis(known.columns, axis=1)
    heads = rng.random(n_canaries) < 0.5

    first = np.arange(n_canaries)
    inserted = np.where(heads, first, first + n_canaries) if replace else first[heads]
    frames = _with_records(party_frames, on, candidates.iloc[inserted])
    (model,) = train(synthesizer, frames, on, [int(rng.integers(2**32))])
    synthetic = model.sample(n_synthetic or len(known))

    score = partial(closeness, categorical=categorical) if score is None else score
    left_out = columns_left_out(synthesizer)
    shown = [frame.drop(columns=left_out, errors="ignore") for frame in (candidates, known)]
    scores = np.asarray(score(synthetic, *shown), dtype=np.float64)
    if scores.shape != (len(candidates),) or not np.isfinite(scores).all():
        raise ParameterError(
            f"score must return {len(candidates)} finite numbers, one per candidate, got an array "
            f"of shape {scores.shape}"
        )
    if replace:
        scores = scores[:n_canaries] - scores[n_canaries:]
    claim = Claim.of_model(model) if claim is None else claim
    delta = 0.0 if claim is None else claim.delta
    epsilon, n_guesses, n_correct = best_bound(scores, heads, delta, confidence)
    return CanaryAudit(
        n_canaries,
        n_guesses,
        n_correct,
        epsilon,
        delta,
        confidence,
        relation,
        auc_interval(scores, heads, confidence),
        claim,
    )


def closeness(
    synthetic: pd.DataFrame,
    candidates: pd.DataFrame,
    known: pd.DataFrame,
    categorical: Sequence[Hashable] = (),
) -> Floats:
    """Score candidates by how much closer synthetic records are than real ones.

    Returns the logarithm of the ratio of the two nearest distances, shape (candidate,).
    """
    encoding = Encoding(known, categorical)
    encoded = encoding.encode(candidates)
    tiny = 1e-9
    return np.asarray(
        np.log(nearest_distances(encoded, encoding.encode(known)) + tiny)
        - np.log(nearest_distances(encoded, encoding.encode(synthetic)) + tiny)
    )


def _with_records(
    party_frames: PartyFrames, on: Any, records: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Append records to every party's frame, under fresh keys."""
    party_frames = check_party_frames(party_frames, on)
    keys = {name: party_keys(f, key_of(on, name)) for name, f in party_frames.items()}
    minters = learn_key_minters(keys)
    frames = {}
    for name, frame in party_frames.items():
        key = key_of(on, name)
        fresh = minters[name].mint(len(records), name=key)
        own = records[[column for column in frame.columns if column != key]]
        if key is None:
            own = own.set_axis(pd.Index(fresh, name=frame.index.name), axis=0)
        else:
            own = own.reset_index(drop=True)
            own[key] = fresh
            own = own[frame.columns.tolist()]
        frames[name] = pd.concat([frame, own], ignore_index=key is not None)
    return frames
