"""Processes that are killed, stopped, cut off or short of something: who is named, what is lost."""

import signal

import pytest

from tests.unit.federation.real import Nodes
from tests.unit.federation.test_run import in_process
from tests.unit.federation.trial import assert_same
from vflsynth.federation.reports import KILLED

# Processes of their own draw as users do, and so does the run that they are compared with.
pytestmark = pytest.mark.usefixtures("full_blocks")

PHASES = {
    "joining": ("Hello", 0),
    "matching": ("BlindedKeys", 0),
    "encoding": ("EncodedSize", 0),
    "building": ("Shape", 0),
    "training": ("DiscriminatorFeatures", 7),
    "keeping": ("checkpoint", 2),
}
often = pytest.mark.parametrize(
    "phase",
    [
        pytest.param(phase, marks=() if phase == "training" else pytest.mark.slow)
        for phase in PHASES
    ],
)


@pytest.fixture
def make_nodes(make_trial):
    made = []

    def make(**job):
        limits = {"exchange_timeout": 200.0, "setup_timeout": 400.0, "restarts": 2}
        nodes = Nodes(make_trial(n_records=60, **limits | job))  # processes ask as users are
        made.append(nodes)
        return nodes

    yield make
    for nodes in made:
        nodes.close()


def finished(nodes):
    """Every node's last attempt finished, and every party has the bytes of one process."""
    nodes.join()
    assert {found[-1] for found in nodes.outcomes().values()} == {"finished"}, nodes.outcomes()
    assert_same(nodes.trial, in_process(nodes.trial))


def kill_at(nodes, name, point):
    """Kill a node when it has come to a point of the run."""
    nodes.start_all(name, point)
    nodes.halted(name)
    nodes.kill(name)


@pytest.mark.slow
@often
def test_a_killed_party_rejoins_and_is_named(make_nodes, phase):
    nodes = make_nodes()
    kill_at(nodes, "party_2", PHASES[phase])
    nodes.start("party_2")
    finished(nodes)
    if phase == "joining":  # it had said nothing yet: nobody lost anything
        return
    found = nodes.outcomes()
    assert found["party_2"][0] == KILLED
    for name in ("server", "party_1"):
        assert "party 'party_2'" in found[name][0], found
        assert "its process was restarted" in found[name][0], found


@pytest.mark.slow
@often
def test_a_killed_server_is_started_again_and_the_parties_go_on(make_nodes, phase):
    nodes = make_nodes()
    kill_at(nodes, "server", PHASES[phase])
    nodes.start("server")
    finished(nodes)
    found = nodes.outcomes()
    assert found["server"][0] == KILLED
    if phase not in ("joining", "matching"):  # until then it has hellos, which are sent again
        assert "the server began another attempt" in found["party_1"][0]


@pytest.mark.slow
def test_a_party_that_is_killed_while_it_saves_gets_its_half_when_the_job_starts_again(make_nodes):
    nodes = make_nodes()
    kill_at(nodes, "party_2", ("save", 0))
    nodes.join()
    assert nodes.outcome("server", 1) == "finished"
    nodes.start_all()
    finished(nodes)
    assert nodes.outcome("party_2", 1) == KILLED


@pytest.mark.slow
def test_a_party_that_is_stopped_for_too_long_is_named_and_joins_again(make_nodes):
    nodes = make_nodes(exchange_timeout=20.0)
    nodes.start_all("party_2", PHASES["training"])
    nodes.halted("party_2")
    nodes.signal("party_2", signal.SIGSTOP)
    nodes.file("party_2").unlink()
    nodes.wait_for(lambda: nodes.outcome("party_1", 1) and nodes.outcome("server", 1))
    for name in ("server", "party_1"):
        assert "no DiscriminatorFeatures within 20 s from 'party_2'" in nodes.outcome(name, 1)
    nodes.signal("party_2", signal.SIGCONT)
    finished(nodes)


@pytest.mark.slow
def test_a_server_that_is_stopped_blames_nobody(make_nodes):
    nodes = make_nodes(exchange_timeout=10.0)
    nodes.start_all("server", PHASES["training"])
    nodes.halted("server")
    nodes.signal("server", signal.SIGSTOP)
    nodes.file("server").unlink()
    signal.sigtimedwait([], 15.0)
    nodes.signal("server", signal.SIGCONT)
    finished(nodes)
    assert [len(found) for found in nodes.outcomes().values()] == [1, 1, 1]


@pytest.mark.slow
def test_connections_that_are_reset_cost_no_attempt(make_nodes):
    nodes = make_nodes()
    nodes.start_all("party_2", ("DiscriminatorFeatures", 0), "reset")
    finished(nodes)
    assert [len(found) for found in nodes.outcomes().values()] == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("node", ["party_2", pytest.param("server", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("act", "point", "words"),
    [
        ("disk", ("checkpoint", 2), "larger than its system allows"),
        pytest.param(
            "memory", ("DiscriminatorFeatures", 7), "ran out of memory", marks=pytest.mark.slow
        ),
    ],
)
def test_what_a_node_lacks_is_named_everywhere(make_nodes, node, act, point, words):
    """And once it is there the same job goes on."""
    nodes = make_nodes()
    nodes.start_all(node, point, act)
    nodes.join()
    for other in {"server", "party_1", "party_2"} - {node}:
        assert words in nodes.outcome(other, 1), nodes.outcomes()
        assert node in nodes.outcome(other, 1)
    nodes.start_all()
    finished(nodes)


@pytest.mark.slow
def test_a_party_that_never_comes_back_ends_the_run_with_its_name(make_nodes):
    nodes = make_nodes(exchange_timeout=20.0, setup_timeout=30.0, restarts=1)
    nodes.start_all("party_2", PHASES["training"])
    nodes.halted("party_2")
    nodes.kill("party_2")
    nodes.join()
    found = nodes.outcomes()
    for name in ("server", "party_1"):
        first, last = found[name]
        assert "no DiscriminatorFeatures within 20 s from 'party_2'" in first
        assert "no Hello within 30 s from 'party_2'" in last
