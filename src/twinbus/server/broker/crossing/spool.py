"""Sends to a shard that is sick: kept by another one, and carried home in order.

While a shard is slow beyond its threshold, full or failing, what is sent to its
entities is accepted all the same: it goes, durably, into the outbox of one healthy
shard, chosen when the sickness begins, after the checks that every send has. When the
shard is well the mover brings it home. Rules:

* The order of each entity is kept. While it has spooled messages, what is sent to it
  queues behind them, also after its shard is back. At the end of the spool new sends
  wait for the last ones, so that it ends under load, too.
* The spool has a size. Beyond it sends are refused, with an error that makes a pair
  divert them; so are all sends if the chosen shard falls sick as well.
* The size limit of an entity counts what is spooled for it.

Owns which sends take this way. Knows nothing about how they are carried (`mover.py`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.errors import EntityNotFound, SpoolFull, StoreFault, TwinbusError
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.submissions import Submission
from twinbus.server.broker.turn import Turn, answerable
from twinbus.wire.message.sections import PING_CONTENT_TYPE, Incoming

if TYPE_CHECKING:
    from twinbus.server.broker.host import Host
    from twinbus.server.broker.namespace import Namespace

log = logging.getLogger("twinbus.spool")


class SpoolState(Enum):
    """What happens to sends."""

    # They go to their shard.
    OFF = "off"
    # They go to the spool: the shard is sick.
    ON = "on"
    # The shard is well; what is for entities with spooled messages queues behind them.
    DRAINING = "draining"
    # Little is left: what is for these entities waits until they have it.
    ENDING = "ending"


class ShardSpool:
    """The spool of one shard."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.state = SpoolState.OFF
        # The shard that keeps it.
        self._through: Host | None = None
        # Bytes that wait for each entity to which something was spooled. Turns of the
        # shard that keeps it add to them, in its thread.
        self.waiting_bytes: Counter[str] = Counter()
        self._adding = threading.Lock()
        # Commands on their way to the spool, and those that wait for its end.
        self._handed_in = 0
        self._waiting: list[Submission] = []
        # When it began, by the wall clock.
        self.since_ms: int | None = None
        # The next look at a full disk.
        self._timer: asyncio.TimerHandle | None = None

    @property
    def rows(self) -> int:
        """How many messages wait in it."""
        if self._through is None:
            return 0
        counts = self._through.namespace.store.outbox()
        mine = counts.get(self._host.namespace.shard)
        return 0 if mine is None else mine.rows

    @property
    def is_on(self) -> bool:
        """Whether all sends go to it."""
        return self.state is SpoolState.ON

    @property
    def age_seconds(self) -> float:
        """How long it has been in use."""
        if self.since_ms is None:
            return 0.0
        return max(self._host.clock.now().wall_ms - self.since_ms, 0) / 1000

    def takes(self, entity: Entity) -> bool:
        """Whether a send to that entity goes to the spool, or waits for its end."""
        if self.state is SpoolState.OFF:
            return False
        return self.state is SpoolState.ON or entity.key in self.waiting_bytes

    def takes_over(self, submission: Submission) -> bool:
        """Take a command over, if it is a send that goes this way."""
        if self.state is SpoolState.OFF and self._host.fault is not None:
            # When it fell sick no other shard was well; one may be by now.
            self.begin()
        if self.state is SpoolState.OFF:
            return False
        command = submission.command
        if not isinstance(command, Send) or not self.takes(command.entity):
            return False
        self.submit(submission, command)
        return True

    # -- beginning and end -------------------------------------------------------------

    def begin(self) -> None:
        """The shard is sick."""
        if self.state is SpoolState.OFF:
            well = [
                each
                for each in self._host.hosts
                if each is not self._host and _is_well(each)
            ]
            if not well:
                return
            # The one that holds least.
            self._through = min(well, key=_stored_bytes)
            self.since_ms = self._host.clock.now().wall_ms
            shard = self._through.namespace.shard
            log.warning("sends to %s are kept by shard %d", self._host.name, shard)
        self.state = SpoolState.ON
        waiting, self._waiting = self._waiting, []
        for submission in waiting:
            self.takes_over(submission)

    def resume(self, through: Host, waiting_bytes: dict[str, int]) -> None:
        """At a start: another shard keeps something for entities of this one."""
        self._through = through
        self.since_ms = self._host.clock.now().wall_ms
        self.waiting_bytes.update(waiting_bytes)
        self.state = SpoolState.ON if not _is_well(self._host) else SpoolState.DRAINING

    def look_at_disk(self) -> None:
        """The shard takes writes. With a full disk it is sick all the same."""
        if self._host.namespace.store.is_nearly_full():
            self.begin()
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(
                    limits.STORE_RECOVERY_SECONDS, self._look_again
                )
        elif self.state is SpoolState.ON:
            self.state = SpoolState.DRAINING
            if self._host.mover is not None:
                self._host.mover.accepts_again()
            self.look()

    def _look_again(self) -> None:
        """Let a turn measure the disk, also if no client asks for one."""
        self._timer = None
        self._host.tick()

    def look(self) -> None:
        """See how much is left, after some of it was carried."""
        if self.state not in (SpoolState.DRAINING, SpoolState.ENDING):
            return
        left = self.rows + self._handed_in
        if left == 0:
            self._end()
        elif left <= limits.SPOOL_TAIL_ROWS:
            self.state = SpoolState.ENDING

    def _end(self) -> None:
        log.warning("all that was kept for %s is there", self._host.name)
        self.state = SpoolState.OFF
        self._through = self.since_ms = None
        self.waiting_bytes.clear()
        waiting, self._waiting = self._waiting, []
        for submission in waiting:
            self._host.queue(submission)

    # -- sends -------------------------------------------------------------------------

    def submit(self, submission: Submission, send: Send) -> None:
        """Take a send; its reply is told when another shard has it on disk."""
        if self.state is SpoolState.ENDING:
            self._waiting.append(submission)
            return
        through = self._through
        assert through is not None
        if through.fault is not None:
            submission.taken = True
            submission.reply.failed(through.fault)
            return
        self._handed_in += 1
        # From now on what is sent to the entity comes behind this, also if the shard
        # is well before it is kept.
        self.add(send.entity.key, 0)
        submission.reply = _SpoolReply(self, submission.reply)
        submission.command = SpoolSend(send, self)
        through.queue(submission)

    def add(self, key: str, size_bytes: int) -> None:
        """So much waits for an entity; less than zero if it has arrived."""
        with self._adding:
            self.waiting_bytes[key] += size_bytes

    def handed_over(self) -> None:
        """A command was carried out, or refused."""
        self._handed_in -= 1
        self.look()


