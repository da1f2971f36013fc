"""A party before any network: its table, its keys, its transformer."""

from __future__ import annotations

import hashlib
import hmac
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from torch import Tensor

from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ProtocolError
from vflsynth.frames import check_no_empty_column, party_keys, positions
from vflsynth.protocol import AlignmentNotice, KeyList, Message
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


class Party:
    """Owns one table and answers what it is asked; no other object reads the table.

    Parameters
    ----------
    name : str
    frame : DataFrame
        The party's table, never modified.
    on : column label or None
        Key column; None matches by the index.
    transformer : TableTransformer
        Cloned and fitted on the matched rows.
    """

    def __init__(
        self, name: str, frame: pd.DataFrame, on: Hashable | None, transformer: TableTransformer
    ) -> None:
        self.name = name
        self._frame = frame
        self._on = on
        self.transformer: TableTransformer = clone(transformer)
        self._rows: npt.NDArray[np.intp] | None = None

    @property
    def keys(self) -> pd.Index:
        """Keys of the party's rows, in its own order."""
        return party_keys(self._frame, self._on)

    @property
    def matched_rows(self) -> npt.NDArray[np.intp]:
        """Positions of the matched records in the party's table, in the common order."""
        if self._rows is None:
            raise ProtocolError(f"the records of party {self.name!r} have not been matched yet")
        return self._rows

    def prepare(self) -> None:
        """Fit the transformer on the matched rows; cheap, nothing is encoded yet."""
        matched = self.matched()
        check_no_empty_column(self.name, matched, among="matched records")
        self.transformer.fit(matched, party=self.name)

    def encode(self) -> npt.NDArray[np.float32]:
        """Encode the matched rows, shape (record, encoded)."""
        return self.transformer.transform(self.matched())

    def matched(self) -> pd.DataFrame:
        """Return the columns of the matched rows, in the common order, without the key column."""
        rows = self.matched_rows
        columns = self._frame if self._on is None else self._frame.drop(columns=[self._on])
        return columns.take(rows)

    def digest(self, secret: bytes) -> str:
        """Return a keyed digest of the encoding and the encoded records.

        Whoever has the secret can tell whether a later run has the same records, and nothing else.
        """
        encoding = json.dumps(self.transformer.to_dict()).encode()
        return hmac.new(secret, encoding + self.encode().tobytes(), hashlib.sha256).hexdigest()

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        if verb is Verb.KEYS:
            return KeyList(self.name, SERVER, step, self.keys)
        raise ProtocolError(f"party {self.name!r} cannot answer {verb.value!r}")

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        if verb is Verb.ALIGN and isinstance(message, AlignmentNotice):
            self._rows = positions(self.keys, message.common_keys)
            return
        raise ProtocolError(f"party {self.name!r} cannot take {verb.value!r}")


class TrainableParty(Party, ABC):
    """A party with networks, whose training can be checkpointed."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs; randomness is a function of the step."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
