"""Rehearsed faults: what is wrong on purpose, with what, and until when.

Owns the kinds of faults, what each may be limited to, and the questions that broker and
surfaces ask where a real fault would strike: may this be sent, received, managed,
accessed, and how late. A namespace has a `Faults` only if its server was started with
`--faults`; nothing here is kept on disk, so a restart ends all of them. Timers and what
a fault does to sockets, the loop and the disk belong to `access/switchboard.py`.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from twinbus import limits
from twinbus.errors import (
    ArgumentError,
    BusyError,
    FaultOn,
    TwinbusError,
    Unauthorized,
)
from twinbus.wire.message.names import PING_CONTENT_TYPE
from twinbus.wire.message.sections import Incoming


class _Kind(NamedTuple):
    """What a fault does, and what it may be limited to."""

    text: str
    # Whether it may name an entity, and strike only a share of the requests.
    entity: bool = False
    share: bool = False
    # How long it delays, unless told otherwise; 0 if it delays nothing.
    delay_seconds: float = 0


class FaultKind(enum.Enum):
    """Everything that can be wrong; the value is the word on the command line."""

    THROTTLE = "throttle"
    SLOW = "slow"
    SEND_DOWN = "send-down"
    SICK = "sick"
    PING_DOWN = "ping-down"
    RECEIVE_DOWN = "receive-down"
    MANAGEMENT_DOWN = "management-down"
    UNAUTHORIZED = "unauthorized"
    STORAGE_DOWN = "storage-down"
    STORAGE_FULL = "storage-full"
    STORAGE_SLOW = "storage-slow"
    REFUSE = "refuse"
    SILENCE = "silence"
    STALL = "stall"
    CRASH = "crash"

    @property
    def rules(self) -> _Kind:
        return KINDS[self]


KINDS: dict[FaultKind, _Kind] = {
    FaultKind.THROTTLE: _Kind("sends are answered with server-busy", True, True),
    FaultKind.SLOW: _Kind("requests wait before they are served", True, True, 5),
    FaultKind.SEND_DOWN: _Kind("sends fail, pings too; links open", True, True),
    FaultKind.SICK: _Kind("sends fail; links open and pings succeed", True, True),
    FaultKind.PING_DOWN: _Kind("pings fail; links open and sends succeed", True, True),
    FaultKind.RECEIVE_DOWN: _Kind("nothing can be received", True, True),
    FaultKind.MANAGEMENT_DOWN: _Kind("administration fails", share=True),
    FaultKind.UNAUTHORIZED: _Kind("no right is given", True, True),
    FaultKind.STORAGE_DOWN: _Kind("the store takes no commit"),
    FaultKind.STORAGE_FULL: _Kind(
        "the disk is full: sends fail, and without a reserve all commits"
    ),
    FaultKind.STORAGE_SLOW: _Kind("each commit takes longer", delay_seconds=2),
    FaultKind.REFUSE: _Kind("AMQP connections are reset"),
    FaultKind.SILENCE: _Kind("AMQP connections are not read and not answered"),
    FaultKind.STALL: _Kind("the process hangs, once", delay_seconds=10),
    FaultKind.CRASH: _Kind("the process is killed, once"),
}
STORAGE_KINDS = (
    FaultKind.STORAGE_DOWN,
    FaultKind.STORAGE_FULL,
    FaultKind.STORAGE_SLOW,
)
# These happen once, and are over.
_ONCE = (FaultKind.STALL, FaultKind.CRASH)


@dataclass(frozen=True, slots=True)
class RehearsedFault:
    """One fault that is on."""

    id: int
    kind: FaultKind
    # An entity's lower-case path; "" for the whole namespace.
    key: str = ""
    share: float = 1.0
    delay_seconds: float = 0
    until_ms: int = 0

    def describe(self) -> dict[str, Any]:
        """What the command line shows."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "target": self.key,
            "share": self.share,
            "delay_seconds": self.delay_seconds,
            "until_ms": self.until_ms,
        }

    def __str__(self) -> str:
        return f"{self.kind.value} {self.key or 'namespace'}"


@dataclass(frozen=True, slots=True)
class FaultRequest:
    """A fault that is asked for, checked."""

    kind: FaultKind
    key: str
    share: float
    delay_seconds: float
    seconds: float


def read_request(
    body: Any, has_entity: Callable[[str], bool], shards: int
) -> FaultRequest:
    """Check what is asked for; `ArgumentError` says what is wrong."""
    fields = {"kind", "target", "share", "delay_seconds", "seconds"}
    if not isinstance(body, dict) or body.keys() - fields:
        raise ArgumentError(f"The body must be an object with {sorted(fields)}.")
    words = ", ".join(kind.value for kind in FaultKind)
    try:
        kind = FaultKind(body.get("kind"))
    except ValueError:
        raise ArgumentError(
            f"There is no fault '{body.get('kind')}'. Choose one of {words}."
        ) from None
    rules = kind.rules
    if kind in STORAGE_KINDS:
        key = _read_shard(body.get("target") or "", shards)
    else:
        key = _read_target(kind, body.get("target") or "", has_entity)
    share = _number(body, "share", 1.0, 0, 1)
    if share != 1 and not rules.share:
        raise ArgumentError(f"{kind.value} strikes all requests, not a share of them.")
    delay_seconds = _number(
        body, "delay_seconds", rules.delay_seconds, 0, limits.FAULT_SECONDS_MAX
    )
    if delay_seconds and not rules.delay_seconds:
        raise ArgumentError(f"{kind.value} delays nothing. Leave the delay out.")
    default = 0 if kind in _ONCE else limits.FAULT_SECONDS_DEFAULT
    seconds = _number(body, "seconds", default, 0, limits.FAULT_SECONDS_MAX)
    if kind in _ONCE and "seconds" in body:
        raise ArgumentError(f"{kind.value} happens once. Leave the duration out.")
    return FaultRequest(kind, key, share, delay_seconds, seconds)


