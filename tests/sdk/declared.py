"""The entities that the tests of this folder want.

A test module declares them while it is imported, so the server starts with exactly
those of the tests that were collected. Each test has its own: none sees what another
left behind. Settings are those of the configuration file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Settings = dict[str, Any]
Test = TypeVar("Test", bound=Callable[..., None])

_queues: dict[str, Settings] = {}
_topics: dict[str, Settings] = {}
_authorization_rules: dict[str, Settings] = {}


def queue(name: str, **settings: object) -> str:
    """Want a queue; returns its name."""
    assert name not in _queues, name
    _queues[name] = settings
    return name


def topic(name: str, **settings: object) -> str:
    """Want a topic; returns its name. See `subscription` for what is below it."""
    assert name not in _topics, name
    _topics[name] = settings
    return name


def subscription(name: str, *rules: Settings, **settings: object) -> Settings:
    """A subscription for the `subscriptions` of a topic; no rules: the default rule."""
    return {"name": name, **settings, **({"rules": list(rules)} if rules else {})}


def rule(name: str, action: str | None = None, **filter: object) -> Settings:
    """A rule for a subscription; the filter is one of `sql`, `correlation`, ..."""
    return {
        "name": name,
        "filter": filter,
        **({} if action is None else {"action": action}),
    }


def key(name: str, secret: str, *rights: str) -> Settings:
    """An authorization rule with one key."""
    return {"name": name, "rights": list(rights), "primary_key": secret}


def namespace_key(name: str, secret: str, *rights: str) -> None:
    """Want an authorization rule of the namespace."""
    _authorization_rules[name] = key(name, secret, *rights)


def with_queue(**settings: object) -> Callable[[Test], Test]:
    """Give a test the queue that its argument `queue` names."""

    def declare(test: Test) -> Test:
        queue(test.__name__, **settings)
        return test

    return declare


def with_topic(*subscriptions: Settings, **settings: object) -> Callable[[Test], Test]:
    """Give a test the topic that its argument `topic` names."""

    def declare(test: Test) -> Test:
        topic(test.__name__, subscriptions=list(subscriptions), **settings)
        return test

    return declare


def throttled(namespace_name: str) -> str:
    """The name of a namespace's twin that takes one message per second."""
    return f"{namespace_name}-throttled"


def configuration(namespace_names: Iterable[str]) -> Settings:
    """Everything that was declared, in each namespace and in its throttled twin."""
    namespaces = []
    for name in namespace_names:
        namespaces.append(_namespace(name))
        slow = {**_namespace(throttled(name)), "message_rate_per_second": 1}
        namespaces.append(slow)
    return {"namespaces": namespaces}


def _namespace(name: str) -> Settings:
    return {
        "name": name,
        "queues": [{"name": key, **value} for key, value in _queues.items()],
        "topics": [{"name": key, **value} for key, value in _topics.items()],
        "authorization_rules": list(_authorization_rules.values()),
    }
