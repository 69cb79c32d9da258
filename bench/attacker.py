"""A client that takes more than its share, in a process of its own.

Says when it is prepared, attacks when it is told to and until its time is over, and
then stays connected until its input ends. Loopback only. Run as
`python -m bench.attacker NAME SECONDS SCALE TARGET`.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
import time

from bench.target import Target
from twinbus import limits
from twinbus.core import sas
from twinbus.wire.connection import Engine
from twinbus.wire.events import Attached, Delivered, Disposed, Event, Opened
from twinbus.wire.frames import encode_frame
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.message.batch import LinkLimits, pack
from twinbus.wire.message.writing import section
from twinbus.wire.performatives import (
    Attach,
    Open,
    SaslInit,
    Source,
    Transfer,
)
from twinbus.wire.performatives import Target as Terminus
from twinbus.wire.session import Session

TOPIC = "events"
# A queue that is full of messages, and that no honest client uses.
FULL = "full"
LINKS = 9_996
UNFINISHED_LINKS = 520
UNFINISHED_CONNECTIONS = 8
_LINKS_PER_SESSION = 250
# Below what a message may have, in four frames.
_PART_BYTES = 60_000
_PARTS = 4
_BATCH_MESSAGES = 1_500
_PROPERTY_BYTES = 31_000
_HEALTH_CLIENTS = 4
_TOKEN_SECONDS = 3600


def make_token(target: Target) -> tuple[str, str]:
    """The namespace, and a token for all of it."""
    assert target.connection_string is not None
    given = sas.parse_connection_string(target.connection_string)
    assert given.key is not None
    assert given.key_name is not None
    uri = f"sb://{target.host}/"
    ends_at_s = int(time.time()) + _TOKEN_SECONDS
    return uri, sas.make_token(uri, given.key_name, given.key, ends_at_s)


class Client:
    """A connection by hand, with a claim for the namespace."""

    def __init__(self, target: Target) -> None:
        self._socket = socket.create_connection((target.host, target.port))
        self.engine = Engine(server=False, container_id="attacker")
        self.events: list[Event] = []
        opening = Open(hostname="localhost")
        self.engine.start(SaslInit(mechanism="ANONYMOUS"), opening)
        self.wait(Opened, 1)
        session = self.session()
        link = self.attach(session, "$cbs")
        answers = Attach(source=Source(address="$cbs"), target=Terminus(address="x"))
        session.attach("answers", False, answers).grant(10)
        uri, token = make_token(target)
        self.wait(Attached, 2)
        properties = {"operation": "put-token", "type": "jwt", "name": uri}
        link.send(sections.encode_request("x", properties, token), b"token")
        self.wait(Delivered, 1)

    def count(self, kind: type) -> int:
        """How many events of a kind there were."""
        return sum(isinstance(event, kind) for event in self.events)

    def session(self) -> Session:
        """A session; the server's answer comes in time."""
        return self.engine.begin()

    def attach(self, session: Session, address: str) -> Link:
        """Ask for a link to send on."""
        attach = Attach(source=Source(), target=Terminus(address=address))
        return session.attach(f"link-{len(session.links)}", True, attach)

    def write(self, data: bytes = b"") -> None:
        """Write all there is."""
        self._socket.sendall(self.engine.take() + data)

    def wait(self, kind: type, count: int) -> None:
        """Talk until there were so many events, or the server has hung up."""
        self.write()
        while self.count(kind) < count:
            self.write()
            data = self._socket.recv(1 << 20)
            if not data:
                return
            self.engine.feed(data)
            while (event := self.engine.next_event()) is not None:
                self.events.append(event)


class Attack:
    """One attack: prepared when made, and then run for some seconds."""

    def __init__(self, target: Target, scale: float) -> None:
        self.target = target
        self.scale = scale

    def run(self, end_at: float) -> None:
        """Do it until then."""


