"""Singling out, linkability, and all three questions asked of a synthesizer."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, Unpack

import numpy as np
import pandas as pd

from vflsynth.adversary.encoding import Booleans, Encoding, Floats, distance_blocks
from vflsynth.audit.criteria import (
    Compared,
    Criteria,
    Disclosure,
    QuestionOptions,
    among,
    values_of,
)
from vflsynth.audit.game import LeaveOneOutGame, PartyFrames, check_model, columns_left_out, train
from vflsynth.audit.inference import attribute_inference
from vflsynth.audit.settings import check_values
from vflsynth.evaluation.columns import check_listed
from vflsynth.exceptions import ColumnMismatchError, ParameterError, PartyDataError
from vflsynth.reporting import quiet

_TRIES = 10
_N_COLUMNS = (1, 4)  # least and most columns of a description
_N_NEIGHBOURS = 5  # synthetic records that are looked at for each part

Description = list[tuple[int, float, int]]
"""Conditions on columns by position: a value, and whether what fits is below (-1) or above (1)."""


def singling_out(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    control: pd.DataFrame,
    **options: Unpack[QuestionOptions],
) -> Disclosure:
    """Ask whether descriptions made from synthetic records fit exactly one real record.

    A description takes the values of up to four random columns of one synthetic record: the same
    label, a number at least as large where it lies above the synthetic median and at most as large
    elsewhere. Those that fit no other synthetic record are used. Multivariate predicates are those
    of Giomi et al. 2023; our own implementation. Training and control records are compared by the
    same descriptions but as if by others, which errs on the side of not seeing a difference.

    Parameters
    ----------
    real, synthetic, control : DataFrame
        Training records, what was made from them, and records of the same population that were not
        used. Of the larger of `real` and `control` a random part is left out: how often a
        description fits one record depends on how many there are.
    **options
        `categorical`, numeric columns to read as labels (default: none); `n_attacks`, most
        descriptions or attacked records of each kind (1000); `confidence` (0.95);
        `random_state` (0).

    Returns
    -------
    Disclosure
        The baseline is descriptions of values that were each taken from another synthetic record.

    Raises
    ------
    ParameterError
        If a parameter is out of range.
    PartyDataError
        If a table has fewer than 20 records; its child ColumnKindError if a column is text in one
        of them and numbers in another.
    ColumnMismatchError
        If a table lacks a column of the synthetic one, or that one lacks a column that is named.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people, others = (pd.DataFrame(rng.normal(size=(300, 4))) for _ in range(2))
    >>> singling_out(people, people, others).excess.low > 0.1
    True
    """
    tables = Compared.of("singling_out", (real, synthetic, control), options)
    rng, published = tables.generator(8), tables.synthetic
    asked = tables.asked(min(len(real), len(control)), rng)
    encoding = Encoding(published, tables.categorical)
    values = [_values(encoding, table) for table in asked]
    columns = [published[name].iloc[rng.permutation(len(published))] for name in published]
    mixed = pd.concat([c.reset_index(drop=True) for c in columns], axis=1)
    found = []
    for source in (published, mixed):
        described = _descriptions(encoding, source, published, tables.n_attacks, rng)
        found.append([np.array([_fits(v, d).sum() == 1 for d in described], bool) for v in values])
    attacks, (guesses, _) = found
    if not len(attacks[0]):
        raise PartyDataError(
            "no description of a synthetic record fits it alone: all records occur several times",
            fix="pass tables with more columns",
        )
    return tables.answer("singling out", attacks, float(guesses.mean()) if len(guesses) else 0.0)


def _descriptions(
    encoding: Encoding,
    source: pd.DataFrame,
    published: pd.DataFrame,
    n_attacks: int,
    rng: np.random.Generator,
) -> list[Description]:
    """Describe records of `source` so that exactly one published record fits."""
    attributes = encoding.attributes
    own, all_values = (_values(encoding, table) for table in (source, published))
    middle = [np.nanmedian(v) if np.isfinite(v).any() else np.nan for v in all_values.T]
    low, high = (min(n, len(attributes)) for n in _N_COLUMNS)
    found: list[Description] = []
    for row in rng.permutation(len(source)).tolist():
        if len(found) == n_attacks:
            break
        for _ in range(_TRIES):
            columns = rng.permutation(len(attributes))[: rng.integers(low, high + 1)]
            description = [
                (
                    int(j),
                    float(own[row, j]),
                    0 if attributes[j].levels is not None else 1 if own[row, j] > middle[j] else -1,
                )
                for j in columns
            ]
            if _fits(all_values, description).sum() == 1:
                found.append(description)
                break
    return found


def _values(encoding: Encoding, table: pd.DataFrame) -> Floats:
    """All columns, each in one piece, shape (row, column)."""
    return np.stack([values_of(a, table) for a in encoding.attributes]).T


def _fits(values: Floats, description: Description) -> Booleans:
    """Which records, as `_values` of all columns, a description fits."""
    fits = np.ones(len(values), bool)
    for column, value, side in description:
        own = values[:, column]
        if np.isnan(value):
            fits &= np.isnan(own)
        elif side == 0:
            fits &= own == value
        else:
            with np.errstate(invalid="ignore"):
                fits &= own >= value if side > 0 else own <= value
    return fits


def linkability(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    control: pd.DataFrame,
    parties: Mapping[str, Sequence[Hashable]],
    **options: Unpack[QuestionOptions],
) -> Disclosure:
    """Ask whether the synthetic table tells which parts of different parties belong together.

    A record is linked if one synthetic record is among the five nearest in every party's columns.
    Source: Giomi et al. 2023, §4.2, for two parts; our own implementation.

    Parameters
    ----------
    real, synthetic, control, **options
        As in `singling_out`.
    parties : mapping of str to sequence of hashable
        The columns of each party, two parties or more.

    Returns
    -------
    Disclosure
        The baseline is the share of records that are linked by as many synthetic records drawn at
        random.

    Raises
    ------
    ParameterError
        If a parameter is out of range, or there are fewer than two parties.
    PartyDataError, ColumnMismatchError
        As in `singling_out`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people, others = (pd.DataFrame(rng.normal(size=(300, 4))) for _ in range(2))
    >>> linkability(people, people, others, {"bank": [0, 1], "shop": [2, 3]}).attack.value
    1.0
    """
    named = parties if isinstance(parties, Mapping) else {}
    check_listed("linkability", **{f"parties[{name!r}]": own for name, own in named.items()})
    if len(named) < 2 or not all(map(len, named.values())):
        raise ParameterError(
            f"linkability needs the columns of two parties or more, got {parties!r}"
        )
    owners = [(name, party) for party, columns in parties.items() for name in columns]
    if len(dict(owners)) < len(owners):
        raise ParameterError(f"linkability needs columns of one party each, got {parties!r}")
    tables = Compared.of("linkability", (real, synthetic, control), options)
    published = tables.synthetic
    for party, columns in parties.items():
        if unknown := [name for name in columns if name not in published.columns]:
            raise ColumnMismatchError(
                "the synthetic table has no such column",
                fix="correct `parties`",
                party=party,
                column=unknown[0],
            )
    k = min(_N_NEIGHBOURS, len(published))
    linked: list[Booleans] = []
    for asked in tables.asked(tables.n_attacks, tables.generator(9)):
        common = np.ones((len(asked), len(published)), bool)
        for columns in parties.values():
            encoding = Encoding(published[list(columns)], among(tables.categorical, columns))
            common &= _nearest(encoding.encode(asked), encoding.encode(published), k)
        linked.append(np.asarray(common.any(axis=1)))
    shared = (k / len(published)) ** len(parties)
    return tables.answer("linkability", linked, 1.0 - (1.0 - shared) ** len(published))


def audit_disclosure(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Any = None,
    *,
    sensitive: Sequence[Hashable] = (),
    quasi_identifiers: Sequence[Hashable] | None = None,
    categorical: Collection[Hashable] = (),
    attacker: Literal["table", "model"] = "table",
    confidence: float = 0.95,
    random_state: int = 0,
    verbose: int = 0,
) -> Criteria:
    """Ask all three questions of a synthesizer: fit it on half of the records, control by the rest.

    A generator that has half of the records memorises each of them sooner: the answers err on the
    side of exposure.

    Parameters
    ----------
    synthesizer, party_frames, on, categorical
        As in `audit_synthetic_data`; the synthesizer is trained once.
    sensitive : sequence of hashable, default ()
        Columns to ask attribute inference about, each by itself; without any it is not asked.
    quasi_identifiers : sequence of hashable, optional
        Columns that an attacker knows. Default: all others, also those that are sensitive.
    attacker : {"table", "model"}, default="table"
        "model" asks attribute inference again, of who holds a model with ``log_prob``.
    confidence : float, default=0.95
        Of each interval, and of all verdicts at once.
    random_state : int, default=0
    verbose : int, default=0
        Whether the training says how far it is.

    Returns
    -------
    Criteria

    Raises
    ------
    PartyDataError
        If fewer than 40 records are matched.
    ParameterError, ColumnMismatchError
        As in `singling_out`; or if no quasi-identifier is left beside a sensitive column, or
        `attacker` is "model" and the synthesizer has no ``log_prob``.

    Examples
    --------
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> def leak(party_frames, random_state):
    ...     tables = [frame.set_index("record_id") for frame in party_frames.values()]
    ...     return pd.concat(tables, axis=1)
    >>> audit_disclosure(leak, frames, "record_id").shown
    [True, True]
    """
    given = {"attacker": attacker, "confidence": confidence, "random_state": random_state}
    check_values("audit_disclosure", **given)
    if attacker == "model":
        check_model(synthesizer)
    left_out = columns_left_out(synthesizer)
    game = LeaveOneOutGame(party_frames, on, left_out)
    game.check_columns(sensitive, quasi_identifiers)
    rng = np.random.default_rng([random_state, 11])
    order = rng.permutation(len(game.table))
    training = game.table.iloc[order[: len(order) // 2]]
    control = game.table.iloc[order[len(order) // 2 :]]
    frames = game.frames_without(control.index)
    with nullcontext() if verbose else quiet():
        (model,) = train(synthesizer, frames, on, [int(rng.integers(2**32))], verbose=verbose)
    synthetic = model.sample(len(training)).drop(columns=left_out, errors="ignore")
    tables = training, synthetic, control
    rest: QuestionOptions = {
        "categorical": categorical,
        "confidence": confidence,
        "random_state": random_state,
    }
    answers = [singling_out(*tables, **rest)]
    if len(game.aligned) > 1:
        parties = {name: list(frame.columns) for name, frame in game.aligned.items()}
        answers.append(linkability(*tables, parties, **rest))
    for column in sensitive:
        known = quasi_identifiers
        if known is not None:
            known = [name for name in known if name != column]
        for holder in (None, model) if attacker == "model" else (None,):
            answers.append(
                attribute_inference(*tables, column, model=holder, quasi_identifiers=known, **rest)
            )
    return Criteria(tuple(answers), len(training), len(control), confidence)


def _nearest(points: Floats, others: Floats, k: int) -> Booleans:
    """Which of the others are among the k nearest of each point, shape (point, other)."""
    found = []
    for distances in distance_blocks(points, others):
        last = np.partition(distances, k - 1, axis=1)[:, k - 1 : k]
        near, as_last = distances < last, distances == last  # of equally near ones the first
        found.append(near | as_last & (as_last.cumsum(1) <= k - near.sum(1, keepdims=True)))
    return np.concatenate(found)
