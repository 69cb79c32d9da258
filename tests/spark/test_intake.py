"""What a task receives: all that is there, and no more than it can hold."""

from __future__ import annotations

from tests.spark.bus import Bus
from twinbus.spark.source.intake import Intake, Share


def test_a_receive_that_does_not_wait_gets_what_is_there(bus: Bus, name: str) -> None:
    """The server answers a drain when it has looked, and not with an older look.

    It used to answer before, about every second time, so this is done often.
    """
    for at in range(25):
        queue = bus.namespace.create_queue(f"{name}-{at}")
        bus.fill(queue, 30)
        connection = bus.connection
        with connection.receiver(queue) as first, connection.receiver(queue) as second:
            first.release(first.receive(1, 5.0))
            counts = [len(second.receive(each, 0.0)) for each in (1, 4, 5, 10, 10)]
        assert counts == [1, 4, 5, 10, 10]


def test_a_share_is_taken_in_chunks(bus: Bus, queue: str) -> None:
    sent = bus.fill(queue, 100)
    intake = Intake(bus.connection, queue, Share(1, 0, 90, None), 40, 60)
    intake.have(5)

    taken: list[str] = []
    sizes: list[int] = []
    for chunk in intake.chunks(kept=False):
        taken += [str(each.message_id) for each in chunk.messages]
        sizes.append(len(chunk.messages))
        chunk.receiver.complete(chunk.messages)

    assert taken == sent[:85]
    assert sizes == [40, 40, 5]
    assert bus.held(queue) == 15


def test_a_share_ends_with_its_time(bus: Bus, queue: str) -> None:
    bus.fill(queue, 10)

    intake = Intake(bus.connection, queue, Share(1, 0, 90, None), 40, 0)

    assert list(intake.chunks(kept=False)) == []
