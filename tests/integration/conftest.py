"""One federation for all tests: to start one takes longer than most of them."""

import json

import pytest


@pytest.fixture(autouse=True, scope="module")
def _as_users_do(full_blocks):
    """Nodes are processes of their own, and are compared with runs in this one."""


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    from tests.integration.processes import Running

    running = Running(tmp_path_factory.mktemp("federation"))
    # A server that would allow everything: what is refused below, the parties refuse.
    local = running.federation.kits["server"] / "local"
    allowed = json.loads((local / "authorization.json").read_text())
    allowed["permissions"]["lead"]["byoc"] = "any"
    (local / "authorization.json").write_text(json.dumps(allowed))
    resources = json.loads((local / "resources.json").read_text())
    resources["class_allow_list"] = ["*"]
    (local / "resources.json").write_text(json.dumps(resources))
    with running.open():
        yield running
