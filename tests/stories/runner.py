"""Plays stories: text scripts of what actors do to a namespace, and what they see.

A line is `at SECONDS COMMAND ARGUMENTS [-> WHAT IS SEEN]`. Time moves to the given
second before the command runs; what time brings (expiry, schedules) happens first. The
command `set_clock` sets the wall clock: seconds still count the time that has passed.
Words of the form `key=value` are options. A story needs no Python; see the files beside
this one.

The namespace has one shard or several. Each queue or topic is made in the next shard,
so that what is forwarded crosses, and all that crosses has arrived before the next
line: the same is seen with any number of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from twinbus.clock import ManualClock, Now
from twinbus.core.entity import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.filters import CorrelationFilter, SqlFilter, SqlRuleAction
from twinbus.core.names import EntityPath, parse_address
from twinbus.core.rule import RuleDescription
from twinbus.errors import TwinbusError
from twinbus.server.broker.crossing.outbox import ApplyPosted, TakePosted
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.shards import Shards
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import Lock, SessionGrant, Store, Stored, shard_of_nonce
from twinbus.store.opening import open_store
from twinbus.wire.message import parts, sections
from twinbus.wire.message.sections import Incoming
from twinbus.wire.types import Timestamp

FOLDER = Path(__file__).parent
_START_MS = 1_700_000_000_000

T = TypeVar("T")

# Options of entities by the short names that stories use; times are in seconds.
_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "lock": ("lock_duration_ms", lambda text: int(text) * 1000),
    "ttl": ("default_message_time_to_live_ms", lambda text: int(text) * 1000),
    "max": ("max_delivery_count", int),
    "sessions": ("requires_session", lambda text: text == "yes"),
    "duplicates": ("requires_duplicate_detection", lambda text: text == "yes"),
    "window": (
        "duplicate_detection_history_time_window_ms",
        lambda text: int(text) * 1000,
    ),
    "bury": ("dead_lettering_on_message_expiration", lambda text: text == "yes"),
    "bury_errors": (
        "dead_lettering_on_filter_evaluation_exceptions",
        lambda text: text == "yes",
    ),
    "forward": ("forward_to", str),
    "forward_dead": ("forward_dead_lettered_messages_to", str),
    "idle": ("auto_delete_on_idle_ms", lambda text: int(text) * 1000),
    "megabytes": ("max_size_in_megabytes", int),
    "rate": ("message_rate_per_second", int),
}


class Story:
    """A namespace with actors, moved by the lines of a story."""

    def __init__(self, shards: int = 1, stores: Sequence[Store] = ()) -> None:
        self.shards = Shards()
        in_memory = [open_store(None, shard=number) for number in range(shards)]
        for store in stores or in_memory:
            Namespace("story", store, shards=self.shards, new_id=self._next_id)
        self.clock = ManualClock(_START_MS)
        self.locks: dict[tuple[str, str], Lock] = {}
        self.grants: dict[str, tuple[int, SessionGrant]] = {}
        # Parcels that were carried between shards.
        self.carried = 0
        self._placed = 0
        self._ids = 0

    @property
    def now(self) -> Now:
        """What the clocks show."""
        return self.clock.now()

    def _next_id(self) -> str:
        self._ids += 1
        return f"given-{self._ids}"

    def play(self, line: str) -> str:
        """Run one line; returns what was seen."""
        words = line.split()
        passed_ms = _START_MS + round(float(words[1]) * 1000) - self.now.steady_ms
        self.clock.advance(max(passed_ms, 0))
        command = getattr(self, f"do_{words[2]}")
        options = dict(word.split("=", 1) for word in words[3:] if _is_option(word))
        plain = [word for word in words[3:] if not _is_option(word)]
        for namespace in self.shards:
            self._turn(namespace, _tick)
        self._carry_all()
        for namespace in self.shards:
            namespace.store.begin()
        try:
            seen = command(*plain, **options)
        except TwinbusError as error:
            seen = type(error).__name__
        for namespace in self.shards:
            namespace.store.commit()
        self._carry_all()
        return str(seen)

    # -- shards ------------------------------------------------------------------------

    def _turn(self, at: Namespace, command: Callable[[Namespace, Turn], T]) -> T:
        """Run a command in a transaction of its shard."""
        at.store.begin()
        result = command(at, Turn(self.now))
        at.store.commit()
        return result

    def _carry_all(self) -> None:
        """Carry what crosses shards until nothing is on its way."""
        while pairs := [
            (source, self.shards[target])
            for source in self.shards
            for target, counts in source.store.outbox().items()
            if counts.rows
        ]:
            for source, target in pairs:
                self._carry(source, target)

    def _carry(self, source: Namespace, target: Namespace) -> None:
        posted = self._turn(source, TakePosted(target.shard, 0))
        applied = self._turn(target, ApplyPosted(source.shard, posted))
        self._turn(source, TakePosted(target.shard, applied))
        self.carried += len(posted)

    def _of(self, path: EntityPath) -> Namespace:
        """The shard of an entity; what does not exist belongs to the first."""
        entity = self.shards.find(path.key) or self.shards.find(path.entity_key)
        return self.shards[0 if entity is None else entity.shard]

    def _holder(self, nonce: int) -> Namespace:
        """The shard that gave out a lock."""
        return self.shards[shard_of_nonce(nonce)]

    # -- entities ----------------------------------------------------------------------

    def do_queue(self, name: str, **options: str) -> str:
        """Create a queue."""
        return self._create(QueueDescription(name, **_settings(options)))

    def do_topic(self, name: str, **options: str) -> str:
        """Create a topic."""
        return self._create(TopicDescription(name, **_settings(options)))

    def do_subscription(self, topic: str, name: str, **options: str) -> str:
        """Create a subscription."""
        return self._create(SubscriptionDescription(topic, name, **_settings(options)))

    def _create(self, description: Description) -> str:
        at = self._of(description.path)
        if not isinstance(description, SubscriptionDescription):
            home = self.shards.home_of(description.key)
            next_one = self._placed % len(self.shards)
            at = self.shards[next_one if home is None else home]
            self._placed += 1
        at.entities.create(description, self.now.wall_ms)
        return "ok"

    def do_rule(self, path: str, name: str, **options: str) -> str:
        """Replace the default rule, or add one: sql=, label=, action=; _ is space."""
        at, entity = self._entity(path)
        if "$default" in entity.rules and options.get("keep") != "yes":
            at.entities.remove_rule(entity, "$Default", self.now.wall_ms)
        given: Any = CorrelationFilter(label=options.get("label"))
        if "sql" in options:
            given = SqlFilter(_spaced(options["sql"]))
        action = None
        if "action" in options:
            action = SqlRuleAction(_spaced(options["action"]))
        rule = RuleDescription(name, given, action)
        at.entities.add_rule(entity, rule, self.now.wall_ms)
        return "ok"

    def do_delete(self, path: str) -> str:
        """Delete an entity."""
        parsed = parse_address(path)
        self._of(parsed).delete(parsed, Turn(self.now))
        return "ok"

    def do_status(self, path: str, status: str) -> str:
        """Change what an entity lets its users do."""
        from dataclasses import replace

        from twinbus.core.entity import ActiveStatus

        at, entity = self._entity(path)
        description = replace(entity.description, status=ActiveStatus(status))
        at.entities.update(description, Turn(self.now))
        return "ok"

    # -- sending -----------------------------------------------------------------------

    def do_send(self, path: str, **options: str) -> str:
        """Send id=, several with commas; session=, ttl=, at=, label=, size=."""
        messages = [_message(one, options) for one in options["id"].split(",")]
        at, entity = self._entity(path)
        numbers = at.send(entity, messages, Turn(self.now))
        return ",".join(str(number) for number in numbers)

    def do_cancel(self, path: str, number: str) -> str:
        """Cancel a scheduled message."""
        at, entity = self._entity(path)
        done = at.cancel(entity, [int(number)])
        return "ok" if done else "nothing"

    # -- receiving ---------------------------------------------------------------------

    def do_receive(self, path: str, **options: str) -> str:
        """Lock one message, or limit= several, as=NAME."""
        store, entity, container = self._container(path)
        actor = options.get("as", "R")
        grant = None
        until_ms = self.now.steady_ms + entity.lock_ms
        if actor in self.grants:
            grant = self.grants[actor][1]
            until_ms = grant.until_ms
        nonce, rows = store.lock(
            container, int(options.get("limit", "1")), until_ms, self.now, grant
        )
        for row in rows:
            self.locks[actor, _id_of(row)] = Lock(row.id, nonce)
        return self._show(rows, until_ms)

    def do_take(self, path: str, limit: str = "1") -> str:
        """Receive and delete."""
        store, _, container = self._container(path)
        return self._show(store.take(container, int(limit), self.now), None)

    def do_peek(self, path: str, start: str = "0", limit: str = "10") -> str:
        """Look without touching; shows the state too."""
        store, _, container = self._container(path)
        rows = store.peek(container, int(start), int(limit), self.now, None)
        names = ("", ":deferred", ":scheduled")
        return " ".join(_id_of(row) + names[row.state] for row in rows) or "nothing"

    def do_deferred(self, path: str, number: str, **options: str) -> str:
        """Lock a deferred message by its number."""
        store, entity, container = self._container(path)
        key = container << 40 | int(number)
        until_ms = self.now.steady_ms + entity.lock_ms
        nonce = store.lock_deferred([key], until_ms, self.now)
        rows = store.find(container, [int(number)])
        self.locks[options.get("as", "R"), _id_of(rows[0])] = Lock(key, nonce)
        return self._show(rows, until_ms)

    def _show(self, rows: Sequence[Stored], until_ms: int | None) -> str:
        shown = []
        for row in rows:
            text = _id_of(row)
            if until_ms is not None and len(rows) == 1:
                text += f" lock={(self.now.shown(until_ms) - _START_MS) // 1000}"
            if row.deliveries:
                text += f" count={row.deliveries}"
            properties = sections.read_application_properties(row.bare)
            if "DeadLetterReason" in properties:
                text += f" reason={properties['DeadLetterReason']}".replace(" ", "_", 9)
                text = text.replace("_reason", " reason")
            if row.source:
                text += f" from={row.source}"
            shown.append(text)
        return " ".join(shown) or "nothing"

    # -- settling ----------------------------------------------------------------------

    def do_complete(self, name: str, by: str = "R") -> str:
        """Complete a message."""
        lock = self.locks[by, name]
        done = self._holder(lock.nonce).store.complete([lock], self.now)[0]
        return "ok" if done else "LockLost"

    def do_abandon(self, name: str, by: str = "R") -> str:
        """Give a message back."""
        lock = self.locks[by, name]
        self._holder(lock.nonce).abandon(lock, None, Turn(self.now))
        return "ok"

    def do_release(self, name: str, by: str = "R") -> str:
        """Give a message back uncounted."""
        lock = self.locks[by, name]
        self._holder(lock.nonce).unlock([lock], Turn(self.now))
        return "ok"

    def do_defer(self, name: str, by: str = "R") -> str:
        """Set a message aside."""
        lock = self.locks[by, name]
        self._holder(lock.nonce).defer(lock, None, Turn(self.now))
        return "ok"

    def do_bury(self, name: str, by: str = "R", reason: str = "because") -> str:
        """Dead-letter a message."""
        marks = {"DeadLetterReason": reason}
        lock = self.locks[by, name]
        self._holder(lock.nonce).dead_letter(lock, marks, Turn(self.now))
        return "ok"

    def do_renew(self, name: str, by: str = "R", seconds: str = "30") -> str:
        """Renew a lock."""
        until_ms = self.now.steady_ms + int(seconds) * 1000
        lock = self.locks[by, name]
        done = self._holder(lock.nonce).store.renew(lock, until_ms, self.now)
        return "ok" if done else "LockLost"

    # -- sessions ----------------------------------------------------------------------

    def do_accept(self, path: str, name: str | None = None, **options: str) -> str:
        """Lock a session, by name or the next."""
        store, entity, container = self._container(path)
        until_ms = self.now.steady_ms + entity.lock_ms
        grant = store.accept_session(container, name, until_ms, self.now)
        if grant is None:
            return "nothing"
        self.grants[options["as"]] = (container, grant)
        return grant.name

    def do_leave(self, **options: str) -> str:
        """A session's receiver goes away."""
        container, grant = self.grants.pop(options["as"])
        at = self._holder(grant.nonce)
        at.unlock_session(container, grant, Turn(self.now))
        return "ok"

    # -- time --------------------------------------------------------------------------

    def do_set_clock(self, seconds: str) -> str:
        """Set the wall clock forward or back."""
        self.clock.step(int(seconds) * 1000)
        return "ok"

    # -- looking -----------------------------------------------------------------------

    def do_counts(self, path: str) -> str:
        """Active, deferred and scheduled messages."""
        store, _, container = self._container(path)
        counts = store.counts(container)
        return f"{counts.active} {counts.deferred} {counts.scheduled}"

    def do_label(self, path: str) -> str:
        """Labels of all messages, in order."""
        store, _, container = self._container(path)
        rows = store.peek(container, 0, 100, self.now, None)
        labels = (sections.read_properties(row.bare)[sections.SUBJECT] for row in rows)
        return ",".join(str(label) for label in labels) or "nothing"

    def do_pings(self, path: str) -> str:
        """How many pings an entity has taken."""
        return str(self._entity(path)[1].pings)

    def do_exists(self, path: str) -> str:
        """Whether an entity is there."""
        found = self.shards.find(parse_address(path).key)
        return "no" if found is None else "yes"

    def _entity(self, path: str) -> tuple[Namespace, Entity]:
        entity = self.shards.get(parse_address(path))
        return self.shards[entity.shard], entity

    def _container(self, path: str) -> tuple[Store, Entity, int]:
        at, entity = self._entity(path)
        return at.store, entity, entity.container(parse_address(path).sub_queue)


