"""A party without networks: the marginals of its columns, perhaps a copula's loadings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.marginals import Marginal, fit_marginals, marginal_scores
from vflsynth.parties.party import Party
from vflsynth.protocol import CopulaLoadings, MaskedRecords, Message, Schedule
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


class MarginalParty(Party):
    """A party that knows the distribution of each of its columns.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`.

    Notes
    -----
    Sees its own records, the shared secret (through the schedule) and its loadings. Sends normal
    scores of its records, masked.
    """

    marginals: tuple[Marginal, ...]
    loadings: Tensor | None = None

    def build(self, schedule: Schedule) -> None:
        """Learn the marginals of the matched records."""
        self.schedule = schedule
        encoded = self.encode()
        self.marginals = fit_marginals(encoded, self.transformer.spans_)
        self._scores = torch.from_numpy(marginal_scores(self.marginals, encoded))

    def masked_scores(self, step: int) -> MaskedRecords:
        """Return Q [1, s_i], s_i being the normal scores of the party's columns."""
        scores = F.pad(self._scores, (1, 0), value=1.0).unsqueeze(0)
        return MaskedRecords(self.name, SERVER, step, self.schedule.rotate(scores, reuse=False))

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        if verb is Verb.MASKED_REAL:
            return self.masked_scores(step)
        return super().answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        if verb is not Verb.COPULA_LOADINGS or not isinstance(message, CopulaLoadings):
            super().take(verb, message)
        elif message.loadings.shape[1] != len(self.marginals):
            raise ProtocolError(
                f"party {self.name!r} got loadings of {message.loadings.shape[1]} columns; it has "
                f"{len(self.marginals)}"
            )
        else:
            self.loadings = message.loadings
