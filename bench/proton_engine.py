"""Qpid Proton's C engine, called through ctypes.

Owns the library, the signatures of the functions that the bench calls, and the socket
behind one connection. Debian's `libqpid-proton11` holds the engine and needs neither a
compiler nor a package of Python. The library's name ends with the version of its binary
interface, so the signatures below cannot meet another one.

Proton's own Python classes are not used: they cost about 30 us for each message, which
is as much as a server spends on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import select
import socket
import time
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

from bench.target import Missing, Target

LIBRARY = "libqpid-proton.so.11"
ACCEPTED = 0x24
_REMOTE_ACTIVE = 16
_REMOTE_CLOSED = 32
# A terminus that outlives a crash of the server; RabbitMQ makes the queue durable.
_DELIVERIES = 2
_WAIT_SECONDS_MAX = 60.0
_FRAME_BYTES = 64 * 1024
# Everything of a message but its body and its id.
_SECTIONS_BYTES_MAX = 1024
# No call reads or writes more of the engine's buffers than the engine says it may.
_VIEW_BYTES = 1 << 24
_View = ctypes.c_char * _VIEW_BYTES


class Tag(ctypes.Structure):
    """The name of a delivery, or any bytes (`pn_bytes_t`)."""

    _fields_ = (("size", ctypes.c_size_t), ("start", ctypes.c_char_p))


_P, _S, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_SIZE, _SSIZE, _U64 = ctypes.c_size_t, ctypes.c_ssize_t, ctypes.c_uint64
_BOOL = ctypes.c_bool
# Name without `pn_`: the result, then the arguments.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "connection": (_P,),
    "connection_set_container": (None, _P, _S),
    "connection_set_hostname": (None, _P, _S),
    "connection_set_user": (None, _P, _S),
    "connection_set_password": (None, _P, _S),
    "connection_open": (None, _P),
    "connection_close": (None, _P),
    "connection_free": (None, _P),
    "connection_state": (_INT, _P),
    "connection_remote_condition": (_P, _P),
    "condition_is_set": (_BOOL, _P),
    "condition_get_name": (_S, _P),
    "condition_get_description": (_S, _P),
    "transport": (_P,),
    "transport_set_max_frame": (None, _P, ctypes.c_uint32),
    "transport_bind": (_INT, _P, _P),
    "transport_unbind": (_INT, _P),
    "transport_free": (None, _P),
    "transport_condition": (_P, _P),
    "transport_pending": (_SSIZE, _P),
    "transport_head": (_P, _P),
    "transport_pop": (None, _P, _SIZE),
    "transport_capacity": (_SSIZE, _P),
    "transport_tail": (_P, _P),
    "transport_process": (_INT, _P, _SIZE),
    "sasl": (_P, _P),
    "sasl_allowed_mechs": (None, _P, _S),
    "sasl_set_allow_insecure_mechs": (None, _P, _BOOL),
    "session": (_P, _P),
    "session_open": (None, _P),
    "sender": (_P, _P, _S),
    "receiver": (_P, _P, _S),
    "link_source": (_P, _P),
    "link_target": (_P, _P),
    "terminus_set_address": (_INT, _P, _S),
    "terminus_set_durability": (_INT, _P, _INT),
    "link_open": (None, _P),
    "link_state": (_INT, _P),
    "link_remote_condition": (_P, _P),
    "link_credit": (_INT, _P),
    "link_flow": (None, _P, _INT),
    "link_send": (_SSIZE, _P, _S, _SIZE),
    "link_recv": (_SSIZE, _P, _P, _SIZE),
    "link_advance": (_BOOL, _P),
    "link_current": (_P, _P),
    "delivery": (_P, _P, Tag),
    "delivery_partial": (_BOOL, _P),
    "delivery_remote_state": (_U64, _P),
    "delivery_update": (None, _P, _U64),
    "delivery_settle": (None, _P),
    "work_head": (_P, _P),
    "message": (_P,),
    "message_free": (None, _P),
    "message_set_durable": (_INT, _P, _BOOL),
    "message_set_inferred": (_INT, _P, _BOOL),
    "message_id": (_P, _P),
    "message_body": (_P, _P),
    "message_encode": (_INT, _P, _P, ctypes.POINTER(_SIZE)),
    "data_put_string": (_INT, _P, Tag),
    "data_put_binary": (_INT, _P, Tag),
}


@cache
def library() -> SimpleNamespace | Missing:
    """The engine's functions without their `pn_`, or why they cannot be had."""
    try:
        # One thread calls, so the interpreter's lock need not be handed over each time.
        loaded = ctypes.PyDLL(LIBRARY)
    except OSError:
        return Missing("proton", f"{LIBRARY} is not installed: make setup")
    functions = SimpleNamespace()
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(loaded, f"pn_{name}")
        function.restype = result
        function.argtypes = arguments
        setattr(functions, name, function)
    return functions


