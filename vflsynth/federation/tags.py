"""Keyed tags: proof, in every frame, that parties use the same secret, records and batches."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from vflsynth._random import derive
from vflsynth.exceptions import MisalignedError
from vflsynth.protocol import Message, Schedule, Uses
from vflsynth.protocol.messages import Hello


class Tags:
    """Makes the tags of one node; the server can compare them and learns nothing from them.

    `shared` is the secret that parties share. `records` is the digest of the matched keys in the
    common order, once they are known; with a `schedule`, batches and latents enter the tags.
    """

    def __init__(self, shared: bytes, run: str) -> None:
        self._secret = derive(shared, f"tags|{run}")
        self.records = b""
        self.schedule: Schedule | None = None

    def renew(self, key: bytes) -> None:
        """Let tags be of one attempt: equal ones would tell that two have the same records."""
        self._secret = key

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


def check_tags(tags: Mapping[str, str], kind: type[Message], step: int) -> None:
    """Compare the tags, by node, of an exchange of one kind of message.

    Raises MisalignedError if they differ; it names who is odd, if that can be told.
    """
    if len(set(tags.values())) == 1:
        return
    values = list(tags.values())
    common = max(values, key=values.count)
    odd = [name for name, tag in tags.items() if tag != common]
    who = f"{odd[0]!r}" if values.count(common) > 1 else " and ".join(map(repr, tags))
    raise MisalignedError(
        f"the keyed tags of {who} do not match in {kind.__name__}: "
        + (
            "they have different shared secrets"
            if kind is Hello
            else "they use different records, batches or latents"
        ),
        fix="write the same shared secret into every site's file"
        if kind is Hello
        else "check that no table changed since the keys were matched, then start again",
        party=odd[0] if values.count(common) > 1 else None,
        step=step,
    )
