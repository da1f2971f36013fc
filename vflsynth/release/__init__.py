"""Releases: does a synthetic table keep what the contract asks, and what goes out with it.

`release_gate` looks at real rows of all parties side by side, in one process, as evaluation does:
it is for whoever may see those. What it writes for others holds none of them.
"""

from typing import TYPE_CHECKING

from vflsynth._lazy import lazily

if TYPE_CHECKING:
    from vflsynth.release.clauses import Clause
    from vflsynth.release.dossier import Dossier
    from vflsynth.release.gate import promised_rules, release_gate
    from vflsynth.release.publishing import opens, schema, verify_release, write_release
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "Clause",
    "Dossier",
    "opens",
    "promised_rules",
    "release_gate",
    "schema",
    "verify_release",
    "write_release",
]
