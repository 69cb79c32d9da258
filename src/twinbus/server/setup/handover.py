"""Listening sockets that one process hands to another: the protocol of LISTEN_FDS.

Owns the three variables and the descriptors that they name: as many as LISTEN_FDS says,
from 3 on, for the process LISTEN_PID alone, each called NAMESPACE.KIND in
LISTEN_FDNAMES. The supervisor speaks it, and so does systemd for a socket unit.
Knows nothing about ports or namespaces, and nothing of the server.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Mapping, Sequence

from twinbus.errors import ConfigError

_FIRST_DESCRIPTOR = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def received() -> dict[str, socket.socket]:
    """The sockets that this process was started with, by name; only once."""
    pid, count, names = [os.environ.pop(name, "") for name in _VARIABLES]
    if pid != str(os.getpid()):
        return {}
    found: dict[str, socket.socket] = {}
    for index, name in enumerate(names.split(":") if names else ()):
        descriptor = _FIRST_DESCRIPTOR + index
        os.set_inheritable(descriptor, False)
        found[name] = socket.socket(fileno=descriptor)
    if str(len(found)) != count:
        raise ConfigError(
            f"LISTEN_FDS is {count}, and LISTEN_FDNAMES has {len(found)} different "
            "names. Call each socket NAMESPACE.KIND, such as contoso.amqps."
        )
    return found


def hand_over(
    sockets: Mapping[str, socket.socket], others: Sequence[int]
) -> tuple[dict[str, str], list[int]]:
    """Put descriptors where the next program looks for them.

    For a new process that will call `exec` and nothing else, since open files may be
    closed by this. Returns the variables, and where the other descriptors are.
    """
    descriptors = [each.fileno() for each in sockets.values()] + list(others)
    end = _FIRST_DESCRIPTOR + len(descriptors)
    # First out of the way, so that none is overwritten before its turn.
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, end) for each in descriptors]
    for place, each in enumerate(moved, _FIRST_DESCRIPTOR):
        os.dup2(each, place)
    variables = {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": str(len(sockets)),
        "LISTEN_FDNAMES": ":".join(sockets),
    }
    places = range(_FIRST_DESCRIPTOR + len(sockets), end)
    return variables if sockets else {}, list(places)


__all__ = ["hand_over", "received"]
