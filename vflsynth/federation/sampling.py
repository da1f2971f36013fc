"""Sampling while nobody holds all generators: every party draws a part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth import _artefacts as artefacts
from vflsynth._random import derive
from vflsynth.codec import scalar_to_json
from vflsynth.contract import SharedRows, attempts
from vflsynth.exceptions import ArtefactError, MisalignedError, TableFileError
from vflsynth.federation import trail
from vflsynth.federation.job import Job
from vflsynth.federation.joining import CHOICE, KEYS, MARK, PARTIES, RULES
from vflsynth.federation.site import Site
from vflsynth.frames import read_table, write_table
from vflsynth.models import PartyModel
from vflsynth.models.choosing import CHOOSER, Portion, portions
from vflsynth.models.party_model import stacked
from vflsynth.registry import Number, Optional, Rule, check_parameters

_MARK = "vflsynth passed on"

Numbers = npt.NDArray[np.float32]
"""About synthetic rows, (row, number)."""

_DRAWN_PER_ROW = 2
"""Rows that are drawn for one that is asked for, unless it is said otherwise."""


_ATTEMPT = "half-of.json"
"""In a job's folder: of which attempt the half is."""


def note_attempt(folder: Path, nonce: str) -> None:
    """Write down of which attempt the half is that was just saved in a job's folder.

    A party that was killed before keeps the half of an earlier attempt, which was trained apart
    from the others' and has no relations with them: `join_parts` finds out by `attempt_of`.
    """
    said = {"attempt": derive(nonce.encode(), "attempt").hex(), "half": _digest(folder)}
    artefacts.replace_json(folder / _ATTEMPT, said)


def attempt_of(folder: Path) -> str:
    """Say of which attempt the half in a job's folder is; nothing if it was not written down."""
    path = folder / _ATTEMPT
    said = artefacts.read_json(path) if path.exists() else {}
    return str(said["attempt"]) if said.get("half") == _digest(folder) else ""


def _digest(folder: Path) -> str:
    return artefacts.file_digest(folder / "half" / artefacts.MANIFEST)


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
    adds fresh keys, equal for the same record at every party, those of an index or of rows that are
    left out only once the parts are joined. `passed` is the folder of what parties pass on, for
    methods whose parties draw one after the other.

    The part bears a keyed mark that `vflsynth.federation.joining.join_parts` compares. Where a
    contract's rules leave out rows, it has those that keep the party's own rules, and which of the
    drawn ones they are: they belong to other parties' rows once the parts are joined. `drawn` (2 n
    by default) is how many to draw at least, so that enough are left; the first ones stay the same
    whatever it is. Where rows are resampled, it has all that were drawn, and what the party's
    scores of them are, so that joining chooses.

    Raises ArtefactError if this site has no half of that run; ParameterError, TableFileError or
    MisalignedError if what other parties pass on is needed and not there, or of another sample.
    """
    rules: dict[str, Rule] = {
        "n": Number(0, whole=True),
        "drawn": Optional(Number(n, whole=True)),
    }
    check_parameters("a part of a sample", {"n": n, "drawn": drawn}, rules)
    folder = site.folder / job.name / "half"
    try:
        half = PartyModel.load(folder, site.device)
    except ArtefactError as error:
        if folder.exists():
            raise
        raise ArtefactError(
            f"site {site.party!r} has no half of job {job.name!r}: {error}; run the job to its end "
            "first"
        ) from error
    secret = derive(site.the_shared, f"sample|{job.name}|{request}")
    wanted = _DRAWN_PER_ROW * n if drawn is None else drawn
    bound = derive(secret, f"attempt {attempt_of(folder.parent)}")
    preparation = half.preparation
    leaves_out = preparation is not None and preparation.selects
    planned: list[Portion] = []
    for asked, own in attempts(n, secret):
        planned += portions(asked, half.times, own)
        if not leaves_out or sum(kept for kept, _, _ in planned) >= wanted:
            break
    part, judged = _drawn(half, planned, bound, passed)
    choice = None if judged is None else half.choice(planned, judged, part)
    shared: SharedRows | None = None
    if preparation is not None and leaves_out:
        part, shared = SharedRows.of(part, preparation, n)
    told = {RULES: shared, CHOICE: choice}
    part.attrs |= {name: own.to_dict() for name, own in told.items() if own is not None}
    if keys and (shared is not None or choice is not None or half.on is None):
        part.attrs[KEYS] = {"on": scalar_to_json(half.on), "keys": half.minter.to_dict()}
    elif keys:
        part = half.add_keys(part)
    said = {"job": job.name, "request": request, "rows": n, "keys": keys}
    trail.append(site.folder, "sampled", said)
    part.attrs[PARTIES] = len(job.parties)
    part.attrs[MARK] = _mark(bound, str(n))
    return part


def _mark(bound: bytes, text: str) -> str:
    return derive(bound, text).hex()[:16]


def _drawn(
    half: PartyModel, planned: Sequence[Portion], bound: bytes, folder: Path | None
) -> tuple[pd.DataFrame, Numbers | None]:
    """Draw all that is planned, one portion after the other, and what is computed for a choice.

    The folder has files ``SENDER-to-RECEIVER.parquet``, which hold numbers about synthetic rows:
    those to this party are read, those from it written. What `bound` is derived from marks them.
    """
    n_drawn = sum(size for _, size, _ in planned)
    mark = _mark(bound, f"passed on {n_drawn}")
    received: dict[str, Numbers] = {}
    for name in half.after if folder is not None else ():
        assert folder is not None
        path = folder / f"{name}-to-{half.name}.parquet"
        if not path.exists():
            raise TableFileError(
                f"{path} is not there: {half.name!r} draws its columns given what {name!r} passes "
                "on",
                fix=f"draw at {name!r} first, and bring the file here",
                party=half.name,
            )
        table = read_table(path)
        if table.attrs.get(_MARK) != mark:
            raise MisalignedError(
                f"{path} is of another sample, or of another attempt at the job",
                fix="draw at all parties with the same request and number of rows; if an attempt "
                "was cut off while halves were saved, run the job again first",
                party=name,
            )
        received[name] = table.to_numpy(np.float32)
    tables: list[pd.DataFrame] = []
    passed_on: dict[str, list[Numbers]] = {}
    start = 0
    for _, size, own in planned:
        given = {name: numbers[start : start + size] for name, numbers in received.items()}
        table, passed = half.sample_and_pass_on(size, own, given)
        tables.append(table)
        for receiver, numbers in passed.items():
            passed_on.setdefault(receiver, []).append(numbers)
        start += size
    whole = {receiver: np.concatenate(numbers) for receiver, numbers in passed_on.items()}
    judged = whole.pop(CHOOSER, None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for receiver, numbers in whole.items():
            table = pd.DataFrame(numbers, columns=[str(k) for k in range(numbers.shape[1])])
            table.attrs[_MARK] = mark
            write_table(table, folder / f"{half.name}-to-{receiver}.parquet")
    return stacked(tables), judged
