"""A sender of the soak: one message after the other to one entity, written down.

What is raised has an unknown outcome, whatever the error says: the checker then gives
the benefit of the doubt, and everything that returned is accepted without one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.soak import plan
from twinbus.aio import MessageSender, MessagingFactory, PairingError
from twinbus.testing.events import Event, Recorder

PATHS = (plan.PLAIN, plan.UNIQUE, plan.GROUPED, plan.TOPIC)
_BATCH_MAX = 5
_PAUSE_SECONDS = 0.06
_SESSIONS = 4
_LATEST_MS = round(plan.SCHEDULED_SECONDS_MAX * 1000)


class Sending:
    """Sends to one entity until it is told to stop."""

    def __init__(
        self, process: str, path: str, recorder: Recorder, random: Random
    ) -> None:
        self._process = process
        self._path = path
        self._recorder = recorder
        self._random = Random(random.random())
        self._numbers = count(1)

    async def run(self, factory: MessagingFactory, stopped: asyncio.Event) -> None:
        is_topic = self._path == plan.TOPIC
        make = factory.get_topic_sender if is_topic else factory.get_queue_sender
        async with make(self._path) as sender:
            while not stopped.is_set():
                await self._send(sender)
                seconds = self._random.expovariate(1 / _PAUSE_SECONDS)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), seconds)

    async def _send(self, sender: MessageSender) -> None:
        several = self._random.random() < 0.2
        size = self._random.randint(2, _BATCH_MAX) if several else 1
        made = [self._message() for _ in range(size)]
        messages = [message for message, _ in made]
        events = [event for _, event in made]
        try:
            await sender.send_messages(messages if several else messages[0])
        except (ServiceBusError, PairingError) as error:
            for event in events:
                name = type(error).__name__
                self._recorder.finish(event, "unknown", error=name)
            return
        for event in events:
            self._recorder.finish(event)

    def _message(self) -> tuple[ServiceBusMessage, Event]:
        random = self._random
        key = f"{self._process}-{self._path}-{next(self._numbers)}"
        body = f"{key} ".encode() * random.randint(1, 60)
        session = (
            f"s{random.randrange(_SESSIONS)}" if self._path == plan.GROUPED else ""
        )
        properties: dict[Any, Any] = {
            "number": random.randrange(1 << 31),
            "x-ms-path": "of the application",
        }
        message = ServiceBusMessage(
            body,
            message_id=key,
            session_id=session or None,
            subject=f"subject of {key}",
            application_properties=properties,
        )
        event = self._recorder.start(
            self._process,
            "send",
            key=key,
            queue=self._path,
            link=f"{self._process}/{self._path}",
            session=session,
            digest=plan.digest(body, f"subject of {key}", properties),
        )
        if random.random() < 0.1:
            message.time_to_live = timedelta(seconds=plan.TTL_SECONDS)
            event.ttl_ms = plan.TTL_SECONDS * 1000
        if random.random() < 0.1:
            # In whole milliseconds, as the wire has it.
            due_ms = round(self._recorder.now()) + random.randint(200, _LATEST_MS)
            message.scheduled_enqueue_time_utc = datetime.fromtimestamp(
                due_ms / 1000, UTC
            )
            event.not_before = due_ms
        return message, event
