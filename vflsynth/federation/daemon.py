"""FLARE's daemon of a node, which nobody can have take much memory, or wait for him alone.

It is run as a file, ``python -P daemon.py client_train ARGUMENTS...``, so that the daemon does not
load torch. FLARE has no settings for what is changed here:

- It takes memory for a message, up to 2 GiB, as soon as 16 bytes have announced its length.
  Whatever is larger than a chunk comes in chunks of 1 MiB, for whose sum
  `vflsynth.federation.kit.prepare` writes a limit.
- It finishes one TLS handshake before it accepts the next connection, so that whoever connects and
  says nothing keeps everybody out, even without a certificate.
- It lets two processes be one party, and then refuses the one that was there first: its jobs end,
  in hundreds of refused authentications, in the name of the party that did nothing wrong. Here the
  first one keeps its name, and the second one is told so and ends.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import runpy
import ssl
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from vflsynth._locks import lock
from vflsynth.exceptions import ParameterError

logger = logging.getLogger("vflsynth")

LEASE = "daemon.lock"
"""Whose lock, in the kit, a running daemon holds."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")

LARGEST = 1 << 24
"""Bytes of a message that a daemon takes from its peers."""
HANDSHAKE_SECONDS = 30.0

_PLACE, _REFUSED = "vflsynth.place", "vflsynth.refused"
"""In a handshake: which kit on which machine it comes from; why the server refuses it."""
KNOCK_SECONDS = 10.0
"""Within which a process that lives answers a ping."""
REFUSED = 75
"""Exit code of a daemon whose kit another one uses: its service manager may try again later."""


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
    """Take a kit for this process; what holds it is returned, and lost with the process."""
    taken = "another process uses this kit. Fix: let that one run, or stop it first"
    try:
        return lock(kit / LEASE, taken)
    except ParameterError as error:
        sys.exit(str(error))


def place(held: TextIO) -> str:
    """Name a kit on a machine that was booted once; every copy has another name.

    Of one name there is one process at a time, as it holds the lease.
    """
    status = os.fstat(held.fileno())
    boot = _BOOT.read_text() if _BOOT.exists() else platform.node()
    return hashlib.sha256(f"{boot}|{status.st_dev}|{status.st_ino}".encode()).hexdigest()


def keep_names(own: str) -> None:
    """Tell the server one's `place`; as the server, let nobody have a name from two places.

    FLARE has compared the name with the certificate's before that. Whoever had the name and does
    not answer a ping any more has lost it.
    """
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager, Mode
    from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
    from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
    from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint

    send_handshake, add = SfmConnection.send_handshake, SfmEndpoint.add_connection
    update = ConnManager.update_endpoint

    def say_place(self: Any, kind: int) -> None:
        self.local_endpoint.properties = {**(self.local_endpoint.properties or {}), _PLACE: own}
        send_handshake(self, kind)

    def hear(self: Any, connection: Any, data: dict[str, Any]) -> None:
        if _REFUSED in data and connection.conn.connector.mode == Mode.ACTIVE:  # one dialled it
            text = str(data[_REFUSED])[:1000]
            logger.error("%s", text)
            sys.stderr.write(f"{text}\n")
            os._exit(REFUSED)
        update(self, connection, data)

    def add_one(self: Any, connection: Any) -> None:
        connection.place = (self.endpoint.properties or {}).get(_PLACE)
        holders = [c for c in self.connections if getattr(c, "place", None) is not None]
        holders = [c for c in holders if c.place != connection.place]
        living = [holder for holder in holders if lives(holder)]
        if living:
            new, first = _address(connection), _address(living[0])
            self.endpoint = self.holder
            text = (
                f"another process uses this kit: {self.endpoint.name!r} is connected from {first}, "
                f"and {new} is refused. Fix: let that one run, or stop it first"
            )
            logger.warning("%s", text)
            with suppress(Exception):
                server = connection.local_endpoint.name
                words = {HandshakeKeys.ENDPOINT_NAME: server, _REFUSED: text}
                connection.send_dict(Types.READY, 1, words)
            connection.conn.close()
            raise ValueError(text)
        for gone in holders:
            gone.conn.close()
            self.remove_connection(gone)
        self.holder = self.endpoint
        add(self, connection)

    SfmConnection.send_handshake, SfmEndpoint.add_connection = say_place, add_one
    ConnManager.update_endpoint = hear


def lives(connection: Any) -> bool:
    """Whether the process at the other end of a connection answers a ping."""
    from nvflare.fuel.f3.sfm.constants import Types

    asked = time.time()
    try:
        connection.send_heartbeat(Types.PING)
    except Exception:  # FLARE's drivers have classes of their own
        return False
    while time.time() < asked + KNOCK_SECONDS:
        if connection.last_activity > asked:
            return True
        time.sleep(0.05)
    return False


def _address(connection: Any) -> str:
    return str(connection.conn.get_conn_properties().get("peer_addr", "somewhere"))


def main() -> None:
    """Run the daemon that the first argument names, alone in its kit."""
    from vflsynth.federation import worker

    held = lease(Path(sys.argv[sys.argv.index("-m") + 1]))
    name = sys.argv.pop(1)
    kind = name.partition("_")[0]
    worker.WARM = worker.Warm(kind)
    harden()
    keep_names(place(held))
    try:
        runpy.run_module(f"nvflare.private.fed.app.{kind}.{name}", None, "__main__", True)
    finally:
        held.close()


if __name__ == "__main__":
    main()
