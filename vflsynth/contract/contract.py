"""The publishing contract: what is modelled, what may come out, and what must hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from vflsynth._schema import FileTable
from vflsynth.codec import to_json
from vflsynth.columns import PublicSchema, column_kind
from vflsynth.contract.releasing import ReleaseTerms
from vflsynth.contract.rules import Check, Determines, Rule, in_order
from vflsynth.exceptions import ColumnKindError, ContractError, ParameterError, did_you_mean
from vflsynth.registry import Choice, Number, Optional, Value, check_parameters, register, rules_of

ROLES = ("ordinary", "quasi-identifier", "sensitive", "identifier", "free text")
"""What a column is. Identifiers and free text are never modelled."""

REPORTS = ("evaluation", "audit", "internal", "public")
"""Reports that a contract may name readers of."""

REPLACEMENTS = ("drop", "surrogate", "pseudonym")
"""What comes out in place of a column that is not modelled."""

RARE_RECORDS = 5
LEAST_RECORDS = 50
"""Fewest records of a category, combination or extreme that is published by itself."""

_NOT_MODELLED = ("identifier", "free text")


@register
@dataclass(frozen=True)
class ColumnContract(Value, FileTable):
    """What is agreed about one column; what is left out is inferred or has the contract's default.

    Parameters
    ----------
    kind : str, optional
        As in `column_kinds`. Default: inferred from the records; under privacy from the type.
    role : str, optional
        One of `ROLES`. An identifier and free text are not modelled; "quasi-identifier",
        "sensitive" and "ordinary" are, whatever their values look like, and tell reports what they
        are. Default: an ordinary column, refused if it looks like an identifier.
    replacement : {"drop", "surrogate", "pseudonym"}, optional
        What comes out in place of a column that is not modelled: nothing (default); values of the
        same shape, drawn afresh, without regard to the real ones; or 16 hexadecimal digits that are
        the same for a synthetic record at all parties.
    bounds : (low, high), optional
        Public range, see `vflsynth.columns.Bounds`.
    categories : tuple, optional
        Public list of labels.
    dtype : str, optional
        Public type, see `vflsynth.columns.PublicSchema`.
    decimals : int, optional
        Published numbers are rounded to so many places, but those that a rule computes.
    extremes : bool, default=False
        Whether the smallest and largest real values may come out. By default nothing comes out
        beyond the mean of the `rare_records` smallest, or of the largest.
    rare_records : int, optional
        Default: the contract's.
    """

    kind: str | None = None
    role: Annotated[str | None, Choice((None, *ROLES))] = None
    replacement: Annotated[str | None, Choice((None, *REPLACEMENTS))] = None
    bounds: Sequence[Any] | None = None
    categories: Sequence[Hashable] | None = None
    dtype: str | None = None
    decimals: Annotated[int | None, Optional(Number(-12, 12, whole=True))] = None
    extremes: Annotated[bool, Choice((False, True))] = False
    rare_records: Annotated[int | None, Optional(Number(0, whole=True))] = None

    def __post_init__(self) -> None:
        try:
            check_parameters("a column", vars(self), rules_of(type(self)))
            if self.kind is not None:
                column_kind(self.kind)
            for name in ("bounds", "categories"):
                if not isinstance(values := getattr(self, name), str | None):
                    object.__setattr__(self, name, tuple(values))
            _public({"column": self})
        except (ParameterError, ColumnKindError, TypeError) as error:
            raise ContractError(str(error)) from None
        if self.replacement is not None and self.is_modelled:
            raise ContractError(
                f"replacement={self.replacement!r} is for columns that are not modelled. Fix: give "
                "the column the role 'identifier' or 'free text'"
            )

    @property
    def is_modelled(self) -> bool:
        """Whether it is neither an identifier nor free text."""
        return self.role not in _NOT_MODELLED


def _public(columns: Mapping[Hashable, ColumnContract]) -> PublicSchema:
    """Return what is public about columns."""
    said = ("bounds", "categories", "dtype")
    found = ({k: getattr(own, name) for k, own in columns.items()} for name in said)
    return PublicSchema(*({k: v for k, v in own.items() if v is not None} for own in found))


def _checked(given: Mapping[Any, Any], kind: type) -> dict[Any, Any]:
    """Return what is said of each party or column; ContractError if it is of another type."""
    if not isinstance(given, Mapping):
        raise ContractError(
            f"got a {type(given).__name__} for a mapping of names to a {kind.__name__} each. Fix: "
            "vflsynth.contract.read_contract reads a file"
        )
    for name, said in given.items():
        if not isinstance(said, kind):
            raise ContractError(
                f"got a {type(said).__name__} for {name!r}. Fix: give a {kind.__name__}"
            )
    return dict(given)


@register
@dataclass(frozen=True)
class PartyContract(Value):
    """One party's own part.

    Parameters
    ----------
    columns : mapping of column label to ColumnContract
        Columns that need no word are left out.
    rules : sequence of Rule or str
        About this party's columns; a text is a `Check`.
    """

    columns: Mapping[Hashable, ColumnContract] = field(default_factory=dict)
    rules: Sequence[Rule | str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _checked(self.columns, ColumnContract))
        object.__setattr__(self, "rules", as_rules(self.rules))

    @property
    def left_out(self) -> tuple[Hashable, ...]:
        """Columns that are not modelled."""
        return tuple(label for label, column in self.columns.items() if not column.is_modelled)


@register
@dataclass(frozen=True)
class Contract(Value):
    """What parties agree on before anything is learned, and what holds for whatever is published.

    Under privacy nothing here reads records: kinds follow from types, rare categories from noisy
    counts, and rules have to say their combinations.

    Parameters
    ----------
    parties : mapping of party name to PartyContract
        Parties that need no word are left out.
    rules : sequence of Rule or str
        About columns of several parties. They are looked at in synthetic rows only.
    rare_records : int, default=5
        A category that fewer records hold is never published: it becomes one that is frequent
        enough, see ``rare`` of `vflsynth.TableTransformer`. The same number decides which
        combinations rules learn, and how many extreme values are averaged. 0 and 1: none.
    least_records : int, optional
        A model without a guarantee is not fitted on fewer records that all parties have: of one
        record its samples are copies. Default: 50.
    release : ReleaseTerms, optional
        What a release must keep, see `vflsynth.release`. Nothing of it is asked of training.
    readers : mapping of str to sequence of str, optional
        Who may see which report: by "evaluation", "audit", "internal" (a release's edition to keep)
        and "public" (that to hand out) the names of parties or others. What is left out, whoever
        holds the real tables may show to whom they like; the public edition is for everybody.

    Examples
    --------
    >>> contract = Contract(
    ...     {
    ...         "bank": PartyContract(
    ...             {"iban": ColumnContract(role="identifier", replacement="surrogate")},
    ...             rules=["opened <= closed"],
    ...         )
    ...     },
    ...     rules=['relationship == "Husband" => sex == "Male"'],
    ... )
    >>> [rule.title for rule in contract.all_rules]
    ['opened <= closed', 'relationship == "Husband" => sex == "Male"']
    """

    parties: Mapping[str, PartyContract] = field(default_factory=dict)
    rules: Sequence[Rule | str] = ()
    rare_records: Annotated[int, Number(0, whole=True)] = RARE_RECORDS
    release: ReleaseTerms = field(default_factory=ReleaseTerms)
    readers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    least_records: Annotated[int | None, Optional(Number(1, whole=True))] = None

    @property
    def left_out(self) -> tuple[Hashable, ...]:
        """All parties' columns that are not modelled: they do not come out, or come out made up."""
        return tuple(label for part in self.parties.values() for label in part.left_out)

    @property
    def fewest_records(self) -> int:
        """`least_records`, or its default."""
        return LEAST_RECORDS if self.least_records is None else self.least_records

    @property
    def digest(self) -> str | None:
        """SHA-256 of what it says; None if a rule is a function, which cannot be written down."""
        try:
            text = json.dumps(to_json(self, "contract"), sort_keys=True, separators=(",", ":"))
        except ParameterError:
            return None
        return hashlib.sha256(text.encode()).hexdigest()

    def __post_init__(self) -> None:
        object.__setattr__(self, "parties", _checked(self.parties, PartyContract))
        object.__setattr__(self, "readers", _readers(self.readers))
        object.__setattr__(self, "rules", as_rules(self.rules))
        check_parameters("a contract", vars(self), rules_of(type(self)))
        owners: dict[Hashable, str] = {}
        for name, _, label in self._columns():
            if owners.setdefault(label, name) != name:
                raise ContractError(
                    f"parties {owners[label]!r} and {name!r} both speak of column {label!r}. Fix: "
                    "a column belongs to one party"
                )

    def _columns(self) -> Iterator[tuple[str, ColumnContract, Hashable]]:
        for name, part in self.parties.items():
            for label, column in part.columns.items():
                yield name, column, label

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The parties' own rules, and then those of several parties."""
        own = [rule for part in self.parties.values() for rule in as_rules(part.rules)]
        return (*own, *as_rules(self.rules))

    def least(self, column: ColumnContract) -> int:
        """Return the `rare_records` of a column: its own, or the contract's."""
        return self.rare_records if column.rare_records is None else column.rare_records

    def of(self, party: str) -> PartyContract:
        """Return a party's own part, which may be empty."""
        return self.parties.get(party, PartyContract())

    @classmethod
    def agreed(cls, versions: Mapping[str, Contract]) -> Contract:
        """Put together what the parties wrote, each about its own columns.

        Parameters
        ----------
        versions : mapping of party name to Contract
            What is said of other parties may be left out, but not differ from what they say.

        Raises
        ------
        ContractError
            Naming two parties that disagree, and on what.
        """
        (first, shared), *others = versions.items()
        for name, version in others:
            for field_ in ("rules", "rare_records", "least_records", "release", "readers"):
                if getattr(version, field_) != getattr(shared, field_):
                    raise ContractError(
                        f"parties {first!r} and {name!r} disagree on {field_} of all parties. Fix: "
                        "the same in both contracts"
                    )
        for writer, version in versions.items():
            for name, part in version.parties.items():
                if name not in versions or part == versions[name].of(name):
                    continue
                own = versions[name].of(name).columns
                differing = [
                    c for c in {**own, **part.columns} if own.get(c) != part.columns.get(c)
                ]
                what = f"its column {differing[0]!r}" if differing else "its rules"
                raise ContractError(
                    f"parties {writer!r} and {name!r} disagree on party {name!r}: {what}. Fix: "
                    f"leave it out of the contract of {writer!r}, or write the same"
                )
        return replace(shared, parties={name: own.of(name) for name, own in versions.items()})

    def check_reader(self, report: str, reader: str | None) -> None:
        """Raise ContractError if a report may not be written for this reader; None: nobody."""
        if report not in self.readers or reader in self.readers[report]:
            return
        names = ", ".join(map(repr, self.readers[report])) or "nobody"
        whom = "nobody says for whom it is" if reader is None else f"it is for {reader!r}"
        raise ContractError(
            f"the contract lets {names} see the report {report!r}, and {whom}. Fix: name one of "
            "these as its reader (on the command line --reader), or change the contract"
        )

    def check(self, columns: Mapping[str, Collection[Hashable]]) -> None:
        """Compare the contract with the labels of the parties' columns, keys left out.

        Raises ContractError, which names party, column or rule.
        """
        owner = {label: name for name, labels in columns.items() for label in labels}
        for name in self.parties:
            if name not in columns:
                raise ContractError(
                    f"the contract speaks of party {name!r}, and the parties are "
                    f"{', '.join(map(repr, columns))}. Fix: the same names"
                )
        for name in columns:
            self._check_part(name, columns[name], owner)
        self._check_shared(owner, "the contract")

    def check_at(self, party: str, columns: Collection[Hashable]) -> None:
        """Compare the contract with one party's own columns: all that the party itself can see.

        Otherwise as `check`. Whether somebody has the other columns of a rule, others have to say.
        """
        self._check_part(party, columns, {})
        named = {label for rule in as_rules(self.rules) for label in rule.columns}
        owner = {label: party if label in columns else "another party" for label in named}
        self._check_shared(owner, f"party {party!r}")

    def _check_part(
        self, name: str, columns: Collection[Hashable], owner: Mapping[Hashable, str]
    ) -> None:
        """Compare a party's part with its columns."""
        for label in self.of(name).columns:
            if label not in columns:
                hint = did_you_mean(label, columns)
                hint = f"; party {owner[label]!r} has one" if label in owner else hint
                raise ContractError(
                    f"party {name!r}: the contract speaks of column {label!r}, and there is "
                    f"none{hint}"
                    ". Fix: correct the label, or delete its part if it is the key, which no "
                    "contract speaks of"
                )
        for rule in as_rules(self.of(name).rules):
            self._check_rule(rule, columns, f"party {name!r}")

    def _check_shared(self, owner: Mapping[Hashable, str], where: str) -> None:
        """Check the rules of several parties, of which none may have to be learned, and all rules.

        Nobody computes a column that another rule computes, or columns from each other.
        """
        for rule in as_rules(self.rules):
            self._check_rule(rule, owner, where)
            owners = {owner[label] for label in rule.columns}
            if rule.reads_records and len(owners) > 1:
                raise ContractError(
                    f"the contract: {rule.title} needs values that no party can see, as its "
                    f"columns belong to {', '.join(sorted(map(repr, owners)))}. Fix: state them"
                )
        seen: dict[Hashable, str] = {}
        for rule in self.all_rules:
            computed = rule.repaired_column
            if computed is not None and seen.setdefault(computed, rule.title) != rule.title:
                raise ContractError(
                    f"the rules {seen[computed]!r} and {rule.title!r} both compute column "
                    f"{computed!r}. Fix: write one of them with its sides exchanged"
                )
        in_order(self.all_rules)

    def _check_rule(self, rule: Rule, known: Collection[Hashable], where: str) -> None:
        dropped = self.left_out
        for label in rule.columns:
            if label not in known or label in dropped:
                why = "is not modelled"
                if label not in dropped:
                    why = f"is not there{did_you_mean(label, known)}"
                raise ContractError(
                    f"{where}: the rule {rule.title!r} names column {label!r}, which {why}. Fix: "
                    "name columns that are, with col(...) where a label is no name of Python; "
                    "rules about columns of several parties belong beside the parties"
                )

    def check_private(self) -> None:
        """Raise ContractError if something would be read off the records."""
        for rule in self.all_rules:
            if rule.reads_records:
                given = "values" if isinstance(rule, Determines) else "combinations"
                raise ContractError(
                    f"{rule.title}: under differential privacy nothing is learned from records "
                    f"beside the releases that are paid for. Fix: state its {given}"
                )
        for name, column, label in self._columns():
            if column.replacement == "surrogate":
                raise ContractError(
                    f"party {name!r}, column {label!r}: surrogates have the shape of real values, "
                    "which differential privacy does not pay for. Fix: 'pseudonym' or 'drop'"
                )

    def public_schema(self) -> PublicSchema:
        """Return what is public about all parties' columns."""
        return _public({label: column for _, column, label in self._columns()})


def _readers(given: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    made = {}
    for report, names in given.items():
        if report not in REPORTS:
            raise ContractError(
                f"readers of {report!r}, which is no report; there are {', '.join(REPORTS)}"
            )
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise ContractError(f"readers of {report!r} must be a list of names")
        made[report] = tuple(names)
    return made


def as_rules(rules: Iterable[Rule | str]) -> tuple[Rule, ...]:
    """Return rules, of which texts are `Check`; ContractError if something is neither."""
    made: list[Rule] = []
    for rule in [rules] if isinstance(rules, str) else rules:
        if not isinstance(rule, Rule | str):
            raise ContractError(f"a rule is a text or a Rule, not a {type(rule).__name__}")
        made.append(Check(rule) if isinstance(rule, str) else rule)
    return tuple(made)


def stated(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    made = type(part)()
    found = {f.name: getattr(part, f.name) for f in fields(part)}
    return {name: value for name, value in found.items() if value != getattr(made, name)}
