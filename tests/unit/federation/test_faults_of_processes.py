"""Processes that are killed, stopped, cut off or short of something: who is named, what is lost.

`FAULTS` is the suite and the table of ``docs/research/faults.md`` at once, which
``python -m tests.unit.federation.test_faults_of_processes`` prints. What only a transport with
certificates knows is in `tests.integration.test_faults`.
"""

import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.unit.federation.conftest import KEY
from tests.unit.federation.real import Nodes
from tests.unit.federation.trial import assert_same
from vflsynth.federation.site import Budget
from vflsynth.federation.trail import KILLED

# Processes of their own draw as users do, and so does the run that they are compared with.
pytestmark = pytest.mark.usefixtures("full_blocks")

TABLE = Path(__file__).parents[3] / "docs" / "research" / "faults.md"
STEP = ("DiscriminatorFeatures", 7)
SOON, LATE = {"exchange_timeout": 20.0}, {"exchange_timeout": 20.0, "setup_timeout": 30.0}

BY_ITSELF = "begins again by itself"
NOTHING = "nothing: no attempt is lost"
AGAIN = "the same job again, once it is mended"
NEVER = "the run ends"


@dataclass(frozen=True)
class Fault:
    """What happens to a node at a point of a run, what others say, and how the job goes on.

    `words` are in the first report of every other node, beside the name of the node; without any,
    nobody need say something.
    """

    what: str
    act: str
    at: tuple[str, int] | None = STEP
    words: str = ""
    then: str = BY_ITSELF
    node: str = "party_2"
    run: str = "two parties"
    limits: dict = field(default_factory=dict)

    def __str__(self):
        return f"{self.what}, {self.run}, {self.node}"


RESTARTED = "its process was restarted"
PHASES = {
    "joins": ("Hello", 0),
    "matches": ("BlindedKeys", 0),
    "encodes": ("EncodedSize", 0),
    "builds": ("Shape", 0),
    "trains": STEP,
    "writes": ("checkpoint", 2),
}
FAULTS = [
    *(
        Fault(f"killed while it {phase}", "kill", at, RESTARTED if at[0] != "Hello" else "")
        for phase, at in PHASES.items()
    ),
    *(Fault(f"killed while it {phase}", "kill", at, node="server") for phase, at in PHASES.items()),
    Fault("killed while it saves its half", "kill", ("save", 0), then=AGAIN),
    Fault("killed for good", "kill", words="within 20 s", then=NEVER, limits=LATE),
    Fault("killed while it matches", "kill", PHASES["matches"], RESTARTED, run="three parties"),
    Fault("killed while it writes", "kill", PHASES["writes"], RESTARTED, run="five parties"),
    Fault("killed while it matches", "kill", PHASES["matches"], RESTARTED, run="private run"),
    Fault("killed while it matches", "kill", PHASES["matches"], RESTARTED, run="split classifier"),
    Fault("killed while it writes", "kill", PHASES["writes"], RESTARTED, run="split classifier"),
    Fault("stopped for longer than exchange_timeout", "stop", words="within 20 s", limits=SOON),
    Fault("stopped for a while", "stop", node="server", then=NOTHING, limits=SOON),
    Fault("connections reset at every step", "reset", then=NOTHING),
    Fault("a black hole takes its frames", "hole", words="within 20 s", limits=SOON),
    *(
        Fault(
            "its disk is full", "disk", ("checkpoint", 2), "larger than its system allows", AGAIN, n
        )
        for n in ("party_2", "server")
    ),
    *(
        Fault("its memory is used up", "memory", STEP, "ran out of memory", AGAIN, node)
        for node in ("party_2", "server")
    ),
    Fault("its clock is off by an hour", "clock", None, then=NOTHING),
    Fault("another version", "version", None, "runs vflsynth 9.9", AGAIN),
    Fault("another secret", "secret", None, "different shared secrets", AGAIN),
]


@pytest.fixture
def make_nodes(make_trial, make_private_trial, make_split_trial):
    made = []

    def make(fault):
        limits = {"exchange_timeout": 200.0, "setup_timeout": 400.0, "restarts": 2} | fault.limits
        if fault.run == "private run":
            trial = make_private_trial(budget=Budget(20.0, 1e-3), **limits)
        elif fault.run == "split classifier":
            trial = make_split_trial(**limits)
        else:
            n_parties = {"two": 2, "three": 3, "five": 5}[fault.run.split()[0]]
            trial = make_trial(n_parties, n_records=60, **limits)
        made.append(Nodes(trial))
        return made[-1]

    yield make
    for nodes in made:
        nodes.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_named_within_its_timeout_and_loses_nothing(make_nodes, fault):
    nodes, node = make_nodes(fault), fault.node
    others = {"server", *nodes.trial.sites} - {node}
    own = nodes.trial.sites.get(node)
    if fault.act == "secret":
        nodes.trial.change(node, shared=bytes(32))
    nodes.start_all(node, fault.at, {"kill": "halt", "stop": "halt"}.get(fault.act, fault.act))

    def named():
        return all(nodes.outcome(other, 1) for other in others)

    if fault.act == "kill":
        nodes.halted(node)
        nodes.kill(node)
        if fault.then == BY_ITSELF:
            nodes.start(node)
    elif fault.act == "stop":
        nodes.halted(node)
        nodes.signal(node, signal.SIGSTOP)
        nodes.file(node).unlink()
        nodes.wait_for(named) if fault.words else signal.sigtimedwait([], 15.0)
        nodes.signal(node, signal.SIGCONT)
    elif fault.act == "hole":
        nodes.halted(node)
        nodes.wait_for(named)
        nodes.file(node).unlink()
    nodes.join()
    found = nodes.outcomes()
    if fault.words:
        for other in others:
            assert fault.words in found[other][0], found
            assert node in found[other][0], found
    if fault.act == "kill" and fault.then != AGAIN:
        assert found[node][0] in (KILLED, None), found
    if fault.then == NEVER:
        assert all(f"no Hello within 30 s from {node!r}" in found[other][-1] for other in others)
        return
    if fault.then == NOTHING:
        assert {len(each) for each in found.values()} == {1}, found
    if fault.then == AGAIN:
        if own is not None:
            nodes.trial.sites[node] = replace(own)
        nodes.start_all()
        nodes.join()
    finished(nodes, fault.run)


def finished(nodes, run):
    """Every node's last attempt finished; without noise, with the bytes of one process."""
    assert {found[-1] for found in nodes.outcomes().values()} == {"finished"}, nodes.outcomes()
    if run.endswith("parties"):
        assert_same(nodes.trial, nodes.trial.estimator().fit(nodes.trial.frames, KEY))


def table():
    """Write what the suite shows as a table."""
    rows = [
        "| fault | happens to | in a run of | every other report says | then |",
        "|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        says = f"“{fault.words}”, and its name" if fault.words else "nothing, or who was lost"
        rows.append(f"| {fault.what} | {fault.node} | {fault.run} | {says} | {fault.then} |")
    return "\n".join(rows) + "\n"


def test_the_page_has_the_table_of_this_suite():
    assert table() in TABLE.read_text(encoding="utf-8")


if __name__ == "__main__":
    print(table())
