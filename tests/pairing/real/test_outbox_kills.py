"""Both servers are away and the sending process is killed: nothing is lost.

The process has a local outbox, and another one with the same folder goes on where it
was killed. At the end everything is in the primary. What was accepted while both were
away was in the outbox, so it arrives in the order in which it was sent to each queue,
over the end of a process, too.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Self

import pytest

from tests.pairing.real.site import RealPair, Side
from tests.pairing.real.till import BACKLOG_QUEUES, Orders
from tests.soak.look import browse
from twinbus.client.sync.connection import Connection
from twinbus.pairing.rules.naming import backlog_path
from twinbus.testing.events import Event, Recorder, load
from twinbus.testing.history_paired import PairedReport, PairedRules, check_paired
from twinbus.testing.traces import seen
from twinbus.testing.verdict import Rules

ROOT = Path(__file__).resolve().parents[3]
QUEUES = 3
# A killed pump has locked messages of the outbox for ten seconds.
HOME_SECONDS_MAX = 90.0
# Longer than a message of the outbox waits for a namespace before it is put aside.
SHORT_SECONDS = 3.0


class TillProcess:
    """The service, running."""

    def __init__(self, orders: Orders) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pairing.real.till", orders.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def lines(self) -> Iterator[str]:
        """What it says, as it says it."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            yield line.strip()

    def until(self, said: str) -> str:
        """Wait for a line that begins so."""
        for line in self.lines():
            if line.startswith(said):
                return line
        raise AssertionError(f"it ended and has not said '{said}'")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> list[str]:
        """Let it end by itself; returns what it says last."""
        said, _ = self._process.communicate(timeout=HOME_SECONDS_MAX)
        assert self._process.returncode == 0
        return said.splitlines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Outage:
    """One run: what happens to whom, and what is written down about it."""

    def __init__(self, pair: RealPair, folder: Path) -> None:
        self.pair = pair
        self.label = "till"
        self.queues = tuple(pair.queue() for _ in range(QUEUES))
        self.history = folder / "history"
        self._folder = folder
        self._recorder = Recorder(self.history)
        self._starts = 0
        # From when to when neither namespace was there.
        self.away_at = self.back_at = 0.0

    def till(self) -> TillProcess:
        """The service, with the folder that the last one had."""
        self._starts += 1
        secondary = self.pair.secondary
        return TillProcess(
            Orders(
                process=f"till{self._starts}",
                history=str(self.history),
                outbox=str(self._folder / "outbox"),
                label=self.label,
                primary=self.pair.primary.text,
                secondary=secondary.text,
                admin=secondary.server.admin_connection_string,
                ca_file=secondary.server.ca_file,
                queues=self.queues,
            )
        )

    @contextmanager
    def fault(self, what: str) -> Iterator[None]:
        """Write down that something was broken on purpose."""
        event = self._recorder.start("test", "fault", queue=what)
        yield
        self._recorder.finish(event)

    def kill_both(self) -> None:
        with self.fault("both"):
            self.pair.primary.server.kill()
            self.pair.secondary.server.kill()
        self.away_at = self._recorder.now()

    def bring_back(self, side: Side) -> None:
        self.back_at = self._recorder.now()
        side.mend()

    def kill(self, till: TillProcess) -> None:
        with self.fault("till"):
            till.kill()

    # -- the end -----------------------------------------------------------------------

    def end(self) -> PairedReport:
        """All is home, once or for a reason more often, and in order."""
        self.pair.mend()
        asyncio.run(self._bring_home())
        report = self._report()
        assert report.ok, report.text()
        assert report.waiting == 0
        assert self._out_of_order() == []
        return report

    async def _bring_home(self) -> None:
        """Let a syphon empty the backlog."""
        async with self.pair.pair(primary_name=self.label, enable_syphon=True):
            until = monotonic() + HOME_SECONDS_MAX
            while await asyncio.to_thread(self._waiting):
                assert monotonic() < until, "the backlog does not come home"

    def _waiting(self) -> bool:
        return any(self._found(self.pair.secondary, path) for path in self._backlog())

    def _backlog(self) -> list[str]:
        return [backlog_path(self.label, index) for index in range(BACKLOG_QUEUES)]

    def _found(self, side: Side, path: str) -> bool:
        text = side.server.connection_string
        with Connection.from_connection_string(text) as client:
            return bool(client.management(path).peek(1))

    def _report(self) -> PairedReport:
        """Look at what lies where, and judge."""
        places = [(self.pair.primary, path) for path in self.queues]
        places += [(self.pair.secondary, path) for path in self._backlog()]
        for side, path in places:
            text = side.server.connection_string
            with Connection.from_connection_string(text) as client:
                for message in browse(client, path):
                    event = self._recorder.start("look", "drain", queue=path)
                    event.state = message.state
                    self._recorder.finish(event, **seen(message))
            self._recorder.finish(self._recorder.start("look", "drained", queue=path))
        return check_paired(
            load(self.history), PairedRules(self.label, Rules(slack_ms=50))
        )

    def _out_of_order(self) -> list[str]:
        """What the outbox took and was overtaken by a later one for its queue."""
        history = load(self.history)
        sent = {event.key: event for event in history if self._was_in_outbox(event)}
        arrived = sorted(
            (event for event in history if event.op == "drain" and event.key in sent),
            key=lambda event: event.sequence,
        )
        latest: dict[str, float] = defaultdict(float)
        known: set[str] = set()
        overtaken = []
        for event in arrived:
            if event.key in known:
                continue
            known.add(event.key)
            send = sent[event.key]
            if send.invoke_at < latest[send.queue]:
                overtaken.append(event.key)
            latest[send.queue] = max(latest[send.queue], send.invoke_at)
        assert len(known) == len(sent), "some are not home"
        return overtaken

    def _was_in_outbox(self, event: Event) -> bool:
        return (
            (event.op, event.result) == ("send", "ok")
            and self.away_at < event.invoke_at
            and event.end_at < self.back_at
        )


