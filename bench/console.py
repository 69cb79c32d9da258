"""What open consoles cost: processor time of the server, with ten of them and none.

Owns the figures `console_*`. Pages follow by a tick of some seconds, so their cost is
counted in two ways. Over ticks of a server without other work: what ten pages take of a
processor, which hardly varies. And for a message: two servers, alike but for the pages,
are filled and emptied in turns, each part several ticks long.
"""

from __future__ import annotations

import http.client
import queue
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, run_ns, twinbus, worker
from bench.target import QUEUE, Target
from twinbus import limits
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT

CONSOLES = 10
_OTHERS = 99
_PARTS = 4
_PAGES = ("view=overview", f"view=entity&path={QUEUE}")
_WAIT_SECONDS_MAX = 60.0


def console(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    ticks: list[float] = []
    values: dict[str, list[float]] = {"on": [], "off": []}
    with ExitStack() as stack:
        sides = {way: _started(plan, stack, way) for way in values}
        pages = stack.enter_context(_open(sides["on"][0]))
        pages.wait(1)
        for number in range(plan.rounds + plan.warm_up):
            before_ns = run_ns(sides["on"][0].pid)
            pages.wait(plan.console_ticks)
            spent_ns = run_ns(sides["on"][0].pid) - before_ns
            spent = _round(sides, plan.messages)
            if number >= plan.warm_up:
                ticks.append(spent_ns / plan.console_ticks)
                for way, each in spent.items():
                    values[way].append(each)
    results.add("console_tick_cpu_ms", [each / 1e6 for each in ticks])
    length_ns = limits.CONSOLE_SAMPLE_SECONDS * 1e9
    results.add("console_processor_percent", [100 * each / length_ns for each in ticks])
    results.add("console_message_cpu_us", values["on"])
    results.add("no_console_message_cpu_us", values["off"])
    both = zip(values["on"], values["off"], strict=True)
    results.add("console_overhead_percent", [100 * (on / off - 1) for on, off in both])


def _started(plan: Plan, stack: ExitStack, way: str) -> tuple[Target, Child]:
    folder = plan.folder / f"console-{way}"
    others = [f"other-{number}" for number in range(_OTHERS)]
    options = ("--no-ledger",)
    given = twinbus(folder, queues=(QUEUE, *others), options=options)
    target = stack.enter_context(given)
    return target, stack.enter_context(worker(target, folder / "client.log"))


def _round(sides: dict[str, tuple[Target, Child]], count: int) -> dict[str, float]:
    """Microseconds for a message in and out of each way."""
    spent_ns = dict.fromkeys(sides, 0)
    for part in range(_PARTS):
        # Each way is first in half of the parts.
        for way in sorted(sides, reverse=bool(part % 2)):
            target, client = sides[way]
            before_ns = run_ns(target.pid)
            client.ask(do="send", count=count)
            client.ask(do="receive", count=count)
            spent_ns[way] += run_ns(target.pid) - before_ns
    return {way: ns / 1000 / count / _PARTS for way, ns in spent_ns.items()}


class _OpenPages:
    """Browsers that follow, and what the first one of them has read."""

    def __init__(self) -> None:
        self._ticks: queue.SimpleQueue[None] = queue.SimpleQueue()

    def follow(self, response: http.client.HTTPResponse, *, counts: bool) -> None:
        """Read a page to its end; each answer of the server ends with an empty line."""
        try:
            while line := response.readline():
                if counts and line == b"\n":
                    self._ticks.put(None)
        except (OSError, ValueError, AttributeError):
            # The bench has closed it.
            return

    def wait(self, count: int) -> None:
        """Wait for so many ticks from now on."""
        while not self._ticks.empty():
            self._ticks.get()
        for _ in range(count):
            self._ticks.get(timeout=_WAIT_SECONDS_MAX)


def _signed_in(target: Target) -> str:
    """The cookie of a person of its own, who did not sign in with the one before."""
    threading.Event().wait(1)
    connection = http.client.HTTPConnection(target.host, target.http_port)
    key = {"name": DEV_KEY_NAME, "key": DEV_KEY_TEXT}
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Sec-Fetch-Site": "same-origin",
    }
    body = urllib.parse.urlencode(key)
    connection.request("POST", "/$console/sign-in", body, headers)
    cookie = connection.getresponse().headers["Set-Cookie"]
    connection.close()
    return str(cookie).partition(";")[0]


@contextmanager
def _open(target: Target) -> Iterator[_OpenPages]:
    pages = _OpenPages()
    with ExitStack() as stack:
        for number in range(CONSOLES):
            connection = http.client.HTTPConnection(target.host, target.http_port)
            stack.callback(connection.close)
            page = f"/$console/events?{_PAGES[number % len(_PAGES)]}"
            connection.request("GET", page, headers={"Cookie": _signed_in(target)})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            reader = threading.Thread(
                target=pages.follow,
                args=(response,),
                # Of an idle entity page nothing changes: one comment in each tick.
                kwargs={"counts": number == 1},
                daemon=True,
            )
            reader.start()
        yield pages
