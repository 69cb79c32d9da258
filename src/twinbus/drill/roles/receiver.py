"""A child that receives: from every queue, subscription and session of the primary.

Owns the receivers of one process. They take what comes, complete it at once and write
both down. When the primary is away they try again and again; a settlement without an
answer is written down as unknown. Uses the project's own client, whose every call ends
in time, also against a server that hangs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from twinbus import limits
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions, Receiver
from twinbus.drill.plan import PLACES, SESSION_QUEUE
from twinbus.drill.roles.stage import Line, Stage, act, plan_of, say
from twinbus.drill.site.access import NamespaceAccess
from twinbus.errors import RemoteError, SettleRefused
from twinbus.testing.history import Recorder
from twinbus.testing.traces import content_type_of, delivered, token_of
from twinbus.wire.message.names import PING_CONTENT_TYPE


class Receiving:
    """One receiver process at work."""

    def __init__(self, job: Line) -> None:
        self.name = f"receiver-{job['number']}"
        self._recorder = Recorder(Path(job["history"]) / f"{self.name}.jsonl")
        self._plan = plan_of(job)
        access = NamespaceAccess(**job["primary"])
        self._connection = access.connection(limits.DRILL_CALL_SECONDS_MAX)
        self._received: Counter[str] = Counter()
        self._pings = 0
        self._links = 0
        self._stopping = False

    async def receive_all(self) -> None:
        """Receive from everywhere until told to stop."""
        async with self._connection, asyncio.TaskGroup() as group:
            for place in PLACES:
                if place != SESSION_QUEUE:
                    group.create_task(self._receive_from(place))
            for _ in range(limits.DRILL_SESSIONS_MAX):
                group.create_task(self._receive_sessions())

    def stop(self) -> None:
        """Have all of them end after the chunk in hand."""
        self._stopping = True

    async def _receive_from(self, place: str) -> None:
        receiver = self._connection.receiver(self._plan.real(place))
        link = self._new_link(place)
        while not self._stopping:
            try:
                await self._chunk(receiver, link)
            except RemoteError:
                await asyncio.sleep(limits.DRILL_CALL_PAUSE_SECONDS)

    # -- sessions ----------------------------------------------------------------------

    async def _receive_sessions(self) -> None:
        options = ReceiveOptions(
            next_session=True, session_seconds=limits.DRILL_SESSION_SECONDS
        )
        while not self._stopping:
            path = self._plan.real(SESSION_QUEUE)
            receiver = self._connection.receiver(path, options)
            link = self._new_link(SESSION_QUEUE)
            try:
                await self._one_session(receiver, link)
            except RemoteError:
                # There is none with messages, or the primary is away.
                await asyncio.sleep(limits.DRILL_CALL_PAUSE_SECONDS)

    async def _one_session(self, receiver: Receiver, link: str) -> None:
        recorder = self._recorder
        event = recorder.start(self.name, "accept", queue=SESSION_QUEUE, link=link)
        await receiver.open()
        recorder.finish(
            event,
            session=receiver.session_id or "",
            lock_until=receiver.session_locked_until_ms or 0,
        )
        loop = asyncio.get_running_loop()
        # As long as its lock surely holds; then another may have it.
        until = loop.time() + limits.DRILL_SESSION_SECONDS
        try:
            while loop.time() < until and await self._chunk(receiver, link):
                pass
        finally:
            self._lose(link)
            await receiver.close()

    def _lose(self, link: str) -> None:
        """The link of a session has ended, and the session is free."""
        self._recorder.finish(self._recorder.start(self.name, "detach", link=link))

    # -- messages ----------------------------------------------------------------------

    async def _chunk(self, receiver: Receiver, link: str) -> int:
        """Receive some, and complete them; returns how many came."""
        recorder, place = self._recorder, self._plan.short(receiver.path)
        begun = recorder.start(self.name, "receive", queue=place, link=link)
        try:
            messages = await receiver.receive(
                limits.DRILL_RECEIVE_MESSAGES_MAX, limits.DRILL_RECEIVE_WAIT_SECONDS
            )
        except RemoteError:
            recorder.finish(begun, "unknown", credit=limits.DRILL_RECEIVE_MESSAGES_MAX)
            raise
        until_ms = receiver.session_locked_until_ms
        for message in messages:
            done = recorder.finish(begun, **delivered(message, until_ms))
            self._pings += done.content_type == PING_CONTENT_TYPE
        self._received[place] += len(messages)
        if messages:
            await self._complete(receiver, messages, link)
        return len(messages)

    async def _complete(
        self, receiver: Receiver, messages: list[Message], link: str
    ) -> None:
        place = self._plan.short(receiver.path)
        begun = [
            self._recorder.start(
                self.name,
                "complete",
                key=str(message.message_id or ""),
                queue=place,
                token=token_of(message),
                content_type=content_type_of(message),
                link=link,
            )
            for message in messages
        ]
        failures: dict[int, RemoteError] = {}
        try:
            await receiver.complete(messages)
        except SettleRefused as error:
            failures = error.failures
        except RemoteError as error:
            failures = dict.fromkeys(range(len(messages)), error)
        if failures and receiver.session_id is not None:
            # Written first: a receiver without its link cannot hold the session.
            self._lose(link)
        for number, event in enumerate(begun):
            self._recorder.finish(event, **_result(failures.get(number)))

    def _new_link(self, place: str) -> str:
        self._links += 1
        return f"{self.name}/{place}/{self._links}"

    # -- telling -----------------------------------------------------------------------

    def say(self) -> None:
        """How it goes."""
        say(received=dict(self._received), pings=self._pings)

    async def say_often(self) -> None:
        while True:
            self.say()
            await asyncio.sleep(limits.DRILL_SAY_SECONDS)


def _result(failure: RemoteError | None) -> dict[str, Any]:
    if failure is None:
        return {"result": "ok"}
    if failure.condition.endswith("lock-lost"):
        return {"result": "fail", "error": "lock-lost"}
    return {"result": "unknown", "error": failure.condition}


async def play(stage: Stage, job: Line) -> None:
    """Receive until the parent has had enough."""
    work = Receiving(job)
    receiving = asyncio.create_task(work.receive_all())
    saying = asyncio.create_task(work.say_often())
    over = asyncio.create_task(stage.over())
    say(ready=True)
    await asyncio.wait((receiving, over), return_when=asyncio.FIRST_COMPLETED)
    work.stop()
    await receiving
    saying.cancel()
    work.say()


if __name__ == "__main__":
    act(play)
