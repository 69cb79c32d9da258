"""A client whose bytes reach the server's connection by a call, without a socket.

Owns what goes over between two calls, so that a test can count what one of them did.
Knows nothing about what should happen.
"""

from __future__ import annotations

from typing import Any, TypeVar

from tests.server.strangers import FakeTransport, meet
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token
from twinbus.server.access.port import NamespacePort
from twinbus.server.amqp.connection import ServerConnection
from twinbus.wire.connection import Engine
from twinbus.wire.events import Event
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import Attach, Open, SaslInit, Source, Target
from twinbus.wire.session import Session

AUDIENCE = "sb://localhost/"
MESSAGE = sections.encode_message(b"x")

E = TypeVar("E")


class NearClient:
    """A client engine and the server's connection that it talks to."""

    def __init__(self, connection: ServerConnection, transport: FakeTransport) -> None:
        self.connection = connection
        self.transport = transport
        self.engine = Engine(server=False, container_id="near")
        self.events: list[Event] = []

    @classmethod
    def connect(cls, port: NamespacePort, address: str = "192.0.2.1") -> NearClient:
        """Connect, open and put a root token."""
        client = cls(*meet(port, address))
        opening = Open(hostname="localhost")
        client.engine.start(SaslInit(mechanism="ANONYMOUS"), opening)
        client.talk()
        session = client.session()
        sender = client.sender(session, "$cbs")
        client.receiver(session, "$cbs").grant(1)
        client.talk()
        token = make_token(AUDIENCE, DEV_KEY_NAME, Secret(DEV_KEY_TEXT), 1 << 33)
        properties = {"operation": "put-token", "type": "jwt", "name": AUDIENCE}
        sender.send(sections.encode_request("x", properties, token), b"token")
        client.talk()
        assert client.connection._trusted
        return client

    def say(self) -> None:
        """Hand the server all that the engine has written, in one read."""
        self.connection.data_received(self.engine.take())

    def hear(self) -> list[Event]:
        """Take in what the server has written; returns what it means."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        self.engine.feed(data)
        new: list[Event] = []
        while (event := self.engine.next_event()) is not None:
            new.append(event)
        self.events += new
        return new

    def talk(self) -> None:
        """Say and hear until both have nothing more."""
        while True:
            heard = self.hear()
            data = self.engine.take()
            if data:
                self.connection.data_received(data)
            elif not heard and not self.transport.written:
                return

    def heard(self, kind: type[E]) -> list[E]:
        """All events of a kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def session(self) -> Session:
        """A session that is there at once."""
        session = self.engine.begin()
        self.talk()
        return session

    def sender(self, session: Session, address: str, **fields: Any) -> Link:
        """Ask for a link to send on."""
        target = Target(address=address)
        attach = Attach(source=Source(), target=target, **fields)
        return session.attach(f"link-{len(session.links)}", True, attach)

    def receiver(self, session: Session, address: str, **fields: Any) -> Link:
        """Ask for a link to receive on."""
        given: dict[str, Any] = {
            "source": Source(address=address),
            "target": Target(),
            "snd_settle_mode": 0,
            "rcv_settle_mode": 1,
        }
        name = f"link-{len(session.links)}"
        return session.attach(name, False, Attach(**(given | fields)))
