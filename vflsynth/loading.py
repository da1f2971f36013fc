"""Whatever was saved, whichever class it is of."""

from __future__ import annotations

import os
from pathlib import Path

from vflsynth import _artefacts as artefacts
from vflsynth._device import resolve_device
from vflsynth.exceptions import ArtefactError
from vflsynth.methods.synthesizer import KIND, BaseSynthesizer
from vflsynth.models.party_model import PARTY_KIND, PartyModel
from vflsynth.registry import named_in_file
from vflsynth.splitdefense.estimator import BaseSplitClassifier
from vflsynth.splitdefense.model import CLASSIFIER_KIND, BottomModel, TopModel

Saved = BaseSynthesizer | PartyModel | BaseSplitClassifier | BottomModel | TopModel

_FILES = {
    KIND: ("synthesizer.json", ("synthesizers",)),
    CLASSIFIER_KIND: ("classifier.json", ("classifiers",)),
}
_HALVES: tuple[type[BottomModel] | type[TopModel], ...] = (BottomModel, TopModel)


def load(path: str | os.PathLike[str]) -> Saved:
    """Load what a ``save`` of this package wrote: a synthesizer, classifier or half.

    Parameters
    ----------
    path : path-like
        The folder.

    Returns
    -------
    BaseSynthesizer, PartyModel, BaseSplitClassifier, BottomModel or TopModel
        Of the class that was saved, on a GPU if there is one.

    Raises
    ------
    ArtefactError
        If it is none of these, or a file is missing, extra or changed.
    ArtefactVersionError
        If a newer version wrote it.

    Examples
    --------
    >>> from vflsynth import IndependentSynthesizer, load
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(50, 2, random_state=0)
    >>> IndependentSynthesizer(random_state=0).fit(frames, on="record_id").save("model")
    >>> type(load("model")).__name__
    'IndependentSynthesizer'
    """
    path = Path(path)
    kind = artefacts.kind_of(path)
    if kind == PARTY_KIND:
        return PartyModel.load(path, resolve_device("auto"))
    for half in _HALVES:
        if kind == half.KIND:
            return half.load(path)
    if kind not in _FILES:
        raise ArtefactError(f"{path} is a saved {kind!r}, not a model")
    file, groups = _FILES[kind]
    content = artefacts.read_json(artefacts.open_directory(path, kind) / file)
    with artefacts.reading(path, "a model of a known class"):
        cls = named_in_file(content["class"], *groups)
    found: BaseSynthesizer | BaseSplitClassifier = cls.load(path)
    return found
