"""A bundle is sent as the messages in it would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.broker.turn_site import Site, message
from twinbus import limits
from twinbus.core.entity import ActiveStatus, QueueDescription
from twinbus.errors import (
    Bug,
    BusyError,
    EntityDisabled,
    MessageTooLarge,
    QuotaExceeded,
    TwinbusError,
)
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.wire.message import sections
from twinbus.wire.message.bundle import Bundle
from twinbus.wire.message.sections import Incoming

MANY = limits.PACK_MESSAGES_MIN + 2


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    opened = Site(tmp_path / "data")
    yield opened
    opened.store.close()


def joined(*messages: Incoming, is_batch: bool = False) -> Bundle:
    bares = [each.bare for each in messages]
    return Bundle(messages[0], list(map(len, bares)), b"".join(bares), is_batch)


def many(start: int = 0) -> list[Incoming]:
    return [message(f"m{number}") for number in range(start, start + MANY)]


def large(text: str, size_bytes: int) -> Incoming:
    fields = {sections.MESSAGE_ID: text}
    return sections.parse(sections.encode_message(bytes(size_bytes), fields))


def queue(site: Site, name: str, **fields: Any) -> Entity:
    site.store.begin()
    made = site.namespace.entities.create(QueueDescription(name, **fields), 0)
    site.store.commit()
    return made


def sent(site: Site, send: Send) -> dict[int, TwinbusError]:
    (answer,) = site.turn(send).answers
    assert isinstance(answer, dict)
    return answer


def shown(site: Site, entity: Entity) -> list[tuple[Any, ...]]:
    """What is kept, but for the number of the container."""
    return [(each.sequence, *each[1:]) for each in site.messages(entity)]


PLAIN: dict[str, Any] = {}
KINDS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "time to live": {"default_message_time_to_live_ms": 60_000},
    "duplicate detection": {"requires_duplicate_detection": True},
    "forwarding": {"forward_to": "end"},
    "sessions": {"requires_session": True},
}


@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
def test_every_kind_of_queue_does_the_same_with_a_bundle(
    site: Site, fields: dict[str, Any]
) -> None:
    end = queue(site, "end")
    one, other = queue(site, "one", **fields), queue(site, "other", **fields)

    refused = sent(site, Send(one, joined(*many()), joined(*many())))
    site.turns()
    found = shown(site, one), shown(site, end), site.store.counts(one.id)
    site.store.begin()
    site.store.purge(end.id)
    site.store.commit()
    separate = Send(other, *([each] for each in [*many(), *many()]))
    expected = sent(site, separate)
    site.turns()

    assert list(refused) == list(expected)
    assert list(map(type, refused.values())) == list(map(type, expected.values()))
    assert [each[1:] for each in found[1]] == [row[1:] for row in shown(site, end)]
    assert found[0] == shown(site, other)
    assert found[2] == site.store.counts(other.id)
    assert one.received == other.received


def test_bundles_and_single_messages_keep_their_order(site: Site) -> None:
    end = queue(site, "q")

    batch = joined(*many(20), is_batch=True)
    pair = [message("b"), message("c")]
    send = Send(end, [message("a")], joined(*many()), pair, batch)
    assert (send.deliveries, send.messages) == (3 + MANY, 3 + 2 * MANY)
    assert sent(site, send) == {}

    first = ["a", *(f"m{n}" for n in range(MANY)), "b", "c"]
    assert site.texts(end) == [*first, *(f"m{n}" for n in range(20, 20 + MANY))]


@pytest.mark.parametrize("is_batch", [False, True])
def test_one_message_that_is_too_large_refuses_its_delivery_alone(
    site: Site, is_batch: bool
) -> None:
    end = queue(site, "q")
    messages = many()
    messages.insert(3, large("large", limits.MESSAGE_BYTES_MAX))
    bundle = joined(*messages, is_batch=is_batch)

    refused = sent(site, Send(end, [message("a")], bundle, [message("z")]))

    assert list(refused) == [1 if is_batch else 4]
    assert {type(error) for error in refused.values()} == {MessageTooLarge}
    others = [] if is_batch else [f"m{number}" for number in range(MANY)]
    assert site.texts(end) == ["a", *others, "z"]


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_disabled_queue_refuses_all_of_a_bundle(site: Site, is_batch: bool) -> None:
    end = queue(site, "q", status=ActiveStatus.SEND_DISABLED)

    refused = sent(site, Send(end, joined(*many(), is_batch=is_batch)))

    assert list(refused) == list(range(1 if is_batch else MANY))
    assert all(type(error) is EntityDisabled for error in refused.values())
    assert end.received == 0


def test_what_fits_of_a_bundle_is_kept_when_the_queue_is_full(site: Site) -> None:
    end = queue(site, "q", max_size_in_megabytes=1)
    size = (1 << 20) // (MANY - 2)
    messages = [large(f"m{number}", size) for number in range(MANY)]

    refused = sent(site, Send(end, joined(*messages)))

    assert list(map(type, refused.values())) == [QuotaExceeded] * len(refused)
    assert 0 < len(refused) < MANY
    assert list(refused) == list(range(MANY - len(refused), MANY))
    assert len(site.messages(end)) == MANY - len(refused)
    assert end.received == MANY - len(refused)


def test_a_rate_counts_each_message_of_a_bundle(site: Site) -> None:
    end = queue(site, "q", message_rate_per_second=MANY - 3)

    refused = sent(site, Send(end, joined(*many())))

    assert list(refused) == [MANY - 3, MANY - 2, MANY - 1]
    assert {type(error) for error in refused.values()} == {BusyError}
    assert site.texts(end) == [f"m{number}" for number in range(MANY - 3)]


def test_a_bundle_that_fails_unexpectedly_is_sent_message_by_message(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = queue(site, "q")
    monkeypatch.setattr(site.store, "append_alike", lambda *_: 1 // 0)

    refused = sent(site, Send(end, joined(*many())))

    assert refused == {}
    assert end.received == MANY
    assert site.texts(end) == [f"m{number}" for number in range(MANY)]


def test_a_batch_that_fails_unexpectedly_counts_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = queue(site, "q")
    monkeypatch.setattr(site.store, "append_alike", lambda *_: 1 // 0)

    refused = sent(site, Send(end, joined(*many(), is_batch=True)))

    assert list(map(type, refused.values())) == [Bug]
    assert end.received == 0
    assert site.texts(end) == []
