"""The primary dies, hangs or is cut off: sends go on, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from tests.pairing.real.site import PATIENCE_SECONDS, Leftovers, RealPair, message
from twinbus.aio import EventKind, MessagingFactory
from twinbus.testing.proxy import Fault

Break = Callable[[RealPair], None]


def kill(pair: RealPair) -> None:
    pair.primary.server.kill()


def hang(pair: RealPair) -> None:
    pair.primary.server.pause()


def refuse(pair: RealPair) -> None:
    pair.primary.proxy.refuse()
    pair.primary.proxy.cut()


def black_hole(pair: RealPair) -> None:
    pair.primary.proxy.black_hole()


def reset_inside_a_frame(pair: RealPair) -> None:
    fault = Fault("reset", "server", after_frame="transfer", inside=True)
    pair.primary.proxy.inject(fault)


def swallow_answers(pair: RealPair) -> None:
    pair.primary.proxy.inject(Fault("silence", "client"))


def swallow_requests(pair: RealPair) -> None:
    pair.primary.proxy.inject(Fault("silence", "server"))


BREAKS = [
    kill,
    hang,
    refuse,
    black_hole,
    reset_inside_a_frame,
    swallow_answers,
    swallow_requests,
]
# Where the primary may have accepted a message without an answer.
MAY_REPEAT = (hang, swallow_answers)


@pytest.mark.parametrize("way", BREAKS, ids=lambda way: way.__name__)
async def test_sends_go_to_the_backlog_and_come_back(
    pair: RealPair, way: Break
) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        way(pair)

        await sender.send_messages(message("during"))
        await sender.send_messages(message("after"))

        assert EventKind.FAILED_OVER in paired.kinds(queue)
        pair.mend()
        await paired.until(EventKind.FAILED_BACK, queue)
        await sender.send_messages(message("back"))
        assert paired.state(queue) == "healthy"

    assert pair.backlog() == ["during", "after"]
    home = pair.primary.ids(queue)
    if way in MAY_REPEAT:
        assert home in (["before", "back"], ["before", "during", "back"])
    else:
        assert home == ["before", "back"]


@pytest.mark.parametrize("way", [kill, black_hole], ids=lambda way: way.__name__)
async def test_a_suspect_entity_holds_its_sends_in_order(
    pair: RealPair, way: Break
) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair(failover_interval=0.5) as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        way(pair)

        names = [f"held-{number}" for number in range(5)]
        await asyncio.gather(*(sender.send_messages(message(name)) for name in names))

        kinds = paired.kinds(queue)
        assert kinds.index(EventKind.SUSPECT) < kinds.index(EventKind.FAILED_OVER)
        times = {event.kind: event.at_ms for event in paired.events}
        assert times[EventKind.FAILED_OVER] - times[EventKind.SUSPECT] >= 500

    assert pair.backlog() == names


async def test_a_blip_is_ridden_out(pair: RealPair) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair(failover_interval=30) as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        pair.primary.server.restart()

        await sender.send_messages(message("held"))

        assert paired.state(queue) == "healthy"
        assert EventKind.FAILED_OVER not in paired.kinds(queue)

    assert pair.primary.ids(queue) == ["before", "held"]
    assert pair.backlog() == []


async def test_a_server_that_hangs_and_goes_on_makes_one_copy_with_detection(
    pair: RealPair,
) -> None:
    queue = pair.queue(requires_duplicate_detection=True)
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        pair.primary.server.pause()
        await sender.send_messages(message("during"))
        pair.primary.server.resume()
        await paired.until(EventKind.FAILED_BACK, queue)

        # What the syphon would bring home.
        await sender.send_messages(message("during"))

    assert pair.primary.ids(queue) == ["before", "during"]
    assert pair.backlog() == ["during"]


async def test_the_send_during_which_the_primary_dies_is_accepted_by_the_backlog(
    pair: RealPair,
) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair(failover_interval=0) as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        strikes = pair.primary.proxy.strikes
        pair.primary.proxy.inject(Fault("hold", "client"))
        under_way = asyncio.create_task(sender.send_messages(message("during")))
        # The primary has taken it, and its answer is on the way.
        await asyncio.to_thread(
            pair.primary.proxy.wait_until, lambda proxy: proxy.strikes > strikes
        )

        pair.primary.server.kill()
        pair.primary.proxy.cut()
        await under_way

        assert EventKind.FAILED_OVER in paired.kinds(queue)
    assert pair.backlog() == ["during"]
    pair.mend()
    # A copy in each namespace, and both have one id.
    assert pair.primary.ids(queue) == ["before", "during"]


async def test_a_retry_that_never_left_is_taken_back(pair: RealPair) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair(failover_interval=0.5) as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        # New connections are accepted, and nothing on them moves for a while.
        pair.primary.proxy.inject(Fault("hold"))
        pair.primary.proxy.cut()

        await sender.send_messages(message("during"))

        # What waited for a connection when the entity failed over must not arrive now.
        pair.primary.proxy.heal()
        await paired.until(EventKind.FAILED_BACK, queue)
        await sender.send_messages(message("back"))

    assert pair.backlog() == ["during"]
    assert pair.primary.ids(queue) == ["before", "back"]


async def test_one_entity_away_does_not_move_another(pair: RealPair) -> None:
    queue, other = pair.queue(), pair.queue()
    # No second ping: its end would be that of the connection which all share.
    async with Leftovers(), pair.pair(ping_primary_interval=60) as paired:
        for path in (queue, other):
            await paired.sender(path).send_messages(message(f"before-{path}"))
        # The next transfers are not answered: the message, and the first ping.
        pair.primary.proxy.inject(Fault("reset", "server", after_frame="transfer"))
        await paired.sender(queue).send_messages(message("during"))
        await paired.until(EventKind.PING_FAILED, queue)
        pair.primary.proxy.heal()

        await paired.sender(other).send_messages(message("fine"))

        assert paired.kinds(other) == []
    assert pair.primary.ids(other)[-1] == "fine"
    assert pair.backlog() == ["during"]


# -- threads -------------------------------------------------------------------------


@pytest.mark.parametrize("way", [kill, black_hole], ids=lambda way: way.__name__)
def test_threads_send_through_an_outage(pair: RealPair, way: Break) -> None:
    queue = pair.queue()
    threads_before = set(threading.enumerate())
    with pair.pair_blocking() as primary:
        sender = primary.get_queue_sender(queue)
        sender.send_messages(message("before"))
        events = primary.pairing.events()
        way(pair)
        sent = [
            threading.Thread(target=sender.send_messages, args=(message(f"m{each}"),))
            for each in range(4)
        ]
        for thread in sent:
            thread.start()
        for thread in sent:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
        pair.mend()
        for event in events:
            if event.kind is EventKind.FAILED_BACK:
                break
        sender.send_messages(message("back"))

    for thread in set(threading.enumerate()) - threads_before:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), thread
    assert sorted(pair.backlog()) == [f"m{each}" for each in range(4)]
    assert pair.primary.ids(queue)[-1] == "back"


async def test_an_unpaired_sender_outlasts_a_silent_server(pair: RealPair) -> None:
    """Its attempts end without an answer until the server answers again."""
    queue, proxy = pair.queue(), pair.primary.proxy
    proxy.black_hole()
    came = proxy.accepted
    async with (
        Leftovers(),
        MessagingFactory.from_connection_string(
            pair.primary.text,
            try_timeout=0.2,
            retry_total=100,
            retry_mode="fixed",
            retry_backoff_factor=0.01,
        ) as factory,
    ):
        sender = factory.get_queue_sender(queue)
        send = asyncio.ensure_future(sender.send_messages(message("m")))
        await asyncio.to_thread(
            proxy.wait_until, lambda proxy: proxy.accepted > came + 1
        )
        proxy.heal()
        await send
    assert pair.primary.ids(queue) == ["m"]