def test_a_sender_that_is_killed_in_an_outage_goes_on_with_its_outbox(
    pair: RealPair, tmp_path: Path
) -> None:
    outage = Outage(pair, tmp_path)
    with outage.till() as till:
        till.until("sent")
        outage.kill_both()
        send_for(till, SHORT_SECONDS)
        outage.kill(till)
    with outage.till() as till:
        send_for(till, SHORT_SECONDS)
        outage.bring_back(pair.primary)
        till.until("outbox out")
        assert till.stop()[-1] == "outbox closed messages=0"

    outage.end()


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", ["primary", "secondary"])
def test_both_are_away_for_a_minute_and_the_sender_is_killed(
    pair: RealPair, tmp_path: Path, first: str
) -> None:
    seconds, kills = 60.0, 2
    outage = Outage(pair, tmp_path)
    with outage.till() as till:
        till.until("sent")
        outage.kill_both()
        send_for(till, seconds / (kills + 1))
        outage.kill(till)
    for _ in range(kills - 1):
        with outage.till() as till:
            send_for(till, seconds / (kills + 1))
            outage.kill(till)
    with outage.till() as till:
        send_for(till, seconds / (kills + 1))
        outage.bring_back(getattr(pair, first))
        # Once more, now that messages leave the outbox.
        till.until("recovered" if first == "primary" else "secondary back")
        till.until("sent")
        outage.kill(till)
    with outage.till() as till:
        till.until("outbox out")
        assert till.stop()[-1] == "outbox closed messages=0"

    print(outage.end().text())


def send_for(till: TillProcess, seconds: float) -> None:
    """Let it send for so long."""
    until = monotonic() + seconds
    for _ in till.lines():
        if monotonic() >= until:
            return
    raise AssertionError("it has ended")
