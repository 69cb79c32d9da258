"""What a drill will do: how long, how much, to whom, and what breaks when.

Owns every number and every choice by chance. All of them come from the seed, so the
same seed sends the same messages, breaks the primary at the same moment and in the same
way. Pure: no clock, no process, no connection.
"""

from __future__ import annotations

import enum
import hashlib
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from twinbus import limits
from twinbus.errors import ConfigError
from twinbus.pairing.rules.naming import backlog_path
from twinbus.testing.history_paired import PairedRules
from twinbus.testing.verdict import QueueRules, Rules

SYPHONS = ("spark", "application")
# Let the seed choose the fault.
RANDOM = "random"

# Where the parts of a drill count what would be billed, in the drill's folder: the
# application here, and each server beside it.
LEDGERS = "ledger"
APPLICATION_LEDGER = f"{LEDGERS}/application"
PRIMARY_NAME = "contoso"
SECONDARY_NAME = "contoso-backlog"
QUEUES = ("orders", "billing", "shipping")
TOPIC = "events"
SUBSCRIPTIONS = ("audit", "search")
SESSION_QUEUE = "rooms"
# Where an application without a pair tries what still works.
WITNESS_QUEUE = "witness"
ENTITIES = (*QUEUES, TOPIC, SESSION_QUEUE)
SESSIONS = tuple(f"room-{number}" for number in range(6))
# The one with duplicate detection: there, not even a second copy may exist.
DETECTING = "billing"
PLACES = (
    *QUEUES,
    *(f"{TOPIC}/Subscriptions/{name}" for name in SUBSCRIPTIONS),
    SESSION_QUEUE,
)


# -- faults --------------------------------------------------------------------------


class Means(enum.Enum):
    """How the drill makes a fault."""

    # A signal to the process of the primary.
    PROCESS = "process"
    # A proxy before the primary; with `both`, another before the secondary.
    PROXY = "proxy"
    # The server itself does it, as with `twinbus fault add`.
    SWITCHBOARD = "switchboard"


@dataclass(frozen=True, slots=True)
class FaultRules:
    """A fault of the primary, and what a drill with it has to show."""

    # What is wrong with the primary, for people.
    text: str
    means: Means
    # Whether every entity fails over in every sender; False: none may; None: some may.
    fails_over: bool | None = True
    # Whether entities relapse: pings are accepted and sends are not.
    relapses: bool = False
    # Whether a send may raise. The application sends such a message again.
    raises: bool = False
    # A condition that some send must have been answered with, if it shows the fault.
    answer: str = ""
    # How long the switchboard delays requests, or hangs.
    delay_seconds: float = 0


FAULTS: dict[str, FaultRules] = {
    "kill": FaultRules("its process is killed", Means.PROCESS),
    "stop": FaultRules("its process hangs (SIGSTOP)", Means.PROCESS),
    "cut": FaultRules("it is cut off", Means.PROXY),
    # A busy service is asked again after ten seconds, and never fails over.
    "throttle": FaultRules(
        "it is throttled: sends are answered with server-busy",
        Means.SWITCHBOARD,
        fails_over=False,
        answer="com.microsoft:server-busy",
    ),
    "storage-full": FaultRules("its disk is full", Means.SWITCHBOARD),
    "storage-slow": FaultRules(
        f"its disk is slow: each commit takes {limits.DRILL_SLOW_DISK_SECONDS:g} s",
        Means.SWITCHBOARD,
        delay_seconds=limits.DRILL_SLOW_DISK_SECONDS,
    ),
    "send-down": FaultRules("its sends fail, and pings too", Means.SWITCHBOARD),
    "sick": FaultRules(
        "its sends fail, while links open and pings succeed",
        Means.SWITCHBOARD,
        relapses=True,
    ),
    # The supervisor restarts the server, which may be sooner than all fail over.
    "stall": FaultRules(
        "its event loop stalls",
        Means.SWITCHBOARD,
        fails_over=None,
        delay_seconds=limits.DRILL_STALL_SECONDS,
    ),
    # The primary answers, so it is not away: the application has to act.
    "unauthorized": FaultRules(
        "it gives no access",
        Means.SWITCHBOARD,
        fails_over=False,
        raises=True,
        answer="amqp:unauthorized-access",
    ),
    # With nowhere to send to, a send raises.
    "both": FaultRules(
        "it is cut off, and so is the secondary", Means.PROXY, raises=True
    ),
}


