"""All suites of the store's contract, so that each database passes the same ones.

A test file of a database takes them in with `globals().update(SUITES)`, and says in its
fixture `backend` where the store is.
"""

from __future__ import annotations

from tests.suites import (
    store_life,
    store_messages,
    store_outbox,
    store_savepoints,
    store_sessions,
    store_settling,
    store_times,
)

SUITES: dict[str, type] = {
    "TestTransactions": store_life.TransactionSuite,
    "TestSavepoints": store_savepoints.SavepointSuite,
    "TestEntities": store_life.EntitySuite,
    "TestCounts": store_life.CountSuite,
    "TestDuplicates": store_life.DuplicateSuite,
    "TestRecords": store_life.RecordSuite,
    "TestOutbox": store_outbox.OutboxSuite,
    "TestApplied": store_outbox.AppliedSuite,
    "TestMirror": store_outbox.MirrorSuite,
    "TestAppend": store_messages.AppendSuite,
    "TestLock": store_messages.LockSuite,
    "TestTake": store_messages.TakeSuite,
    "TestFind": store_messages.FindSuite,
    "TestPeek": store_messages.PeekSuite,
    "TestRemove": store_messages.RemoveSuite,
    "TestHold": store_settling.HoldSuite,
    "TestComplete": store_settling.CompleteSuite,
    "TestRelease": store_settling.ReleaseSuite,
    "TestDefer": store_settling.DeferSuite,
    "TestEndLocks": store_times.EndLocksSuite,
    "TestExpiry": store_times.ExpirySuite,
    "TestClock": store_times.ClockSuite,
    "TestDue": store_times.DueSuite,
    "TestNextTime": store_times.NextTimeSuite,
    "TestAccept": store_sessions.AcceptSuite,
    "TestSessionLock": store_sessions.SessionLockSuite,
    "TestSessionMessages": store_sessions.SessionMessageSuite,
    "TestSessionState": store_sessions.SessionStateSuite,
}
