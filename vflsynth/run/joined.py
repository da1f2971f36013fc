"""Runs of methods that join the tables: one holder has everything, and halves are cut from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from vflsynth.columns import PublicSchema, TableTransformer
from vflsynth.frames import AlignmentReport, DrawnRecords, key_of
from vflsynth.frames.party_frames import party_keys
from vflsynth.learning.base import EncodingSource, Method, Party
from vflsynth.models import PartyModel
from vflsynth.protocol.channel import LocalChannel, Transcript
from vflsynth.protocol.messages import Hello
from vflsynth.run.local import LocalRun, Options, match_records

JOINED = "joined"
"""Name of the one party that holds everything, as in `history_` and in ledgers."""


class JoinedRun(LocalRun):
    """One run on all parties' matched rows, side by side in one table; see `LocalRun`."""

    def __init__(
        self,
        method: Method,
        frames: Mapping[str, pd.DataFrame],
        on: Any,
        *,
        templates: Mapping[str, TableTransformer],
        schema: PublicSchema | None = None,
        options: Options | None = None,
        **shared: Any,
    ) -> None:
        # The protocol has no message that may carry rows: only the matching is in the transcript.
        transcript = Transcript() if options is not None and options.transcript else None
        owners = {name: Party(name, frame, key_of(on, name)) for name, frame in frames.items()}
        channel = LocalChannel(list(owners.values()), transcript)
        self._matched = match_records(channel, frames, on, private=method.is_private)
        # In the order of names, as all other GANs have it.
        self._parts = {name: owners[name].matched() for name in sorted(owners)}
        table = pd.concat([p.reset_index(drop=True) for p in self._parts.values()], axis=1)
        self._order, self._owned_by = list(frames), on
        self._templates, self._schema = templates, schema
        super().__init__(
            method,
            {JOINED: table},
            None,
            templates={},
            options=options,
            schema=schema,
            encoders={JOINED: self},
            **shared,
        )
        self.transcript = transcript
        self.channel = self.everybody = LocalChannel(list(self.parties.values()))
        self._minters = {
            name: method.minter(name, party_keys(frame, key_of(on, name)))
            for name, frame in frames.items()
        }

    def stand_for(self, drawn: DrawnRecords) -> None:
        """Have records that were drawn stand for all; the joined table has no keys."""
        self._matched, self._minters = drawn.alignment, drawn.minters

    def match(self, hellos: Mapping[str, Hello]) -> AlignmentReport:
        """Give the holder the order that its rows have already; report who matched before."""
        super().match(hellos)
        return self._matched

    def halves(self) -> dict[str, list[Any]]:
        """Cut every party's columns out of the one generator, one half per replica."""
        joined = self.parties[JOINED].halves()
        offset = self.method.key_offset([minter.offset for minter in self._minters.values()])
        halves: dict[str, list[Any]] = {}
        for name in self._order:
            part = self._parts[name]
            whole = joined[0].transformer
            transformer, place = whole.part(part.columns, part.index.name, party=name)
            minter = self._minters[name].starting_at(offset)
            halves[name] = [
                PartyModel(
                    name,
                    transformer,
                    half.sampler.part(transformer.spans_, place),
                    on=key_of(self._owned_by, name),
                    minter=minter,
                )
                for half in joined
            ]
        return halves

    def fitted(self, party: str, matched: pd.DataFrame) -> TableTransformer:
        """Encode every owner's columns as the owner would, so that errors name it."""
        made = []
        for name, part in self._parts.items():
            template, columns = self._templates[name], self.method.columns
            encoder: EncodingSource = self.method.encoder(template, self._schema, columns)
            made.append(encoder.fitted(name, matched[list(part.columns)]))
        return TableTransformer.joined(made, party=party)