# -- the plan ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shipment:
    """One message, and when to send it, counted from the begin of the traffic."""

    at_ms: int
    path: str
    key: str
    body_bytes: int
    session: str = ""
    ttl_ms: int = 0
    # To be delivered so much later.
    delay_ms: int = 0

    @property
    def body(self) -> bytes:
        """The contents: made from the key, so they need not be kept."""
        return hashlib.shake_128(self.key.encode()).digest(self.body_bytes)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole drill."""

    seed: int
    fault: str
    senders: int
    messages: int
    traffic_ms: int
    # From the begin of the traffic.
    fault_at_ms: int
    outage_ms: int
    # How a cut looks: connections are refused, or everything on them is swallowed.
    cut: str
    syphon: str = "spark"
    # A package with modules to use instead of those of the drill; see `children.py`.
    cast: str = ""
    # What the names of all entities begin with, in namespaces that the user has.
    prefix: str = ""
    # The options that named those, for the command that repeats the drill.
    given: str = ""

    # -- names. Histories and reports have the short ones of this file. ----------------

    @property
    def primary_name(self) -> str:
        """What stands for the primary in the paths of its backlog queues."""
        return self.prefix.rstrip("/") or PRIMARY_NAME

    @property
    def backlog(self) -> tuple[str, ...]:
        """The backlog queues, as the secondary calls them."""
        return tuple(
            backlog_path(self.primary_name, index)
            for index in range(limits.DRILL_BACKLOG_QUEUES)
        )

    def real(self, path: str) -> str:
        """What the primary calls an entity."""
        return self.prefix + path

    def short(self, path: str) -> str:
        """What the drill calls it."""
        return path.removeprefix(self.prefix)

    # -- what happens ------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """Messages a second, of all senders together."""
        return self.messages * 1000 / self.traffic_ms

    @property
    def rules(self) -> FaultRules:
        """What is to be shown with this fault."""
        return FAULTS[self.fault]

    @property
    def fault_text(self) -> str:
        """What is wrong with the primary, for people."""
        if self.rules.means is Means.PROXY:
            return f"{self.rules.text} ({_CUTS[self.cut]})"
        return self.rules.text

    def shipments(self, sender: int) -> Iterator[Shipment]:
        """What one sender sends, in the order of its time."""
        chance = random.Random(f"{self.seed}/{sender}")  # noqa: S311
        count = self.messages // self.senders + (sender < self.messages % self.senders)
        step_ms = self.traffic_ms / count
        for number in range(count):
            path = ENTITIES[(number + sender) % len(ENTITIES)]
            at_ms = int((number + chance.random()) * step_ms)
            left_ms = self.traffic_ms - at_ms
            yield Shipment(
                at_ms=at_ms,
                path=path,
                key=f"s{sender}-{number}",
                body_bytes=chance.randrange(16, limits.DRILL_BODY_BYTES_MAX),
                session=chance.choice(SESSIONS) if path == SESSION_QUEUE else "",
                ttl_ms=limits.DRILL_TTL_MS if chance.random() < 0.2 else 0,
                delay_ms=_delay_ms(chance, left_ms) if path != SESSION_QUEUE else 0,
            )

    def to_values(self) -> dict[str, Any]:
        """As plain values, for another process."""
        return asdict(self)


_CUTS = {"refuse": "connections are refused", "silence": "nothing gets through"}


def _delay_ms(chance: random.Random, left_ms: int) -> int:
    """A few messages are scheduled; not the last ones, which end the drill."""
    delay_ms = chance.randrange(500, limits.DRILL_DELAY_MS_MAX)
    return delay_ms if chance.random() < 0.02 and delay_ms < left_ms else 0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line was asked for."""

    fault: str = "kill"
    messages: int | None = None
    seconds: float | None = None
    senders: int = 3
    seed: int = 1
    syphon: str = "spark"
    cast: str = ""
    prefix: str = ""
    given: str = ""


def make_plan(wishes: Wishes) -> Plan:
    """Work the wishes out; raises `ConfigError` for what cannot be."""
    _check(wishes)
    seconds, messages = _volume(wishes)
    chance = random.Random(f"{wishes.seed}/plan")  # noqa: S311
    # A fifth to a quarter of the time all is well.
    fault_at = seconds * chance.uniform(0.2, 0.25)
    fault = _fault(wishes)
    share = chance.uniform(0.35, 0.4)
    if FAULTS[fault].relapses:
        # The next ping after a relapse may come as late again, and needs sends then.
        share *= limits.DRILL_RELAPSE_SHARE
    outage = max(seconds * share, limits.DRILL_OUTAGE_SECONDS_MIN)
    return Plan(
        seed=wishes.seed,
        fault=fault,
        senders=wishes.senders,
        messages=messages,
        traffic_ms=round(seconds * 1000),
        fault_at_ms=round(fault_at * 1000),
        outage_ms=round(outage * 1000),
        cut=chance.choice(sorted(_CUTS)),
        syphon=wishes.syphon,
        cast=wishes.cast,
        prefix=wishes.prefix,
        given=wishes.given,
    )


def _fault(wishes: Wishes) -> str:
    """The fault that is wished for, or that the seed chooses.

    By a chance of its own, so that the drill is the same when the fault is named.
    """
    if wishes.fault != RANDOM:
        return wishes.fault
    possible = [
        name
        for name, rules in FAULTS.items()
        if not wishes.prefix or rules.means is not Means.PROCESS
    ]
    return random.Random(f"{wishes.seed}/fault").choice(possible)  # noqa: S311


