"""Where a dossier answers what data protection officers are asked for.

Articles and clauses are named by number and heading; what is written beside them is what this
package measures or leaves open, not what the documents say.
"""

from __future__ import annotations

from dataclasses import dataclass

OPINION = "WP216 (Opinion 05/2014 on anonymisation techniques)"
ISO = "ISO/IEC 27559:2022"
NIST = "NIST SP 800-226 (2025)"


@dataclass(frozen=True)
class Item:
    """A heading that an officer is asked about.

    `answer` says what of it this dossier answers, and what stays with the publisher; `clauses` of
    the dossier belong to it.
    """

    source: str
    heading: str
    answer: str
    clauses: tuple[str, ...] = ()


_TRACES = ("copied_rows", "copied_values", "real_extremes", "rare_categories")

ITEMS = (
    Item(
        OPINION,
        "Singling out",
        "Whether descriptions taken from the table fit exactly one person, against people who were "
        "not in it.",
        ("singling_out", "unique_combinations", *_TRACES),
    ),
    Item(
        OPINION,
        "Linkability",
        "Whether the table helps to link what two sources know about one person.",
        ("linkability", "identifiers"),
    ),
    Item(
        OPINION,
        "Inference",
        "Whether the table lets a sensitive value of a person be guessed better than that of "
        "people who were not in it.",
        ("inference", "membership"),
    ),
    Item(
        ISO,
        "6 Context assessment",
        "Not answered here: who receives the table, with what motives, capacity and controls.",
    ),
    Item(
        ISO,
        "7 Data assessment",
        "The contract says what each column is (identifier, quasi-identifier, sensitive), which "
        "values are public, and how many records stand behind a published value.",
        ("identifiers", "unique_combinations", "rare_categories", "real_extremes"),
    ),
    Item(
        ISO,
        "8 Identifiability assessment and mitigation",
        "Attacks that were made are stated with the intervals of their success, others as not "
        "measured. Columns are dropped, replaced or rounded as the contract says, and measured "
        "afterwards.",
        ("membership", "singling_out", "linkability", "inference", *_TRACES),
    ),
    Item(
        ISO,
        "9 De-identification governance",
        "This dossier, with its digests and signature, records what was released, when, and by "
        "which limits. Roles, procedures and monitoring after the release stay with the publisher.",
    ),
)
"""What every dossier has."""

PRIVATE_ITEMS = (
    Item(
        NIST,
        "Privacy parameters: ε",
        "ε is an upper bound that the accountant of the ledger computes for everything that was "
        "released, for the neighbouring tables that it names.",
        ("epsilon",),
    ),
    Item(
        NIST,
        "Unit of privacy",
        "One record across all parties. A person with several records is protected less.",
    ),
    Item(
        NIST,
        "Threat and trust model",
        "Whom the guarantee is against, and whom it is not against, is in the ledger below.",
    ),
    Item(
        NIST,
        "Mechanism implementation and side channels",
        "How the noise is drawn is in the ledger. Run times, memory and the decision to publish "
        "are not covered by ε.",
    ),
    Item(
        NIST,
        "Data collection exposure",
        "Not answered here: how the real records are collected, stored and accessed.",
    ),
)
"""What a dossier of a private release has beside these."""
