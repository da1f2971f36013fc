"""What a party sends of its records: every block once, in order, and one sum after the last."""

from __future__ import annotations

from vflsynth.exceptions import ProtocolError


class Once:
    """Counts what a party has sent; masks that are used twice hide nothing."""

    def __init__(self, party: str, n_blocks: int) -> None:
        self.party, self.n_blocks = party, n_blocks
        self._sent = 0
        self._shared = False

    def block(self, number: int) -> None:
        """Note that a block is about to be sent.

        Raises ProtocolError if another one is due, or none.
        """
        if number != self._sent or number >= self.n_blocks:
            raise ProtocolError(
                f"party {self.party!r} was asked for block {number} of its records; it has sent "
                f"{self._sent} of {self.n_blocks}"
            )
        self._sent += 1

    def ended(self) -> None:
        """Refuse what comes after the records before they were sent.

        Raises ProtocolError if some were not, or the sum was.
        """
        if self._sent != self.n_blocks or self._shared:
            raise ProtocolError(
                f"party {self.party!r} was asked to go on before it had sent all records, or twice"
            )

    def shares(self) -> None:
        """Note that the sum is about to be sent.

        Raises ProtocolError before all blocks were sent, or for the second time.
        """
        self.ended()
        self._shared = True
