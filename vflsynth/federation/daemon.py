"""FLARE's daemon of a node, which nobody can have take much memory, or wait for him alone.

It is run as a file, ``python -P daemon.py client_train ARGUMENTS...``, so that the daemon does not
load torch. FLARE has no settings for what is changed here:

- It takes memory for a message, up to 2 GiB, as soon as 16 bytes have announced its length.
  Whatever is larger than a chunk comes in chunks of 1 MiB, for whose sum
  `vflsynth.federation.kit.prepare` writes a limit.
- It finishes one TLS handshake before it accepts the next connection, so that whoever connects and
  says nothing keeps everybody out, even without a certificate.
"""

from __future__ import annotations

import fcntl
import runpy
import ssl
import sys
from pathlib import Path
from typing import Any, TextIO

LEASE = "daemon.lock"
"""Whose lock, in the kit, a running daemon holds."""

LARGEST = 1 << 24
"""Bytes of a message that a daemon takes from its peers."""
HANDSHAKE_SECONDS = 30.0


def harden() -> None:
    """Bound messages, and have every connection's handshake in a thread of its own."""
    from nvflare.fuel.f3.drivers import socket_conn, tcp_driver

    class Listener(tcp_driver.TcpStreamServer):  # type: ignore[misc]
        def server_activate(self) -> None:
            super().server_activate()
            if isinstance(self.socket, ssl.SSLSocket):
                # Of the connections that it accepts, which inherit it.
                self.socket.do_handshake_on_connect = False  # type: ignore[attr-defined]

        def finish_request(self, request: Any, client_address: Any) -> None:
            if isinstance(request, ssl.SSLSocket):
                request.settimeout(HANDSHAKE_SECONDS)
                try:
                    request.do_handshake()
                except OSError:  # as FLARE does: others connect all the while
                    return
                request.settimeout(None)
            super().finish_request(request, client_address)

    tcp_driver.TcpStreamServer = Listener
    socket_conn.MAX_FRAME_SIZE = LARGEST


def lease(kit: Path) -> TextIO:
    """Take a kit for this process; what holds it is returned, and lost with the process.

    FLARE lets two processes be one party, and then refuses the one that was there first: its jobs
    end, in hundreds of refused authentications, in the name of the party that did nothing wrong.
    """
    held = (kit / LEASE).open("a")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(
            f"{kit}: another process uses this kit. Fix: let that one run, or stop it first; two "
            "of the same name lock each other out, and copies of the kit on other machines, too"
        )
    return held


def main() -> None:
    """Run the daemon that the first argument names, alone in its kit."""
    held = lease(Path(sys.argv[sys.argv.index("-m") + 1]))
    harden()
    name = sys.argv.pop(1)
    module = f"nvflare.private.fed.app.{name.partition('_')[0]}.{name}"
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        held.close()


if __name__ == "__main__":
    main()
