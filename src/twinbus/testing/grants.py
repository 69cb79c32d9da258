"""The rules about locks: one holder at a time, settled once, counted right.

Owns what may follow a grant, and when. Times given by the broker (lock ends) are
compared with each other as exactly as a wall clock allows; times that clients read have
the slack of the rules. Knows nothing about producers or about other messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from twinbus import limits
from twinbus.testing.copies import NEVER, Copy, Grant, Index
from twinbus.testing.events import Event
from twinbus.testing.verdict import HistoryVerdict

# Settlements after which the copy is no longer in its queue.
_REMOVING = ("complete", "dead_letter")
_FREEING = ("abandon", "release", "defer")


def granted_at(index: Index, grant: Grant) -> float | None:
    """When the broker granted the lock, by its own clock, where that can be told."""
    receive = grant.receive
    lock_ms = index.rules.of(index.place(receive.queue)[0]).lock_ms
    if lock_ms and receive.lock_until and not receive.session:
        return receive.lock_until - lock_ms
    return None


def check_copy(index: Index, copy: Copy, verdict: HistoryVerdict) -> None:
    """Everything that concerns the locks of one stored message."""
    verdict.counts["deliveries"] += len(copy.grants)
    verdict.counts["delivered_again"] += max(len(copy.grants) - 1, 0)
    _Judge(index, copy, verdict).check()


def check_session(
    index: Index,
    name: tuple[str, str],
    grants: Sequence[Grant],
    verdict: HistoryVerdict,
) -> None:
    """A session has one holder at a time. Closing its link frees it at once."""
    for first, second in pairwise(sorted(grants, key=index.granted_order)):
        held, taken = first.receive, second.receive
        lost_at = index.losses.first_after(held.process, held.link, held.invoke_at)
        free_at = min(first.lock_end, lost_at)
        if taken.end_at + index.rules.slack_ms < free_at:
            text = f"session held by {held.process} given to {taken.process}"
            verdict.convict("overlap", name[0], name[1], text)


def _may_be_uncounted(grant: Grant) -> bool:
    """Whether a grant may have ended without raising the count."""
    return any(
        settle.op in ("release", "defer") and settle.result != "fail"
        for settle in grant.settles
    )


class _Judge:
    """The rules, applied to one copy."""

    def __init__(self, index: Index, copy: Copy, verdict: HistoryVerdict) -> None:
        self.index = index
        self.copy = copy
        self.verdict = verdict
        self.slack = index.rules.slack_ms
        self.rules = index.rules.of(copy.account.queue)
        # Grants so far that may have ended without raising the count.
        self.uncounted = 0

    def convict(self, kind: str, text: str) -> None:
        account = self.copy.account
        self.verdict.convict(kind, account.queue, account.key, text)

    def check(self) -> None:
        grants = self.copy.grants
        for place, grant in enumerate(grants):
            after = grants[place + 1] if place + 1 < len(grants) else None
            if after:
                self.check_next(grant, after)
            if grant.settles:
                self.check_settles(grant, after)
            if grant.receive.delivery_count:
                self.check_count(place, grant)
            self.uncounted += _may_be_uncounted(grant)
        if grants and self.copy.account.cancels and self.cancelled:
            self.convict("resurrected", "cancelled, but delivered")
        if self.copy.drains:
            self.check_drains()
        if self.copy.dead:
            self.check_reason()

    @property
    def cancelled(self) -> bool:
        """Whether every send of this id was taken back again."""
        account = self.copy.account
        taken_back = sum(cancel.result == "ok" for cancel in account.cancels)
        stored = sum(send.result != "fail" for send in account.sends)
        return taken_back >= stored > 0

    # -- one grant after another ---------------------------------------------------

    def check_next(self, grant: Grant, after: Grant) -> None:
        """Another grant needs a reason."""
        removal = self.removal(grant)
        if grant.deletes or removal:
            since = removal.invoke_at if removal else grant.receive.invoke_at
            exact = granted_at(self.index, after)
            seen_at = after.receive.end_at if exact is None else exact + self.slack
            if seen_at < since:
                self.convict("settle", "settled after the lock had gone to another")
            else:
                verb = removal.op if removal else "receive-and-delete"
                self.convict("resurrected", f"delivered again after {verb}")
            return
        if grant.settled("defer", "ok") and after.receive.mode != "deferred":
            self.convict("settle", "deferred, but delivered like any other")
            return
        self.check_overlap(grant, after)

    def check_overlap(self, grant: Grant, after: Grant) -> None:
        lock_end, freed_at = grant.lock_end, self.freed_at(grant)
        exact = granted_at(self.index, after)
        if exact is not None:
            told_ms = (
                limits.CLOCK_ROUNDED_MS + self.rules.lock_ms * limits.CLOCK_SLEWED_MAX
            )
            early = exact + told_ms < lock_end and exact + self.slack < freed_at
            given_at = exact
        else:
            given_at = after.receive.end_at
            early = given_at + self.slack < min(lock_end, freed_at)
        if early and lock_end < NEVER:
            gap = f"{min(lock_end, freed_at) - given_at:.0f} ms before the lock ended"
            who = f"{grant.receive.process} held it, {after.receive.process} got it"
            self.convict("overlap", f"{who} {gap}")
        elif early:
            self.convict("duplicate", "delivered again while it was held")

    def removal(self, grant: Grant) -> Event | None:
        for op in _REMOVING:
            settle = grant.settled(op, "ok")
            if settle:
                return settle
        return None

    def freed_at(self, grant: Grant) -> float:
        """When something other than the end of the lock may have freed the message."""
        receive = grant.receive
        lenient = bool(receive.session) or not self.rules.strict_locks
        freed = NEVER
        for settle in grant.settles:
            allowed = ("ok", "unknown") if settle.op in _FREEING else ("unknown",)
            if settle.result in allowed and (lenient or settle.op in _FREEING):
                freed = min(freed, settle.invoke_at)
        if lenient:
            freed = min(freed, self.link_lost_at(grant))
        return freed

    def link_lost_at(self, grant: Grant) -> float:
        receive = grant.receive
        losses = self.index.losses
        return losses.first_after(receive.process, receive.link, receive.invoke_at)

    # -- settlements ---------------------------------------------------------------

    def check_settles(self, grant: Grant, after: Grant | None) -> None:
        accepted = [settle for settle in grant.settles if settle.result == "ok"]
        outcomes = {settle.op for settle in accepted} - {"renew"}
        if len(outcomes) > 1:
            self.convict("settle", f"both accepted: {' and '.join(sorted(outcomes))}")
        if grant.deletes and outcomes:
            self.convict("settle", "settled, though it was deleted on receipt")
        if accepted:
            self.check_late(grant, after, accepted[0])
        for settle in grant.settles:
            if settle.result == "fail":
                self.check_refused(grant, settle)

    def check_late(self, grant: Grant, after: Grant | None, settle: Event) -> None:
        """A settlement after the end of the lock must be refused."""
        late_ms = settle.invoke_at - grant.lock_end
        if settle.op == "renew":
            # Kept only because it was late when it came.
            self.convict("settle", "renewed after the lock had ended")
        elif late_ms > self.slack and not grant.renewed_maybe:
            text = f"{settle.op} accepted {late_ms:.0f} ms after the lock ended"
            self.convict("settle", text)
        elif after and settle.op not in _REMOVING:
            given_at = granted_at(self.index, after) or after.receive.end_at
            if given_at + self.slack < settle.invoke_at:
                self.convict("settle", f"{settle.op} accepted for a lock of another")

    def check_refused(self, grant: Grant, settle: Event) -> None:
        """A settlement inside the lock must not be refused as too late."""
        if not settle.error.replace("_", "-").endswith("lock-lost"):
            return
        earlier = any(
            other is not settle
            and other.result != "fail"
            and other.invoke_at <= settle.end_at
            for other in grant.settles
        )
        strict = self.rules.strict_locks and not grant.receive.session
        lost = not strict and self.link_lost_at(grant) <= settle.end_at
        held = grant.lock_end < NEVER and settle.end_at + self.slack < grant.lock_end
        if held and not earlier and not lost:
            left_ms = grant.lock_end - settle.end_at
            self.convict("settle", f"refused {left_ms:.0f} ms before the lock ended")

    # -- delivery counts -----------------------------------------------------------

    def check_count(self, place: int, grant: Grant) -> None:
        """One more than the grants that ended without a completion."""
        count = grant.receive.delivery_count
        limit = self.rules.max_delivery_count
        if self.copy.dead:
            # It arrives with the count of its former life.
            return
        if limit and count > limit and grant.receive.mode != "deferred":
            self.convict("count", f"delivery {count} of at most {limit}")
        low, high = 1 + place - self.uncounted, NEVER
        if self.rules.exact_counts:
            hidden = self.hidden_before(grant.receive.end_at)
            high = 1 + place + hidden
        if not low <= count <= high:
            wanted = f"{low}" if low == high else f"{low} to {high}"
            self.convict("count", f"delivery count {count} instead of {wanted}")

    def hidden_before(self, at: float) -> int:
        account = self.copy.account
        born_at = min((send.invoke_at for send in account.sends), default=-NEVER)
        return self.index.hidden_between(account.queue, born_at, at)

    # -- the final look ------------------------------------------------------------

    def check_drains(self) -> None:
        copy = self.copy
        drain = copy.drains[0]
        if len(copy.drains) > 1:
            self.convict("duplicate", f"found {len(copy.drains)} times at the end")
        for grant in copy.grants:
            if grant.deletes or grant.settled("complete", "ok"):
                self.convict("resurrected", "completed, but still there at the end")
            elif grant.settled("dead_letter", "ok"):
                self.convict("settle", "dead-lettered, but still in its queue")
        if self.cancelled:
            self.convict("resurrected", "cancelled, but still there at the end")
        if drain.state and not copy.dead:
            self.check_state(drain)

    def check_state(self, drain: Event) -> None:
        """The state that the model would be in, as far as it is known."""
        grants = self.copy.grants
        deferred = any(grant.settled("defer", "ok", "unknown") for grant in grants)
        last = grants[-1] if grants else None
        if drain.state == "deferred" and not deferred:
            self.convict("settle", "deferred at the end, though it was never deferred")
        if drain.state != "deferred" and last and last.settled("defer", "ok"):
            self.convict("settle", f"deferred, but {drain.state} at the end")
        due_at = min((send.not_before for send in self.copy.account.sends), default=0)
        if drain.state == "scheduled" and due_at + self.slack < drain.invoke_at:
            self.convict("time", "still scheduled after its time")
        if drain.state == "active" and due_at > drain.end_at + self.slack:
            self.convict("time", "active before its time")
        limit = self.rules.max_delivery_count
        counted = len(grants) - self.uncounted
        abandoned = drain.state == "active" and last and last.settled("abandon", "ok")
        if abandoned and limit and counted >= limit:
            self.convict("count", f"still active after {counted} deliveries")

    def check_reason(self) -> None:
        """Dead-lettered means by a receiver, by its age, or at its last delivery."""
        account, limit = self.copy.account, self.rules.max_delivery_count
        grants = [grant for copy in account.main for grant in copy.grants]
        asked = any(grant.settled("dead_letter", "ok", "unknown") for grant in grants)
        mortal = self.rules.ttl_ms or any(send.ttl_ms for send in account.sends)
        if asked or mortal or not limit:
            return
        if self.rules.exact_counts and len(grants) + self.hidden_before(NEVER) < limit:
            text = f"dead-lettered after {len(grants)} of {limit} deliveries"
            self.convict("count", text)
