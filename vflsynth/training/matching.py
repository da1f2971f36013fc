"""Matching records before training: keys to the server, the common order back."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping

from vflsynth.frames import (
    AlignmentReport,
    KeyMinter,
    align_keys,
    learn_key_minters,
)
from vflsynth.protocol import AlignmentNotice, Channel, KeyList
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER

logger = logging.getLogger("vflsynth")


def match_records(
    channel: Channel, order: Mapping[str, object], on: Hashable
) -> tuple[AlignmentReport, dict[str, KeyMinter]]:
    """Let every party know which of its records all others have, and in which order to use them.

    Parameters
    ----------
    channel : Channel
    order : mapping
        Party names in the caller's order, for the report.
    on : hashable
        Key column; None for the index.

    Returns
    -------
    alignment : AlignmentReport
    minters : dict of str to KeyMinter
        How each party makes fresh keys of its own type.

    Raises
    ------
    PartyDataError
        If keys are duplicated, of different types, or have nothing in common.
    """
    replies = channel.gather(Verb.KEYS, 0, KeyList)
    keys = {name: replies[name].keys for name in order}
    matched_by = "index" if on is None else f"key column {on!r}"
    common, alignment = align_keys(keys, matched_by=matched_by)
    logger.info("%s", alignment)
    channel.scatter(Verb.ALIGN, {name: AlignmentNotice(SERVER, name, 0, common) for name in keys})
    return alignment, learn_key_minters(keys)
