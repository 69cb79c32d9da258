"""AMQP inside WebSocket messages, the client's side.

To the connection this is a channel like any other: each write goes out as one binary
message, and the bytes of the server's messages come in as they are, however they were
cut. Knows nothing about AMQP.
"""

from __future__ import annotations

import asyncio

import wsproto
from wsproto import ConnectionType, events
from wsproto.connection import ConnectionState
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from twinbus.client.transport.endpoint import WEBSOCKET_PATH, Endpoint
from twinbus.client.transport.stream import Channel, Reader, Say
from twinbus.errors import Unreachable

_SUBPROTOCOL = "AMQPWSB10"


class WebSocketChannel(Channel):
    """Bytes to and from the peer, inside messages."""

    def __init__(self, reader: Reader, endpoint: Endpoint, say: Say) -> None:
        super().__init__(reader)
        self._endpoint = endpoint
        self._say = say
        self._messages = wsproto.WSConnection(ConnectionType.CLIENT)
        self._accepted: asyncio.Future[None]
        self._accepted = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        """Ask for the upgrade and wait for it."""
        self._say("WebSocket")
        request = events.Request(
            host=self._endpoint.authority,
            target=WEBSOCKET_PATH,
            subprotocols=[_SUBPROTOCOL],
        )
        super().write(self._messages.send(request))
        await self._accepted

    def write(self, data: bytes) -> None:
        """Write bytes as one message."""
        if self._messages.state is ConnectionState.OPEN:
            super().write(self._messages.send(events.BytesMessage(data=data)))

    def abort(self) -> None:
        """Say goodbye and let go."""
        if self._messages.state is ConnectionState.OPEN:
            super().write(self._messages.send(events.CloseConnection(code=1000)))
        super().abort()

    # -- asyncio ---------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes came: the answer to the request first, then frames."""
        try:
            self._messages.receive_data(data)
            for event in self._messages.events():
                self._handle(event)
        except (RemoteProtocolError, LocalProtocolError) as error:
            self._refuse(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._refuse("the connection was lost")
        super().connection_lost(exc)

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, events.BytesMessage):
            self._reader.on_bytes(bytes(event.data))
        elif isinstance(event, events.AcceptConnection):
            if event.subprotocol != _SUBPROTOCOL:
                self._refuse(f"the server did not choose {_SUBPROTOCOL}")
            elif not self._accepted.done():
                self._accepted.set_result(None)
        elif isinstance(event, events.RejectConnection):
            self._refuse(f"status {event.status_code}")
        elif isinstance(event, events.Ping):
            super().write(self._messages.send(event.response()))
        elif isinstance(event, events.CloseConnection | events.TextMessage):
            super().abort()

    def _refuse(self, why: str) -> None:
        if not self._accepted.done():
            error = Unreachable(f"The WebSocket could not be opened: {why}.")
            self._accepted.set_exception(error)
        super().abort()
