"""A client and a server engine, connected in memory."""

from __future__ import annotations

from twinbus.wire.connection import Engine
from twinbus.wire.events import Attached, Event, Opened
from twinbus.wire.link import Link
from twinbus.wire.performatives import Attach, Open, SaslInit, Source, Target
from twinbus.wire.session import Session


class Pair:
    """Two engines; `run` carries bytes until both are silent."""

    def __init__(self) -> None:
        self.client = Engine(server=False, container_id="client")
        self.server = Engine(server=True, container_id="server")
        # Everything that the client has written.
        self.sent = b""
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []
        self.client.start(SaslInit(mechanism="ANONYMOUS"), Open(hostname="localhost"))

    def run(self) -> None:
        """Carry bytes both ways; the server answers opens and accepts links."""
        while True:
            there = self.client.take()
            self.sent += there
            back = self.server.take()
            if not there and not back:
                return
            self.server.feed(there)
            while (event := self.server.next_event()) is not None:
                self.server_events.append(event)
                self._serve(event)
            self.client.feed(back)
            while (event := self.client.next_event()) is not None:
                self.client_events.append(event)

    def _serve(self, event: Event) -> None:
        if isinstance(event, Opened):
            self.server.open(Open(hostname="localhost"))
            self.server.trust()
        elif isinstance(event, Attached):
            asked = event.link.peer_attach
            event.link.accept(Attach(source=asked.source, target=asked.target))

    def session(self) -> Session:
        """A session that both sides know."""
        self.run()
        session = self.client.begin()
        self.run()
        return session

    @staticmethod
    def attach() -> Attach:
        """What a client says to get a link."""
        return Attach(source=Source(address="q"), target=Target(address="q"))

    def link(self, name: str, client_sends: bool) -> tuple[Link, Link]:
        """A link, as the client's end and the server's."""
        session = self.session()
        ours = session.attach(name, client_sends, self.attach())
        self.run()
        theirs = next(
            link
            for other in self.server.sessions.values()
            for link in other.links.values()
            if link.name == name
        )
        return ours, theirs
