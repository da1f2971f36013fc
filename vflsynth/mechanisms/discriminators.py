"""Who owns the networks that records train."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from vflsynth.exceptions import PartyNameError
from vflsynth.protocol.channel import SERVER

ACTIVE = "active party"
"""Who a ledger says releases the model on top of all parties' bottom models."""


class Discriminators(StrEnum):
    """Every owner clips and perturbs its own network's part of a record's gradient."""

    LOCAL_AND_SHARED = "local and shared"
    """One per party and one of a server, on features of all parties' records (VFLGAN)."""

    PRIVATE = "private"
    """One per party and no other; the server adds gradients of fakes (VertiGAN)."""

    JOINED = "joined"
    """One, of the holder of the joined table."""

    SPLIT = "split"
    """None: a split network's bottom models, one per party, and top model."""

    def owners(self, parties: Iterable[str]) -> dict[str, str]:
        """Return who owns which network, in the words of a ledger.

        The only party of a joined table is its holder. PartyNameError if a party has the name of
        the owner of what is above all parties: the two would count as one, with too little noise.
        """
        words_of: dict[Discriminators, tuple[str, dict[str, str]]] = {
            Discriminators.LOCAL_AND_SHARED: (
                "local discriminator",
                {SERVER: "shared discriminator"},
            ),
            Discriminators.PRIVATE: ("private discriminator", {}),
            Discriminators.JOINED: ("only discriminator", {}),
            Discriminators.SPLIT: ("bottom model", {ACTIVE: "top model"}),
        }
        own, above = words_of[self]
        words = dict.fromkeys(parties, own)
        for name in above.keys() & words:
            raise PartyNameError(
                "under privacy this name is kept for what is above all parties",
                fix="rename the party",
                party=name,
            )
        return words | above
