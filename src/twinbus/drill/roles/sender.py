"""A child that sends: pairs two namespaces through the library, and goes on sending.

Owns the traffic of one sender process. Each message leaves at its time, whatever has
become of those before it, so an outage cannot slow the traffic down. Every send is
written down before it begins and when it ends; so is what the pair tells. A message
whose send raises is sent again after a pause, as an application does it, and each send
is recorded: whether one may raise at all, the judge says. Uses the public names of the
library and no others.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from twinbus import limits
from twinbus.aio import (
    MessageSender,
    MessagingFactory,
    PairingError,
    PairingEvent,
    SendAvailabilityPairedNamespaceOptions,
    Verdict,
)
from twinbus.drill.answers import record_answer
from twinbus.drill.plan import ENTITIES, TOPIC, Shipment
from twinbus.drill.roles.stage import Line, Stage, act, ledger_of, plan_of, say
from twinbus.drill.site.access import NamespaceAccess
from twinbus.drill.states import FAILED_OVER, HEALTHY, STATE_AFTER
from twinbus.testing.events import Event, Recorder
from twinbus.testing.history_evidence import record_pairing
from twinbus.testing.traces import digest_of


class SenderWork:
    """One sender process at work."""

    def __init__(self, job: Line) -> None:
        self._number: int = job["number"]
        self.name = f"sender-{self._number}"
        self._plan = plan_of(job)
        self._recorder = Recorder(Path(job["history"]) / f"{self.name}.jsonl")
        self._senders: dict[str, MessageSender] = {}
        self._held = 0
        self._accepted: Counter[str] = Counter()
        self._failed = 0
        # Every message was sent.
        self._done = False
        self._slowest_ms = 0.0
        self.states = dict.fromkeys(ENTITIES, HEALTHY)
        # The entities that have failed over at least once.
        self._over: set[str] = set()

    # -- sending -----------------------------------------------------------------------

    async def send_all(self, factory: MessagingFactory) -> None:
        """Send everything at its time, and wait for the last answer."""
        for path in ENTITIES:
            self._senders[path] = (
                factory.get_topic_sender(self._plan.real(path))
                if path == TOPIC
                else factory.get_queue_sender(self._plan.real(path))
            )
        loop = asyncio.get_running_loop()
        begin = loop.time()
        async with asyncio.TaskGroup() as group:
            for shipment in self._plan.shipments(self._number):
                left = begin + shipment.at_ms / 1000 - loop.time()
                if left > 0:
                    await asyncio.sleep(left)
                group.create_task(self._send(shipment))
        self._done = True

    async def _send(self, shipment: Shipment) -> None:
        """Send one message, again and again if that raises, for as long as allowed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.DRILL_SEND_SECONDS
        pause = limits.DRILL_AGAIN_SECONDS_MIN
        message, due_ms = _message(shipment), 0
        if shipment.delay_ms:
            due_ms = int(self._recorder.now()) + shipment.delay_ms
            due = datetime.fromtimestamp(due_ms / 1000, UTC)
            message.scheduled_enqueue_time_utc = due
        self._held += 1
        try:
            while not await self._try(shipment, message, due_ms):
                if loop.time() >= until:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, limits.DRILL_AGAIN_SECONDS_MAX)
        finally:
            self._held -= 1

    async def _try(
        self, shipment: Shipment, message: ServiceBusMessage, due_ms: int
    ) -> bool:
        """Whether a send was accepted; writes it down."""
        recorder = self._recorder
        event = recorder.start(
            self.name,
            "send",
            key=shipment.key,
            queue=shipment.path,
            session=shipment.session,
            digest=digest_of(shipment.body),
            ttl_ms=shipment.ttl_ms,
            not_before=due_ms,
            link=f"{self.name}/{shipment.path}",
        )
        recorder.announce(event)
        try:
            await self._senders[shipment.path].send_messages(message)
        except (ServiceBusError, PairingError) as error:
            # Also where access was refused: the link may have ended with the refusal
            # before the answer to this message came.
            recorder.finish(event, "unknown", error=type(error).__name__)
            self._failed += 1
            return False
        self._note(recorder.finish(event))
        return True

    def _note(self, done: Event) -> None:
        self._accepted[done.queue] += 1
        self._slowest_ms = max(self._slowest_ms, done.end_at - done.invoke_at)

    # -- telling -----------------------------------------------------------------------

    def heard(self, event: PairingEvent) -> None:
        """The pair tells something."""
        event = replace(event, path=self._plan.short(event.path))
        record_pairing(self._recorder, self.name, event)
        state = STATE_AFTER.get(event.kind.value)
        if state is not None and event.path in self.states:
            self.states[event.path] = state
            if state == FAILED_OVER:
                self._over.add(event.path)
            say(event=event.kind.value, path=event.path)

    def answered(self, error: BaseException) -> Verdict | None:
        """The primary has answered a send or a ping with an error; note which."""
        condition = getattr(error, "condition", type(error).__name__)
        record_answer(self._recorder, self.name, condition)
        return None

    def say(self) -> None:
        """How it goes."""
        say(
            accepted=dict(self._accepted),
            held=self._held,
            failed=self._failed,
            slowest_ms=round(self._slowest_ms),
            states=self.states,
            over=sorted(self._over),
            done=self._done,
        )

    async def say_often(self) -> None:
        while True:
            self.say()
            await asyncio.sleep(limits.DRILL_SAY_SECONDS)


def _message(shipment: Shipment) -> ServiceBusMessage:
    message = ServiceBusMessage(
        shipment.body,
        message_id=shipment.key,
        session_id=shipment.session or None,
    )
    if shipment.ttl_ms:
        message.time_to_live = timedelta(milliseconds=shipment.ttl_ms)
    return message


async def play(stage: Stage, job: Line) -> None:
    """Pair, wait for the word, send, and say how it goes."""
    random.seed(f"{job['plan']['seed']}/{job['number']}/library")
    work = SenderWork(job)
    first, second = (NamespaceAccess(**job[name]) for name in ("primary", "secondary"))
    seconds = limits.DRILL_ATTEMPT_SECONDS
    async with (
        first.factory(try_timeout=seconds, ledger=ledger_of(job)) as primary,
        second.factory(try_timeout=seconds) as secondary,
    ):
        options = SendAvailabilityPairedNamespaceOptions(
            second.admin(),
            secondary,
            limits.DRILL_BACKLOG_QUEUES,
            limits.DRILL_FAILOVER_SECONDS,
            ping_primary_interval=limits.DRILL_PING_SECONDS,
            primary_name=plan_of(job).primary_name,
            on_event=work.heard,
            classifier=work.answered,
        )
        await primary.pair_namespace(options)
        say(ready=True)
        if await stage.hear() is None:
            return
        saying = asyncio.create_task(work.say_often())
        sending = asyncio.create_task(work.send_all(primary))
        over = asyncio.create_task(stage.over())
        await asyncio.wait((sending, over), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
            work.say()
            # The pair goes on: its entities may still have to fail back.
            await over
        sending.cancel()
        saying.cancel()


if __name__ == "__main__":
    act(play)
