"""Sampling while nobody holds all generators: every party draws a part, somebody joins them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from vflsynth._random import derive
from vflsynth.exceptions import MisalignedError, SharedColumnError
from vflsynth.federation import trail
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site
from vflsynth.models import PartyModel, draw_with_files

MARK = "vflsynth sample"
"""Under this name a part says in its attributes which others it belongs to."""


def draw_part(
    job: Job, site: Site, n: int, request: str, *, keys: bool = False, passed: Path | None = None
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

    Returns
    -------
    DataFrame
        Row i is the same record at every party. It bears a keyed mark that `join_parts` compares.

    Raises
    ------
    ArtefactError
        If this site has no half of that run.
    ParameterError, TableFileError, MisalignedError
        If what other parties pass on is needed and not there, or of another sample.
    """
    half = PartyModel.load(site.folder / job.name / "half", site.device)
    secret = derive(site.the_shared, f"sample|{job.name}|{request}")
    part = draw_with_files(half, n, secret, passed)
    if keys:
        part = half.add_keys(part)
    drawn = {"job": job.name, "request": request, "rows": n, "keys": keys}
    trail.append(site.folder, "sampled", drawn)
    part.attrs[MARK] = hmac.new(secret, str(n).encode(), hashlib.sha256).hexdigest()[:16]
    return part


def join_parts(parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put parts side by side: what the recipient does, who needs no model and no secret.

    Parameters
    ----------
    parts : mapping of str to DataFrame
        By name, for errors.

    Raises
    ------
    MisalignedError
        If they are not parts of one sample.
    SharedColumnError
        If two parts have a column of the same name.
    """
    marks = {name: part.attrs.get(MARK) for name, part in parts.items()}
    if None in marks.values() or len(set(marks.values())) != 1:
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
    table = pd.concat(list(parts.values()), axis=1)
    table.attrs = {}
    return table
