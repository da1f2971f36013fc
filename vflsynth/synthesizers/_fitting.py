"""What every fit with networks ends with: models made of what training left."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor

from vflsynth.frames import AlignmentReport, KeyMinter
from vflsynth.model import PartyModel
from vflsynth.parties import Party, Settings
from vflsynth.protocol import Transcript
from vflsynth.samplers import GeneratorSampler
from vflsynth.synthesizers.base import BaseSynthesizer
from vflsynth.training import Session

Model = TypeVar("Model", bound=BaseSynthesizer)


def fill_models(
    models: Sequence[Model],
    session: Session,
    parties: Mapping[str, tuple[Party, Mapping[str, Tensor]]],
    settings: Settings,
    reported: Mapping[str, Any],
    *,
    on: Hashable,
    alignment: AlignmentReport,
    minters: Mapping[str, KeyMinter],
    interrupted: bool,
    transcript: Transcript | None,
) -> None:
    """Give each model what a fitted one has.

    Parameters
    ----------
    models : sequence of BaseSynthesizer
        One per replica.
    session : Session
    parties : mapping of name to (party, weights)
        Weights of the generator of the party's columns, for all replicas.
    settings : Settings
    reported : mapping
        What becomes `settings_`.
    on, alignment, minters
        From matching the records.
    interrupted : bool
    transcript : Transcript or None
    """
    samplers = {
        name: GeneratorSampler.of_replicas(settings, party.transformer.spans_, weights)
        for name, (party, weights) in parties.items()
    }
    for replica, model in enumerate(models):
        model.parties_ = {
            name: PartyModel(
                name, party.transformer, samplers[name][replica], on=on, minter=minters[name]
            )
            for name, (party, _) in parties.items()
        }
        model.alignment_ = alignment
        model.history_ = session.history.to_frame(replica)
        model.settings_ = dict(reported)
        model.device_ = str(session.device)
        model.interrupted_ = interrupted
        model.transcript_ = None if transcript is None else transcript.to_frame()
        model._begin_samples(session.secrets[replica])
