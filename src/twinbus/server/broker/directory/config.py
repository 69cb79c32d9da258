"""What a namespace is set up from, and what a reset brings back.

Plain descriptions, wherever they come from: a configuration file (`setup/config.py`),
an application or a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from twinbus.core.entity import (
    AuthorizationRule,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.rights import JwtOptions
from twinbus.core.tier import NamespaceTier


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """A subscription and its rules; there is always at least one."""

    description: SubscriptionDescription
    rules: tuple[RuleDescription, ...]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic and its subscriptions."""

    description: TopicDescription
    subscriptions: tuple[SubscriptionConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """A namespace and everything that the file puts into it."""

    name: str
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicConfig, ...] = ()
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    message_rate_per_second: int | None = None
    # Whose bearer tokens the namespace accepts.
    jwt: JwtOptions | None = None
    # What it allows; None: as the server is told.
    tier: NamespaceTier | None = None
    # How many parts it has, or the folder of each; None: as the server is told.
    shards: int | tuple[Path, ...] | None = None
    # The folder of its ledger, or False for none; None: as the server is told.
    ledger: Path | Literal[False] | None = None
