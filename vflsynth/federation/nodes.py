"""Which server a job needs."""

from __future__ import annotations

from vflsynth.federation.job import Job
from vflsynth.federation.server_node import ServerNode
from vflsynth.federation.site import Site


def server_node(job: Job, site: Site) -> ServerNode:
    """Make the server of a job: a synthesizer's, or the active party of a split classifier."""
    if not job.has_labels:
        return ServerNode(job, site)
    from vflsynth.federation.active_node import ActiveNode

    return ActiveNode(job, site)
