"""The rules of paired namespaces, proved from what several processes wrote down.

Senders record their sends through paired senders and what their pairs tell
(`record_pairing`); receivers record what they get from the primary; a final look goes
through the primary and the backlog. From that, `check_paired` proves:

  * nothing that a paired sender accepted is lost: it was received, or it is found at
    the end in the primary or in a backlog queue;
  * a second copy has the same message id, and there is a reason for it: an outcome that
    its sender or the syphon never learnt;
  * it is never reported as accepted before a namespace has it;
  * no message is diverted unless its entity had failed over, in that process and at
    that time, and no entity fails over early or in spite of a success;
  * contents, session, time to live and scheduled time are as they were sent;
  * what one sender sent one after the other arrives in order, as far as that is
    promised: past the backlog always, through the backlog while one syphon works
    undisturbed;
  * no receiver sees a ping.

With a tap on the wire (`wiretap.py`) the reasons are exact, and the syphon is watched
as well: it takes nothing out of the backlog that is not home. The broker's own rules
(`history.py`) are checked on the primary all along.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from twinbus.pairing.rules.naming import backlog_index
from twinbus.testing.copies import NEVER, Account, Copy, Index
from twinbus.testing.events import Event, without_collector
from twinbus.testing.history import judge
from twinbus.testing.history_causes import (
    Disturbances,
    Occasions,
    check_trails,
    check_way_home,
    reasons,
    told_at,
)
from twinbus.testing.history_evidence import PairHealth, Wire
from twinbus.testing.history_report import PairedReport
from twinbus.testing.verdict import HistoryVerdict, QueueRules, Rules
from twinbus.wire.message.names import PING_CONTENT_TYPE

__all__ = ["PairedReport", "PairedRules", "check_paired"]


@dataclass(frozen=True, slots=True)
class PairedRules:
    """What was promised, and what is in the history."""

    # What stands for the primary in the paths of its backlog queues.
    primary: str
    # What the primary promises for its queues.
    namespace: Rules = field(default_factory=Rules)
    failover_interval_ms: float = 0
    # A tap has recorded everything that crossed the wire.
    witnessed: bool = False
    # How long an answer may take from the tap to the waiting process.
    wire_slack_ms: float = 1000
    # Receivers have recorded sessions, times to live and scheduled times.
    restored_recorded: bool = False


def check_paired(history: Iterable[Event], rules: PairedRules) -> PairedReport:
    """Judge the histories of all processes, chained in any order."""
    with without_collector():
        case = _Case(history, rules)
        verdict = judge(case.index)
        report = PairedReport(verdict)
        _check_backlog_drained(case, verdict)
        for event in case.pings:
            verdict.convict("ping", event.queue, event.key, f"seen by {event.process}")
        _check_renamed(case, verdict)
        for account in case.index.accounts.values():
            _check_account(case, account, report)
        _check_diverted(case, verdict)
        _check_order(case, verdict)
        if rules.witnessed:
            check_trails(case.wire, case.told(), verdict)
            check_way_home(case.wire, case.disturbances, verdict)
        _count(case, report)
        return report


class _Case:
    """The history, sorted by who has to look at what."""

    def __init__(self, history: Iterable[Event], rules: PairedRules) -> None:
        self.rules = rules
        self.pairing: list[Event] = []
        self.faults: list[Event] = []
        self.pings: list[Event] = []
        # Found in a backlog queue by the final look.
        self.waiting: list[Event] = []
        self.drained: set[str] = set()
        self._wired: list[Event] = []
        self._backlogs: dict[str, bool] = {}
        primary = [event for event in history if self._is_of_primary(event)]
        self.index = Index(primary, _without_copies(rules.namespace))
        self.health = PairHealth(self.pairing)
        self.wire = Wire(self._wired, rules.wire_slack_ms)
        for event in self.waiting:
            for queue in rules.namespace.destinations(event.path):
                self.index.elsewhere.add((queue, event.key))
        # When something happened that may have disturbed a syphon.
        detached = [event for event in self._wired if event.op == "detach"]
        self.disturbances = Disturbances(
            (event.invoke_at, event.end_at) for event in (*detached, *self.faults)
        )

    @property
    def slack(self) -> float:
        return self.rules.namespace.slack_ms

    def is_backlog(self, queue: str) -> bool:
        known = self._backlogs.get(queue)
        if known is None:
            name = queue.lower().partition("/$")[0]
            known = backlog_index(name, self.rules.primary) is not None
            self._backlogs[queue] = known
        return known

    def _is_of_primary(self, event: Event) -> bool:
        """Whether the rules of a broker apply; everything else is put aside."""
        op = event.op
        if event.content_type == PING_CONTENT_TYPE:
            if op in ("receive", "drain") and not self.is_backlog(event.queue):
                self.pings.append(event)
            return False
        if op == "pairing":
            self.pairing.append(event)
        elif op == "fault":
            self.faults.append(event)
        elif op in ("attempt", "divert"):
            self._wired.append(event)
        elif op == "detach":
            self._wired.append(event)
            return True
        elif self.is_backlog(event.queue):
            self._add_backlog(event)
        else:
            return True
        return False

    def _add_backlog(self, event: Event) -> None:
        if event.op == "drain":
            self.waiting.append(event)
        elif event.op == "drained":
            self.drained.add(event.queue.lower())
        else:
            self._wired.append(event)

    def told(self) -> dict[tuple[str, str], float]:
        """When applications were told that a message is accepted."""
        return {
            (send.queue.lower(), send.key): told_at(send) + self.slack
            for account in self.index.accounts.values()
            if len(account.sends) == 1
            for send in account.sends
        }

    def sender_of(self, path: str, key: str) -> Event | None:
        for queue in self.rules.namespace.destinations(path):
            account = self.index.accounts.get((queue, key))
            if account and account.sends:
                return account.sends[0]
        return None


def _without_copies(rules: Rules) -> Rules:
    """The same rules, but copies and the order of producers are judged here."""

    def changed(queue: QueueRules) -> QueueRules:
        return replace(queue, send_attempts_max=0, producers_ordered=False)

    queues = {name: changed(queue) for name, queue in rules.queues.items()}
    return replace(rules, default=changed(rules.default), queues=queues)


# -- the final look --------------------------------------------------------------


def _check_backlog_drained(case: _Case, verdict: HistoryVerdict) -> None:
    """What was not looked at proves nothing."""
    if not case.rules.namespace.drained:
        return
    used = {
        divert.queue
        for trail in case.wire.trails().values()
        for divert in trail.diverts
    }
    for queue in sorted(used):
        if queue.lower() not in case.drained:
            verdict.convict("incomplete", queue, "", "there was no final look")
    over = any(span.failed_over for _, _, span in case.health.spans())
    if over and not case.drained:
        text = "there was no final look into the backlog"
        verdict.convict("incomplete", case.rules.primary, "", text)


# -- one message -----------------------------------------------------------------


def _check_account(case: _Case, account: Account, report: PairedReport) -> None:
    copies = max(len(account.main), len(account.dead))
    if copies > 1:
        _check_copies(case, account, copies, report)
    for send in account.sends:
        if send.result == "ok":
            _check_early(case, account, send, report.verdict)
    if case.rules.restored_recorded:
        for copy in account.main:
            _check_restored(case, copy, report.verdict)


def _check_copies(
    case: _Case, account: Account, copies: int, report: PairedReport
) -> None:
    """Each copy after the first needs a reason of its own."""
    if not account.sends:
        return
    times = sorted(map(_enqueued_at, account.main))
    until_at = times[-1] if times and times[0] else NEVER
    occasions = Occasions(case.health, case.disturbances, until_at)
    known = reasons(account.sends, case.wire, occasions)
    extra = copies - 1
    report.duplicates.update(known[:extra])
    if len(known) < extra:
        text = f"{copies} copies, and {len(known)} reasons for a second one"
        report.verdict.convict("duplicate", account.queue, account.key, text)
    window_ms = case.rules.namespace.of(account.queue).duplicate_window_ms
    if window_ms and until_at < NEVER and until_at - times[0] < window_ms - case.slack:
        text = f"{copies} copies within the window of duplicate detection"
        report.verdict.convict("duplicate", account.queue, account.key, text)


def _enqueued_at(copy: Copy) -> float:
    seen = copy.grants[0].receive if copy.grants else copy.drains[0]
    return seen.enqueued_at


def _check_early(
    case: _Case, account: Account, send: Event, verdict: HistoryVerdict
) -> None:
    """When a send is reported as accepted, a namespace has it."""
    by_at = send.end_at + case.slack
    if case.rules.witnessed:
        trail = case.wire.trail(send.queue, send.key)
        transfers = trail.sends if trail else []
        had = any(each.result == "ok" and each.end_at <= by_at for each in transfers)
    else:
        times = [at for copy in account.main if (at := _enqueued_at(copy))]
        over = case.health.between(
            send.process, send.queue, send.invoke_at, send.end_at
        )
        # What the syphon brought home was in the backlog before; when is unknown.
        had = not times or send.not_before > 0 or min(times) <= by_at or bool(over)
    if not had:
        verdict.convict("early", send.queue, send.key, f"reported by {send.process}")


def _check_restored(case: _Case, copy: Copy, verdict: HistoryVerdict) -> None:
    """What hides in the backlog comes back; only the time to live shrinks."""
    account = copy.account
    if len(account.sends) != 1 or not copy.grants:
        return
    send, receive = account.sends[0], copy.grants[0].receive
    if receive.session != send.session:
        verdict.convict("altered", account.queue, account.key, "other session")
    if receive.not_before and receive.not_before != send.not_before:
        verdict.convict("altered", account.queue, account.key, "other scheduled time")
    default_ms = case.rules.namespace.of(account.queue).ttl_ms
    sent_ms, got_ms = send.ttl_ms or default_ms, receive.ttl_ms or default_ms
    waited_ms = receive.end_at - send.invoke_at + case.slack
    if (sent_ms > 0) != (got_ms > 0) or not sent_ms - waited_ms <= got_ms <= sent_ms:
        text = f"time to live of {got_ms:.0f} ms instead of {sent_ms:.0f}"
        verdict.convict("altered", account.queue, account.key, text)


def _check_renamed(case: _Case, verdict: HistoryVerdict) -> None:
    """A copy keeps its message id, so contents tell what lost it."""
    strangers = [
        (account, copy)
        for account in case.index.accounts.values()
        if not account.sends
        for copy in (*account.main, *account.dead)
    ]
    if not strangers:
        return
    owners = {
        send.digest: send.key
        for account in case.index.accounts.values()
        for send in account.sends
        if send.digest
    }
    for account, copy in strangers:
        seen = copy.grants[0].receive if copy.grants else copy.drains[0]
        if seen.digest in owners:
            text = f"it has the contents of {owners[seen.digest]}"
            verdict.convict("renamed", account.queue, account.key, text)


# -- who may be diverted ---------------------------------------------------------


def _check_diverted(case: _Case, verdict: HistoryVerdict) -> None:
    for trail in case.wire.trails().values():
        for event in (*trail.diverts, *trail.fetches):
            _check_one_diverted(case, event, verdict)
    for event in case.waiting:
        _check_one_diverted(case, event, verdict)
    for process, path, span in case.health.spans():
        took_ms = span.failed_over_at - span.start_at
        if span.relapsed:
            # It had failed over before, and no send was accepted since.
            continue
        if took_ms + case.slack < case.rules.failover_interval_ms:
            text = f"{process} failed over {took_ms:.0f} ms after the first failure"
            verdict.convict("diverted", path, "", text)


def _check_one_diverted(case: _Case, event: Event, verdict: HistoryVerdict) -> None:
    send = case.sender_of(event.path, event.key)
    at = event.diverted_at or (event.invoke_at if event.op == "divert" else 0)
    if send is None or not at:
        return
    if not case.health.failed_over(send.process, event.path, at, case.slack):
        text = f"{send.process} diverted it, and the entity had not failed over"
        verdict.convict("diverted", event.path, event.key, text)


# -- order -----------------------------------------------------------------------


def _check_order(case: _Case, verdict: HistoryVerdict) -> None:
    """What went straight to the primary is numbered as it was sent."""
    groups: dict[tuple[str, str, str], list[tuple[int, Event]]] = defaultdict(list)
    for account in case.index.accounts.values():
        if len(account.sends) != 1 or not account.main:
            continue
        send = account.sends[0]
        if send.result != "ok" or send.not_before:
            continue
        spans = case.health.between(
            send.process, send.queue, send.invoke_at - case.slack, send.end_at
        )
        for span in spans:
            early = send.end_at + case.slack < span.failed_over_at < NEVER
            if early and send.invoke_at > span.start_at:
                text = f"{send.process} failed over after a success"
                verdict.convict("diverted", send.queue, send.key, text)
        if not spans:
            number = min(copy.sequence for copy in account.main)
            groups[account.queue, send.process, send.link].append((number, send))
    for (queue, _, _), group in groups.items():
        group.sort(key=lambda entry: entry[0])
        latest_at, latest = -NEVER, ""
        for number, send in group:
            if send.end_at < latest_at:
                text = f"number {number} is higher than that of {latest}, sent later"
                verdict.convict("order", queue, send.key, text)
            if send.invoke_at > latest_at:
                latest_at, latest = send.invoke_at, send.key


# -- figures ---------------------------------------------------------------------


def _count(case: _Case, report: PairedReport) -> None:
    seen: set[int] = set()
    for account in case.index.accounts.values():
        for send in account.sends:
            if id(send) not in seen:
                # A send to a topic belongs to the accounts of all its subscriptions.
                seen.add(id(send))
                report.add_send(send)
    report.waiting = len({(event.path, event.key) for event in case.waiting})
    if case.rules.witnessed:
        report.diverted = sum(
            any(divert.result == "ok" for divert in trail.diverts)
            for trail in case.wire.trails().values()
        )
    report.add_spans(case.health, case.faults)
