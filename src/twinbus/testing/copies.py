"""A history sorted by what it is about: messages, their copies and their grants.

Owns the grouping. An *account* is one message id at one destination; a *copy* is one
stored message, named by its sequence number; a *grant* is one lock on one copy.
Judges nothing: the rules are in `history.py`. There are millions of each, so what most
of them lack, such as dead letters, is an empty tuple until it is needed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from twinbus.testing.events import SETTLEMENTS, Event
from twinbus.testing.verdict import Rules

NEVER = float("inf")
_DEAD_SUFFIXES = ("/$transfer/$deadletterqueue", "/$deadletterqueue")


class Grant:
    """One delivery of one copy, and what became of it."""

    __slots__ = ("lock_end", "order", "receive", "renewed_maybe", "settles")

    def __init__(self, receive: Event, order: int) -> None:
        self.receive = receive
        self.order = order
        # By the broker's clock; renewals move it.
        self.lock_end = receive.lock_until or NEVER
        # A renewal with unknown result: the lock may have been longer than we know.
        self.renewed_maybe = False
        self.settles: Sequence[Event] = ()

    def settled(self, op: str, *results: str) -> Event | None:
        """The first settlement of that kind with one of the results."""
        for settle in self.settles:
            if settle.op == op and settle.result in results:
                return settle
        return None

    @property
    def deletes(self) -> bool:
        return self.receive.mode == "receive_and_delete"


class Copy:
    """One stored message."""

    __slots__ = ("account", "dead", "drains", "grants", "sequence")

    def __init__(self, account: Account, dead: bool, sequence: int) -> None:
        self.account = account
        self.dead = dead
        self.sequence = sequence
        self.grants: list[Grant] = []
        self.drains: Sequence[Event] = ()


class Account:
    """One message id at one destination."""

    __slots__ = ("cancels", "dead", "key", "main", "queue", "sends")

    def __init__(self, queue: str, key: str) -> None:
        self.queue = queue
        self.key = key
        self.sends: list[Event] = []
        self.cancels: Sequence[Event] = ()
        self.main: list[Copy] = []
        self.dead: Sequence[Copy] = ()


class Losses:
    """When links were lost, by client and link. Asked in O(log n)."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, process: str, link: str, at: float) -> None:
        self._times[process, link].append(at)

    def sort(self) -> None:
        for times in self._times.values():
            times.sort()

    def first_after(self, process: str, link: str, at: float) -> float:
        """The first loss that this link suffered at or after a time."""
        found = NEVER
        # A loss without a link concerns all links; without a process, all processes.
        for name in {(process, link), (process, ""), ("", "")}:
            times = self._times.get(name)
            if times:
                place = bisect_left(times, at)
                if place < len(times):
                    found = min(found, times[place])
        return found


def _accepted_at(grant: Grant) -> float:
    return grant.receive.end_at


