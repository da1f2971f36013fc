"""A party without networks: the marginals of its columns, perhaps a copula's loadings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.learning.masked import MaskedBlocks
from vflsynth.learning.messages import MaskedReal
from vflsynth.learning.party import Party
from vflsynth.methods.marginals.distributions import Marginal, fit_marginals, marginal_scores
from vflsynth.methods.marginals.messages import CopulaLoadings
from vflsynth.protocol import SERVER, Schedule, answers, takes


class MarginalParty(Party):
    """A party that knows the distribution of each of its columns.

    Parameters
    ----------
    name, frame, on
        See `Party`.

    Notes
    -----
    Sees its own records, the shared secret (through the schedule) and its loadings. Sends normal
    scores of its records, masked.
    """

    marginals: tuple[Marginal, ...]
    loadings: Tensor | None = None

    def build(self, schedule: Schedule, n_blocks: int) -> None:
        """Learn the marginals of the matched records; mask scores in so many messages."""
        self.schedule = schedule
        encoded = self.encode()
        self.marginals = fit_marginals(encoded, self.transformer.spans_)
        self._scores = torch.tensor(marginal_scores(self.marginals, encoded))
        self._masked = MaskedBlocks(self._mask, n_blocks)

    @answers(MaskedReal)
    def masked_scores(self, step: int) -> MaskedReal:
        """Return a block of the masked scores."""
        return MaskedReal(self.name, SERVER, step, self._masked[step])

    def _mask(self) -> Tensor:
        """Return Q [1, s_i], s_i being the normal scores of the party's columns."""
        scores = F.pad(self._scores, (1, 0), value=1.0).unsqueeze(0)
        return self.schedule.rotate(scores, reuse=False)

    @takes(CopulaLoadings)
    def take_loadings(self, message: CopulaLoadings) -> None:
        """Learn how its columns depend on latents that all parties share."""
        if message.loadings.shape[1] != len(self.marginals):
            raise ProtocolError(
                f"party {self.name!r} got loadings of {message.loadings.shape[1]} columns; it has "
                f"{len(self.marginals)}"
            )
        self.loadings = message.loadings
