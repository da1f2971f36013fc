"""Write what code declares where it is read: python docs/make_tables.py.

Tables of pages, and the JSON schemas and scripts of shells that the package ships.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import shtab

from vflsynth import codec
from vflsynth.cli import completion, schema
from vflsynth.cli.main import command_parser
from vflsynth.mechanisms import Asked, Cover, Discriminators, Mechanism, Plan
from vflsynth.mechanisms.planning import RECIPIENTS
from vflsynth.privacy import PrivacyLedger, PublicSchema
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol.schedule import Length
from vflsynth.registry import Members

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Replace what is between the markers."""
    for name, made in made_tables().items():
        path = ROOT / name
        path.write_text(with_table(path.read_text(encoding="utf-8"), made), encoding="utf-8")
    for path, text in shipped_files().items():
        path.write_text(text, encoding="utf-8")


def shipped_files() -> dict[Path, str]:
    """Return the files that the package ships of its own options and keys."""
    made = {f"{name}.schema.json": schema.text_of(name) for name in schema.CLASSES}
    scripts = {
        f"completion.{shell}": shtab.complete(command_parser(), shell=shell)
        for shell in completion.SHELLS
    }
    return {schema.SHIPPED / name: f"{text}\n" for name, text in (made | scripts).items()}


def made_tables() -> dict[str, str]:
    """Return the table of each page that has one."""
    return {
        "docs/explanation/privacy.md": protection_table(),
        "docs/how-to/tables.md": types_table(),
    }


def types_table() -> str:
    """Return the table of types in the docstring of `vflsynth.codec`."""
    ruler, head, _, *lines = (codec.__doc__ or "").split("\n\n")[2].splitlines()
    starts = [match.start() for match in re.finditer("=+", ruler)]
    rows: list[list[str]] = []
    for line in (head, *lines[:-1]):
        cells = [line[i:j].strip() for i, j in zip(starts, [*starts[1:], None], strict=True)]
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], cells, strict=True)]
    text = [" | ".join(["", *row, ""]).strip().replace("``", "`") for row in rows]
    return "\n".join([text[0], "|---" * len(starts) + "|", *text[1:]])


def with_table(page: str, table: str) -> str:
    """Return a page with another table between its markers."""
    return re.sub(
        r"(?<=<!-- made table -->\n).*?(?=<!-- end of made table -->)",
        lambda _: f"\n{table}\n\n",
        page,
        flags=re.DOTALL,
    )


def covers() -> dict[str, Mapping[str, Cover]]:
    """Return what each mechanism's plan pays for; numbers are of no importance here."""
    return {
        kind.__name__: plan_of(kind, Discriminators.PRIVATE).covers
        for kind in Members("mechanisms").values()
    }


def protection_table() -> str:
    """Return from whom people in the data are protected, as the ledgers of all mechanisms say."""
    synthesizers: dict[tuple[str, ...], list[str]] = {}
    for synthesizer in Members("synthesizers").values():
        for mechanism, method in synthesizer.methods.items():
            if mechanism is not None:
                parties = ("joined",) if synthesizer.joins else ("a", "b")
                ledger = plan_of(mechanism, method.owners, parties).ledger
                row = (f"`{mechanism.__name__}`", *protected_from(ledger, joined=synthesizer.joins))
                synthesizers.setdefault(row, []).append(f"`{synthesizer.__name__}`")
    head = (
        "of",
        "recipients of the table",
        "the server",
        "other parties",
        "party and server together",
    )
    lines = [f"| `privacy=` | {' | '.join(head)} |", "|---" * 6 + "|"]
    for (mechanism, *cells), names in sorted(synthesizers.items()):
        lines.append(f"| {mechanism} | {', '.join(sorted(names))} | {' | '.join(cells)} |")
    return "\n".join(lines)


def protected_from(ledger: PrivacyLedger, *, joined: bool) -> tuple[str, str, str, str]:
    """Say of recipients, server, other parties, and the latter two together, what ledgers say."""
    protected = [who for who in ledger.protected_against if "how many records" not in who]
    recipients = "yes" if RECIPIENTS in protected else "no"
    if ledger.condition and recipients == "yes":
        recipients = "**conditional**"
    server = any(who.startswith("the server") for who in protected)
    parties = "yes" if any("the other parties" in who for who in protected) else "no"
    insiders = ("yes" if server else "no", parties, "no")
    return recipients, *("joined" if joined else whom for whom in insiders)


def plan_of(
    kind: type[Mechanism], owners: Discriminators, parties: Sequence[str] = ("party",)
) -> Plan:
    """Return a mechanism's plan; numbers are of no importance here."""
    mechanism = kind(noise_multiplier=1.0, delta=1e-4)
    known = mechanism.get_params()
    if "public_schema" in known:
        mechanism.set_params(public_schema=PublicSchema())
    if "n_records" in known:
        mechanism.set_params(n_records=1_000)
    length = Length.of(1_000, 100, 1)
    asked = Asked(1_000, owners, plain=length, groups={name: [2] for name in parties})
    return mechanism.plan(dict.fromkeys(parties, ColumnCounts(2)), asked)


if __name__ == "__main__":
    main()
