"""Whatever was saved: a fitted synthesizer of any class, or one party's half."""

from __future__ import annotations

from pathlib import Path

from vflsynth import _artefacts as artefacts
from vflsynth import synthesizers
from vflsynth._device import resolve_device
from vflsynth.exceptions import ArtefactError
from vflsynth.model import PARTY_KIND, PartyModel
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
    for name in synthesizers.__all__:
        if content.get("class") == name:
            found: type[BaseSynthesizer] = getattr(synthesizers, name)
            return found.load(path)
    raise ArtefactError(f"{path} holds a {content.get('class')!r}, which this version cannot load")
