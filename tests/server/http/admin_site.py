"""A namespace with its administration API, asked without sockets.

Owns how a test writes a request and reads an answer. The clock stands still until a
test moves it. Knows nothing about what an answer should be.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any
from xml.etree import ElementTree as ET

from starlette.applications import Starlette

from twinbus.clock import ManualClock
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.sas import Secret, make_token
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.http.admin.route import admin_route
from twinbus.server.http.admin.xml import ATOM, SERVICE_BUS
from twinbus.store.opening import open_store

HOST = "contoso.example"
ROOT = f"https://{HOST}"
KEY = Secret("the key of the namespace")
ROOT_RULE = AuthorizationRule("root", Right.MANAGE, KEY, Secret("the second key"))
VERSION = "2024-05"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def tree(self) -> ET.Element:
        """The body, read."""
        return ET.fromstring(self.text)  # noqa: S314 - our own answer

    @property
    def description(self) -> ET.Element:
        """The description in an entry."""
        content = self.tree.find(f"{{{ATOM}}}content")
        assert content is not None, self.text
        return content[0]

    @property
    def elements(self) -> list[str]:
        """The names of the description's elements, in order."""
        return [local(element.tag) for element in self.description]

    @property
    def values(self) -> dict[str, str | None]:
        """The texts of the description's elements."""
        return {local(element.tag): element.text for element in self.description}

    @property
    def titles(self) -> list[str | None]:
        """The names of a feed's entries."""
        return [e.findtext(f"{{{ATOM}}}title") for e in self.entries]

    @property
    def entries(self) -> list[ET.Element]:
        """The entries of a feed."""
        return self.tree.findall(f"{{{ATOM}}}entry")

    @property
    def links(self) -> dict[str, str]:
        """The links of a feed."""
        return {
            link.attrib["rel"]: link.attrib["href"]
            for link in self.tree.findall(f"{{{ATOM}}}link")
        }

    @property
    def detail(self) -> str:
        """What an error says."""
        assert self.tree.tag == "Error", self.text
        assert self.tree.findtext("Code") == str(self.status)
        return self.tree.findtext("Detail") or ""


def local(tag: str) -> str:
    """A name without its namespace."""
    return tag.rpartition("}")[2]


def described(kind: str, inner: str = "") -> str:
    """The entry of a request."""
    return (
        f'<entry xmlns="{ATOM}"><content type="application/xml">'
        f'<{kind} xmlns="{SERVICE_BUS}" '
        f'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{inner}</{kind}>'
        "</content></entry>"
    )


class RuledNamespace(Namespace):
    """A namespace whose own authorization rules are those of its site."""

    def __init__(self, rules: Sequence[AuthorizationRule]) -> None:
        super().__init__("contoso", open_store(None))
        self._given = rules

    def rules_of(self, scope_key: str) -> Sequence[AuthorizationRule]:
        """The site's rules, or those of an entity."""
        return super().rules_of(scope_key) if scope_key else self._given


@dataclass
class AdminSite:
    """The administration API of a namespace."""

    clock: ManualClock = field(default_factory=ManualClock)
    rules: list[AuthorizationRule] = field(default_factory=lambda: [ROOT_RULE])

    def __post_init__(self) -> None:
        self.host = Host(RuledNamespace(self.rules), self.clock)
        self.port = NamespacePort(self.host)
        self._addresses = IPv4Network("10.0.0.0/8").hosts()
        self._app = Starlette(routes=[admin_route(self.port)])

    def token(
        self,
        resource: str = ROOT,
        rule: AuthorizationRule = ROOT_RULE,
        seconds: int = 60,
    ) -> str:
        """A signature that ends in so many seconds."""
        end_s = self.clock.now_ms() // 1000 + seconds
        return make_token(resource, rule.name, rule.primary_key, end_s)

    async def ask(
        self,
        method: str,
        path: str,
        body: str | bytes = b"",
        **headers: str | None,
    ) -> Answer:
        """Send a request; a header is named with underscores, and None leaves it out.

        Unless it has one already, the path gets the newest version of the API.
        """
        path, _, query = path.partition("?")
        query = query or f"api-version={VERSION}"
        given: dict[str, str | None] = {
            "host": HOST,
            "authorization": self.token(),
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "https",
            "path": urllib.parse.unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [
                (name.encode(), text.encode())
                for name, text in given.items()
                if text is not None
            ],
            "server": (HOST, 443),
            # Always another: an address that fails too often has to wait.
            "client": (str(next(self._addresses)), 1),
        }
        return await self._call(scope, body.encode() if isinstance(body, str) else body)

    async def _call(self, scope: dict[str, Any], body: bytes) -> Answer:
        sent: list[Any] = []
        half = len(body) // 2
        parts = [
            {"type": "http.request", "body": body[:half], "more_body": True},
            {"type": "http.request", "body": body[half:], "more_body": False},
        ]

        async def receive() -> Any:
            return parts.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        headers = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
        return Answer(sent[0]["status"], headers, text)

    async def put(
        self, path: str, kind: str, inner: str = "", **headers: str | None
    ) -> Answer:
        """Create an entity, or with `if_match` change it."""
        return await self.ask("PUT", path, described(kind, inner), **headers)

    async def get(self, path: str) -> Answer:
        """Read something."""
        return await self.ask("GET", path)
