"""Who owns the discriminators that records train, and hence against whom nothing protects."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

SERVER = "server"
RECIPIENTS = "recipients of the synthetic data and of the generators"
WHO_JOINS = "whoever joins the tables and trains: it sees all parties' records as they are"
_SERVER_SEES_FEATURES = (
    "the server: it sees intermediate features of every record in a batch without noise"
)
_PARTIES = "the other parties: they know the batches and see protocol messages without noise"


class Discriminators(StrEnum):
    """Every owner clips and perturbs its own discriminator's part of a record's gradient."""

    LOCAL_AND_SHARED = "local and shared"
    """One per party and one of a server, on features of all parties' records (VFLGAN)."""

    PRIVATE = "private"
    """One per party and no other; the server adds gradients of fakes (VertiGAN)."""

    JOINED = "joined"
    """One, of the holder of the joined table."""

    def owners(self, parties: Iterable[str]) -> dict[str, str]:
        """Return who owns which discriminator."""
        kind = {
            Discriminators.LOCAL_AND_SHARED: "local",
            Discriminators.PRIVATE: "private",
            Discriminators.JOINED: "only",
        }[self]
        shared = {SERVER: "shared"} if self is Discriminators.LOCAL_AND_SHARED else {}
        return dict.fromkeys(parties, kind) | shared

    @property
    def protected_by_dpsgd(self) -> tuple[str, ...]:
        """Whom the guarantee of DP-SGD is against."""
        if self is Discriminators.PRIVATE:
            return (
                RECIPIENTS,
                "the server: it sees backbone gradients and mean scores of fakes, which are "
                "computed from the releases",
            )
        return (RECIPIENTS,)

    @property
    def not_protected_by_dpsgd(self) -> tuple[str, ...]:
        """Whom it is not against."""
        return {
            Discriminators.LOCAL_AND_SHARED: (_SERVER_SEES_FEATURES, _PARTIES),
            Discriminators.PRIVATE: (
                "the other parties: they know the batches, and for them ε is that of known batches",
            ),
            Discriminators.JOINED: (WHO_JOINS,),
        }[self]

    @property
    def not_protected_by_first_layer(self) -> tuple[str, ...]:
        """Whom the VFLGAN paper's mechanism is not against."""
        server = {
            Discriminators.LOCAL_AND_SHARED: (_SERVER_SEES_FEATURES, _PARTIES),
            Discriminators.PRIVATE: (
                "the server: it sees backbone gradients, which come through layers that are "
                "trained on raw records",
                _PARTIES,
            ),
            Discriminators.JOINED: (WHO_JOINS,),
        }[self]
        return (RECIPIENTS, *server)

    @property
    def not_covered_by_first_layer(self) -> tuple[str, ...]:
        """What it leaves without noise."""
        return {
            Discriminators.LOCAL_AND_SHARED: (
                "all layers above the first, private heads and shared discriminator: raw gradients",
                "the records themselves, which the released features are computed from again",
            ),
            Discriminators.PRIVATE: (
                "all layers above the first, in every party: raw gradients",
                "private heads and shared backbone of the generators: they learn through those "
                "layers",
            ),
            Discriminators.JOINED: (
                "all layers above the first: raw gradients",
                "the generator: it learns through those layers",
            ),
        }[self]
