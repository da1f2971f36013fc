"""Linkability, and all three questions asked of a synthesizer."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Literal, Unpack

import numpy as np
import pandas as pd

from vflsynth.adversary.encoding import Booleans, Encoding, Floats, distance_blocks
from vflsynth.audit.compared import Compared, QuestionOptions, among
from vflsynth.audit.criteria import Criteria, Disclosure
from vflsynth.audit.game import LeaveOneOutGame, PartyFrames, check_model, columns_left_out, train
from vflsynth.audit.inference import attribute_inference
from vflsynth.audit.shadow import quiet
from vflsynth.audit.singling_out import singling_out
from vflsynth.exceptions import ParameterError


def linkability(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    control: pd.DataFrame,
    parties: Mapping[str, Sequence[Hashable]],
    *,
    n_neighbours: int = 5,
    **options: Unpack[QuestionOptions],
) -> Disclosure:
    """Ask whether the synthetic table tells which parts of different parties belong together.

    Parameters
    ----------
    real, synthetic, control, **options
        As in `singling_out`.
    parties : mapping of str to sequence of hashable
        The columns of each party, two parties or more.
    n_neighbours : int, default=5
        Synthetic records that are looked at for each part.

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

    Notes
    -----
    A record is linked if one synthetic record is among the nearest to it in every party's columns.
    Source: Giomi et al. 2023, §4.2, for two parts; our own implementation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people, others = (pd.DataFrame(rng.normal(size=(300, 4))) for _ in range(2))
    >>> linkability(people, people, others, {"bank": [0, 1], "shop": [2, 3]}).attack.value
    1.0
    """
    if len(parties) < 2 or not all(map(len, parties.values())):
        raise ParameterError(
            f"linkability needs the columns of two parties or more, got {dict(parties)!r}"
        )
    tables = Compared.of(
        "linkability", (real, synthetic, control), options, n_neighbours=n_neighbours
    )
    published = tables.synthetic
    k = min(n_neighbours, len(published))
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
) -> Criteria:
    """Ask all three questions of a synthesizer: fit it on half of the records, control by the rest.

    Parameters
    ----------
    synthesizer, party_frames, on
        As in `audit_synthetic_data`; it is trained once.
    sensitive : sequence of hashable, default ()
        Columns to ask attribute inference about, each by itself; without any it is not asked.
    quasi_identifiers : sequence of hashable, optional
        Columns that an attacker knows. Default: all others, also those that are sensitive.
    categorical : collection of hashable, default ()
        Numeric columns to read as labels.
    attacker : {"table", "model"}, default="table"
        "model" asks attribute inference again, of who holds a model with ``log_prob``.
    confidence : float, default=0.95
        Of each interval, and of all verdicts at once.
    random_state : int, default=0

    Returns
    -------
    Criteria

    Raises
    ------
    PartyDataError
        If fewer than 40 records are matched.
    ParameterError, ColumnMismatchError
        As in `singling_out`; or if `attacker` is "model" and the synthesizer has no ``log_prob``.

    Notes
    -----
    A generator that has half of the records memorises each of them sooner: the answers err on the
    side of exposure.

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
    if attacker == "model":
        check_model(synthesizer)
    left_out = columns_left_out(synthesizer)
    game = LeaveOneOutGame(party_frames, on, left_out)
    rng = np.random.default_rng([random_state, 11])
    order = rng.permutation(len(game.table))
    training = game.table.iloc[order[: len(order) // 2]]
    control = game.table.iloc[order[len(order) // 2 :]]
    frames = game.frames_without(control.index)
    with quiet():
        (model,) = train(synthesizer, frames, on, [int(rng.integers(2**32))])
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
    near = np.zeros((len(points), len(others)), bool)
    start = 0
    for block in distance_blocks(points, others):
        places = np.argsort(block, axis=1, kind="stable")[:, :k]
        np.put_along_axis(near[start : start + len(block)], places, True, axis=1)
        start += len(block)
    return near