class SpoolSend:
    """A send to an entity of a sick shard, in a turn of another (`turn.Command`)."""

    __slots__ = ("_send", "_spool")
    # Each delivery can fail alone.
    divides = True

    def __init__(self, send: Send, spool: ShardSpool) -> None:
        self._send = send
        self._spool = spool

    def __call__(self, namespace: Namespace, turn: Turn) -> dict[int, TwinbusError]:
        """Keep each delivery; returns those that were refused, by their place."""
        refused: dict[int, TwinbusError] = {}
        for place, messages in enumerate(self._send.each()):
            try:
                with namespace.part():
                    self._keep(namespace, messages, turn)
            except StoreFault:
                raise
            except Exception as error:  # noqa: BLE001
                refused[place] = answerable(error, namespace)
        return refused

    def _keep(
        self, namespace: Namespace, messages: Sequence[Incoming], turn: Turn
    ) -> None:
        entity = self._send.entity
        its = namespace.shards[entity.shard]
        if its.entities.find(entity.key) is not entity:
            raise EntityNotFound(entity.name)
        size = sum(len(message.bare) for message in messages)
        waiting_bytes = self._spool.waiting_bytes[entity.key]
        its.check_messages(entity, messages, Turn(turn.now), waiting_bytes)
        counts = namespace.store.outbox().get(entity.shard)
        if counts is not None and counts.size_bytes + size > limits.SPOOL_BYTES_MAX:
            raise SpoolFull
        if any(each.content_type == PING_CONTENT_TYPE for each in messages):
            entity.count("pings", 1, namespace.undo_log)
            namespace.prove_write(turn)
        self._spool.add(entity.key, namespace.spool(entity, messages, turn))


class _SpoolReply:
    """Tells the spool that a command is done, and then its client (`host.Reply`)."""

    __slots__ = ("_reply", "_spool")

    def __init__(self, spool: ShardSpool, reply: Any) -> None:
        self._spool = spool
        self._reply = reply

    def done(self, result: Any) -> None:
        """It is on disk."""
        self._spool.handed_over()
        self._reply.done(result)

    def failed(self, error: TwinbusError) -> None:
        """It did not happen."""
        self._spool.handed_over()
        self._reply.failed(error)


def _is_well(host: Host) -> bool:
    return host.fault is None and not host.namespace.store.is_nearly_full()


def _stored_bytes(host: Host) -> int:
    return host.namespace.store.stored_bytes()
