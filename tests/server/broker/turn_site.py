"""A namespace whose turns a test runs one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twinbus.clock import Now
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Command, TurnOutcome, Work, run
from twinbus.store.base import Stored
from twinbus.store.opening import open_store
from twinbus.wire.message import sections
from twinbus.wire.message.sections import Incoming

NOW = Now.at(1_700_000_000_000)


def message(text: str) -> Incoming:
    return sections.parse(
        sections.encode_message(text.encode(), {sections.MESSAGE_ID: text})
    )


class Site:
    """A namespace in a file, and its turns."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.store = open_store(folder)
        self.namespace = Namespace("contoso", self.store)
        # Rows that each turn has written for subscriptions and queues.
        self.written: list[int] = []

    def topic(
        self, name: str, subscriptions: int, forward_to: str | None = None
    ) -> Entity:
        self.store.begin()
        topic = self.namespace.entities.create(TopicDescription(name), 0)
        for number in range(subscriptions):
            described = SubscriptionDescription(
                name, f"s{number}", forward_to=forward_to
            )
            self.namespace.entities.create(described, 0)
        self.store.commit()
        return topic

    def queue(self, name: str) -> Entity:
        self.store.begin()
        queue = self.namespace.entities.create(QueueDescription(name), 0)
        self.store.commit()
        return queue

    def turn(self, *commands: Command[Any]) -> TurnOutcome:
        before = self.kept()
        self.store.begin()
        outcome = run(self.namespace, Work(NOW, commands, tick=True))
        assert len(outcome.answers) == len(commands)
        self.store.commit()
        self.namespace.undo_log.clear()
        self.written.append(self.kept() - before)
        return outcome

    def turns(self) -> None:
        """Go on until time has nothing to do."""
        while self.turn().tick_again:
            pass

    def kept(self) -> int:
        return sum(
            self.store.counts(each.id).active
            for each in self.namespace.entities
            if each.kind != "topic"
        )

    def copies(self, topic: Entity) -> int:
        """How many messages the subscriptions of a topic have."""
        below = topic.subscriptions.values()
        return sum(self.store.counts(each.id).active for each in below)

    def texts(self, entity: Entity) -> list[str]:
        return [text_of(each) for each in self.messages(entity)]

    def messages(self, entity: Entity) -> list[Stored]:
        return self.store.peek(entity.id, 1, 10_000, NOW, None)

    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.folder)
        self.namespace = Namespace("contoso", self.store)

    def entity(self, key: str) -> Entity:
        found = self.namespace.entities.find(key)
        assert found is not None
        return found


def text_of(stored: Stored) -> str:
    return str(sections.read_properties(stored.bare)[sections.MESSAGE_ID])


def sending(entity: Entity, *texts: str) -> Send:
    send = Send(entity)
    send.add([message(text) for text in texts])
    return send
