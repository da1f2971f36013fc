"""IndependentSynthesizer: every column on its own, the first yardstick."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Self

import pandas as pd

from vflsynth._random import RandomState, RandomStreams, secret_from
from vflsynth.columns import TableTransformer
from vflsynth.frames import check_party_frames
from vflsynth.model import PartyModel
from vflsynth.parties import MarginalParty
from vflsynth.protocol import Channel, LocalChannel, Schedule, Transcript
from vflsynth.registry import register
from vflsynth.samplers import MarginalSampler
from vflsynth.synthesizers.base import BaseSynthesizer, PartyFrames
from vflsynth.training import match_records


@register
class IndependentSynthesizer(BaseSynthesizer):
    """Draw every column independently from its own distribution.

    Whatever does not beat this has learned no relation between columns. Parties exchange nothing
    but what it takes to match records.

    Parameters
    ----------
    column_kinds : mapping, optional
        Column label to kind, over all parties. Default: inferred.
    transformer : TableTransformer, optional
        Cloned for every party. Default: ``TableTransformer()``.
    random_state : int, numpy Generator, RandomState or None, default=None
        Seeds the samples; fitting draws nothing.

    Attributes
    ----------
    parties_ : dict of str to PartyModel
        Each party's half of the model.
    alignment_ : AlignmentReport
        Matched, dropped and duplicated records per party.
    history_ : DataFrame
        Empty: nothing is trained.
    settings_ : dict
        Empty.
    device_ : str
        ``"cpu"``.
    interrupted_ : bool
        False.
    transcript_ : DataFrame or None
        Messages and bytes per boundary, if ``fit(transcript=True)``.

    Notes
    -----
    A column's distribution is the probabilities of its categories, or at most 1000 quantiles of its
    values (see `vflsynth.marginals`); no record is kept.

    Privacy: no differential privacy; quantiles are values of single records, though nothing tells
    whose, and extremes are exact.

    Examples
    --------
    >>> from vflsynth import IndependentSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = IndependentSynthesizer(random_state=0).fit(frames, on="record_id")
    >>> synth.sample(3).shape[0]
    3
    """

    def __init__(
        self,
        *,
        column_kinds: Mapping[Any, str] | None = None,
        transformer: TableTransformer | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.column_kinds = column_kinds
        self.transformer = transformer
        self.random_state = random_state

    def fit(
        self, party_frames: PartyFrames, on: Hashable = None, *, transcript: bool = False
    ) -> Self:
        """Match the parties' records and learn the distributions.

        Parameters
        ----------
        party_frames : mapping of str to DataFrame
            One table per party; never modified, never joined.
        on : hashable, optional
            Key column of every table. Default: the index.
        transcript : bool, default=False
            Count every message that crosses a boundary, in `transcript_`.

        Returns
        -------
        self

        Raises
        ------
        PartyDataError
            One of its children for every way in which tables can be unusable.
        """
        frames = check_party_frames(party_frames, on)
        transformers = self._transformers(frames, on)
        parties = [
            MarginalParty(name, frame, on, transformers[name]) for name, frame in frames.items()
        ]
        record = Transcript() if transcript else None
        channel = LocalChannel(parties, record)
        alignment, minters = match_records(channel, frames, on)
        secret = secret_from(self.random_state)
        schedule = Schedule(
            RandomStreams([secret]).child("shared by the parties"),
            n_records=alignment.n_matched,
            batch_size=alignment.n_matched,
        )
        for party in parties:
            party.prepare()
            party.build(schedule)
        self._relate(channel)
        self.parties_ = {
            party.name: PartyModel(
                party.name,
                party.transformer,
                MarginalSampler(party.marginals, party.loadings, width=party.transformer.width_),
                on=on,
                minter=minters[party.name],
            )
            for party in parties
        }
        self.alignment_ = alignment
        self.history_ = pd.DataFrame()
        self.settings_ = {}
        self.device_ = "cpu"
        self.interrupted_ = False
        self.transcript_ = None if record is None else record.to_frame()
        self._begin_samples(secret)
        return self

    def _relate(self, channel: Channel) -> None:
        """Learn how columns are related: not at all."""
