"""Runs that heal: when a node was lost, all begin again from the last checkpoint that all have.

An attempt is a run of its own: every node is made anew, so records are matched and proofs compared
once more, and what comes of it has the bytes of a run that was never interrupted. Without a
transport that stays up, such as when FLARE ends a job, whoever submits the job does the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vflsynth.exceptions import PartyLostError, RunInterruptedError
from vflsynth.federation.job import Job
from vflsynth.federation.participant import Link, say_why
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.server_node import ServerNode
from vflsynth.federation.site import Site
from vflsynth.federation.trail import Report

logger = logging.getLogger("vflsynth")

_PAUSE = 0.5
"""Seconds before a party begins again."""


@contextmanager
def reported(site: Site, job: Job) -> Iterator[None]:
    """Leave a report of what goes wrong before a node can write one of its own."""
    try:
        yield
    except Exception as error:
        Report(site.folder / job.name, site.party, job, alone=False).end(error)
        raise


def attend(job: Job, site: Site, link: Link, make: Callable[[Job, Site], PartyNode]) -> PartyNode:
    """Take part in a job, and again as often as the job allows when the server or a party was lost.

    `make` makes the party's node for an attempt. A server that does not answer a hello within the
    job's `setup_timeout` is not coming back. Returns the node of the attempt that finished, or
    raises what the last one ended with, a VFLSynthError.
    """
    left = job.most_restarts
    while True:
        try:
            with reported(site, job):
                node = make(job, site)
        except Exception as error:
            say_why(link, job.name, 0, site.party, None, error)
            raise
        try:
            node.run(link)
            return node
        except (RunInterruptedError, PartyLostError) as error:
            unheard = isinstance(error, PartyLostError) and not node.greeted
            if not left or unheard:
                if isinstance(error, RunInterruptedError):  # else the server cannot be reached
                    say_why(link, job.name, 0, site.party, None, error)
                raise
            left -= 1
            logger.warning("%s: %s", site.party, again(error, left))
        time.sleep(_PAUSE)


def again(error: Exception, left: int) -> str:
    """Say why a node begins again."""
    return (
        f"{type(error).__name__}: {error} Beginning again from the last checkpoint that all nodes "
        f"have; after this, {left} more times"
    )


class ServerAttempts:
    """A job at the server, attempt by attempt, behind one transport."""

    def __init__(self, job: Job, site: Site) -> None:
        self.job, self._site = job, site
        self.node = server_node(job, site)
        self._left = job.most_restarts
        self.node.remote.heals = self._left > 0

    def exchange(self, sender: str, data: bytes) -> bytes:
        """Take a party's frame and return the reply; see `RemoteChannel.exchange`."""
        return self.node.remote.exchange(sender, data)

    def run(self) -> None:
        """Run the job to its end, or raise what the last attempt ended with, a VFLSynthError."""
        while True:
            try:
                return self.node.run()
            except PartyLostError as error:
                if not self.node.remote.interrupted:
                    raise
                self._left -= 1
                logger.warning("server: %s", again(error, self._left))
            node, before = server_node(self.job, self._site), self.node.remote
            node.remote.heals, node.remote.gone = self._left > 0, before.greeted
            if before.stopped is not None:
                node.remote.abort(before.stopped)
            self.node = node

    def stop(self, error: Exception) -> None:
        """Stop the job for good."""
        self._left, remote = 0, self.node.remote
        remote.heals, remote.stopped = False, error  # also where another attempt is being made
        remote.abort(error)


def server_node(job: Job, site: Site) -> ServerNode:
    """Make the server of a job: a synthesizer's, or the active party of a split classifier."""
    if not job.has_labels:
        return ServerNode(job, site)
    from vflsynth.federation.active_node import ActiveNode

    return ActiveNode(job, site)
