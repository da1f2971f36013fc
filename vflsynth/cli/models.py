"""Models that commands open: a fitted synthesizer of any class, or one party's half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vflsynth.columns.wanted import Domain
from vflsynth.exceptions import ArtefactError
from vflsynth.loading import load
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.models import PartyModel


def open_model(path: Path) -> BaseSynthesizer | PartyModel:
    """Load a saved synthesizer or half, onto a GPU if there is one.

    Raises
    ------
    ArtefactError
        If it is neither, or is damaged.
    """
    found = load(path)
    if isinstance(found, BaseSynthesizer | PartyModel):
        return found
    raise ArtefactError(f"{path} is a saved {type(found).__name__}, which draws no records")


def domains_of(model: BaseSynthesizer) -> dict[Any, Domain]:
    """Return what all parties' columns can be."""
    return {
        column: domain
        for half in model.parties_.values()
        for column, domain in half.domains.items()
    }
