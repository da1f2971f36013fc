"""What every fit with networks ends with: training to the end, and models made of what it left."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor

from vflsynth._device import few_threads
from vflsynth.frames import AlignmentReport, KeyMinter
from vflsynth.model import PartyModel
from vflsynth.parties import Party, Settings
from vflsynth.protocol import Transcript
from vflsynth.samplers import GeneratorSampler
from vflsynth.synthesizers.base import BaseSynthesizer
from vflsynth.training import Session

Model = TypeVar("Model", bound=BaseSynthesizer)


def train_to_the_end(session: Session, n_products: int, **options: Any) -> bool:
    """Train; warn and return True if Ctrl-C stopped it.

    Parameters
    ----------
    session : Session
    n_products : int
        Multiply-adds of the largest layer, over all models: decides the number of threads.
    **options
        Of `Session.train`.
    """
    with few_threads(n_products, session.device):
        interrupted = session.train(**options)
    if interrupted:
        done = len(session.history.records)
        what = "the model so far was kept" if done else "no epoch was finished: it is untrained"
        warnings.warn(
            f"training was interrupted in epoch {done + 1} of {session.plan.n_epochs}; {what}",
            RuntimeWarning,
            stacklevel=5,
        )
    return interrupted


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
