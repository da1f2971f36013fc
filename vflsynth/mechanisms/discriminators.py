"""Who owns the discriminators that records train."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

SERVER = "server"
"""Who a ledger says releases what the server computes."""


class Discriminators(StrEnum):
    """Every owner clips and perturbs its own discriminator's part of a record's gradient."""

    LOCAL_AND_SHARED = "local and shared"
    """One per party and one of a server, on features of all parties' records (VFLGAN)."""

    PRIVATE = "private"
    """One per party and no other; the server adds gradients of fakes (VertiGAN)."""

    JOINED = "joined"
    """One, of the holder of the joined table."""

    def owners(self, parties: Iterable[str]) -> dict[str, str]:
        """Return who owns which discriminator.

        Parameters
        ----------
        parties : iterable of str
            Of a joined table, its holder alone.
        """
        if self is Discriminators.LOCAL_AND_SHARED:
            return dict.fromkeys(parties, "local") | {SERVER: "shared"}
        return dict.fromkeys(parties, "only" if self is Discriminators.JOINED else "private")
