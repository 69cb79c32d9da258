"""A server with a console, and a client that signs in as a browser does.

Owns the entities, the keys and the headers of requests. The client follows no redirect
by itself and keeps the cookies that it is given.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from typing import Any, Self

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token
from twinbus.testing.server_process import ServerProcess

ROOT = "/$console/"
KEYS = {"Listen": "listen-key", "Send": "send-key", "Manage": "manage-key"}
RULES = [
    {"name": right.lower(), "rights": [right], "primary_key": key}
    for right, key in KEYS.items()
]


@dataclass(frozen=True, slots=True)
class ConsoleAnswer:
    """What the server answered."""

    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def location(self) -> str:
        return str(self.headers["Location"])

    @property
    def problem(self) -> str:
        """What the page says was not possible."""
        found = re.search(r'class="problem"[^>]*>([^<]*)<', self.text)
        return "" if found is None else found.group(1)


@dataclass
class ConsoleClient:
    """A browser without eyes: cookies, forms and headers."""

    port: int
    host: str = "127.0.0.1"
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"

    def ask(
        self,
        method: str,
        page: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> ConsoleAnswer:
        """Send one request."""
        path = page if page.startswith("/") else f"{ROOT}{page}"
        sent = {"Host": self.authority, "Accept": "text/html"}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        given = {**sent, **(headers or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in given.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            answer = ConsoleAnswer(response.status, response.headers, response.read())
        finally:
            connection.close()
        for cookie in response.headers.get_all("Set-Cookie") or ():
            name, _, rest = cookie.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        return answer

    def get(self, page: str = "", /, **query: Any) -> ConsoleAnswer:
        text = urllib.parse.urlencode(query, doseq=True)
        return self.ask("GET", f"{page}?{text}" if text else page)

    def json(self, page: str = "", /, **query: Any) -> Any:
        """The data of a page, which must be there."""
        text = urllib.parse.urlencode(query, doseq=True)
        path = f"{page}?{text}" if text else page
        answer = self.ask("GET", path, headers={"Accept": "application/json"})
        assert answer.status == 200, answer.text
        return answer.json

    def post(
        self, page: str, fields: dict[str, Any], headers: dict[str, str] | None = None
    ) -> ConsoleAnswer:
        """Send a form, as a browser sends one of a page of the console."""
        own = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://{self.authority}",
            "Sec-Fetch-Site": "same-origin",
        }
        body = urllib.parse.urlencode(fields, doseq=True).encode()
        return self.ask("POST", page, body, {**own, **(headers or {})})

    def sign_in(
        self, name: str = DEV_KEY_NAME, key: str = DEV_KEY_TEXT, entity: str = ""
    ) -> Self:
        """Sign in; it must succeed."""
        fields = {"name": name, "key": key, "entity": entity}
        answer = self.post("sign-in", fields)
        assert answer.status == 303, answer.text
        return self


class Stream:
    """A browser that follows a page."""

    def __init__(self, client: ConsoleClient, address: str) -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", client.port, timeout=60
        )
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        headers = {"Host": client.authority, "Cookie": cookie}
        self._connection.request("GET", f"{ROOT}{address}", headers=headers)
        self.response = self._connection.getresponse()

    def until(self, text: str) -> str:
        """Read until a text comes; returns all of it."""
        read = ""
        while text not in read:
            line = self.response.readline()
            assert line, "the stream has ended"
            read += line.decode()
        return read

    def ends(self) -> bool:
        """Read to the end, which the server makes."""
        while self.response.readline():
            pass
        return True

    def close(self) -> None:
        self.response.close()
        self._connection.close()


@dataclass
class ConsoleSite:
    """The server."""

    process: ServerProcess

    @property
    def port(self) -> int:
        return self.process.ports["http"]

    def client(self) -> ConsoleClient:
        """A browser that has not signed in."""
        return ConsoleClient(self.port)

    def signed_in(self, right: str = "") -> ConsoleClient:
        """A browser with the key of one right; without, with that of --dev."""
        if not right:
            return self.client().sign_in()
        return self.client().sign_in(right.lower(), KEYS[right])

    def token(self, path: str = "", name: str = DEV_KEY_NAME, key: str = "") -> str:
        """A token that lasts."""
        uri = f"http://127.0.0.1:{self.port}/{path}"
        return make_token(uri, name, Secret(key or DEV_KEY_TEXT), 1 << 32)

    def bus(self) -> ServiceBusClient:
        """The official client."""
        return ServiceBusClient.from_connection_string(self.process.connection_string)

    def create_queue(self, name: str, **settings: Any) -> str:
        """Make a queue."""
        with self.admin() as admin:
            admin.create_queue(name, **settings)
        return name

    def admin(self) -> ServiceBusAdministrationClient:
        """The official client for administration."""
        return ServiceBusAdministrationClient.from_connection_string(
            self.process.admin_connection_string,
            connection_verify=self.process.ca_file,
        )

    def received(self, entity: str, most: int = 100) -> list[str]:
        """Receive all messages of a queue; returns their bodies in order."""
        found: list[str] = []
        with self.bus() as bus, bus.get_queue_receiver(entity) as receiver:
            while len(found) < most:
                part = receiver.receive_messages(most - len(found), max_wait_time=1)
                if not part:
                    break
                for message in part:
                    found.append(str(message))
                    receiver.complete_message(message)
        return found

    def send(self, entity: str, *messages: str | ServiceBusMessage) -> None:
        """Send messages with the official client, in one batch."""
        given = [
            ServiceBusMessage(each) if isinstance(each, str) else each
            for each in messages
        ]
        with self.bus() as bus, bus.get_queue_sender(entity) as sender:
            sender.send_messages(given)


def ended(
    client: ConsoleClient,
    job: dict[str, Any],
    until: Callable[[Any], bool] | None = None,
) -> Any:
    """Ask for a job until it waits or is over."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        shown = client.json("job", id=job["id"])
        if until is not None and until(shown):
            return shown
        if not shown["is_active"]:
            return shown
    raise AssertionError(shown)


def planned(client: ConsoleClient, path: str, **fields: Any) -> Any:
    """Plan something, and wait for the dry run."""
    answer = client.post(f"bulk?path={path}", fields, {"Accept": "application/json"})
    assert answer.status == 200, answer.text
    return ended(client, answer.json)


def started(client: ConsoleClient, job: Any, **fields: Any) -> Any:
    json_too = {"Accept": "application/json"}
    answer = client.post(f"job/start?id={job['id']}", fields, json_too)
    assert answer.status == 200, answer.text
    return answer.json
