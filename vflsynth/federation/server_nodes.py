"""Which server a job needs."""

from __future__ import annotations

from vflsynth.federation.active_node import ActiveNode
from vflsynth.federation.job import Job
from vflsynth.federation.programs import SplitProgram, program_of
from vflsynth.federation.server_node import GANServerNode, ServerNode
from vflsynth.federation.site import Site


def server_node(job: Job, site: Site) -> ServerNode:
    """Make the server of a job: VFLGAN's, or the active party of a split classifier."""
    program = program_of(job)
    return ActiveNode(job, site) if isinstance(program, SplitProgram) else GANServerNode(job, site)
