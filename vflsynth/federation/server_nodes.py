"""Which server a job needs."""

from __future__ import annotations

from vflsynth.federation.active_node import ActiveNode
from vflsynth.federation.job import Job
from vflsynth.federation.programs import program_of
from vflsynth.federation.server_node import ServerNode, SynthesizerNode
from vflsynth.federation.site import Site
from vflsynth.federation.split_program import SplitProgram


def server_node(job: Job, site: Site) -> ServerNode:
    """Make the server of a job: a synthesizer's, or the active party of a split classifier."""
    is_split = isinstance(program_of(job), SplitProgram)
    return ActiveNode(job, site) if is_split else SynthesizerNode(job, site)
