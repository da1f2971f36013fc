"""A dossier: the verdict, its two editions, and where it answers data protection officers.

Articles and clauses are named by number and heading; what is written beside them is what this
package measures or leaves open, not what the documents say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from vflsynth.contract import Contract
from vflsynth.evaluation.metric import MetricResults, by_part
from vflsynth.evaluation.page import HasSection, Report, page_of
from vflsynth.evaluation.tables import Tables
from vflsynth.privacy import PrivacyLedger
from vflsynth.privacy.ledger import conditional
from vflsynth.release.clauses import Clause
from vflsynth.reporting import Page, render, require_packages

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup


FORMAT, FORMAT_VERSION = "vflsynth release", 1


@dataclass(frozen=True, eq=False)
class Dossier:
    """What a release was judged by, and the verdict.

    `tables` are those that were compared; they are in the internal edition's pictures only.
    `version` is that of this package, `date` of the release in ISO form, `random_state` of the
    evaluation. `changes` say what is judged otherwise than the contract of the fit says, see
    `vflsynth.release.clauses`; digests (SHA-256) are of the contracts that the table is judged by,
    and that the model was fitted with.
    """

    clauses: tuple[Clause, ...]
    contract: Contract
    evaluation: MetricResults = field(repr=False)
    tables: Tables = field(repr=False)
    ledger: PrivacyLedger | None
    version: str
    date: str
    random_state: int
    changes: tuple[str, ...] = ()
    contract_digests: Mapping[str, str | None] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Clause:
        return {clause.name: clause for clause in self.clauses}[name]

    @property
    def failing(self) -> tuple[Clause, ...]:
        """Clauses that failed."""
        return tuple(clause for clause in self.clauses if clause.verdict == "failed")

    @property
    def undecided(self) -> tuple[Clause, ...]:
        """Clauses that nobody measured and that the contract does not waive."""
        return tuple(clause for clause in self.clauses if clause.verdict == "not measured")

    @property
    def passed(self) -> bool:
        """Whether no clause failed, and none is undecided."""
        return not self.failing and not self.undecided

    @property
    def is_private(self) -> bool:
        """Whether the release promises differential privacy for the synthetic table."""
        return self.ledger is not None and self.ledger.covers_synthetic_data

    @property
    def headline(self) -> str:
        """The verdict in a sentence that names what failed, and what was not measured."""
        counts = Counter(clause.verdict for clause in self.clauses)
        waived = _counted(counts["waived"], "waived without a measurement")
        rest = waived if counts["waived"] else "none waived"
        open_ones = "; ".join(clause.title for clause in self.undecided)
        if self.passed:
            but = [self._limits] * bool(self.changes) + [waived] * bool(counts["waived"])
            with_ = f" with {' and '.join(but)}" if but else ""
            return f"Passes{with_}: {_counted(counts['passed'], 'kept')}."
        if not self.failing:
            kept = _counted(counts["passed"], "kept")
            return (
                f"Undecided: {kept}, {len(self.undecided)} not measured ({rest}): {open_ones}. "
                "Fix: measure them, or waive them in the contract and say why."
            )
        titles = "; ".join(clause.title for clause in self.failing)
        judged = counts["passed"] + counts["failed"]
        said = f"Fails {len(self.failing)} of {judged} clauses ({rest}): {titles}."
        return f"{said} {len(self.undecided)} not measured: {open_ones}." if open_ones else said

    @property
    def public_clauses(self) -> tuple[Clause, ...]:
        """The clauses as the edition to hand out has them."""
        return tuple(c.withheld for c in self.clauses) if self.is_private else self.clauses

    @property
    def public_headline(self) -> str:
        """The headline of the edition to hand out."""
        if not self.is_private:
            return self.headline
        assert self.ledger is not None
        said = (
            f"Released under differential privacy: ε = {self.ledger.epsilon():.4g} at "
            f"δ = {self.ledger.delta:g}"
        )
        changed = f" Judged by {self._limits}." if self.changes else ""
        return f"{conditional(said, self.ledger.condition)}.{changed}"

    @property
    def _limits(self) -> str:
        bound = self.contract_digests.get("fitted with") is not None
        return "changed limits" if bound else "limits that no fit binds"

    @property
    def items(self) -> tuple[Item, ...]:
        """What officers are asked for, as far as it is about this release."""
        return (*ITEMS, *(PRIVATE_ITEMS if self.ledger is not None else ()))

    def columns(self) -> list[dict[str, Any]]:
        """Return every compared column's distance, the worst first: aggregates, no values."""
        return [
            {"name": part.words, "distance": part.value, "halves": part.value - part.beyond}
            for part in by_part(self.evaluation["marginal_distance"])
        ]

    def section(self) -> Markup:
        """Return the verdicts as a piece of HTML, for the internal edition."""
        return self._section(self.clauses)

    def _section(self, clauses: tuple[Clause, ...]) -> Markup:
        by_name = {clause.name: clause for clause in clauses}
        return render(
            "vflsynth.release",
            "section.html",
            clauses=clauses,
            items=[{"item": i, "clauses": [by_name[n] for n in i.clauses]} for i in self.items],
            roles=_roles(self.contract),
            ledger="" if self.ledger is None else str(self.ledger),
        )

    def internal_page(
        self,
        *,
        history: pd.DataFrame | None = None,
        audit: HasSection | None = None,
        reader: str | None = None,
        report: str = "internal",
    ) -> Report:
        """Make the internal edition: the verdicts, and the whole report with real rows in pictures.

        `report` is what the contract calls it, "internal" or "evaluation", and `reader` who it is
        for, where the contract says who may see it; others get ContractError. `history` and `audit`
        are those of `vflsynth.evaluation.report`.
        """
        self.contract.check_reader(report, reader)
        require_packages("the page of a release")
        notes = ["Internal edition: it shows real records. Do not hand it out."]
        if report in self.contract.readers:
            others = ", ".join(self.contract.readers[report])
            notes.append(f"Written for {reader}. The contract lets nobody see it but: {others}.")
        return page_of(
            self.tables,
            self.evaluation,
            history=history,
            audit=audit,
            notes=tuple(notes),
            release=self,
            title="Release dossier, internal edition",
        )

    def public_content(self, table: dict[str, Any], commitments: dict[str, str]) -> dict[str, Any]:
        """Return the machine-readable twin of the edition to hand out, as JSON values.

        `table` has file name, digest, rows and columns of the published table; for commitments see
        `vflsynth.release.publishing`.
        """
        restricted = "public" in self.contract.readers
        shown = self.public_clauses
        verdict = "passed" if self.passed else "failed" if self.failing else "not measured"
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "date": self.date,
            "version": self.version,
            "random_state": self.random_state,
            "verdict": "withheld" if self.is_private else verdict,
            "headline": self.public_headline,
            "differential_privacy": None if self.ledger is None else _promise(self.ledger),
            "table": table,
            "commitments": commitments,
            "contract": {
                "digests": dict(self.contract_digests),
                "changes_since_fit": list(self.changes),
                "not_measured": [f"{c.title}: {c.says}" for c in shown if c.verdict == "waived"],
            },
            "readers": list(self.contract.readers["public"]) if restricted else None,
            "clauses": [clause.to_dict() for clause in shown],
            "columns": [] if self.is_private else self.columns(),
            "officers": [asdict(item) | {"clauses": list(item.clauses)} for item in self.items],
        }

    def public_page(self, content: dict[str, Any], title: str = "Synthetic table") -> Page:
        """Make the edition to hand out: no picture, no key, no value of any record.

        `content` is that of `public_content`: page and twin say the same.
        """
        require_packages("the page of a release")
        n_rows, n_columns = content["table"]["rows"], len(content["table"]["columns"])
        facts = [
            content["date"],
            f"{n_rows:,} synthetic rows",
            f"{n_columns} columns",
            f"vflsynth {content['version']}",
            f"seed of the evaluation {content['random_state']}",
        ]
        if content["readers"] is not None:
            facts.append(f"for {', '.join(content['readers'])} only")
        return Page(
            render(
                "vflsynth.release",
                "page.html",
                title=title,
                facts=facts,
                headline=content["headline"],
                section=self._section(self.public_clauses),
                content=content,
            )
        )

    def __str__(self) -> str:
        changed = [f"changed         {said}" for said in self.changes]
        return "\n".join([self.headline, "", *map(str, self.clauses), *changed])


