"""The publishing contract: what is modelled, what may come out, and what holds in every row.

Parties agree on it before anything is learned. Rules about one party's columns are learned and kept
by that party; those about several are looked at in synthetic rows only.
"""

from vflsynth.contract.contract import ColumnContract, Contract, PartyContract, as_rules
from vflsynth.contract.discovering import codes_among, discover
from vflsynth.contract.enforcing import Cost, SharedRows, attempts, judged, rows_for_all
from vflsynth.contract.expressions import Expression
from vflsynth.contract.files import (
    contract_from,
    contract_to_toml,
    own_contract,
    read_contract,
    write_contract,
)
from vflsynth.contract.findings import Finding
from vflsynth.contract.preparing import Preparation
from vflsynth.contract.proposing import propose, relations_of
from vflsynth.contract.publishing import (
    all_rules,
    index_columns,
    prepared_parties,
    prepared_party,
    with_public,
)
from vflsynth.contract.releasing import CLAUSES, ReleaseTerms
from vflsynth.contract.rules import Check, Determines, FixedCombinations, Rule

__all__ = [
    "CLAUSES",
    "Check",
    "ColumnContract",
    "Contract",
    "Cost",
    "Determines",
    "Expression",
    "Finding",
    "FixedCombinations",
    "PartyContract",
    "Preparation",
    "ReleaseTerms",
    "Rule",
    "SharedRows",
    "all_rules",
    "as_rules",
    "attempts",
    "codes_among",
    "contract_from",
    "contract_to_toml",
    "discover",
    "index_columns",
    "judged",
    "own_contract",
    "prepared_parties",
    "prepared_party",
    "propose",
    "read_contract",
    "relations_of",
    "rows_for_all",
    "with_public",
    "write_contract",
]
