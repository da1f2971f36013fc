"""What the server tells every party of the others, once all have joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from vflsynth.exceptions import PayloadRejectedError, ProtocolError
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol.messages import Hello


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all nodes of an attempt know of the parties.

    Parameters
    ----------
    rows : dict of party name to int
        Numbers of records before matching.
    columns : dict of party name to int
        Numbers of columns, without the key column.
    unlisted : dict of party name to int
        How many of them nobody stated anything public about; 0 without privacy.
    nonces : dict of party name to str
        New in every attempt.
    epoch : int
        After which the run goes on; 0 to start.
    key_offset : int
        Where minted keys start.
    accounts : dict of party name to dict
        What `PrivacyAccount.show` returned at the parties that have one.
    contracts : dict of party name to dict
        What `vflsynth.federation.contracts.facts` returned, in runs across processes.
    """

    rows: dict[str, int]
    columns: dict[str, int]
    unlisted: dict[str, int]
    nonces: dict[str, str]
    epoch: int
    key_offset: int
    accounts: dict[str, dict[str, Any]]
    contracts: dict[str, dict[str, Any]]

    @classmethod
    def of_hellos(
        cls,
        hellos: Mapping[str, Hello],
        epoch: int,
        choose_offset: Callable[[Sequence[int]], int],
    ) -> Self:
        """Put together what the parties said of themselves."""
        return cls(
            rows={name: fact(hello, "rows", int) for name, hello in hellos.items()},
            columns={name: fact(hello, "n_columns", int) for name, hello in hellos.items()},
            unlisted={name: fact(hello, "unlisted", int) for name, hello in hellos.items()},
            nonces={name: fact(hello, "nonce", str) for name, hello in hellos.items()},
            epoch=epoch,
            key_offset=choose_offset([int(fact(h, "key_offset", str)) for h in hellos.values()]),
            accounts=shown_accounts(accounts_of(hellos)),
            contracts={
                name: fact(hello, "contract", dict)
                for name, hello in hellos.items()
                if "contract" in hello.facts
            },
        )

    @classmethod
    def of(cls, terms: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote and another node sent.

        Raises
        ------
        ProtocolError
        """
        try:
            return cls(
                {str(name): int(n) for name, n in terms["rows"].items()},
                {str(name): int(n) for name, n in terms["columns"].items()},
                {str(name): int(n) for name, n in terms["unlisted"].items()},
                {str(name): str(nonce) for name, nonce in terms["nonces"].items()},
                int(terms["epoch"]),
                int(terms["key_offset"]),
                {str(name): _shown(account) for name, account in terms["accounts"].items()},
                {str(name): dict(told) for name, told in terms["contracts"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"the server's terms cannot be read: {error!r}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; the offset as text, for it may have more than 53 bits."""
        return asdict(self) | {"key_offset": str(self.key_offset)}

    @property
    def nonce(self) -> str:
        """All parties' nonces: new in every attempt for each of them."""
        return "|".join(self.nonces[name] for name in sorted(self.nonces))

    @property
    def counts(self) -> dict[str, ColumnCounts]:
        """Numbers of the parties' columns, which are all that the noise depends on."""
        return {
            name: ColumnCounts(n, self.unlisted.get(name, 0)) for name, n in self.columns.items()
        }


def accounts_of(hellos: Mapping[str, Hello]) -> dict[str, Any]:
    """Return what the hellos of parties that have a privacy account show of it."""
    return {n: hello.facts["account"] for n, hello in hellos.items() if "account" in hello.facts}


def shown_accounts(accounts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Read what parties showed of their privacy accounts.

    Raises
    ------
    PayloadRejectedError
    """
    found = {}
    for name, account in accounts.items():
        try:
            found[name] = _shown(account)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PayloadRejectedError(
                "shows something else than a privacy account",
                fix="install the same version of vflsynth at every site",
                party=name,
            ) from error
    return found


def _shown(account: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `PrivacyAccount.show` returned elsewhere."""
    heads = [str(head) for head in account["heads"]]
    if not heads:
        raise ValueError("no head")
    return {"account": str(account["account"]), "heads": heads}


def fact(hello: Hello, name: str, kind: type) -> Any:
    """Return one fact of a hello, of the type that it must have.

    Raises
    ------
    PayloadRejectedError
    """
    value = hello.facts.get(name)
    if type(value) is not kind:
        raise PayloadRejectedError(
            f"its hello says {name} = {str(value)[:80]!r}",
            fix="install the same version of vflsynth at every site",
            party=hello.sender,
        )
    return value