def _roles(contract: Contract) -> list[list[str]]:
    """Say in words what the contract says of columns: no value, and no bound."""
    rows = []
    for party, part in contract.parties.items():
        for label, column in part.columns.items():
            out = "as it is modelled"
            if not column.is_modelled:
                made_up = {"surrogate": "values of the same shape", "pseudonym": "pseudonyms"}
                out = made_up.get(str(column.replacement), "nothing")
            public = [
                n for n in ("bounds", "categories", "dtype") if getattr(column, n) is not None
            ]
            rows.append(
                [
                    str(label),
                    party,
                    column.role or "ordinary",
                    column.kind or "inferred",
                    out,
                    f"{contract.least(column):,}",
                    "yes" if column.extremes else "no",
                    ", ".join(public) or "nothing",
                ]
            )
    return rows


def _promise(ledger: PrivacyLedger) -> dict[str, Any]:
    return {
        "epsilon": ledger.epsilon(),
        "delta": ledger.delta,
        "condition": ledger.condition,
        "claim": ledger.claim,
        "covers_synthetic_table": ledger.covers_synthetic_data,
        "neighbouring_relation": None if ledger.relation is None else str(ledger.relation),
    }


def _counted(n: int, what: str) -> str:
    return f"{n} clause{'' if n == 1 else 's'} {what}"


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
