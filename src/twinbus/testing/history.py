"""The history checker: says whether a broker kept its promises.

Clients write what they did (`Recorder`), a final look says what is left, and `check`
compares both with the rules of a durable, at-least-once queue. It needs nothing from
the broker, so it judges any of them alike. Outcomes that no client knows are given
the benefit of the doubt; everything else is not.

Sets and sorts only: O(n log n). The rules about one message are here, the ones about
one lock in `grants.py`. Most messages have a plain life, sent once, received once and
completed; one look acquits those, and only the others go through all rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from twinbus.testing.copies import NEVER, Account, Copy, Grant, Index
from twinbus.testing.events import Event, Recorder, load, read, without_collector
from twinbus.testing.grants import check_copy, check_session, granted_at
from twinbus.testing.verdict import Finding, HistoryVerdict, QueueRules, Rules

__all__ = [
    "Event",
    "Finding",
    "HistoryVerdict",
    "QueueRules",
    "Recorder",
    "Rules",
    "check",
    "load",
    "read",
]


def check(history: Iterable[Event], rules: Rules | None = None) -> HistoryVerdict:
    """Judge a whole history. The order of its lines matters only within ties."""
    with without_collector():
        return judge(Index(history, rules or Rules()))


_PLAIN = ("attempted", "accepted", "seen", "completed", "deliveries")


def judge(index: Index) -> HistoryVerdict:
    """Judge a history that is sorted already."""
    verdict = HistoryVerdict()
    verdict.counts.update(dict.fromkeys(_PLAIN, 0))
    _check_drained(index, verdict)
    lost: list[Account] = []
    plain = 0
    for account in index.accounts.values():
        if _is_plain(index, account):
            plain += 1
            continue
        _check_account(index, account, verdict, lost)
        for copy in (*account.main, *account.dead):
            check_copy(index, copy, verdict)
    verdict.counts.update(dict.fromkeys(_PLAIN, plain))
    _report_lost(index, lost, verdict)
    for (queue, session), grants in index.sessions.items():
        check_session(index, (queue, session), grants, verdict)
    for event in index.trespasses:
        text = f"delivered to {event.process}, who had lost session {event.session}"
        verdict.convict("overlap", event.queue, event.key, text)
    _check_order(index, verdict)
    for event in index.stray:
        text = f"{event.op} by {event.process} was accepted without a delivery"
        verdict.convict("settle", event.queue, event.key, text)
    return verdict


def _check_drained(index: Index, verdict: HistoryVerdict) -> None:
    if index.rules.drained:
        for queue in sorted({account.queue for account in index.accounts.values()}):
            if queue not in index.drained_at:
                verdict.convict("incomplete", queue, "", "there was no final look")


# -- one message id --------------------------------------------------------------


def _is_plain(index: Index, account: Account) -> bool:
    """Whether it was sent, received and completed once, with nothing to ask.

    This only acquits, and what it acquits, all rules below acquit. It is worth its
    lines: without it a check takes twice as long.
    """
    sends, copies = account.sends, account.main
    if len(sends) != 1 or len(copies) != 1 or account.dead or account.cancels:
        return False
    send, copy = sends[0], copies[0]
    if send.result != "ok" or send.not_before or send.ttl_ms:
        return False
    if len(copy.grants) != 1 or copy.drains or index.rules.of(account.queue).ttl_ms:
        return False
    grant = copy.grants[0]
    receive, settles = grant.receive, grant.settles
    if len(settles) != 1 or receive.mode or receive.delivery_count > 1:
        return False
    settle, slack = settles[0], index.rules.slack_ms
    return (
        settle.op == "complete"
        and settle.result == "ok"
        and settle.invoke_at - slack <= grant.lock_end
        and receive.digest in ("", send.digest)
        and receive.session in ("", send.session)
        and receive.end_at + slack >= send.invoke_at
    )


def _check_account(
    index: Index, account: Account, verdict: HistoryVerdict, lost: list[Account]
) -> None:
    possible = [send for send in account.sends if send.result != "fail"]
    accepted = [send for send in possible if send.result == "ok"]
    seen = bool(account.main or account.dead)
    counts = verdict.counts
    counts["attempted"] += len(account.sends)
    counts["accepted"] += len(accepted)
    counts["seen"] += seen
    counts["recovered"] += seen and not accepted and bool(possible)
    if seen and not possible:
        text = "the send was refused" if account.sends else "it was never sent"
        verdict.convict("phantom", account.queue, account.key, text)
        return
    if seen:
        _check_contents(index, account, possible, verdict)
    _check_copies(index, account, possible, verdict)
    if not seen and accepted and not _excused(index, account, possible, verdict):
        lost.append(account)
    elif seen:
        _check_fates(index, account, possible, verdict)


def _check_contents(
    index: Index, account: Account, possible: list[Event], verdict: HistoryVerdict
) -> None:
    """What arrives is what was sent, and not before it was sent."""
    slack = index.rules.slack_ms
    born_at = min(send.invoke_at for send in possible)
    due_at = min(send.not_before for send in possible)
    dies_at = _expires_at(index, account, possible, latest=True)
    digests = {send.digest for send in possible}
    sessions = {send.session for send in possible}
    for copy in (*account.main, *account.dead):
        seen = [*copy.drains, *(grant.receive for grant in copy.grants)]
        for event in seen:
            if event.digest and event.digest not in digests:
                verdict.convict("altered", account.queue, account.key, "other contents")
            if event.session and event.session not in sessions:
                verdict.convict("altered", account.queue, account.key, "other session")
            if event.end_at + slack < born_at:
                verdict.convict(
                    "phantom", account.queue, account.key, "before its send"
                )
        for grant in copy.grants:
            exact = granted_at(index, grant)
            by_at = exact if exact is not None else grant.receive.end_at
            if by_at + slack < due_at:
                text = f"delivered {due_at - by_at:.0f} ms before its time"
                verdict.convict("time", account.queue, account.key, text)
            since_at = exact if exact is not None else grant.receive.invoke_at
            if since_at > dies_at + slack and not copy.dead:
                text = f"delivered {since_at - dies_at:.0f} ms after it expired"
                verdict.convict("time", account.queue, account.key, text)


def _expires_at(
    index: Index, account: Account, possible: list[Event], latest: bool
) -> float:
    """When the message can expire at the earliest, or must have at the latest."""
    default_ms = index.rules.of(account.queue).ttl_ms
    ends = []
    for send in possible:
        ttl_ms = min(send.ttl_ms or NEVER, default_ms or NEVER)
        since_at = send.end_at if latest else send.invoke_at
        ends.append(max(since_at, send.not_before) + ttl_ms)
    return max(ends) if latest else min(ends)


def _copies_allowed(index: Index, account: Account, possible: list[Event]) -> int:
    """How many copies the sends of this id may have made."""
    rules = index.rules.of(account.queue)
    if not rules.send_attempts_max:
        return len(account.main) + len(account.dead)
    if not rules.duplicate_window_ms:
        return len(possible) * rules.send_attempts_max
    allowed, window_end = 0, -NEVER
    for send in sorted(possible, key=lambda send: send.invoke_at):
        if send.end_at > window_end - index.rules.slack_ms:
            allowed += 1
            window_end = send.invoke_at + rules.duplicate_window_ms
    return allowed


def _check_copies(
    index: Index, account: Account, possible: list[Event], verdict: HistoryVerdict
) -> None:
    """No more copies than sends, at any time and at the end."""
    allowed = _copies_allowed(index, account, possible)
    stored = max(len(account.main), len(account.dead))
    final = len(account.dead) + sum(
        _consumed(copy) or bool(copy.drains) for copy in account.main
    )
    if stored > allowed or final > allowed:
        text = f"{max(stored, final)} copies of {allowed} sends"
        verdict.convict("duplicate", account.queue, account.key, text)


def _consumed(copy: Copy) -> bool:
    return any(
        grant.deletes or grant.settled("complete", "ok") for grant in copy.grants
    )


def _excused(
    index: Index, account: Account, possible: list[Event], verdict: HistoryVerdict
) -> bool:
    """A message may be missing because it expired, was cancelled or was eaten."""
    if (account.queue, account.key) in index.elsewhere:
        return True
    if any(cancel.result != "fail" for cancel in account.cancels):
        verdict.counts["cancelled"] += 1
        return True
    drained_at = index.drained_at.get(account.queue, NEVER)
    expires_at = _expires_at(index, account, possible, latest=False)
    expired = expires_at < NEVER and expires_at <= drained_at + index.rules.slack_ms
    if expired and not index.rules.of(account.queue).dead_letter_on_expiry:
        verdict.counts["expired"] += 1
        return True
    if index.eaten_max[account.queue]:
        index.eaten_max[account.queue] -= 1
        verdict.counts["eaten"] += 1
        return True
    # Without a final look nothing can be called lost.
    return account.queue not in index.drained_at


def _check_fates(
    index: Index, account: Account, possible: list[Event], verdict: HistoryVerdict
) -> None:
    """Each copy ends once: completed, left over, expired or dead-lettered."""
    counts = verdict.counts
    accepted = sum(send.result == "ok" for send in possible)
    window_ms = index.rules.of(account.queue).duplicate_window_ms
    known = len(account.main) + len(account.dead)
    short = known < accepted and not window_ms
    if short and not _excused(index, account, possible, verdict):
        text = f"{accepted} sends were accepted, {known} copies seen"
        verdict.convict("lost", account.queue, account.key, text)
    ended_nowhere = 0
    for copy in account.main:
        counts["completed"] += _consumed(copy)
        counts["drained"] += bool(copy.drains)
        ended_nowhere += not _has_fate(copy)
    for copy in account.dead:
        counts["dead_lettered"] += 1
        if not _has_fate(copy) and account.queue in index.drained_at:
            text = "it was in the dead-letter queue and is gone"
            verdict.convict("conservation", account.queue, account.key, text)
    for _ in range(ended_nowhere - len(account.dead)):
        if not _excused(index, account, possible, verdict):
            text = "delivered, never completed, not left over"
            verdict.convict("conservation", account.queue, account.key, text)


def _has_fate(copy: Copy) -> bool:
    """It ended here: taken out for good (perhaps), or still there at the end."""
    return bool(copy.drains) or any(
        grant.deletes or grant.settled("complete", "ok", "unknown")
        for grant in copy.grants
    )


# -- lost, as seen by producers --------------------------------------------------


def _report_lost(index: Index, lost: list[Account], verdict: HistoryVerdict) -> None:
    """Name each lost message and where it stood among its producer's.

    A lost middle is the worst. A lost postfix may be a final look that was too short.
    """
    if not lost:
        return
    missing = {(account.queue, account.key) for account in lost}
    bounds: dict[tuple[str, str], tuple[float, float]] = {}
    for name, account in index.accounts.items():
        for send in account.sends:
            if send.result == "ok" and name not in missing:
                producer = (account.queue, send.process)
                first, last = bounds.get(producer, (NEVER, -NEVER))
                at = send.invoke_at
                bounds[producer] = (min(first, at), max(last, at))
    for account in lost:
        send = next(send for send in account.sends if send.result == "ok")
        first, last = bounds.get((account.queue, send.process), (NEVER, -NEVER))
        part = "middle"
        if send.invoke_at > last:
            part = "postfix"
        elif send.invoke_at < first:
            part = "prefix"
        verdict.counts[f"lost_{part}"] += 1
        text = f"accepted at {send.end_at:.0f} from {send.process} ({part})"
        verdict.convict("lost", account.queue, account.key, text)


# -- order -----------------------------------------------------------------------


def _check_order(index: Index, verdict: HistoryVerdict) -> None:
    for copy, event in index.clashes:
        text = f"has the sequence number {copy.sequence} of {copy.account.key}"
        verdict.convict("order", copy.account.queue, event.key, text)
    groups: dict[tuple[str, str], list[Copy]] = defaultdict(list)
    for account in index.accounts.values():
        for copy in account.main:
            session = _session_of(copy)
            if session or index.rules.of(account.queue).ordered:
                groups[account.queue, session].append(copy)
    for (queue, _), group in groups.items():
        copies = [copy for copy in group if copy.sequence]
        copies.sort(key=lambda copy: copy.sequence)
        _check_first_deliveries(index, copies, verdict)
        if index.rules.of(queue).producers_ordered:
            _check_producers(copies, verdict)


def _session_of(copy: Copy) -> str:
    return (copy.grants[0].receive if copy.grants else copy.drains[0]).session


def _check_first_deliveries(
    index: Index, copies: list[Copy], verdict: HistoryVerdict
) -> None:
    """No message is seen for the first time after one with a higher number."""
    slack = index.rules.slack_ms
    # The earliest delivery of a higher number: on each link, and on any.
    on_link: dict[tuple[str, str], Grant] = {}
    on_any: Grant | None = None
    for copy in reversed(copies):
        if not copy.grants:
            continue
        first = copy.grants[0]
        receive = first.receive
        if receive.mode == "deferred" or receive.delivery_count > 1:
            # Another receiver held it before, and we did not see it.
            continue
        link = (receive.process, receive.link)
        above = on_link.get(link)
        if not (above and _moment(above) < _moment(first)):
            above = on_any
            if above and above.receive.end_at >= receive.invoke_at:
                above = None
        stale = receive.lock_until and receive.lock_until + slack < receive.invoke_at
        if above and not stale:
            text = f"number {copy.sequence} delivered after {above.receive.sequence}"
            verdict.convict("order", copy.account.queue, copy.account.key, text)
        if link not in on_link or _moment(first) < _moment(on_link[link]):
            on_link[link] = first
        if on_any is None or receive.end_at < on_any.receive.end_at:
            on_any = first


def _moment(grant: Grant) -> tuple[float, int]:
    """When the client saw it; deliveries of one batch have their place in the file."""
    return grant.receive.end_at, grant.order


def _check_producers(copies: list[Copy], verdict: HistoryVerdict) -> None:
    """Numbers follow the order in which one producer's sends were accepted."""
    highest: dict[str, tuple[float, str]] = {}
    for copy in copies:
        sends = copy.account.sends
        if len(sends) != 1 or sends[0].not_before:
            # A repeated send may have been stored at either time.
            continue
        send = sends[0]
        latest, key = highest.get(send.process, (-NEVER, ""))
        if send.end_at < latest:
            text = f"has a higher number than {key}, which was sent later"
            verdict.convict("order", copy.account.queue, copy.account.key, text)
        if send.invoke_at > latest:
            highest[send.process] = (send.invoke_at, copy.account.key)
