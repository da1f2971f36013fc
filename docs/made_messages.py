"""Tables of the documentation, made of what messages declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vflsynth.exceptions import ProtocolError
from vflsynth.mechanisms import Cover
from vflsynth.protocol import messages
from vflsynth.protocol.channel import MESSAGES, MadeOf, Message

_OF_PEOPLE = (MadeOf.KEYS, MadeOf.NETWORKS, MadeOf.RECORDS)


def protocol_table() -> str:
    """Return every message that may cross a party boundary, a Markdown table.

    Returns
    -------
    str
        One row per message of the modules that have been imported.
    """
    rows = [
        (
            kind.__name__,
            "party → server" if kind.declared.from_party else "server → party",
            kind.declared.contents,
            _when(kind),
            kind.declared.made_of,
            kind.declared.tells,
        )
        for kind in _messages()
    ]
    head = ("message", "from → to", "contents", "when", "made of", "what its receiver can learn")
    return _markdown(head, rows)


def leaving_table(covers: Mapping[str, Mapping[str, Cover]]) -> str:
    """Return what leaves a party that depends on its table, and how it is paid for, in Markdown.

    Parameters
    ----------
    covers : mapping of str to mapping of str to Cover
        By mechanism, as its plan has them: which release pays for a message, by class name. What
        the server sends is left out.

    Returns
    -------
    str
        One row per message of a party that is made of record keys, of networks that were trained on
        records, or of records.

    Raises
    ------
    ProtocolError
        If a mechanism covers what is no message.
    """
    leaving = [k for k in _messages() if k.declared.from_party and k.declared.made_of in _OF_PEOPLE]
    for mechanism, covered in covers.items():
        if unknown := sorted(set(covered) - set(MESSAGES)):
            raise ProtocolError(f"{mechanism} covers {unknown}, which are no messages")
    rows = [
        (
            kind.__name__,
            kind.declared.contents,
            _when(kind),
            kind.declared.made_of,
            _payment(kind, covers),
        )
        for kind in leaving
    ]
    head = ("message", "contents", "when", "made of", "with differential privacy")
    return _markdown(head, rows)


def _messages() -> list[type[Message]]:
    """Return the package's own messages of all imported modules, those of every run first."""
    own = [k for k in MESSAGES.values() if k.__module__.startswith("vflsynth.")]
    return sorted(own, key=lambda k: (k.__module__ != messages.__name__, k.__module__))


def _when(kind: type[Message]) -> str:
    return kind.declared.when + (", in one process only" if kind.declared.in_process else "")


def _payment(kind: type[Message], covers: Mapping[str, Mapping[str, Cover]]) -> str:
    """Say which entries of which ledgers pay for a message."""
    if kind.declared.made_of is MadeOf.KEYS:
        return "sent; no ledger counts which records the parties have in common"
    payers: dict[str, list[str]] = {}
    for mechanism, covered in covers.items():
        if (paid := covered.get(kind.__name__)) is not None:
            noise = "noisy" if paid.noised else "without noise"
            noise = "masked" if kind.declared.masked else noise
            payers.setdefault(f"{noise}, “{paid.purpose}” pays", []).append(mechanism)
    if not payers:
        return "refused"
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in payers.items())


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )
