"""Sampling while nobody holds all generators: every party draws a part, somebody joins them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from vflsynth._random import derive
from vflsynth._validation import Number, Optional, Rule, check_parameters
from vflsynth.columns.codec import scalar_from_json, scalar_to_json
from vflsynth.contract import Cost, SharedRows, rows_for_all
from vflsynth.exceptions import MisalignedError, SharedColumnError, VFLSynthError
from vflsynth.federation import trail
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site
from vflsynth.frames import KeyMinter
from vflsynth.models import PartyModel, draw_part_with_files, draw_with_files, with_keys

MARK = "vflsynth sample"
"""Under this name a part says in its attributes which others it belongs to."""

_RULES = "vflsynth rules"
"""Under this name it says which of the drawn rows it has, and which rules are open."""

_KEYS = "vflsynth keys"
"""Under this name it says which keys the rows get that are left."""

_DRAWN_PER_ROW = 2
"""Rows that are drawn for one that is asked for, unless it is said otherwise."""


def draw_part(
    job: Job,
    site: Site,
    n: int,
    request: str,
    *,
    keys: bool = False,
    passed: Path | None = None,
    drawn: int | None = None,
) -> pd.DataFrame:
    """Draw one party's part of a sample.

    Parameters
    ----------
    job : Job
        The run that trained the half.
    site : Site
        With the shared secret: the latents come from it, and are the same at every party.
    n : int
    request : str
        Names the sample; another name gives other rows, the same name the same again.
    keys : bool, default=False
        Add fresh keys, equal for the same record at every party.
    passed : Path, optional
        Folder of what parties pass on to each other, for methods whose parties draw one after the
        other, see `vflsynth.models.passing.draw_with_files`.
    drawn : int, optional
        Where a contract's rules leave out rows: how many to draw, so that enough are left, at
        least. Default: 2 n. The first ones stay the same whatever it is.

    Returns
    -------
    DataFrame
        Row i is the same record at every party. It bears a keyed mark that `join_parts` compares.
        Where rows are left out, those that keep the party's own rules, and which of the drawn ones
        they are: they belong to other parties' rows once the parts are joined.

    Raises
    ------
    ArtefactError
        If this site has no half of that run.
    ParameterError, TableFileError, MisalignedError
        If what other parties pass on is needed and not there, or of another sample.
    """
    rules: dict[str, Rule] = {
        "n": Number(0, whole=True),
        "drawn": Optional(Number(n, whole=True)),
    }
    check_parameters("a part of a sample", {"n": n, "drawn": drawn}, rules)
    half = PartyModel.load(site.folder / job.name / "half", site.device)
    secret = derive(site.the_shared, f"sample|{job.name}|{request}")
    selects = half.preparation is not None and half.preparation.selects
    if selects:
        wanted = _DRAWN_PER_ROW * n if drawn is None else drawn
        part, shared = draw_part_with_files(half, n, wanted, secret, passed)
        part.attrs[_RULES] = shared.to_dict()
        if keys:
            part.attrs[_KEYS] = {"on": scalar_to_json(half.on), "keys": half.minter.to_dict()}
    else:
        part = draw_with_files(half, n, secret, passed)
        part = half.add_keys(part) if keys else part
    said = {"job": job.name, "request": request, "rows": n, "keys": keys}
    trail.append(site.folder, "sampled", said)
    part.attrs[MARK] = hmac.new(secret, str(n).encode(), hashlib.sha256).hexdigest()[:16]
    return part


def join_parts(parts: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, Cost | None]:
    """Put parts side by side: what the recipient does, who needs no model and no secret.

    Parameters
    ----------
    parts : mapping of str to DataFrame
        By name, for errors.

    Returns
    -------
    table : DataFrame, shape (n, column)
        Under a contract, of the rows that all parties and the rules of several of them leave in.
    cost : Cost or None
        What rules that rows are left out for cost, if there are any.

    Raises
    ------
    MisalignedError
        If they are not parts of one sample.
    SharedColumnError
        If two parts have a column of the same name.
    RuleError
        If too few rows keep all rules.
    ColumnMismatchError
        If a rule names a column of a party whose part is not there.
    """
    marks = {name: part.attrs.get(MARK) for name, part in parts.items()}
    ruled = [name for name, part in parts.items() if _RULES in part.attrs]
    if None in marks.values() or len(set(marks.values())) != 1 or len(ruled) not in (0, len(parts)):
        raise MisalignedError(
            f"these are not parts of one sample: {', '.join(map(repr, parts))}",
            fix="have every party draw with the same job, number of rows, request and secret, into "
            "parquet files",
        )
    first, *others = parts
    columns = dict.fromkeys(parts[first].columns, first)
    for name in others:
        for column in parts[name].columns:
            if column in columns:
                raise SharedColumnError(
                    f"{columns[column]!r} has a column of this name too",
                    fix="draw keys at one party only",
                    party=name,
                    column=column,
                )
            columns[column] = name
    if not ruled:
        table = pd.concat(list(parts.values()), axis=1)
        table.attrs = {}
        return table, None
    shared = {name: _read_rules(name, part) for name, part in parts.items()}
    for name, own in shared.items():
        if own.n != shared[first].n:
            raise _damaged(name)
    found, cost = rows_for_all(parts, shared)
    table = pd.concat(list(found.values()), axis=1)
    table.attrs = {}
    return _with_keys(table, parts), cost


def _read_rules(name: str, part: pd.DataFrame) -> SharedRows:
    try:
        shared = SharedRows.from_dict(part.attrs[_RULES])
    except (VFLSynthError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(name) from error
    if len(shared.rows) != len(part):
        raise _damaged(name)
    return shared


def _damaged(name: str) -> MisalignedError:
    return MisalignedError(
        "what the part says of its rows cannot be read, or is of another table",
        fix="have the party draw its part anew, and leave the file as it is",
        party=name,
    )


def _with_keys(table: pd.DataFrame, parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put fresh keys in front, or into the index, if a party was asked for them."""
    having = [name for name, part in parts.items() if _KEYS in part.attrs]
    if not having:
        return table
    if len(having) > 1:
        raise SharedColumnError(
            f"{having[0]!r} has a column of keys too",
            fix="draw keys at one party only",
            party=having[1],
        )
    said = parts[having[0]].attrs[_KEYS]
    on, minter = scalar_from_json(said["on"]), KeyMinter.from_dict(said["keys"])
    return with_keys(table, minter, on)
