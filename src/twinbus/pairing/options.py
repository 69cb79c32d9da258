"""How an application asks for a pair: the options, and whether they can be used.

Owns validation. What is wrong with a value is said when the options are made, as a
`ValueError` or `TypeError` that names the parameter; what is wrong with a combination
of factories is said when they are paired, as a `PairingError`. Durations come in as
`timedelta` or as seconds and are milliseconds inside.

The options also tell, after pairing, how many backlog queues there are. Knows nothing
about how a manager or a factory works: both are carried, not called.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack

from twinbus import limits
from twinbus.core.names import check_entity_path
from twinbus.errors import CallerError
from twinbus.pairing.errors import (
    AlreadyPaired,
    OptionsAlreadyUsed,
    SameNamespace,
    SecondaryAlreadyPaired,
    SecondaryInUse,
)
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.rules.classification import Classifier
from twinbus.pairing.rules.naming import backlog_path
from twinbus.pairing.rules.packing import HEADROOM_BYTES_MAX
from twinbus.pairing.rules.ping import PROBES
from twinbus.pairing.rules.policy import PolicySettings
from twinbus.pairing.rules.syphon_rules import TTL_RULES

Duration = timedelta | float

DEFAULT_INTERVAL = timedelta(milliseconds=limits.PAIR_INTERVAL_MS_DEFAULT)


class SendAvailabilityKeywords(TypedDict, total=False):
    """Options that are given by name."""

    # From the start of one ping to the start of the next: 1 second to 30 minutes.
    ping_primary_interval: Duration
    # Stands for the primary in the names of the backlog queues.
    primary_name: str | None
    # False: a send that fails while the entity is suspect raises, as it used to.
    hold_during_failover: bool
    # A send to the primary that is not answered within this time counts as failed, and
    # goes to the backlog when the entity fails over; None: however slow it is.
    slow_send: Duration | None
    # Called with every event, in the order in which they happen.
    on_event: Callable[[PairingEvent], object] | None
    # Decides what counts; it answers None for what the table shall decide.
    classifier: Classifier | None
    # How to ask whether an entity is back: None lets the service's word decide.
    probe: Literal["link", "ping"] | None
    # Report events to the secondary, for its console.
    report_events: bool
    # What the syphon does with a time to live: the time in the backlog counts, or not.
    ttl: Literal["remaining", "restart"]


_DEFAULTS: SendAvailabilityKeywords = {
    "ping_primary_interval": DEFAULT_INTERVAL,
    "primary_name": None,
    "hold_during_failover": True,
    "slow_send": None,
    "on_event": None,
    "classifier": None,
    "probe": None,
    "report_events": False,
    "ttl": "remaining",
}


class PairedNamespaceOptions(abc.ABC):
    """What every kind of pairing needs."""

    def __init__(
        self,
        secondary_namespace_manager: Any,
        messaging_factory: Any,
        failover_interval: Duration = DEFAULT_INTERVAL,
    ) -> None:
        _present("secondary_namespace_manager", secondary_namespace_manager)
        _present("messaging_factory", messaging_factory)
        self._manager = secondary_namespace_manager
        self._factory = messaging_factory
        self._failover_interval_ms = _milliseconds(
            "failover_interval", failover_interval, 0, limits.FAILOVER_INTERVAL_MS_MAX
        )
        self._used = False

    @property
    def secondary_namespace_manager(self) -> Any:
        """The administration client of the secondary; it needs Manage."""
        return self._manager

    @property
    def secondary_messaging_factory(self) -> Any:
        """The factory of the secondary; it needs Send, and Listen for the syphon."""
        return self._factory

    @property
    def failover_interval(self) -> timedelta:
        """How long failures of one entity are accepted before it switches."""
        return timedelta(milliseconds=self._failover_interval_ms)

    def claim(self) -> None:
        """Use these options for a pairing, which can be done once."""
        if self._used:
            raise OptionsAlreadyUsed
        self._used = True

    @abc.abstractmethod
    def policy_settings(self) -> PolicySettings:
        """What the state machines of the entities have to know."""


class SendAvailabilityPairedNamespaceOptions(PairedNamespaceOptions):
    """Sends go on while the primary is away."""

    def __init__(
        self,
        secondary_namespace_manager: Any,
        messaging_factory: Any,
        backlog_queue_count: int = limits.BACKLOG_QUEUES_DEFAULT,
        failover_interval: Duration = DEFAULT_INTERVAL,
        enable_syphon: bool = False,
        **keywords: Unpack[SendAvailabilityKeywords],
    ) -> None:
        super().__init__(
            secondary_namespace_manager, messaging_factory, failover_interval
        )
        for name in keywords:
            if name not in _DEFAULTS:
                raise TypeError(f"There is no parameter '{name}'.")
        values: SendAvailabilityKeywords = {**_DEFAULTS, **keywords}
        self._asked = _count("backlog_queue_count", backlog_queue_count)
        self._usable: frozenset[int] | None = None
        self.enable_syphon = _flag("enable_syphon", enable_syphon)
        self._ping_interval_ms = _milliseconds(
            "ping_primary_interval",
            values["ping_primary_interval"],
            limits.PING_INTERVAL_MS_MIN,
            limits.PING_INTERVAL_MS_MAX,
        )
        self.primary_name = _name("primary_name", values["primary_name"])
        self.hold_during_failover = _flag(
            "hold_during_failover", values["hold_during_failover"]
        )
        self._slow_send_ms = (
            0
            if values["slow_send"] is None
            else _milliseconds(
                "slow_send",
                values["slow_send"],
                limits.SLOW_SEND_MS_MIN,
                limits.SLOW_SEND_MS_MAX,
            )
        )
        self.on_event = _callable("on_event", values["on_event"])
        self.classifier = _callable("classifier", values["classifier"])
        self.probe = _choice("probe", values["probe"], (None, *PROBES))
        self.report_events = _flag("report_events", values["report_events"])
        self.ttl = _choice("ttl", values["ttl"], TTL_RULES)

    @property
    def backlog_queue_count(self) -> int:
        """How many backlog queues are asked for; after pairing, how many there are."""
        return self._asked if self._usable is None else len(self._usable)

    @property
    def usable_indexes(self) -> frozenset[int]:
        """The backlog queues that were found or made; empty before pairing."""
        return self._usable or frozenset()

    def set_usable(self, indexes: frozenset[int]) -> None:
        """Pairing has found out which backlog queues there are."""
        self._usable = indexes

    @property
    def asked_indexes(self) -> range:
        """The backlog queues that pairing looks for."""
        return range(self._asked)

    @property
    def ping_primary_interval(self) -> timedelta:
        """From the start of one ping to the start of the next."""
        return timedelta(milliseconds=self._ping_interval_ms)

    @property
    def slow_send(self) -> timedelta | None:
        """When a send without an answer counts as failed; None: however slow it is."""
        if not self._slow_send_ms:
            return None
        return timedelta(milliseconds=self._slow_send_ms)

    @property
    def size_headroom(self) -> int:
        """How many bytes a message may grow on its way into a backlog queue.

        A message that leaves this much room below the limit can always fail over. User
        properties whose names collide with ours add some more.
        """
        return HEADROOM_BYTES_MAX

    def policy_settings(self) -> PolicySettings:
        return PolicySettings(
            failover_interval_ms=self._failover_interval_ms,
            ping_interval_ms=self._ping_interval_ms,
            hold=self.hold_during_failover,
            slow_send_ms=self._slow_send_ms,
        )


# -- pairing -----------------------------------------------------------------------


# A server on this machine that listens on one of these mostly listens on all.
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True, slots=True)
class FactoryFacts:
    """What pairing has to know about a factory."""

    host: str
    port: int
    paired: bool = False
    is_secondary: bool = False

    @property
    def place(self) -> tuple[str, int]:
        """Equal for two factories of one namespace, however its host is spelt."""
        host = self.host.lower().strip("[]").rstrip(".")
        return ("localhost" if host in _LOOPBACK else host), self.port


def check_pairing(
    primary: FactoryFacts, secondary: FactoryFacts, options: PairedNamespaceOptions
) -> None:
    """Refuse what cannot be paired, and claim the options for what can."""
    if primary.place == secondary.place:
        raise SameNamespace
    if primary.paired:
        raise AlreadyPaired
    if secondary.paired:
        raise SecondaryAlreadyPaired
    if secondary.is_secondary:
        raise SecondaryInUse
    options.claim()


# -- values ------------------------------------------------------------------------


def _present(name: str, value: Any) -> None:
    if value is None:
        raise TypeError(f"{name} is missing.")


def _milliseconds(name: str, value: Any, low_ms: int, high_ms: int) -> int:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    else:
        raise TypeError(f"{name} must be a timedelta or a number of seconds.")
    # Written so that a value that is no number at all is outside, too.
    if not low_ms <= seconds * 1000 <= high_ms:
        raise ValueError(
            f"{name} must be from {low_ms / 1000:g} to {high_ms / 1000:g} seconds, "
            f"not {seconds:g}."
        )
    return round(seconds * 1000)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}.")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False.")
    return value


def _callable(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be something to call.")
    return value


def _choice(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        words = ", ".join(repr(each) for each in allowed)
        raise ValueError(f"{name} must be one of {words}, not {value!r}.")
    return value


def _name(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text.")
    try:
        check_entity_path(value, name)
        check_entity_path(backlog_path(value, limits.BACKLOG_INDEX_MAX), name)
    except CallerError as error:
        raise ValueError(f"{name}: {error.text}") from None
    return value
