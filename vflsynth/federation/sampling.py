"""Sampling while nobody holds all generators: every party draws a part."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pandas as pd

from vflsynth._random import derive
from vflsynth._validation import Number, Optional, Rule, check_parameters
from vflsynth.codec import scalar_to_json
from vflsynth.federation import trail
from vflsynth.federation.job import Job
from vflsynth.federation.joining import CHOICE, KEYS, MARK, RULES
from vflsynth.federation.site import Site
from vflsynth.models import PartyModel
from vflsynth.models.party_model import draw_part_with_files

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
    `vflsynth.models.party_model.draw_part_with_files`.

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
    half = PartyModel.load(site.folder / job.name / "half", site.device)
    secret = derive(site.the_shared, f"sample|{job.name}|{request}")
    wanted = _DRAWN_PER_ROW * n if drawn is None else drawn
    part, shared, choice = draw_part_with_files(half, n, wanted, secret, passed)
    told = {RULES: shared, CHOICE: choice}
    part.attrs |= {name: own.to_dict() for name, own in told.items() if own is not None}
    if keys and (shared is not None or choice is not None):
        part.attrs[KEYS] = {"on": scalar_to_json(half.on), "keys": half.minter.to_dict()}
    elif keys:
        part = half.add_keys(part)
    said = {"job": job.name, "request": request, "rows": n, "keys": keys}
    trail.append(site.folder, "sampled", said)
    part.attrs[MARK] = hmac.new(secret, str(n).encode(), hashlib.sha256).hexdigest()[:16]
    return part