class Index:
    """The history, grouped. Building it sorts; nothing else costs more than O(n)."""

    def __init__(self, history: Iterable[Event], rules: Rules) -> None:
        self.rules = rules
        # Destination and key of messages that are known to lie somewhere else.
        self.elsewhere: set[tuple[str, str]] = set()
        self.accounts: dict[tuple[str, str], Account] = {}
        self.sessions: dict[tuple[str, str], list[Grant]] = defaultdict(list)
        self.losses = Losses()
        self.drained_at: dict[str, float] = {}
        # Receive-and-delete operations that broke: how many messages they may have
        # eaten.
        self.eaten_max: dict[str, int] = defaultdict(int)
        # Acknowledged settlements of deliveries that are not in the history.
        self.stray: list[Event] = []
        # Deliveries from a session to a link that no longer held it.
        self.trespasses: list[Event] = []
        # One sequence number with two message ids.
        self.clashes: list[tuple[Copy, Event]] = []
        self._names: dict[str, tuple[str, bool]] = {}
        self._copies: dict[tuple[str, bool, int | str], Copy] = {}
        self._tokens: dict[tuple[str, bool, str], Grant] = {}
        self._hidden_begun: dict[str, list[float]] = defaultdict(list)
        self._hidden_ended: dict[str, list[float]] = defaultdict(list)
        self._build(history)

    def hidden_between(self, queue: str, start_at: float, end_at: float) -> int:
        """How many grants of one copy the history may lack in a time, at most.

        Each receive operation with unknown result may have been granted it once.
        """
        begun = self._hidden_begun[queue]
        ended = self._hidden_ended[queue]
        return bisect_right(begun, end_at) - bisect_left(ended, start_at)

    def place(self, name: str) -> tuple[str, bool]:
        """The queue that a path belongs to, and whether it is its dead-letter queue."""
        found = self._names.get(name)
        if found is None:
            found = (name, False)
            for suffix in _DEAD_SUFFIXES:
                if name.lower().endswith(suffix):
                    found = (name[: -len(suffix)], True)
                    break
            self._names[name] = found
        return found

    def _build(self, history: Iterable[Event]) -> None:
        later: list[Event] = []
        for order, event in enumerate(history):
            op = event.op
            if op == "receive":
                self._receive(event, order)
            elif op == "send":
                for queue in self.rules.destinations(event.queue):
                    self._account(queue, event.key).sends.append(event)
            elif op in SETTLEMENTS or op == "renew":
                later.append(event)
            else:
                self._other(event, order)
        self.losses.sort()
        for times in (*self._hidden_begun.values(), *self._hidden_ended.values()):
            times.sort()
        for copy in self._copies.values():
            if len(copy.grants) > 1:
                copy.grants.sort(key=self.granted_order)
        for grants in self.sessions.values():
            grants.sort(key=lambda grant: (grant.receive.end_at, grant.order))
        later.sort(key=lambda event: event.invoke_at)
        for event in later:
            self._settle(event)
        for copy in self._copies.values():
            for grant in copy.grants:
                if grant.receive.session:
                    self._tie_to_session(grant)

    def _other(self, event: Event, order: int) -> None:
        if event.op == "drain":
            copy = self._copy(event, event.state == "dead")
            copy.drains = (*copy.drains, event)
        elif event.op == "drained":
            queue, _ = self.place(event.queue)
            if event.result == "ok":
                at = self.drained_at.get(queue, 0)
                self.drained_at[queue] = max(at, event.end_at)
        elif event.op == "cancel":
            for queue in self.rules.destinations(event.queue):
                account = self._account(queue, event.key)
                account.cancels = (*account.cancels, event)
        elif event.op == "accept" and event.result == "ok":
            name = (event.queue, event.session)
            self.sessions[name].append(Grant(event, order))
        elif event.op == "detach":
            self.losses.add(event.process, event.link, event.invoke_at)
        elif event.op == "restart":
            self.losses.add("", "", event.invoke_at)

    def granted_order(self, grant: Grant) -> tuple[float, float, int]:
        """The order in which the broker gave locks, by the ends that it told."""
        receive = grant.receive
        lock_ms = self.rules.of(self.place(receive.queue)[0]).lock_ms
        until = receive.lock_until or receive.end_at + lock_ms
        return until, receive.end_at, grant.order

    def _account(self, queue: str, key: str) -> Account:
        account = self.accounts.get((queue, key))
        if account is None:
            account = self.accounts[queue, key] = Account(queue, key)
        return account

    def _copy(self, event: Event, dead: bool = False) -> Copy:
        queue, dead_path = self.place(event.queue)
        dead = dead or dead_path
        name = (queue, dead, event.sequence or event.key)
        copy = self._copies.get(name)
        if copy is None:
            account = self._account(queue, event.key)
            copy = self._copies[name] = Copy(account, dead, event.sequence)
            if dead:
                account.dead = (*account.dead, copy)
            else:
                account.main.append(copy)
        elif event.key != copy.account.key:
            self.clashes.append((copy, event))
        return copy

    def _receive(self, event: Event, order: int) -> None:
        queue, dead = self.place(event.queue)
        if event.result != "ok":
            if event.result == "unknown":
                self._hidden_begun[queue].append(event.invoke_at)
                self._hidden_ended[queue].append(event.end_at)
                if event.mode == "receive_and_delete":
                    self.eaten_max[queue] += event.credit or 1
        elif event.key or event.sequence:
            copy = self._copy(event)
            grant = Grant(event, order)
            copy.grants.append(grant)
            if event.token:
                self._tokens[queue, dead, event.token] = grant

    def _settle(self, event: Event) -> None:
        if event.op == "renew" and not event.token and event.session:
            self._renew_session(event)
            return
        grant = self._grant_of(event)
        if grant is None:
            if event.result == "ok":
                self.stray.append(event)
        elif event.op != "renew":
            grant.settles = (*grant.settles, event)
        else:
            self._renew(grant, event)

    def _grant_of(self, event: Event) -> Grant | None:
        queue, dead = self.place(event.queue)
        if event.token:
            return self._tokens.get((queue, dead, event.token))
        copy = self._copies.get((queue, dead, event.sequence or event.key))
        for grant in reversed(copy.grants if copy else []):
            receive = grant.receive
            if receive.process == event.process and receive.end_at <= event.end_at:
                return grant
        return None

    def _renew(self, grant: Grant, event: Event) -> None:
        if event.result == "unknown":
            grant.renewed_maybe = True
        elif event.result == "ok" and event.lock_until:
            if event.invoke_at > grant.lock_end + self.rules.slack_ms:
                # Kept with the settlements, because it is judged as a late one.
                grant.settles = (*grant.settles, event)
            known = grant.lock_end < NEVER
            end = max(grant.lock_end, event.lock_until) if known else event.lock_until
            grant.lock_end = end

    def _renew_session(self, event: Event) -> None:
        held = self._session_of(event)
        if held:
            self._renew(held, event)

    def _tie_to_session(self, grant: Grant) -> None:
        """A message of a session is held as long as the session is."""
        held = self._session_of(grant.receive)
        if held is None:
            # The session's renewals are not in the history.
            grant.renewed_maybe = True
        elif grant.receive.lock_until:
            grant.lock_end = max(grant.lock_end, held.lock_end)
            grant.renewed_maybe |= held.renewed_maybe
        if held and self._taken_over(held, grant.receive):
            self.trespasses.append(grant.receive)

    def _taken_over(self, held: Grant, receive: Event) -> bool:
        """Whether another receiver had the session before this delivery was asked for.

        A delivery that waited in the client until its lock had ended is no proof.
        """
        if receive.lock_until and receive.lock_until < receive.invoke_at:
            return False
        grants = self.sessions[receive.queue, receive.session]
        place = bisect_left(grants, receive.invoke_at, key=_accepted_at)
        # One that was granted before may be heard of after it.
        since = self.granted_order(held)
        while place and _accepted_at(grants[place - 1]) > _accepted_at(held):
            place -= 1
            if self.granted_order(grants[place]) > since:
                return True
        return False

    def _session_of(self, event: Event) -> Grant | None:
        """The latest acceptance of the event's session by the event's link."""
        grants = self.sessions.get((event.queue, event.session), [])
        place = bisect_right(grants, event.end_at, key=_accepted_at)
        while place:
            place -= 1
            held = grants[place].receive
            if (held.process, held.link) == (event.process, event.link):
                return grants[place]
        return None
