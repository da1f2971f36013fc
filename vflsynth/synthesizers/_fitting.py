"""What every fit with networks ends with: training, and models made of what it left."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from torch import Tensor

from vflsynth._device import resolve_device
from vflsynth._random import RandomStreams
from vflsynth.frames import AlignmentReport, KeyMinter
from vflsynth.model import PartyModel
from vflsynth.parties import GANParty, Party, Settings
from vflsynth.protocol import Schedule, Transcript
from vflsynth.samplers import GeneratorSampler
from vflsynth.synthesizers.base import BaseSynthesizer
from vflsynth.training import Algorithm, Plan, Session

Model = TypeVar("Model", bound=BaseSynthesizer)


@dataclass(frozen=True)
class Matched:
    """What matching the parties' records gave.

    Parameters
    ----------
    parties : sequence of Party
        Owners of the tables, and in the end of the models' halves.
    on : hashable
        Key column; None for the index.
    alignment : AlignmentReport
    minters : mapping of party name to KeyMinter
    transcript : Transcript or None
        Of all messages, if one was asked for.
    """

    parties: Sequence[Party]
    on: Hashable
    alignment: AlignmentReport
    minters: Mapping[str, KeyMinter]
    transcript: Transcript | None


def train_models(
    models: Sequence[Model],
    matched: Matched,
    trainees: Sequence[GANParty],
    make_algorithm: Callable[[RandomStreams], Algorithm],
    plan: Plan,
    settings: Settings,
    *,
    weights: Callable[[Party], Mapping[str, Tensor]],
    reported: Mapping[str, Any],
    secrets: Sequence[bytes],
    multiply_adds: float,
    replica_rows: Tensor | None = None,
    make_schedule: Callable[..., Schedule] = Schedule,
    finish: Callable[[], object] = lambda: None,
    **options: Any,
) -> None:
    """Build the networks, train, and give each model what a fitted one has.

    Parameters
    ----------
    models : sequence of BaseSynthesizer
        One per replica, of equal parameters.
    matched : Matched
    trainees : sequence of GANParty
        Who trains, prepared: the parties themselves, or a holder of their joined table.
    make_algorithm : callable
        Of the server's random streams; called when the trainees have their networks.
    plan : Plan
    settings : Settings
    weights : callable
        Of a party: weights of the generator of its columns, for all replicas.
    reported : mapping
        What becomes `settings_`.
    secrets : sequence of bytes
        One per replica.
    multiply_adds, replica_rows, make_schedule
        See `Session`.
    finish : callable, optional
        Called between training and the making of models.
    **options
        Of `Session.train`, other than progress.
    """
    first, n_records = models[0], matched.alignment.n_matched

    def build(schedule: Schedule, streams: RandomStreams) -> Algorithm:
        for party in trainees:
            party.build(settings, schedule, streams.child(f"party {party.name}"))
        return make_algorithm(streams.child("server"))

    session = Session(
        trainees,
        build,
        plan,
        settings=asdict(settings),
        secrets=secrets,
        n_records=n_records if replica_rows is None else replica_rows.shape[1],
        replica_rows=replica_rows,
        device=resolve_device(first.device),
        make_schedule=make_schedule,
    )
    interrupted = session.train(multiply_adds, verbose=first.verbose > 0, **options)
    finish()
    samplers = {
        party.name: GeneratorSampler.of_replicas(settings, party.transformer.spans_, weights(party))
        for party in matched.parties
    }
    for replica, model in enumerate(models):
        model.parties_ = {
            party.name: PartyModel(
                party.name,
                party.transformer,
                samplers[party.name][replica],
                on=matched.on,
                minter=matched.minters[party.name],
            )
            for party in matched.parties
        }
        model.alignment_ = matched.alignment
        model.history_ = session.history.to_frame(replica)
        model.settings_ = dict(reported)
        model.device_ = str(session.device)
        model.interrupted_ = interrupted
        transcript = matched.transcript
        model.transcript_ = None if transcript is None else transcript.to_frame()
        model._begin_samples(session.secrets[replica])
