"""What a release must keep: the limits of its clauses, each with the reason for its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated

from vflsynth._schema import FileTable
from vflsynth.exceptions import ContractError, ParameterError
from vflsynth.registry import Number, Value, check_parameters, register, rules_of

Limit = Annotated[float, Number(0)]


@register
@dataclass(frozen=True)
class ReleaseTerms(Value, FileTable):
    """Limits of the clauses that a release is judged by; one that is above its limit fails.

    With a clause that nobody measured no table passes, unless `waived` names it and says why. A
    waiver excuses nothing that was measured: for that there is the limit.

    Parameters
    ----------
    worst_column : float, default=0.1
        Largest distance of one column (Kolmogorov-Smirnov or total variation) beyond that of two
        halves of the real table. A tenth of the rows in the wrong place changes conclusions.
    worst_pair : float, default=0.2
        Largest error of one pair's association beyond three times the mean error of halves. Two
        columns with a correlation of .4 are then never published as unrelated.
    mass_at_extremes : float, default=0.01
        Largest share of a column's rows piled up at its ends beyond what the real column has there
        and three standard errors. A percent is seen in any histogram, and is what clipping leaves.
    real_extremes : float, default=0
        Synthetic cells equal to a smallest or largest real value that fewer than `rare_records`
        records hold, in columns whose contract does not allow extremes: each is a person's.
    copied_rows : float, default=0.005
        Largest share of rows that are copies of a real one beyond that of real rows not used and
        two standard errors; or three, of copies to a hundredth of every standard deviation. Some
        rows coincide; half a percent more do not by chance.
    copied_values : float, default=0.05
        Largest share of one numeric column's cells that equal a rare real value, likewise beyond
        other real rows. Models that store values copy nearly all of them.
    rare_categories : float, default=0
        Synthetic rows with a category that fewer than `rare_records` real records hold and that no
        public list names: the contract promises that there are none.
    unique_combinations : float, default=0.01
        Largest share of rows whose quasi-identifiers are those of exactly one real record, likewise
        beyond other real rows: these are the rows that look like somebody.
    identifiers : float, default=0.01
        Largest share of replaced identifiers that are a real one. Surrogates are drawn without
        regard to the real ones, so that a few of a short shape coincide.
    rule_violations : float, default=0
        Share of rows that break a rule of the contract: it says that none does.
    incoherent_rows : float, default=0.05
        Largest share of rows with two common values that real rows hardly ever have together,
        beyond that of real rows. Nobody declared a rule there, so a few may be possible.
    exact_structure : float, default=0.05
        Largest share of rows that break one relation of up to three columns which all real rows
        keep, such as a total and its parts, beyond what one half of them breaks of the other's.
        Whoever knows the relation sees at once which rows are synthetic; declare it as a rule.
    detection : float, default=0.8
        Largest area under the curve (AUC) of a boosted-tree classifier that tells real from
        synthetic rows; .5 is guessing. Above, single rows are recognised four times out of five.
    utility : float, default=0.05
        Largest loss, in accuracy or R², of a model trained on synthetic instead of real rows, both
        tested on real ones.
    membership : float, default=0.75
        AUC of the strongest audited attack; .5 is guessing. An attack passes if its whole interval
        is below the limit, fails if it is above, and is else not measured: too few attacks to tell.
    singling_out, linkability, inference : float, default=0.1
        How much more often an attack succeeds for records that were used than for control records:
        one in ten, by the interval as above.
    epsilon : float, default=10
        Largest ε of a private release. What ε means for one record is in the dossier; above 10 the
        guarantee alone excludes hardly any inference about one.
    waived : mapping of clause name to reason
        Clauses that need not be measured.

    Examples
    --------
    >>> ReleaseTerms(detection=0.9, waived={"membership": "audited with the last edition"}).limit(
    ...     "detection"
    ... )
    0.9
    """

    worst_column: Limit = 0.1
    worst_pair: Limit = 0.2
    mass_at_extremes: Limit = 0.01
    real_extremes: Limit = 0.0
    copied_rows: Limit = 0.005
    copied_values: Limit = 0.05
    rare_categories: Limit = 0.0
    unique_combinations: Limit = 0.01
    identifiers: Limit = 0.01
    rule_violations: Limit = 0.0
    incoherent_rows: Limit = 0.05
    exact_structure: Limit = 0.05
    detection: Limit = 0.8
    utility: Limit = 0.05
    membership: Limit = 0.75
    singling_out: Limit = 0.1
    linkability: Limit = 0.1
    inference: Limit = 0.1
    epsilon: Limit = 10.0
    waived: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            check_parameters("[release]", vars(self), rules_of(type(self)))
        except ParameterError as error:
            raise ContractError(str(error)) from None
        object.__setattr__(self, "waived", dict(self.waived))
        for name, reason in self.waived.items():
            if name not in CLAUSES:
                raise ContractError(
                    f"[release] waives {name!r}, which is no clause; there are {', '.join(CLAUSES)}"
                )
            if not isinstance(reason, str) or not reason.strip():
                raise ContractError(f"[release] waives {name!r} without a reason. Fix: write one")

    def limit(self, clause: str) -> float:
        """Return the limit of a clause."""
        return float(getattr(self, clause))


CLAUSES = tuple(f.name for f in fields(ReleaseTerms) if f.name != "waived")
"""Names of all clauses, in the order in which a dossier lists them."""
