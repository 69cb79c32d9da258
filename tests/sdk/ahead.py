"""Runs the tests of a file several at a time, ahead of pytest.

The official clients spend nearly all of their time in polls of fixed length: one after
the other, these tests would take eight minutes on any machine. So those of a file are
put in a queue for a few threads as soon as the first is due, and pytest asks for each
verdict in turn. Each test has entities of its own, so none minds the others.

Knows the arguments that these tests take: a bus, the name of their own queue or topic,
and what they are parametrized with.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, wait
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

import pytest

from tests.sdk.buses import Bus

# Each of them sleeps most of the time; together they keep one core busy.
TESTS_AT_A_TIME = 8
# What tests leave open is closed while the next ones run.
CLOSINGS_AT_A_TIME = 16
# Longer than any test or closing takes that does not hang.
END_SECONDS_MAX = 60

P = ParamSpec("P")
T = TypeVar("T")


class Daemons(Executor):
    """Threads that never keep the program from ending.

    Some wrong answers make the official clients wait for ever. That is one test that
    fails, and must not become a run that hangs.
    """

    def __init__(self, count: int) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        for _ in range(count):
            threading.Thread(target=self._run, daemon=True).start()

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Have a function called when a thread is free."""
        future: Future[T] = Future()
        self._work.put((future, partial(fn, *args, **kwargs)))
        return future

    def _run(self) -> None:
        while True:
            future, work = self._work.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - it belongs to the waiter
                future.set_exception(error)
            else:
                future.set_result(result)


class Ahead:
    """Tests at work; `bus` makes the client that a test is parametrized with."""

    def __init__(
        self, items: Iterable[pytest.Function], bus: Callable[[str], Bus]
    ) -> None:
        self._bus = bus
        self._closings = Daemons(CLOSINGS_AT_A_TIME)
        self._closed: list[Future[None]] = []
        tests = Daemons(TESTS_AT_A_TIME)
        self._runs = {item.nodeid: tests.submit(self._run, item) for item in items}

    def verdict(self, item: pytest.Function) -> None:
        """Wait for a test; raises what the test raised."""
        self._runs[item.nodeid].result()

    def close(self) -> None:
        """Forget tests that have not begun, and wait until all is closed."""
        begun = [run for run in self._runs.values() if not run.cancel()]
        wait(begun, END_SECONDS_MAX)
        for closed in self._closed:
            closed.result(END_SECONDS_MAX)

    def _run(self, item: pytest.Function) -> None:
        parameters: dict[str, Any] = item.callspec.params
        name = item.originalname
        bus = self._bus(parameters["bus"])
        values = {**parameters, "bus": bus, "queue": name, "topic": name}
        wanted = inspect.signature(item.obj).parameters
        try:
            item.obj(**{name: values[name] for name in wanted})
        finally:
            self._closed += bus.close(self._closings)
