"""Where every number of a saved private model comes from.

A model with a guarantee for the synthetic data may hold four sorts of numbers: public ones,
released ones, drawn ones, and those computed from these. `number_sources` goes through all files,
and says so of each number; one that it knows nothing about is an error, not an entry.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth.columns.public import PublicTransformer
from vflsynth.exceptions import ArtefactError
from vflsynth.models.party_model import PARTY_KIND


class Source(StrEnum):
    """Where a number of a saved model comes from."""

    PUBLIC = "public"
    """Parameters, the public schema, types, plans, versions: known before any record is read."""
    RELEASED = "released"
    """Published with noise, and paid for by an entry of the ledger."""
    DRAWN = "drawn"
    """From a generator of random numbers."""
    COMPUTED = "computed from these"
    """From public, released and drawn numbers; digests of files are."""
    LISTED = "public or released"
    """Bounds, their steps and categories: of the public schema, types, or released without them."""
    RECORDS = "the records"
    """Everything that a model without a guarantee has learned."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers of one kind in one file.

    Parameters
    ----------
    file : str
        Path in the model's directory.
    place : str
        Keys that lead to them in a JSON file, or the name of a tensor.
    n : int
        How many there are.
    source : Source
    """

    file: str
    place: str
    n: int
    source: Source


_PLAN = r"(parameters|privacy_ledger|version|class|device|parties|interrupted)(\..*|\[.*)?"
_COLUMN = r"transformer\.transformers\[\]\."
_STATE = _COLUMN + r"state\."
_RULES: tuple[tuple[str, str, Source], ...] = (
    (r"manifest\.json", r"format_version", Source.PUBLIC),
    (r"manifest\.json", r"files\..*", Source.COMPUTED),
    (r"synthesizer\.json", _PLAN, Source.PUBLIC),
    # Defaults of networks follow from encoded widths, and those from the released histograms.
    (r"synthesizer\.json", r"(settings|history)[.\[].*", Source.COMPUTED),
    (r"synthesizer\.json", r"samples\.secret", Source.DRAWN),
    (r"synthesizer\.json", r"samples\.drawn", Source.PUBLIC),
    (r".*party\.json", r"(on|name|keys)(\..*|\[.*)?", Source.PUBLIC),
    (r".*party\.json", r"sampler\..*", Source.COMPUTED),
    (r".*party\.json", r"transformer\.(parameters|columns|index_name|party)\b.*", Source.PUBLIC),
    (r".*party\.json", _COLUMN + r"(name|dtype|parameters)\b.*", Source.PUBLIC),
    (r".*party\.json", _STATE + r"(bounds|categories|origin|step)\b.*", Source.LISTED),
    (r".*party\.json", _STATE + r"counts\[\]", Source.RELEASED),
    (r".*party\.json", _STATE + r"(exponent|noise_std)", Source.PUBLIC),
    # Bins follow from the bounds and the first histograms.
    (r".*party\.json", _STATE + r"(lows|highs)\b.*", Source.COMPUTED),
    (r".*party\.json", r"preparation\..*", Source.LISTED),
    (r".*sampler\.safetensors", r".*", Source.COMPUTED),
)


def number_sources(path: str | os.PathLike[str]) -> list[Numbers]:
    """List all numbers of a saved model with a guarantee for the synthetic data.

    Parameters
    ----------
    path : path-like
        A directory that a synthesizer's or a half's ``save`` wrote.

    Returns
    -------
    list of Numbers
        One per file, place and source; entries of lists count together. Of a model without a
        guarantee all that is not public is of the records.

    Raises
    ------
    ArtefactError
        If a file holds numbers at a place of which nothing is known.
    """
    root = Path(path)
    kind = artefacts.kind_of(root)
    if kind == PARTY_KIND:  # all columns are encoded by what is public and published
        columns = artefacts.read_json(root / "party.json")["transformer"]["transformers"]
        private = all(column["kind"] == PublicTransformer.kind for column in columns)
    else:
        ledger = artefacts.read_json(root / "synthesizer.json").get("privacy_ledger")
        private = bool(ledger and ledger["covers_synthetic_data"])
    found: dict[tuple[str, str], int] = {}
    for file in sorted(file for file in root.rglob("*") if file.is_file()):
        name = file.relative_to(root).as_posix()
        for place, n in _numbers_of(file):
            found[name, place] = found.get((name, place), 0) + n
    return [
        Numbers(file, place, n, _source(file, place, private=private))
        for (file, place), n in found.items()
    ]


def _source(file: str, place: str, *, private: bool) -> Source:
    for files, places, source in _RULES:
        if re.fullmatch(files, file) and re.fullmatch(places, place):
            return source if private or source in (Source.PUBLIC, Source.DRAWN) else Source.RECORDS
    if not private:
        return Source.RECORDS
    raise ArtefactError(
        f"{file} holds numbers at {place!r}, and nothing is known about where they come from"
    )


def _numbers_of(file: Path) -> Iterator[tuple[str, int]]:
    if file.suffix == ".json":
        yield from _leaves(json.loads(file.read_text(encoding="utf-8")), "")
        return
    if file.suffix != ".safetensors":
        raise ArtefactError(f"{file.name} is no file of a model")
    for name, tensor in artefacts.read_tensors(file).items():
        yield name, tensor.numel()


def _leaves(content: Any, place: str) -> Iterator[tuple[str, int]]:
    """Numbers, and text with digits, of a JSON value."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{place}.{key}" if place else key)
    elif isinstance(content, list):
        for value in content:
            yield from _leaves(value, f"{place}[]")
    elif isinstance(content, int | float) or (
        isinstance(content, str) and any(c.isdigit() for c in content)
    ):
        yield place, 1
