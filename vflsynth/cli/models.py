"""Whatever was saved: a fitted synthesizer of any class, or one party's half."""

from __future__ import annotations

from pathlib import Path

from vflsynth import _artefacts as artefacts
from vflsynth._device import resolve_device
from vflsynth.exceptions import ArtefactError
from vflsynth.models.party_model import PARTY_KIND, PartyModel
from vflsynth.registry import named_in_file
from vflsynth.synthesizers.base import KIND, BaseSynthesizer


def open_model(path: Path) -> BaseSynthesizer | PartyModel:
    """Load a saved model or half, onto a GPU if there is one.

    Raises
    ------
    ArtefactError
        If it is neither, or is damaged.
    """
    kind = artefacts.kind_of(path)
    if kind == PARTY_KIND:
        return PartyModel.load(path, resolve_device("auto"))
    if kind != KIND:
        raise ArtefactError(f"{path} is a saved {kind!r}, not a model")
    content = artefacts.read_json(artefacts.open_directory(path, KIND) / "synthesizer.json")
    with artefacts.reading(path, "a model of a known class"):
        found: type[BaseSynthesizer] = named_in_file(content["class"], "synthesizers")
    return found.load(path)
