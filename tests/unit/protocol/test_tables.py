"""The documentation's tables are the declarations, nothing more and nothing less."""

import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

import vflsynth.splitdefense  # noqa: F401 (declares messages)
from vflsynth.exceptions import ProtocolError
from vflsynth.protocol.channel import MESSAGES, MadeOf

MADE = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "made_messages.py"))
leaving_table, protocol_table = MADE["leaving_table"], MADE["protocol_table"]


@dataclass
class Paid:
    purpose: str
    noised: bool


DECLARED = sorted(
    (kind for kind in MESSAGES.values() if kind.__module__.startswith("vflsynth.")),
    key=lambda kind: (kind.__module__ != "vflsynth.protocol.messages", kind.__module__),
)


def cells(table):
    """Rows of a Markdown table as lists, without head and rule."""
    lines = table.splitlines()
    assert set(lines[1]) <= set("|- ")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert len({len(row) for row in rows}) == 1
    return rows[2:]


def test_the_protocol_table_has_every_message_as_it_declares_itself():
    rows = cells(protocol_table())
    assert [row[0] for row in rows] == [kind.__name__ for kind in DECLARED]
    for kind, (_, way, contents, when, made_of, tells) in zip(DECLARED, rows, strict=True):
        declared = kind.declared
        assert way == ("party → server" if declared.from_party else "server → party")
        assert (contents, made_of, tells) == (declared.contents, declared.made_of, declared.tells)
        assert when == declared.when + ", in one process only" * declared.in_process
    assert "only" in {row[0]: row[3] for row in rows}["KeyList"]


def test_what_leaves_is_what_parties_send_of_keys_networks_and_records():
    sensitive = {MadeOf.KEYS, MadeOf.NETWORKS, MadeOf.RECORDS}
    expected = [
        kind.__name__
        for kind in DECLARED
        if kind.declared.from_party and kind.declared.made_of in sensitive
    ]
    rows = cells(leaving_table({}))
    assert [row[0] for row in rows] == expected
    assert {"KeyList", "DiscriminatorFeatures", "MaskedReal", "TrainingReport"} <= set(expected)
    assert not {"Hello", "Shape", "EncodedSize", "DiscriminatorGradients"} & set(expected)


def test_what_leaves_says_which_entry_pays_and_what_is_refused():
    covers = {
        "One": {
            "BackboneGradients": Paid("training", True),
            "SampledFeatures": Paid("tree", False),
            "MaskedStates": Paid("tree", False),
        },
        "Two": {"BackboneGradients": Paid("training", True)},
        "Three": {"BackboneGradients": Paid("training", False)},
    }
    paid = {row[0]: row[-1] for row in cells(leaving_table(covers))}
    assert paid.pop("BackboneGradients") == (
        "One, Two: noisy, “training” pays; Three: without noise, “training” pays"
    )
    assert paid.pop("SampledFeatures") == "One: without noise, “tree” pays"
    assert paid.pop("MaskedStates") == "One: masked, “tree” pays"
    of_keys = {name for name in paid if MESSAGES[name].declared.made_of is MadeOf.KEYS}
    assert of_keys == {"KeyList", "BlindedKeys", "ReblindedKeys", "MatchProof"}
    assert all(paid[name].startswith("sent; no ledger counts") for name in of_keys)
    assert {words for name, words in paid.items() if name not in of_keys} == {"refused"}


def test_what_the_server_sends_does_not_leave_a_party():
    covers = {"One": {"DiscriminatorGradients": Paid("training", True)}}
    assert leaving_table(covers) == leaving_table({})


def test_a_mechanism_that_covers_what_is_no_message_is_named():
    with pytest.raises(ProtocolError, match=r"Odd covers \['NoSuchMessage'\]"):
        leaving_table({"Odd": {"NoSuchMessage": Paid("training", True)}})
