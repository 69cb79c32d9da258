"""What a soak works on: entities, promises, and what each worker is told.

Owns the names that workers, nemesis and checker share. Knows nothing about how any of
them works.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from twinbus.pairing.rules.naming import backlog_path
from twinbus.testing.history import QueueRules, Rules
from twinbus.testing.history_paired import PairedRules

PRIMARY_NAME = "contoso"
BACKLOG_QUEUES = 3
BACKLOG = [backlog_path(PRIMARY_NAME, index) for index in range(BACKLOG_QUEUES)]
DEAD = "/$DeadLetterQueue"

LOCK_SECONDS = 5
WINDOW_MINUTES = 30
FAILOVER_SECONDS = 0.5
PING_SECONDS = 1.0
ATTEMPT_SECONDS = 2.0
SCHEDULED_SECONDS_MAX = 1.5
# Far longer than a soak, so that nothing expires; it must come back all the same.
TTL_SECONDS = 86_400

PLAIN, UNIQUE, GROUPED, TOPIC = "orders", "unique", "baskets", "news"
SUBSCRIPTIONS = tuple(f"{TOPIC}/Subscriptions/{name}" for name in "ab")
# What receivers receive from, and the last look looks at.
SOURCES = (PLAIN, UNIQUE, GROUPED, *SUBSCRIPTIONS)

_LOCK = {"lock_duration": f"PT{LOCK_SECONDS}S", "max_delivery_count": 1000}
ENTITIES: dict[str, Any] = {
    "queues": [
        {"name": PLAIN, **_LOCK},
        {
            "name": UNIQUE,
            "requires_duplicate_detection": True,
            "duplicate_detection_history_time_window": f"PT{WINDOW_MINUTES}M",
            **_LOCK,
        },
        {"name": GROUPED, "requires_session": True, **_LOCK},
    ],
    "topics": [
        {"name": TOPIC, "subscriptions": [{"name": name, **_LOCK} for name in "ab"]}
    ],
}

_QUEUE = QueueRules(lock_ms=LOCK_SECONDS * 1000, exact_counts=False, strict_locks=True)
RULES = PairedRules(
    PRIMARY_NAME,
    Rules(
        default=_QUEUE,
        queues={UNIQUE: replace(_QUEUE, duplicate_window_ms=WINDOW_MINUTES * 60_000)},
        routes={TOPIC: SUBSCRIPTIONS},
        # Several processes on few cores read one clock at different moments.
        slack_ms=50,
    ),
    failover_interval_ms=FAILOVER_SECONDS * 1000,
    witnessed=True,
    # Longer than a process may have to wait for a core; what applications were told
    # counts at once.
    wire_slack_ms=3000,
    restored_recorded=True,
)


@dataclass(frozen=True, slots=True)
class Orders:
    """What one worker is told: who it is, where the namespaces are, what to write."""

    process: str
    history: str
    seed: int
    # Connection strings by way of the worker's own proxies.
    primary: str
    secondary: str
    # The secondary's administration, and the certificate to trust.
    admin: str
    ca_file: str
    # Whether it brings the backlog home.
    syphon: bool = False
    # What it receives from; nothing for a sender.
    sources: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Orders:
        values = json.loads(text)
        values["sources"] = tuple(values["sources"])
        return cls(**values)


def digest(body: bytes, subject: str, properties: dict[str, Any]) -> str:
    """What must arrive as it was sent."""
    plain = {str(key): str(value) for key, value in properties.items()}
    text = json.dumps([subject, plain], sort_keys=True).encode()
    return hashlib.sha256(text + body).hexdigest()[:16]