def _volume(wishes: Wishes) -> tuple[float, int]:
    """How many seconds, and how many messages."""
    if wishes.messages is None:
        seconds = limits.DRILL_SECONDS if wishes.seconds is None else wishes.seconds
        return seconds, round(seconds * limits.DRILL_RATE)
    seconds = wishes.messages / limits.DRILL_RATE
    seconds = min(max(seconds, limits.DRILL_SECONDS_MIN), limits.DRILL_SECONDS)
    return max(seconds, wishes.messages / limits.DRILL_RATE_MAX), wishes.messages


def _check(wishes: Wishes) -> None:
    _choice("--fault", wishes.fault, (*FAULTS, RANDOM))
    if wishes.prefix and wishes.fault != RANDOM:
        _check_given(wishes.fault)
    _choice("--syphon", wishes.syphon, SYPHONS)
    if wishes.messages is not None and wishes.seconds is not None:
        raise ConfigError("Give --messages or --seconds, not both.")
    if not 1 <= wishes.senders <= limits.DRILL_SENDERS_MAX:
        raise ConfigError(f"--senders must be from 1 to {limits.DRILL_SENDERS_MAX}.")
    if (
        wishes.seconds is not None
        and not limits.DRILL_SECONDS_MIN <= wishes.seconds <= limits.DRILL_SECONDS_MAX
    ):
        raise ConfigError(
            f"--seconds must be from {limits.DRILL_SECONDS_MIN:g} "
            f"to {limits.DRILL_SECONDS_MAX:g}."
        )
    if wishes.messages is None:
        return
    each = limits.DRILL_MESSAGES_PER_SENDER_MIN
    low = each * wishes.senders
    high = round(limits.DRILL_SECONDS_MAX * limits.DRILL_RATE_MAX)
    if not low <= wishes.messages <= high:
        raise ConfigError(
            f"--messages must be from {low} ({each} for each sender) to {high}."
        )


def _check_given(fault: str) -> None:
    """A drill ends no process that it has not started."""
    if FAULTS[fault].means is Means.PROCESS:
        raise ConfigError(
            f"--fault {fault} needs servers of the drill's own. Leave --primary and "
            "--secondary out, or choose another fault: cut, both, or with a twinbus "
            "server that has --faults, sick."
        )


def _choice(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        names = ", ".join(known)
        raise ConfigError(f"{option} must be one of {names}, not '{value}'.")


# -- the namespaces ------------------------------------------------------------------


def primary_entities() -> dict[str, Any]:
    """What the primary has."""
    lock = {"lock_duration": f"PT{limits.DRILL_LOCK_SECONDS:g}S"}
    queues: list[dict[str, Any]] = [{"name": name, **lock} for name in QUEUES]
    for queue in queues:
        queue["requires_duplicate_detection"] = queue["name"] == DETECTING
    queues.append({"name": WITNESS_QUEUE})
    queues.append({"name": SESSION_QUEUE, "requires_session": True, **lock})
    subscriptions = [{"name": name, **lock} for name in SUBSCRIPTIONS]
    return {
        "queues": queues,
        "topics": [{"name": TOPIC, "subscriptions": subscriptions}],
    }


def secondary_entities(plan: Plan) -> dict[str, Any]:
    """What the secondary has before the senders make the backlog queues: nothing.

    With another cast, whose syphon may die, they are there already, and with a short
    lock, so that the next syphon does not wait a minute for messages of the last.
    """
    if not plan.cast:
        return {}
    lock = {"lock_duration": f"PT{limits.DRILL_LOCK_SECONDS:g}S"}
    return {"queues": [{"name": path, **lock} for path in plan.backlog]}


def rules(plan: Plan) -> PairedRules:
    """What the two namespaces and the library promise for these entities."""
    # The clocks of other machines differ by more than those of two processes.
    slack_ms = limits.DRILL_GIVEN_SLACK_MS if plan.prefix else limits.DRILL_SLACK_MS
    plain = QueueRules(
        lock_ms=limits.DRILL_LOCK_SECONDS * 1000,
        # A server that hangs may deliver into a connection that is not read.
        exact_counts=False,
        strict_locks=True,
    )
    detecting = QueueRules(
        lock_ms=limits.DRILL_LOCK_SECONDS * 1000,
        exact_counts=False,
        strict_locks=True,
        duplicate_window_ms=limits.DRILL_DUPLICATE_WINDOW_MS,
    )
    subscriptions = tuple(place for place in PLACES if place.startswith(f"{TOPIC}/"))
    return PairedRules(
        PRIMARY_NAME,
        Rules(
            default=plain,
            queues={DETECTING: detecting},
            routes={TOPIC: subscriptions},
            slack_ms=slack_ms,
        ),
        failover_interval_ms=limits.DRILL_FAILOVER_SECONDS * 1000,
        restored_recorded=True,
    )
