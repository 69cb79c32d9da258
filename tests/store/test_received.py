"""Messages that a receiver is given, joined or not."""

from __future__ import annotations

from twinbus.store.base import Stored
from twinbus.store.received import AlikeStored, ReceivedMessages


def stored(id: int, bare: bytes, origin: int | None = None) -> Stored:
    return Stored(id, 7, 0, 0, None, None, None, origin, None, b"head", bare)


def test_joined_messages_come_apart_in_their_order() -> None:
    joined = AlikeStored(5, 7, None, b"head", (1, 0, 2), b"abb")

    assert joined.messages() == [stored(5, b"a"), stored(6, b""), stored(7, b"bb")]
    assert list(joined.ids) == [5, 6, 7]
    assert joined.origins is None


def test_origins_count_on() -> None:
    joined = AlikeStored(5, 7, 90, b"head", (1, 1), b"ab")

    assert joined.messages() == [stored(5, b"a", 90), stored(6, b"b", 91)]


def test_bytes_in_front_belong_to_messages_that_are_gone() -> None:
    joined = AlikeStored(5, 7, None, b"head", (1, 2), b"gone" + b"abb")

    assert [each.bare for each in joined.messages()] == [b"a", b"bb"]


def test_parts_are_one_sequence() -> None:
    received = ReceivedMessages()
    assert not received
    received.add([])
    received.add([stored(4, b"z")])
    received.add_alike(AlikeStored(5, 7, None, b"head", (1, 2), b"gone" + b"abb"))
    received.add([stored(7, b"c")])

    assert len(received.parts) == 3
    assert len(received) == 4
    assert received.size_bytes == 5
    assert [each.bare for each in received] == [b"z", b"a", b"bb", b"c"]
    assert received[1] == stored(5, b"a")
    assert received[2:] == [stored(6, b"bb"), stored(7, b"c")]
    again = ReceivedMessages()
    again.add(list(received))
    assert again == received == list(received)
    assert hash(again) == hash(received)
    assert again != received[1:]
