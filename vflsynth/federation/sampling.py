"""Sampling while nobody holds all generators: every party draws a part.

The recipient, who needs no model and no secret, puts the parts side by side.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from vflsynth._random import derive
from vflsynth._validation import Number, Optional, Rule, check_parameters
from vflsynth.columns.codec import scalar_to_json
from vflsynth.exceptions import MisalignedError, SharedColumnError, VFLSynthError
from vflsynth.federation import trail
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site
from vflsynth.models import PartyModel
from vflsynth.models.party_model import draw_part_with_files, draw_with_files

if TYPE_CHECKING:
    from vflsynth.contract import Cost, SharedRows


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

    Latents come from the site's shared secret, and are the same at every party: row i is the same
    record at all of them. Another `request` gives other rows, the same one the same again. `keys`
    adds fresh keys, equal for the same record at every party. `passed` is the folder of what
    parties pass on, for methods whose parties draw one after the other, see
    `vflsynth.models.party_model.draw_with_files`.

    The part bears a keyed mark that `vflsynth.federation.sampling.join_parts` compares. Where a
    contract's rules leave out rows, it has those that keep the party's own rules, and which of the
    drawn ones they are: they belong to other parties' rows once the parts are joined. `drawn` (2 n
    by default) is how many to draw at least, so that enough are left; the first ones stay the same
    whatever it is.

    Raises ArtefactError if this site has no half of that run; ParameterError, TableFileError or
    MisalignedError if what other parties pass on is needed and not there, or of another sample.
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
        part.attrs[RULES] = shared.to_dict()
        if keys:
            part.attrs[KEYS] = {"on": scalar_to_json(half.on), "keys": half.minter.to_dict()}
    else:
        part = draw_with_files(half, n, secret, passed)
        part = half.add_keys(part) if keys else part
    said = {"job": job.name, "request": request, "rows": n, "keys": keys}
    trail.append(site.folder, "sampled", said)
    part.attrs[MARK] = hmac.new(secret, str(n).encode(), hashlib.sha256).hexdigest()[:16]
    return part


MARK = "vflsynth sample"
"""Under this name a part says in its attributes which others it belongs to."""

RULES = "vflsynth rules"
"""Under this name it says which of the drawn rows it has, and which rules are open."""

KEYS = "vflsynth keys"
"""Under this name it says which keys the rows get that are left."""


def join_parts(parts: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, Cost | None]:
    """Put parts side by side; names are for errors.

    Under a contract the table, (n, column), has the rows that all parties and the rules of several
    of them leave in; with it comes what rules that rows are left out for cost, or None.

    Raises MisalignedError if they are not parts of one sample; SharedColumnError if two have a
    column of the same name; RuleError if too few rows keep all rules; ColumnMismatchError if a rule
    names a column of a party whose part is not there.
    """
    marks = {name: part.attrs.get(MARK) for name, part in parts.items()}
    ruled = [name for name, part in parts.items() if RULES in part.attrs]
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
    from vflsynth.contract import rows_for_all

    shared = {name: _read_rules(name, part) for name, part in parts.items()}
    for name, own in shared.items():
        if own.n != shared[first].n:
            raise _damaged(name)
    found, cost = rows_for_all(parts, shared)
    table = pd.concat(list(found.values()), axis=1)
    table.attrs = {}
    return _with_keys(table, parts), cost


def _read_rules(name: str, part: pd.DataFrame) -> SharedRows:
    from vflsynth.contract import SharedRows

    try:
        shared = SharedRows.from_dict(part.attrs[RULES])
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
    having = [name for name, part in parts.items() if KEYS in part.attrs]
    if not having:
        return table
    if len(having) > 1:
        raise SharedColumnError(
            f"{having[0]!r} has a column of keys too",
            fix="draw keys at one party only",
            party=having[1],
        )
    from vflsynth.columns.codec import scalar_from_json
    from vflsynth.frames import KeyMinter
    from vflsynth.models.party_model import with_keys

    said = parts[having[0]].attrs[KEYS]
    on, minter = scalar_from_json(said["on"]), KeyMinter.from_dict(said["keys"])
    return with_keys(table, minter, on)
