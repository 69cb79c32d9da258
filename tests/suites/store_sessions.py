"""Suite: sessions have one holder, an order and a state."""

from __future__ import annotations

import pytest

from tests.suites.store_suite import (
    LATER,
    NOW,
    StoreSuite,
    at,
    bodies,
    locks,
    record,
    records,
)
from twinbus.store.base import SEQUENCE_BITS, EndedLock, Lock, SessionGrant, Store


def accept(
    store: Store, queue: int, name: str | None, now_ms: int = NOW
) -> SessionGrant:
    """Lock a session until NOW + 10; it must be free."""
    grant = store.accept_session(queue, name, NOW + 10, at(now_ms))
    assert grant is not None
    return grant


class AcceptSuite(StoreSuite):
    """Who gets a session."""

    def test_a_session_without_messages_can_be_locked_by_name(
        self, store: Store, queue: int
    ) -> None:
        grant = accept(store, queue, "s")

        assert (grant.name, grant.until_ms) == ("s", NOW + 10)
        assert store.session_held(queue, grant, at(NOW))

    def test_a_held_session_is_not_given_to_another(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", session="s"), at(NOW))
        accept(store, queue, "s")

        assert store.accept_session(queue, "s", LATER, at(NOW)) is None
        assert store.accept_session(queue, None, LATER, at(NOW)) is None

    def test_a_session_of_the_same_name_elsewhere_is_another(
        self, store: Store, queue: int, other: int
    ) -> None:
        grant = accept(store, queue, "s")

        assert accept(store, other, "s").nonce != grant.nonce
        assert store.session_held(queue, grant, at(NOW))

    def test_any_session_means_one_with_active_messages(
        self, store: Store, queue: int
    ) -> None:
        store.append(
            queue, [record("x"), record("d", session="d", due_ms=LATER)], at(NOW)
        )
        store.put_session_state(queue, "state", b"state", at(NOW))
        assert store.accept_session(queue, None, LATER, at(NOW)) is None

        store.append(queue, records("a", session="s"), at(NOW))

        assert accept(store, queue, None).name == "s"

    def test_a_session_with_deferred_messages_alone_is_not_any_session(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        nonce, held = store.lock(queue, 1, LATER, at(NOW), grant)
        store.defer(locks(nonce, held)[0], at(NOW))
        store.release_session(queue, grant, at(NOW), count=False)

        assert store.accept_session(queue, None, LATER, at(NOW)) is None

    def test_of_several_the_one_that_waited_longest_is_given(
        self, store: Store, queue: int
    ) -> None:
        for now_ms, name in ((1, "b"), (2, "a"), (3, "c")):
            store.append(queue, [record(session=name)], at(now_ms))

        served = []
        for now_ms in (4, 5, 6, 7):
            grant = accept(store, queue, None, now_ms)
            served.append(grant.name)
            store.release_session(queue, grant, at(now_ms), count=False)

        assert served == ["b", "a", "c", "b"]

    def test_a_session_waits_from_its_release(self, store: Store, queue: int) -> None:
        store.append(queue, records("ab", session="a"), at(1))
        store.append(queue, records("ab", session="b"), at(2))
        first, second = accept(store, queue, None, 3), accept(store, queue, None, 4)

        store.release_session(queue, second, at(5), count=False)
        store.release_session(queue, first, at(6), count=False)

        assert accept(store, queue, None, 7).name == "b"

    def test_the_empty_name_is_a_name(self, store: Store, queue: int) -> None:
        store.append(queue, records("a", session=""), at(NOW))

        grant = accept(store, queue, None)

        assert grant.name == ""
        assert bodies(store.lock(queue, 9, LATER, at(NOW), grant)[1]) == "a"
        assert store.accept_session(queue, "", LATER, at(NOW)) is None

    @pytest.mark.parametrize("name", ["s", None])
    def test_a_session_whose_lock_has_ended_is_free_with_counts_raised(
        self, store: Store, queue: int, name: str | None
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        old = accept(store, queue, "s")
        store.lock(queue, 1, LATER, at(NOW), old)

        new = store.accept_session(queue, name, NOW + 20, at(NOW + 10))

        assert new is not None
        assert not store.session_held(queue, old, at(NOW + 10))
        held = store.lock(queue, 9, LATER, at(NOW + 10), new)[1]
        assert [(m.bare, m.deliveries) for m in held] == [(b"a", 1), (b"b", 0)]


class SessionLockSuite(StoreSuite):
    """How long a session is held, and what happens at its end."""

    def test_a_session_is_held_until_its_end(self, store: Store, queue: int) -> None:
        grant = accept(store, queue, "s")

        assert store.session_held(queue, grant, at(NOW + 9))
        assert not store.session_held(queue, grant, at(NOW + 10))

    def test_the_stored_session_end_counts_not_the_grants(
        self, store: Store, queue: int
    ) -> None:
        grant = accept(store, queue, "s")

        assert store.session_held(queue, grant._replace(until_ms=0), at(NOW + 9))
        assert not store.session_held(
            queue, grant._replace(until_ms=LATER), at(NOW + 10)
        )

    def test_another_nonce_holds_nothing(self, store: Store, queue: int) -> None:
        grant = accept(store, queue, "s")
        forged = grant._replace(nonce=grant.nonce ^ 1)

        assert not store.session_held(queue, forged, at(NOW))
        assert not store.renew_session(queue, forged, LATER, at(NOW))
        assert store.release_session(queue, forged, at(NOW), count=True) == []
        assert store.session_held(queue, grant, at(NOW))

    def test_renewal_moves_the_end(self, store: Store, queue: int) -> None:
        grant = accept(store, queue, "s")

        assert store.renew_session(queue, grant, NOW + 20, at(NOW + 9))

        assert store.session_held(queue, grant, at(NOW + 19))
        assert store.next_wait_ms(at(0)) == NOW + 20

    def test_a_session_lock_that_has_ended_is_not_renewed(
        self, store: Store, queue: int
    ) -> None:
        grant = accept(store, queue, "s")

        assert not store.renew_session(queue, grant, NOW + 20, at(NOW + 10))

    def test_a_released_session_is_free_at_once(self, store: Store, queue: int) -> None:
        grant = accept(store, queue, "s")

        store.release_session(queue, grant, at(NOW), count=False)

        assert not store.session_held(queue, grant, at(NOW))
        accept(store, queue, "s")

    def test_release_gives_locked_messages_back_in_order(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abcd", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        nonce, held = store.lock(queue, 3, LATER, at(NOW), grant)
        store.complete(locks(nonce, held[:1]), at(NOW))

        ended = store.release_session(queue, grant, at(NOW), count=True)

        assert ended == [EndedLock(held[1].id, 1, "s"), EndedLock(held[2].id, 1, "s")]
        again = accept(store, queue, "s")
        assert bodies(store.lock(queue, 9, LATER, at(NOW), again)[1]) == "bcd"

    def test_release_without_count_keeps_the_delivery_counts(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        _, held = store.lock(queue, 1, LATER, at(NOW), grant)

        ended = store.release_session(queue, grant, at(NOW), count=False)

        assert ended == [EndedLock(held[0].id, 0, "s")]
        assert store.find(queue, [1]) == held

    def test_ended_session_locks_are_told_and_given_back(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        second = accept(store, other, "t")
        store.lock(queue, 1, LATER, at(NOW), grant)

        assert store.end_sessions(at(NOW + 9), 10) == []
        assert sorted(store.end_sessions(at(NOW + 10), 10)) == [
            (queue, "s", grant.nonce, [EndedLock(queue << SEQUENCE_BITS | 1, 1, "s")]),
            (other, "t", second.nonce, []),
        ]
        assert store.end_sessions(at(NOW + 10), 10) == []

        assert store.find(queue, [1])[0].deliveries == 1
        again = accept(store, queue, "s")
        assert bodies(store.lock(queue, 9, LATER, at(NOW), again)[1]) == "ab"

    def test_no_more_sessions_end_than_the_limit(
        self, store: Store, queue: int
    ) -> None:
        for name in "abc":
            accept(store, queue, name)

        assert len(store.end_sessions(at(NOW + 10), 2)) == 2
        assert len(store.end_sessions(at(NOW + 10), 2)) == 1


class SessionMessageSuite(StoreSuite):
    """Messages of a held session."""

    def test_only_messages_of_the_session_are_locked_with_its_nonce(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        store.append(queue, [record("x"), record("y", session="t")], at(NOW))
        store.append(queue, records("c", session="s"), at(NOW))
        store.append(other, records("z", session="s"), at(NOW))
        grant = accept(store, queue, "s")

        nonce, held = store.lock(queue, 9, LATER, at(NOW), grant)

        assert nonce == grant.nonce
        assert bodies(held) == "abc"

    def test_messages_come_in_order_across_calls_and_new_ones_follow(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc", session="s"), at(NOW))
        grant = accept(store, queue, "s")

        assert bodies(store.lock(queue, 2, LATER, at(NOW), grant)[1]) == "ab"
        assert bodies(store.lock(queue, 2, LATER, at(NOW), grant)[1]) == "c"
        assert bodies(store.lock(queue, 2, LATER, at(NOW), grant)[1]) == ""
        store.append(queue, records("d", session="s"), at(NOW))
        assert bodies(store.lock(queue, 2, LATER, at(NOW), grant)[1]) == "d"

    def test_messages_are_held_while_the_session_is(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        nonce, held = store.lock(queue, 1, 0, at(NOW), grant)
        lock = Lock(held[0].id, nonce)

        assert store.held(lock, at(NOW + 9)) == held[0]
        assert store.held(lock, at(NOW + 10)) is None
        store.renew_session(queue, grant, NOW + 20, at(NOW))
        assert store.held(lock, at(NOW + 19)) == held[0]

    def test_a_late_settlement_of_a_session_message_changes_nothing(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        late = locks(*store.lock(queue, 2, LATER, at(NOW), grant))

        assert store.complete(late, at(NOW + 10)) == [False, False]
        assert store.release(late, at(NOW + 10), count=True) == []
        assert not store.defer(late[0], at(NOW + 10))
        store.release_session(queue, grant, at(NOW + 10), count=True)
        accept(store, queue, "s")
        assert store.complete(late, at(NOW)) == [False, False]
        assert store.counts(queue).active == 2

    def test_without_the_session_lock_nothing_is_given(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        forged = grant._replace(nonce=grant.nonce ^ 1)

        assert store.lock(queue, 9, LATER, at(NOW), forged)[1] == []
        assert store.take(queue, 9, at(NOW), forged) == []
        assert store.lock(queue, 9, LATER, at(NOW + 10), grant)[1] == []
        assert bodies(store.lock(queue, 9, LATER, at(NOW), grant)[1]) == "ab"

    def test_an_abandoned_message_stands_at_its_old_place(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abcd", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        nonce, held = store.lock(queue, 3, LATER, at(NOW), grant)

        store.release([locks(nonce, held)[1]], at(NOW), count=True)

        assert bodies(store.lock(queue, 9, LATER, at(NOW), grant)[1]) == "bd"
        assert bodies(store.lock(queue, 9, LATER, at(NOW), grant)[1]) == ""

    def test_messages_of_a_session_are_taken_in_order(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc", session="s"), at(NOW))
        grant = accept(store, queue, "s")

        assert bodies(store.take(queue, 2, at(NOW), grant)) == "ab"
        assert bodies(store.take(queue, 2, at(NOW), grant)) == "c"
        assert store.counts(queue).active == 0

    def test_expired_messages_of_a_session_are_passed_over(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", session="s", expires_ms=NOW + 5)], at(NOW))
        store.append(queue, records("b", session="s"), at(NOW))
        grant = accept(store, queue, "s")

        assert bodies(store.lock(queue, 9, LATER, at(NOW + 5), grant)[1]) == "b"

    def test_renewing_the_lock_of_a_session_message_leaves_it_with_the_session(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        (lock,) = locks(*store.lock(queue, 1, LATER, at(NOW), grant))

        assert store.renew(lock, NOW + 5, at(NOW))

        assert store.held(lock, at(NOW + 9)) is not None
        assert store.held(lock, at(NOW + 10)) is None
        assert not store.renew(lock, LATER, at(NOW + 10))

    def test_deferred_messages_of_a_held_session_are_locked_with_it(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        nonce, held = store.lock(queue, 1, LATER, at(NOW), grant)
        store.defer(locks(nonce, held)[0], at(NOW))

        assert store.lock_deferred([held[0].id], NOW + 5, at(NOW)) == grant.nonce

        assert store.held(Lock(held[0].id, grant.nonce), at(NOW + 9)) is not None
        ended = store.release_session(queue, grant, at(NOW), count=True)
        assert ended == [EndedLock(held[0].id, 2, "s")]
        store.lock_deferred([held[0].id], LATER, at(NOW))

    def test_without_a_holder_deferred_messages_of_a_session_have_their_own_lock(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", session="s"), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        store.defer(locks(nonce, held)[0], at(NOW))

        nonce = store.lock_deferred([held[0].id], NOW + 5, at(NOW))

        assert store.held(Lock(held[0].id, nonce), at(NOW + 4)) is not None
        assert store.end_locks(at(NOW + 5), 10) == [EndedLock(held[0].id, 2, "s")]

    def test_a_message_is_not_ready_both_with_and_without_its_session(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc", session="s"), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        grant = accept(store, queue, "s")

        assert bodies(store.lock(queue, 1, LATER, at(NOW), grant)[1]) == "b"
        assert self.receive(store, queue) == "c"
        assert store.lock(queue, 9, LATER, at(NOW), grant)[1] == []
        store.release(locks(nonce, held), at(NOW), count=False)
        assert bodies(store.lock(queue, 9, LATER, at(NOW), grant)[1]) == "a"
        store.release_session(queue, grant, at(NOW), count=False)
        assert self.receive(store, queue) == "ab"


class SessionStateSuite(StoreSuite):
    """What a session remembers, and which sessions there are."""

    def test_a_state_is_kept_replaced_and_cleared(
        self, store: Store, queue: int, other: int
    ) -> None:
        assert store.session_state(queue, "s") is None
        store.put_session_state(queue, "s", b"one", at(NOW))
        store.put_session_state(queue, "s", b"", at(NOW))
        assert store.session_state(queue, "s") == b""
        assert store.session_state(other, "s") is None

        store.put_session_state(queue, "s", None, at(NOW))

        assert store.session_state(queue, "s") is None

    def test_a_state_outlives_messages_and_lock(self, store: Store, queue: int) -> None:
        store.append(queue, records("a", session="s"), at(NOW))
        grant = accept(store, queue, "s")
        store.put_session_state(queue, "s", b"state", at(NOW))
        store.take(queue, 1, at(NOW), grant)
        store.release_session(queue, grant, at(NOW), count=False)

        assert store.session_state(queue, "s") == b"state"
        assert store.sessions(queue, None, 0, 10) == ["s"]

    def test_sessions_with_messages_or_state_are_listed_by_name(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("a", session="d"), at(NOW))
        store.append(queue, records("a", session="b", due_ms=LATER), at(NOW))
        store.put_session_state(queue, "c", b"state", at(NOW))
        store.put_session_state(queue, "b", b"state", at(NOW))
        accept(store, queue, "a")
        store.append(other, records("a", session="e"), at(NOW))

        assert store.sessions(queue, None, 0, 10) == ["b", "c", "d"]

    def test_a_session_whose_messages_are_gone_is_not_listed(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        store.defer(locks(nonce, held)[0], at(NOW))
        store.complete(locks(nonce, held[1:]), at(NOW))
        assert store.sessions(queue, None, 0, 10) == ["s"]

        store.remove([held[0].id])

        assert store.sessions(queue, None, 0, 10) == []

    def test_a_page_of_sessions_skips_and_stops(self, store: Store, queue: int) -> None:
        for name in "dbcae":
            store.append(queue, [record(session=name)], at(NOW))
            store.put_session_state(queue, name, b"state", at(NOW))

        assert store.sessions(queue, None, 1, 2) == ["b", "c"]
        assert store.sessions(queue, None, 4, 2) == ["e"]
        assert store.sessions(queue, None, 5, 2) == []
        assert store.sessions(queue, 0, 3, 9) == ["d", "e"]

    def test_with_a_time_sessions_are_listed_whose_state_was_set_since(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record(session="messages")], at(NOW))
        for now_ms, name in ((5, "a"), (6, "b"), (7, "c")):
            store.put_session_state(queue, name, b"state", at(now_ms))
        store.put_session_state(queue, "a", b"again", at(8))
        store.put_session_state(queue, "c", None, at(9))

        assert store.sessions(queue, 5, 0, 10) == ["a", "b"]
        assert store.sessions(queue, 6, 0, 10) == ["a"]
