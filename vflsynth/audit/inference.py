"""Attribute inference: guessing a value of those whose records were used, and of others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Unpack

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_predict

from vflsynth.adversary.encoding import Attribute, Booleans, Encoding, Floats, distance_blocks
from vflsynth.audit.criteria import Compared, Disclosure, QuestionOptions, among, values_of
from vflsynth.audit.game import check_model
from vflsynth.audit.observers import IMPOSSIBLE, log_prob_of
from vflsynth.evaluation.columns import check_listed
from vflsynth.exceptions import ColumnMismatchError, ParameterError

_SAME, _TOLERANCE = 1e-9, 0.05
_MOST_CANDIDATES = 500


def attribute_inference(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    control: pd.DataFrame,
    sensitive: Hashable,
    *,
    model: Any = None,
    quasi_identifiers: Sequence[Hashable] | None = None,
    **options: Unpack[QuestionOptions],
) -> Disclosure:
    """Ask whether a sensitive value can be guessed better for those whose records were used.

    The guess is the value of the nearest synthetic record; of a number it may be wrong by a
    twentieth of a standard deviation. Source: Giomi et al. 2023, §4.3; our own
    implementation. With `model` it is the value that the model calls most probable beside what is
    known, of those that training records have; of more than 500 numbers every second, or third.

    Parameters
    ----------
    real, synthetic, control, **options
        As in `singling_out`.
    sensitive : hashable
        A column.
    model : object, optional
        What made the synthetic records, with ``log_prob``, for an attacker who holds it.
    quasi_identifiers : sequence of hashable, optional
        Columns that the attacker knows of a record. Default: all others.

    Returns
    -------
    Disclosure
        The baseline is the best guess of a model of the other training records, by whichever of a
        random forest and the nearest record is right more often: what anybody could guess who knows
        everybody else, and no leak of the record itself.

    Raises
    ------
    ParameterError, PartyDataError, ColumnMismatchError
        As in `singling_out`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people, others = (pd.DataFrame(rng.integers(9, size=(300, 4))) for _ in range(2))
    >>> attribute_inference(people, people, others, 3).excess.low > 0.1
    True
    """
    tables = Compared.of("attribute_inference", (real, synthetic, control), options)
    published = tables.synthetic
    others = [name for name in published.columns if name != sensitive]
    listed = others if quasi_identifiers is None else quasi_identifiers
    check_listed("attribute_inference", quasi_identifiers=listed)
    known = list(dict.fromkeys(listed))
    for column in (sensitive, *known):
        if column not in [*published.columns] or sensitive in known:
            raise ColumnMismatchError(
                "named as sensitive or quasi-identifier, but it is not in the table or it is both",
                fix="name other columns",
                column=column,
            )
    if not known:
        raise ParameterError("attribute_inference needs a quasi-identifier, got none")
    if model is not None:
        check_model(model)
    rng = tables.generator(10)
    asked = tables.asked(tables.n_attacks, rng)
    as_labels = among(tables.categorical, [sensitive])
    (attribute,) = Encoding(tables.real[[sensitive]], as_labels).attributes
    encoding = Encoding(published[known], among(tables.categorical, known))
    records = encoding.encode(published)
    answers = values_of(attribute, published)
    rights = []
    for frame in asked:
        blocks = distance_blocks(encoding.encode(frame), records)
        guesses = answers[np.concatenate([block.argmin(axis=1) for block in blocks])]
        if model is not None:
            columns = [*known, sensitive]
            own, answered = most_probable(model, frame[columns], tables.real[columns], attribute)
            guesses = np.where(answered, own, guesses)
        rights.append(right(attribute, guesses, values_of(attribute, frame)))
    baseline = _best_guess(
        encoding.encode(asked[0]),
        values_of(attribute, asked[0]),
        attribute,
        int(rng.integers(2**31)),
    )
    attacker = "table" if model is None else "model"
    return tables.answer(
        "attribute inference", rights, baseline, column=sensitive, attacker=attacker
    )


def most_probable(
    model: Any, asked: pd.DataFrame, used: pd.DataFrame, attribute: Attribute
) -> tuple[Floats, Booleans]:
    """Return the values of an attribute that a model calls most probable beside all other columns.

    Candidates are the values of `used` training records. The second result is False where a known
    value is none that the model, which has ``log_prob``, could make.
    """
    candidates = used[attribute.name].drop_duplicates().sort_values()
    places = np.linspace(0, len(candidates) - 1, min(_MOST_CANDIDATES, len(candidates)))
    candidates = candidates.iloc[places.astype(np.int64)]
    known = used.drop(columns=attribute.name)
    answered = np.ones(len(asked), bool)
    for each in Encoding(known).labelled if len(known.columns) else ():
        assert each.levels is not None
        answered &= each.codes(asked) != len(each.levels)
    log_probs = np.full((len(asked), len(candidates)), IMPOSSIBLE)
    for i in range(len(candidates)):
        frame = asked[answered].copy()
        frame[attribute.name] = candidates.iloc[[i] * len(frame)].set_axis(frame.index)
        log_probs[answered, i] = log_prob_of(model, frame)
    answered = answered & np.asarray((log_probs > IMPOSSIBLE).any(axis=1))
    values = values_of(attribute, candidates.to_frame())
    return np.asarray(values[log_probs.argmax(axis=1)]), answered


def right(attribute: Attribute, guesses: Floats, truth: Floats) -> Booleans:
    """Whether guesses are the label, or close to the number; a missing value is one of its own."""
    if attribute.levels is not None:
        return np.asarray(guesses == truth)
    both_missing = np.isnan(guesses) & np.isnan(truth)
    reach = (_TOLERANCE + _SAME) * attribute.scale
    with np.errstate(invalid="ignore"):
        return np.asarray(both_missing | (np.abs(guesses - truth) <= reach))


def _best_guess(records: Floats, truth: Floats, attribute: Attribute, random_state: int) -> float:
    """Share of records whose value a model of the others guesses."""
    distances = np.concatenate([*distance_blocks(records, records)])
    np.fill_diagonal(distances, np.inf)
    guesses = [truth[distances.argmin(axis=1)]]
    folds = KFold(5, shuffle=True, random_state=random_state)
    forest = RandomForestRegressor if attribute.levels is None else RandomForestClassifier
    model: Any = forest(n_estimators=50, min_samples_leaf=2, random_state=random_state)
    if not np.isnan(truth).all():
        filled = np.where(np.isnan(truth), np.nanmean(truth), truth)
        guesses.append(cross_val_predict(model, records, filled, cv=folds))
    return max(float(right(attribute, guess, truth).mean()) for guess in guesses)
