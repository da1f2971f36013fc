"""Keyed tags: proof, in every frame, that parties use the same secret, records and batches."""

from __future__ import annotations

import hashlib
import hmac

from vflsynth._random import derive
from vflsynth.protocol import Message, Schedule, Uses


class Tags:
    """Makes the tags of one node; the server can compare them and learns nothing from them.

    Parameters
    ----------
    shared : bytes
        The secret that parties share.
    run : str

    Attributes
    ----------
    records : bytes
        Digest of the matched keys in the common order, once they are known.
    schedule : Schedule or None
        Once it is known; batches and latents then enter the tags.
    """

    def __init__(self, shared: bytes, run: str) -> None:
        self._secret = derive(shared, f"tags|{run}")
        self.records = b""
        self.schedule: Schedule | None = None

    def renew(self, nonce: str) -> None:
        """Let tags be of one attempt: equal ones would tell that two have the same records."""
        self._secret = derive(self._secret, nonce)

    def __call__(self, kind: type[Message], step: int) -> str:
        """Return the tag of an answer."""
        mac = hmac.new(self._secret, f"{kind.__name__}|{step}|".encode(), hashlib.sha256)
        mac.update(self.records)
        schedule = self.schedule
        uses = kind.declared.uses
        if schedule is not None and Uses.ROWS in uses:
            mac.update(schedule.rows(step).cpu().numpy().tobytes())
        if schedule is not None and Uses.LATENTS in uses and schedule.latent_dim:
            mac.update(schedule.latent(step).cpu().numpy().tobytes())
        return mac.hexdigest()[:16]