def encode(message_id: str, body: bytes) -> bytes:
    """A durable message as Proton encodes it, with one data section."""
    pn = library()
    assert not isinstance(pn, Missing), pn.reason
    made = pn.message()
    pn.message_set_durable(made, True)
    pn.message_set_inferred(made, True)
    pn.data_put_string(pn.message_id(made), Tag(len(message_id), message_id.encode()))
    pn.data_put_binary(pn.message_body(made), Tag(len(body), body))
    size = _SIZE(len(body) + _SECTIONS_BYTES_MAX)
    buffer = ctypes.create_string_buffer(size.value)
    error = pn.message_encode(made, ctypes.addressof(buffer), ctypes.byref(size))
    assert error == 0, error
    pn.message_free(made)
    return buffer.raw[: size.value]


class ProtonConnection:
    """One connection: the engine, a socket, and the bytes between them."""

    def __init__(self, target: Target) -> None:
        pn = library()
        assert not isinstance(pn, Missing), pn.reason
        self.pn = pn
        self.handle = pn.connection()
        pn.connection_set_container(self.handle, b"twinbus-bench-proton")
        pn.connection_set_hostname(self.handle, target.host.encode())
        self._transport = pn.transport()
        pn.transport_set_max_frame(self._transport, _FRAME_BYTES)
        sasl = pn.sasl(self._transport)
        if target.user is None:
            pn.sasl_allowed_mechs(sasl, b"ANONYMOUS")
        else:
            pn.connection_set_user(self.handle, target.user.encode())
            pn.connection_set_password(self.handle, target.password.encode())
            pn.sasl_allowed_mechs(sasl, b"PLAIN")
            pn.sasl_set_allow_insecure_mechs(sasl, True)
        pn.transport_bind(self._transport, self.handle)
        self._socket = socket.create_connection((target.host, target.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        pn.connection_open(self.handle)
        self._session = pn.session(self.handle)
        pn.session_open(self._session)

    def link(self, address: str, *, sends: bool, near: str = "bench") -> int:
        """Attach a link and wait for the server's answer; `near` is our own end."""
        pn = self.pn
        make = pn.sender if sends else pn.receiver
        name = f"{'to' if sends else 'from'}-{address}"
        link: int = make(self._session, name.encode())
        ends = (pn.link_target(link), pn.link_source(link))
        far, own = ends if sends else reversed(ends)
        pn.terminus_set_address(far, address.encode())
        pn.terminus_set_durability(far, _DELIVERIES)
        pn.terminus_set_address(own, near.encode())
        pn.link_open(link)
        self.wait(lambda: pn.link_state(link) & _REMOTE_ACTIVE)
        return link

    def fileno(self) -> int:
        """The socket's file, to wait for it with others."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close, wait for the server's answer, and free everything."""
        self.pn.connection_close(self.handle)
        self.wait(lambda: self.pn.connection_state(self.handle) & _REMOTE_CLOSED)
        self.drop()

    def drop(self) -> None:
        """Free everything, whatever the server has said."""
        self._socket.close()
        self.pn.transport_unbind(self._transport)
        self.pn.transport_free(self._transport)
        self.pn.connection_free(self.handle)

    def wait(self, ready: Callable[[], object]) -> None:
        """Exchange bytes until something has happened."""
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        while not ready():
            self.pump(blocks=True)
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {_WAIT_SECONDS_MAX:g} seconds")

    def pump(self, *, blocks: bool) -> None:
        """Write what the engine has and read what there is; `blocks`: one or both."""
        moved = self._write()
        if blocks and not moved:
            # What is left to write now is what the socket did not take.
            writes = [self._socket] if self._pending() else []
            ends = select.select([self._socket], writes, [], _WAIT_SECONDS_MAX)
            if not any(ends):
                raise TimeoutError(f"silence for {_WAIT_SECONDS_MAX:g} seconds")
        self._read()

    def check(self, link: int) -> None:
        """Raise what has ended the connection or the link."""
        pn = self.pn
        for condition in (
            pn.transport_condition(self._transport),
            pn.connection_remote_condition(self.handle),
            pn.link_remote_condition(link),
        ):
            self._raise_ended(condition)

    def _raise_ended(self, condition: int) -> None:
        pn = self.pn
        if pn.condition_is_set(condition):
            name = pn.condition_get_name(condition)
            text = pn.condition_get_description(condition)
            raise ConnectionError(f"{name!r}: {text!r}")

    def _pending(self) -> int:
        pending: int = self.pn.transport_pending(self._transport)
        return pending

    def _write(self) -> bool:
        """Write until the engine or the socket has enough; tells if anything went."""
        moved = False
        with contextlib.suppress(BlockingIOError):
            while (pending := self._pending()) > 0:
                head = self.pn.transport_head(self._transport)
                view = memoryview(_View.from_address(head))[:pending]
                self.pn.transport_pop(self._transport, self._socket.send(view))
                moved = True
        return moved

    def _read(self) -> None:
        room = self.pn.transport_capacity(self._transport)
        if room < 0:
            # The engine takes no more: a login that was refused, for instance.
            self._raise_ended(self.pn.transport_condition(self._transport))
            raise ConnectionError("the engine has ended the connection")
        if room == 0:
            return
        tail = self.pn.transport_tail(self._transport)
        view = memoryview(_View.from_address(tail))[:room]
        with contextlib.suppress(BlockingIOError):
            size = self._socket.recv_into(view)
            if not size:
                raise ConnectionError("the server has closed the socket")
            self.pn.transport_process(self._transport, size)
