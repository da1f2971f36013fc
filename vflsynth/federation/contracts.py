"""A contract between processes: every site has its own part, and all check that they agree.

What all share is in the job, which every site compares by its digest. What a party says of its own
columns stays at its site. The others learn which columns of the shared rules it has, and a keyed
digest of its part, to compare with what they wrote about that party, if anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth._random import derive
from vflsynth.codec import to_json
from vflsynth.columns import PublicSchema, TableTransformer
from vflsynth.contract import Contract, PartyContract, Preparation, own_contract, prepared_party
from vflsynth.contract.contract import as_rules
from vflsynth.exceptions import ContractError, ParameterError, PayloadRejectedError
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site
from vflsynth.frames import check_no_empty_column
from vflsynth.frames.party_frames import without_labels_of_others


@dataclass(frozen=True)
class SiteTable:
    """A site's table as it is modelled, and what is agreed about it.

    `labels` are those of the table as it was read, the key left out; `schema` is what is public of
    the prepared table. The contract has the parts of all parties that this site's file speaks of.
    There is no preparation if the table is modelled as it is. `keys` are of the whole table, where
    only some of its records were read. `of_matched` prepares the table anew, by the records alone
    that it is told are matched.
    """

    frame: pd.DataFrame
    labels: tuple[Hashable, ...]
    schema: PublicSchema
    template: TableTransformer
    contract: Contract
    preparation: Preparation | None
    keys: pd.Index | None = None
    of_matched: Callable[[npt.NDArray[np.bool_]], SiteTable] | None = None


def site_contract(job: Job, site: Site, labels: tuple[Hashable, ...] = ()) -> Contract:
    """Read what all share, and what the site's own file says.

    Raises ContractError if the file says otherwise than the job, or speaks of somebody who is no
    party; ParameterError if the job makes no synthetic rows.
    """
    shared = job.shared_contract
    if site.contract is None:
        return shared
    if job.has_labels:
        raise ParameterError(
            f"site {site.party!r}: a contract is about synthetic rows, and job {job.name!r} makes "
            "none. Fix: leave it out of the site file"
        )
    names = {str(label): label for label in labels}
    found = own_contract(site.contract, site.party, shared, lambda text: names.get(text, text))
    for name in found.parties:
        if name not in job.parties:
            raise ContractError(
                f"party {site.party!r}: {site.contract} speaks of party {name!r}, and the parties "
                f"of job {job.name!r} are {', '.join(map(repr, job.parties))}. Fix: the same names"
            )
    return found


def prepared(
    job: Job,
    site: Site,
    frame: pd.DataFrame,
    contract: Contract,
    schema: PublicSchema,
    template: TableTransformer,
    matched: npt.NDArray[np.bool_] | None = None,
    *,
    private: bool,
) -> SiteTable:
    """Prepare a site's table as its contract says, and as what is exact in it asks for.

    Nothing is learned of records that are not `matched`. Raises ContractError.
    """
    key = job.key_of(site)
    labels = tuple(label for label in frame.columns if label != key)
    own = None
    if contract != Contract():  # a job with labels has none
        own = replace(contract, parties={site.party: contract.of(site.party)})
    elif not private:
        check_no_empty_column(site.party, frame)
    if job.has_labels:
        return SiteTable(frame, labels, schema, template, contract, None)
    exact = job.parameters.get("structure", "exact") == "exact"
    looked_at = frame if matched is None else without_labels_of_others(frame[matched], frame)
    made, template = prepared_party(
        own,
        site.party,
        looked_at,
        key,
        template,
        private=private,
        exact=exact,
        copies=job.method_for_node().copies,
    )
    if made is not None:
        frame, schema = made.apply(frame, matched), made.schema(schema) or PublicSchema()
    return SiteTable(frame, labels, schema, template, contract, made)


def facts(job: Job, site: Site, table: SiteTable) -> dict[str, Any]:
    """Return what a site tells of its contract; JSON values without any word of it.

    Parts of parties as keyed digests; of the columns that shared rules name, which this party has;
    whether rows have to be left out for its rules.
    """
    key = derive(site.the_shared, f"contract|{job.name}")
    contract = table.contract
    named = {str(label) for rule in as_rules(contract.rules) for label in rule.columns}
    return {
        "own": _digest(key, site.party, contract.of(site.party)),
        "said": {
            name: _digest(key, name, part)
            for name, part in contract.parties.items()
            if name != site.party
        },
        "columns": sorted(named & {str(label) for label in table.labels}),
        "selects": table.preparation is not None and table.preparation.selects,
    }


def check_agreement(told: Mapping[str, Any], shared: Contract) -> bool:
    """Compare what all parties told of their contracts by `facts`; server and every party do.

    Returns whether any party leaves out rows. Raises ContractError, naming parties that disagree,
    or a rule and a column that nobody has; PayloadRejectedError if something else was told.
    """
    having: set[str] = set()
    for name, own in told.items():
        if not _is_told(own):
            raise PayloadRejectedError(
                "tells something else than digests of its contract",
                fix="install the same version of vflsynth at every site",
                party=name,
            )
        having |= set(own["columns"])
        for other, digest in own["said"].items():
            if other in told and digest != told[other]["own"]:
                raise ContractError(
                    f"parties {name!r} and {other!r} disagree on what the contract says of party "
                    f"{other!r}. Fix: leave it out of the contract of {name!r}, or write the same"
                )
    for rule in as_rules(shared.rules):
        for label in rule.columns:
            if str(label) not in having:
                raise ContractError(
                    f"the job's contract: the rule {rule.title!r} names column {label!r}, which no "
                    "party has. Fix: correct the label; rules may not name keys"
                )
    return any(own["selects"] for own in told.values())


def _is_told(own: Any) -> bool:
    match own:
        case {"own": str(), "selects": bool(), "said": {**said}, "columns": [*columns]}:
            return all(isinstance(value, str) for value in (*said.values(), *columns))
    return False


def _digest(key: bytes, party: str, part: PartyContract) -> str:
    columns = sorted((str(k), json.dumps(to_json(c, "column"))) for k, c in part.columns.items())
    text = json.dumps([party, columns, to_json(tuple(part.rules), "rules")])
    return derive(key, text).hex()[:32]