class Sends(Attack):
    """Send messages to a topic, one transfer after the other."""

    def __init__(self, target: Target, scale: float) -> None:
        super().__init__(target, scale)
        self._client = Client(target)
        self._link = self._client.attach(self._client.session(), TOPIC)
        self._client.wait(Attached, self._client.count(Attached) + 1)
        most = self._link.peer_attach.max_message_size or limits.MESSAGE_BYTES_MAX
        self._parcels = list(pack(self.messages(), LinkLimits(most, most)))

    def messages(self) -> list[bytes]:
        """What is sent."""
        count = int(_BATCH_MESSAGES * self.scale)
        return [sections.encode_message(b"x" * 10) for _ in range(count)]

    def run(self, end_at: float) -> None:
        while time.monotonic() < end_at:
            for parcel in self._parcels:
                self._link.send(parcel.payload, b"t", None, parcel.form)
            self._client.wait(Disposed, self._client.count(Disposed) + 1)


class CostlySends(Sends):
    """Send a message that costly rules look at."""

    def messages(self) -> list[bytes]:
        text = "a" * int(_PROPERTY_BYTES * self.scale)
        code = sections.APPLICATION_PROPERTIES
        properties = section(code, {"a": text, "b": text})
        return [properties + section(sections.DATA, b"x")]


class Attaches(Attack):
    """Ask for as many links as a connection may have, all at once."""

    def __init__(self, target: Target, scale: float) -> None:
        super().__init__(target, scale)
        self._client = Client(target)
        self._count = int(LINKS * scale)
        for first in range(0, self._count, _LINKS_PER_SESSION):
            session = self._client.session()
            for _ in range(min(_LINKS_PER_SESSION, self._count - first)):
                self._client.attach(session, FULL)

    def run(self, end_at: float) -> None:
        del end_at
        self._client.wait(Attached, self._count)


class Unfinished(Attack):
    """Begin a message on each of many links, and end none."""

    def __init__(self, target: Target, scale: float) -> None:
        super().__init__(target, scale)
        self._clients: list[tuple[Client, list[Link]]] = []
        count = max(int(UNFINISHED_LINKS * scale), 1)
        for _ in range(UNFINISHED_CONNECTIONS):
            client = Client(target)
            session, links = client.session(), []
            for number in range(count):
                if number % _LINKS_PER_SESSION == 0:
                    session = client.session()
                links.append(client.attach(session, FULL))
            client.wait(Attached, count + 2)
            self._clients.append((client, links))

    def run(self, end_at: float) -> None:
        for client, links in self._clients:
            for number, link in enumerate(links):
                part = Transfer(
                    handle=link.handle,
                    delivery_id=number,
                    delivery_tag=b"t",
                    message_format=0,
                    more=True,
                )
                channel = link.session.channel
                frame = encode_frame(channel, part, bytes(_PART_BYTES))
                try:
                    client.write(frame * _PARTS)
                except OSError:
                    # The server has ended this connection.
                    break
        # They stay as they are.
        threading.Event().wait(max(end_at - time.monotonic(), 0))


class Request(Attack):
    """One request over HTTP that is much work."""

    method, path = "POST", f"/{FULL}/$purge"

    def run(self, end_at: float) -> None:
        del end_at
        _, token = make_token(self.target)
        connection = http.client.HTTPConnection(self.target.host, self.target.http_port)
        connection.request(self.method, self.path, headers={"Authorization": token})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, (answer.status, text)


class Delete(Request):
    """Delete a queue that holds much."""

    method, path = "DELETE", f"/{FULL}?api-version=2021-05"


class Health(Attack):
    """Ask for the health all the time."""

    def run(self, end_at: float) -> None:
        threads = [
            threading.Thread(target=self._ask, args=(end_at,))
            for _ in range(_HEALTH_CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(self, end_at: float) -> None:
        connection = http.client.HTTPConnection(self.target.host, self.target.http_port)
        while time.monotonic() < end_at:
            connection.request("GET", "/health")
            connection.getresponse().read()


ATTACKS: dict[str, type[Attack]] = {
    "costly_rules": CostlySends,
    "many_subscriptions": Sends,
    "many_rules": Sends,
    "purge": Request,
    "delete": Delete,
    "attaches": Attaches,
    "unfinished": Unfinished,
    "health": Health,
}


def main() -> None:
    name, seconds, scale, target = sys.argv[1:]
    attack = ATTACKS[name](Target(**json.loads(target)), float(scale))
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    started = time.monotonic()
    attack.run(started + float(seconds))
    print(json.dumps({"seconds": time.monotonic() - started}), flush=True)
    # Connections end with the process, when all is measured.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