def _read_shard(target: Any, shards: int) -> str:
    """The number of a shard; empty for all."""
    key = str(target).strip("/")
    if key and key not in map(str, range(shards)):
        has = "one: 0" if shards == 1 else f"{shards}: 0 to {shards - 1}"
        raise ArgumentError(f"There is no shard '{target}'. This namespace has {has}.")
    return key if shards > 1 else ""


def _read_target(
    kind: FaultKind, target: Any, has_entity: Callable[[str], bool]
) -> str:
    key = str(target).strip("/").lower()
    if key and not kind.rules.entity:
        raise ArgumentError(f"{kind.value} is for the namespace. Name no entity.")
    if key and not has_entity(key):
        raise ArgumentError(
            f"There is no entity '{target}'. Create it, or name another."
        )
    return key


def _number(
    body: dict[str, Any], name: str, default: float, low: float, high: float
) -> float:
    value = body.get(name, default)
    known = isinstance(value, int | float) and not isinstance(value, bool)
    # Above 0: a fault without a share or an end would be none, or would never end.
    if not known or not low <= value <= high or (name in body and not value):
        raise ArgumentError(f"{name} must be above {low:g}, and at most {high:g}.")
    return float(value)


@dataclass(slots=True)
class Faults:
    """The faults of a namespace that are on."""

    chance: Callable[[], float] = random.random
    on: dict[int, RehearsedFault] = field(default_factory=dict)
    _last_id: int = 0

    def add(self, asked: FaultRequest, now_ms: int) -> RehearsedFault:
        """Switch a fault on."""
        self._last_id += 1
        until_ms = now_ms + round(asked.seconds * 1000)
        fault = RehearsedFault(
            self._last_id,
            asked.kind,
            asked.key,
            asked.share,
            asked.delay_seconds,
            until_ms,
        )
        if asked.kind not in _ONCE:
            self.on[fault.id] = fault
        return fault

    def strikes(self, kind: FaultKind, key: str = "") -> RehearsedFault | None:
        """The fault of that kind that strikes an entity or a shard, if one does."""
        for fault in self.on.values():
            if fault.kind is not kind:
                continue
            # A topic's fault is its subscriptions' as well.
            meant = not fault.key or key == fault.key or key.startswith(f"{fault.key}/")
            if meant and (fault.share == 1 or self.chance() < fault.share):
                return fault
        return None

    def check_send(self, key: str, messages: Sequence[Incoming]) -> None:
        """Refuse messages for an entity."""
        self._check(FaultKind.UNAUTHORIZED, key)
        self._check(FaultKind.THROTTLE, key)
        self._check(FaultKind.SEND_DOWN, key)
        for message in messages:
            is_ping = message.content_type == PING_CONTENT_TYPE
            self._check(FaultKind.PING_DOWN if is_ping else FaultKind.SICK, key)

    def check_receive(self, key: str) -> TwinbusError | None:
        """Why nothing can be received from an entity; None if it can."""
        for kind in (FaultKind.UNAUTHORIZED, FaultKind.RECEIVE_DOWN):
            fault = self.strikes(kind, key)
            if fault is not None:
                return _error(fault)
        return None

    def check_access(self, key: str) -> None:
        """Refuse every right on an entity, or on the namespace."""
        self._check(FaultKind.UNAUTHORIZED, key)

    def check_manage(self) -> None:
        """Refuse administration."""
        self._check(FaultKind.MANAGEMENT_DOWN, "")

    def delay_seconds(self, key: str) -> float:
        """How long a request for an entity waits before it is served."""
        fault = self.strikes(FaultKind.SLOW, key)
        return 0 if fault is None else fault.delay_seconds

    def _check(self, kind: FaultKind, key: str) -> None:
        fault = self.strikes(kind, key)
        if fault is not None:
            raise _error(fault)


def _error(fault: RehearsedFault) -> TwinbusError:
    text = f"The rehearsed fault '{fault}' is on; see `twinbus fault list`."
    if fault.kind is FaultKind.THROTTLE:
        return BusyError(f"{text} Wait 10 seconds and try again.")
    return Unauthorized(text) if fault.kind is FaultKind.UNAUTHORIZED else FaultOn(text)


def faults_on(faults: Faults | None) -> list[str]:
    """The faults that are on, for `/health`."""
    return [] if faults is None else [str(fault) for fault in faults.on.values()]
