"""What systemd is told: that the server is ready, that it moves, that it stops.

Owns the protocol of `sd_notify`: a datagram to the socket in NOTIFY_SOCKET. With
WatchdogSec= systemd restarts a server that does not move any more, as the supervisor
does where there is no systemd. Without the variable nothing happens.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

_MICROSECONDS = 1_000_000


class Systemd:
    """The service manager, if this process has one."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            # A name that is not in the file system.
            self._address = f"\0{self._address[1:]}"
        watched = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        text = os.environ.get("WATCHDOG_USEC", "0") if watched else "0"
        # As the manual says: at half of the time that it waits.
        self._seconds = int(text) / _MICROSECONDS / 2

    def tell_ready(self) -> None:
        """Clients can come; from now on say that the event loop moves."""
        self._tell("READY=1")
        if self._address and self._seconds:
            self._beat()

    def tell_stopping(self) -> None:
        """The server stops because it was asked to."""
        self._tell("STOPPING=1")

    def _beat(self) -> None:
        asyncio.get_running_loop().call_later(self._seconds, self._beat)
        self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        # A manager that does not listen is no reason to stop, nor to wait for it.
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify,
        ):
            notify.setblocking(False)
            notify.sendto(text.encode(), self._address)


__all__ = ["Systemd"]
