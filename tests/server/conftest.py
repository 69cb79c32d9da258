"""Turns of the server's tests: plain data, on the loop and in a thread.

Tests with the mark `turns` run twice: with turns on the event loop, as on SQLite, and
in a thread, as a store that waits for the network needs it. Both times everything that
goes into a turn or comes out of it must be plain data: no link, connection, request or
event loop can be reached from it.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import types
from collections.abc import Iterable

import pytest
from starlette.requests import HTTPConnection

from twinbus.server.amqp.connection import ServerConnection
from twinbus.server.amqp.node import Node
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import TurnOutcome, Work, run
from twinbus.wire.connection import Engine
from twinbus.wire.link import Link
from twinbus.wire.session import Session

NOT_PLAIN = (
    Engine,
    HTTPConnection,
    Host,
    Link,
    Node,
    ServerConnection,
    Session,
    asyncio.AbstractEventLoop,
    asyncio.BaseTransport,
    asyncio.Future,
    asyncio.Handle,
)
# The namespace is the turn's own; code and types are not data.
LEFT_OUT = (Namespace, types.ModuleType, types.CodeType, type)


def reached(start: Iterable[object]) -> list[object]:
    """What is not plain among all that can be reached from these objects."""
    found: list[object] = []
    seen: set[int] = set()
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, LEFT_OUT):
            continue
        seen.add(id(one))
        if isinstance(one, NOT_PLAIN):
            found.append(one)
        elif isinstance(one, types.FunctionType):
            cells = one.__closure__ or ()
            waiting += [cell.cell_contents for cell in cells]
            waiting += one.__defaults__ or ()
        else:
            waiting += gc.get_referents(one)
    return found


def of_the_server(command: object) -> bool:
    """Whether a command is the server's own, and not made by a test."""
    if isinstance(command, functools.partial):
        command = command.func
    made = command if isinstance(command, types.FunctionType) else type(command)
    return made.__module__.startswith("twinbus.server")


def checked(host: Host, work: Work) -> TurnOutcome:
    """Run a turn; refuse what is not plain on its way in or out."""
    wants = [want for each in list(work.wants.values()) for want in list(each.values())]
    own = [each for each in work.commands if of_the_server(each)]
    assert reached([*own, *filter(of_the_server, wants)]) == []
    host.namespace.store.begin()
    outcome = run(host.namespace, work)
    answers = zip(work.commands, outcome.answers, strict=True)
    results = [answer for command, answer in answers if of_the_server(command)]
    taken = [each for want, each in outcome.deliveries if of_the_server(want)]
    assert reached([*results, *taken, outcome.effects]) == []
    return outcome


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run marked tests with turns on the loop, and in a thread."""
    if metafunc.definition.get_closest_marker("turns"):
        metafunc.fixturenames.append("turn_place")
        metafunc.parametrize("turn_place", ["loop", "thread"], indirect=True)


@pytest.fixture
def turn_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where turns run."""
    place: str = request.param
    monkeypatch.setattr(Host, "in_thread", place == "thread")
    monkeypatch.setattr(Host, "run_turn", checked)
    return place
