"""What time does to a namespace: locks and sessions that end, expiry, schedules.

Owns the order in which these are worked off, and how a part of them that fails is kept
from the others. Knows nothing of the loop that calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.clock import Now
from twinbus.core.durations import DURATION_MAX_MS
from twinbus.core.names import SubQueue
from twinbus.errors import StoreFault
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.sending.letter import error_text
from twinbus.server.broker.turn import Turn, answerable
from twinbus.store.base import FOREVER_MS, EndedLock, Store, Stored
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON

if TYPE_CHECKING:
    from twinbus.server.broker.namespace import Namespace

log = logging.getLogger("twinbus.tick")


class Ticker:
    """Works off what time has brought to one namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._store = namespace.store
        # By the steady clock.
        self._idle_checked_ms = -FOREVER_MS

    def use_store(self, store: Store) -> None:
        """Go on with that store."""
        self._store = store

    def tick(self, turn: Turn) -> bool:
        """Work off what time has brought; True if there is more to do at once.

        Each kind of work is a part: if one fails, the others are done all the same.
        """
        most = self._count_part(self._end_locks, turn, self._end_each)
        for work in (
            self.end_sessions,
            self._expire_all,
            self._activate,
            self._forget,
        ):
            most = max(most, self._count_part(work, turn))
        fans_out = self._count_part(self._fan_out, turn)
        steady_ms = turn.now.steady_ms
        if steady_ms - self._idle_checked_ms >= limits.IDLE_CHECK_MS:
            self._count_part(self._clean_up, turn)
            self._idle_checked_ms = steady_ms
        return most >= limits.SWEEP_MAX or fans_out > 0

    def _count_part(
        self,
        work: Callable[[Turn], int],
        turn: Turn,
        otherwise: Callable[[Turn], int] = lambda _turn: 0,
    ) -> int:
        """Do a part of the tick; returns how many items there were."""
        try:
            with self._namespace.part():
                return work(turn)
        except StoreFault:
            raise
        except Exception as error:  # noqa: BLE001
            answerable(error, self._namespace)
            return otherwise(turn)

    def _end_locks(self, turn: Turn) -> int:
        locks = self._store.end_locks(turn.now, limits.SWEEP_MAX)
        self._namespace.returned(locks, turn)
        return len(locks)

    def _end_each(self, turn: Turn) -> int:
        """End locks one by one; a message that cannot be unlocked is quarantined."""
        ids = self._store.ended_locks(turn.now, limits.END_ALONE_MAX)
        for key in ids:
            try:
                with self._namespace.part():
                    ended = self._store.end_lock(key)
            except StoreFault:
                raise
            except Exception as error:  # noqa: BLE001
                self._store.quarantine(key, error_text(error))
            else:
                self._count_part(partial(self._return_all, ended), turn)
        return len(ids)

    def _return_all(self, ended: Sequence[EndedLock], turn: Turn) -> int:
        self._namespace.returned(ended, turn)
        return len(ended)

    def _expire_all(self, turn: Turn) -> int:
        expired = self._store.expired(turn.now, limits.SWEEP_MAX)
        for stored in expired:
            self._expire(stored, turn)
        return len(expired)

    def _activate(self, turn: Turn) -> int:
        activate = self._namespace.router.activate
        done = 0
        while due := self._store.due(turn.now, limits.SWEEP_STEP):
            for stored in due:
                turn.left -= 1
                work = partial(activate, stored, turn)
                self._namespace.work_off(stored, work, "enqueued at its time", turn)
            done += len(due)
            if done >= limits.SWEEP_MAX or turn.is_full:
                return limits.SWEEP_MAX
        return done

    def _fan_out(self, turn: Turn) -> int:
        """Copy messages that topics have kept whole; 0 if no more is to be done."""
        router = self._namespace.router
        while waiting := router.next_postponed():
            if turn.is_full:
                return 1
            try:
                with self._namespace.part():
                    router.fan_out(waiting, turn)
            except StoreFault:
                raise
            except Exception:  # noqa: BLE001
                self._fan_out_each(waiting, turn)
        return 0

    def _fan_out_each(self, waiting: Sequence[Stored], turn: Turn) -> None:
        """Copy messages one by one; the one that cannot be copied is set aside."""
        for stored in waiting:
            work = partial(self._namespace.router.fan_out, [stored], turn)
            self._namespace.work_off(stored, work, "copied to subscriptions", turn)
            if turn.is_full:
                return

    def _clean_up(self, turn: Turn) -> int:
        self._delete_idle(turn)
        return 0

    def _forget(self, turn: Turn) -> int:
        """Forget old duplicate history, and what deleted entities hold."""
        found = self._store.forget_duplicates(turn.now, limits.SWEEP_MAX)
        turn.left -= found
        more = self._namespace.entities.empty_retired(turn)
        return limits.SWEEP_MAX if more else found

    def end_sessions(self, turn: Turn) -> int:
        """Take back session locks whose time is over; their links are told later."""
        sessions = self._store.end_sessions(turn.now, limits.SWEEP_MAX)
        for session in sessions:
            turn.ready.add(session.container)
            self._namespace.returned(session.messages, turn)
        if sessions:
            self._namespace.undo_log.extend(turn.ended_sessions, sessions)
        return len(sessions)

    def _expire(self, stored: Stored, turn: Turn) -> None:
        entity = self._namespace.entities.of_container(stored.container)
        if entity is not None:
            entity.count("expired", 1, self._namespace.undo_log)
        if entity is None or not entity.dead_letters_expired:
            work = partial(self._store.remove, [stored.id])
            self._namespace.work_off(stored, work, "removed at its time", turn)
            return
        marks = {
            DEAD_LETTER_REASON: "TTLExpiredException",
            DEAD_LETTER_DESCRIPTION: "The message expired and was dead lettered.",
        }
        self._namespace.bury(stored, marks, turn)

    def _delete_idle(self, turn: Turn) -> None:
        for entity in self._namespace.entities:
            idle_ms = entity.description.auto_delete_on_idle_ms
            if self._namespace.entities.find(entity.key) is not entity:
                continue
            if not entity.is_home:
                continue
            if self._is_in_use(entity):
                self._tell_use(entity, idle_ms, turn)
                continue
            if self._idle_ms(entity, turn.now) >= idle_ms:
                self._delete_if_possible(entity, turn)

    def _tell_use(self, entity: Entity, idle_ms: int, turn: Turn) -> None:
        """Let other nodes see that consumers of this one use an entity."""
        if self._store.is_remote and idle_ms < DURATION_MAX_MS:
            self._store.touch(entity.id, turn.now)

    def _is_in_use(self, entity: Entity) -> bool:
        """Whether an entity has consumers, in any of its fragments."""
        shards = self._namespace.shards
        return any(
            each.container(sub_queue) in shards[each.shard].in_use
            for each in shards.fragments(entity)
            for sub_queue in SubQueue
        )

    def _idle_ms(self, entity: Entity, now: Now) -> int:
        """How long an entity has not been used.

        By the steady clock, though its use is kept in wall time: setting the clock
        must not delete messages. A use that the last look has not seen came after it.
        """
        accessed_ms = self._namespace.shards.counts(entity).accessed_ms
        used = (accessed_ms, entity.updated_ms)
        if used != entity.used:
            entity.used = used
            age_ms = now.wall_ms - max(*used, entity.created_ms)
            since_ms = now.steady_ms - max(age_ms, 0)
            entity.idle_since_ms = max(since_ms, self._idle_checked_ms)
        return now.steady_ms - entity.idle_since_ms

    def _delete_if_possible(self, entity: Entity, turn: Turn) -> None:
        """Delete an idle entity; one that cannot be is tried again at the next look."""
        try:
            with self._namespace.part():
                self._namespace.delete(entity.path, turn)
        except StoreFault:
            raise
        except Exception:
            log.exception("the idle entity %s could not be deleted", entity.name)