def _tick(namespace: Namespace, turn: Turn) -> None:
    while namespace.ticker.tick(Turn(turn.now)):
        pass


def _is_option(word: str) -> bool:
    return "=" in word and not word.startswith("=")


def _spaced(text: str) -> str:
    return text.replace("_", " ")


def _settings(options: dict[str, str]) -> dict[str, Any]:
    return {_SETTINGS[key][0]: _SETTINGS[key][1](text) for key, text in options.items()}


def _id_of(row: Stored) -> str:
    return str(sections.read_properties(row.bare)[sections.MESSAGE_ID])


def _message(name: str, options: dict[str, str]) -> Incoming:
    fields: dict[int, Any] = {sections.MESSAGE_ID: name}
    if "session" in options:
        fields[sections.GROUP_ID] = options["session"]
    if "label" in options:
        fields[sections.SUBJECT] = options["label"]
    if options.get("ping") == "yes":
        fields[sections.CONTENT_TYPE] = sections.PING_CONTENT_TYPE
    ttl_ms = int(options["ttl"]) * 1000 if "ttl" in options else None
    body = b"x" * int(options.get("size", "1"))
    payload = sections.encode_message(body, fields, ttl_ms)
    message = sections.parse(payload)
    properties = {
        key[1:]: _value(text) for key, text in options.items() if key.startswith(".")
    }
    if properties:
        message.bare = parts.with_application_properties(message.bare, properties)
    if "at" in options:
        message.scheduled_ms = int(
            Timestamp(_START_MS + round(float(options["at"]) * 1000))
        )
    if "key" in options:
        message.partition_key = options["key"]
    return message


def _value(text: str) -> Any:
    return int(text) if text.lstrip("-").isdigit() else text


def stories() -> list[Path]:
    """All story files."""
    return sorted(FOLDER.glob("*.txt"))
