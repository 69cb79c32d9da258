"""Both namespaces are away: sends go to a local outbox, and on when one is back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from prometheus_client import REGISTRY

from tests.pairing.real.site import (
    PATIENCE_SECONDS,
    Leftovers,
    Paired,
    RealPair,
    message,
)
from twinbus import limits
from twinbus.aio import EventKind, OutboxStatus, OutboxUnusable, PairingError

NAMES = [f"m{number}" for number in range(20)]


@pytest.fixture(autouse=True)
def _locks_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pair leaves locked in its outbox returns when the lock ends."""
    monkeypatch.setattr(limits, "OUTBOX_LOCK_MS", limits.LOCK_MS_MIN)


def kill_both(pair: RealPair) -> None:
    pair.primary.server.kill()
    pair.secondary.server.kill()


async def send_all(paired: Paired, path: str) -> None:
    sender = paired.sender(path)
    for name in NAMES:
        await sender.send_messages(message(name))


def outbox_of(paired: Paired) -> OutboxStatus:
    status = paired.factory.pairing.status().outbox
    assert status is not None
    return status


def metric(paired: Paired, name: str) -> float | None:
    label = {"primary": paired.label}
    return REGISTRY.get_sample_value(f"twinbus_pairing_outbox_{name}", label)


# -- both are away -------------------------------------------------------------------


async def test_what_the_outbox_took_goes_to_a_primary_that_is_back_first(
    pair: RealPair, tmp_path: Path
) -> None:
    queue, folder = pair.queue(), str(tmp_path)
    async with Leftovers(), pair.pair(outbox=tmp_path) as paired:
        await paired.sender(queue).send_messages(message("before"))
        kill_both(pair)
        await send_all(paired, queue)
        held = outbox_of(paired)
        assert metric(paired, "messages") == len(NAMES)

        pair.primary.mend()
        await paired.until(EventKind.OUTBOX_OUT, folder)

        assert paired.kinds(folder) == [EventKind.OUTBOX_IN, EventKind.OUTBOX_OUT]
        moved = outbox_of(paired)
        assert metric(paired, "messages") == metric(paired, "oldest_seconds") == 0

    assert (held.messages, held.accepted, held.moved) == (20, 20, 0)
    assert (moved.messages, moved.accepted, moved.moved) == (0, 20, 20)
    assert pair.primary.ids(queue) == ["before", *NAMES]
    pair.mend()
    assert pair.backlog() == []


async def test_what_the_outbox_took_goes_to_a_backlog_that_is_back_first(
    pair: RealPair, tmp_path: Path
) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair(outbox=tmp_path) as paired:
        kill_both(pair)
        await send_all(paired, queue)

        pair.secondary.mend()
        await paired.until(EventKind.OUTBOX_OUT, str(tmp_path))

        assert paired.state(queue) == "failed over"

    assert pair.backlog() == NAMES
    pair.primary.mend()
    assert pair.primary.ids(queue) == []


# -- a call that has no time ---------------------------------------------------------


async def test_a_send_with_a_timeout_reaches_the_outbox_when_both_are_silent(
    pair: RealPair, tmp_path: Path
) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair(outbox=tmp_path) as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        pair.primary.proxy.black_hole()
        pair.secondary.proxy.black_hole()
        began = monotonic()

        await sender.send_messages(message("during"), timeout=3)

        assert monotonic() - began < 3
        assert outbox_of(paired).messages == 1
        pair.mend()
        await paired.until(EventKind.OUTBOX_OUT, str(tmp_path))

    assert [*pair.primary.ids(queue), *pair.backlog()][-1] == "during"


# -- the secondary is away when the pair is made -------------------------------------


async def test_a_pair_is_made_while_the_secondary_is_away(
    pair: RealPair, tmp_path: Path
) -> None:
    queue = pair.queue()
    place = f"localhost:{pair.secondary.proxy.port}"
    kill_both(pair)
    async with Leftovers(), pair.pair(outbox=tmp_path) as paired:
        assert paired.factory.pairing.options.backlog_queue_count == 0
        assert paired.kinds(place) == [EventKind.SECONDARY_AWAY]
        await send_all(paired, queue)
        assert outbox_of(paired).messages == len(NAMES)

        pair.secondary.mend()
        await paired.until(EventKind.SECONDARY_BACK, place)
        assert paired.factory.pairing.options.backlog_queue_count == 2
        await paired.until(EventKind.OUTBOX_OUT, str(tmp_path))

    assert pair.backlog() == NAMES


async def test_a_pair_is_made_while_no_link_to_the_backlog_opens(
    pair: RealPair, tmp_path: Path
) -> None:
    queue = pair.queue()
    pair.secondary.proxy.refuse()
    async with Leftovers(), pair.pair(outbox=tmp_path) as paired:
        pair.primary.server.kill()
        await send_all(paired, queue)
        assert outbox_of(paired).messages == len(NAMES)

        pair.secondary.proxy.heal()
        await paired.until(EventKind.OUTBOX_OUT, str(tmp_path))

    assert pair.backlog() == NAMES


async def test_a_pair_may_be_closed_while_the_secondary_is_away(
    pair: RealPair, tmp_path: Path
) -> None:
    pair.secondary.server.kill()
    async with Leftovers(), pair.pair(outbox=tmp_path, enable_syphon=True) as paired:
        secondary = paired.factory.pairing.options.secondary_messaging_factory
        await paired.factory.close()

        assert secondary.state == "closed"


async def test_a_wrong_key_is_raised_also_with_an_outbox(
    pair: RealPair, tmp_path: Path
) -> None:
    wrong = pair.secondary.text.replace("SharedAccessKey=", "SharedAccessKey=x")
    async with Leftovers():
        with pytest.raises(ServiceBusAuthenticationError):
            async with pair.pair(backlog_text=wrong, outbox=tmp_path):
                pass
        # The folder is free again.
        async with pair.pair(outbox=tmp_path):
            pass


# -- what a message is, on its way through both --------------------------------------


async def test_a_message_comes_home_as_it_was_sent(
    pair: RealPair, tmp_path: Path
) -> None:
    queue = pair.queue(requires_session=True)
    async with pair.pair(outbox=tmp_path) as paired:
        kill_both(pair)
        await paired.sender(queue).send_messages(
            ServiceBusMessage(
                "body",
                message_id="id",
                session_id="session",
                time_to_live=timedelta(hours=1),
                application_properties={"x-ms-path": "mine"},
            )
        )
        pair.secondary.mend()
        await paired.until(EventKind.OUTBOX_OUT, str(tmp_path))

    pair.primary.mend()
    async with pair.pair(primary_name=pair.label, enable_syphon=True) as paired:
        receiver = paired.factory.get_queue_receiver(
            queue, session_id="session", max_wait_time=PATIENCE_SECONDS
        )
        async with receiver:
            (received,) = await receiver.receive_messages()

    assert str(received) == "body"
    assert received.message_id == "id"
    assert received.session_id == "session"
    assert received.application_properties == {b"x-ms-path": b"mine"}
    assert received.time_to_live is not None
    spent = timedelta(hours=1) - received.time_to_live
    assert timedelta(0) < spent < timedelta(minutes=2)


async def test_scheduled_messages_keep_their_time(
    pair: RealPair, tmp_path: Path
) -> None:
    queue = pair.queue()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    async with Leftovers(), pair.pair(outbox=tmp_path) as paired:
        kill_both(pair)

        numbers = await paired.sender(queue).schedule_messages(message("later"), due)

        pair.primary.mend()
        await paired.until(EventKind.OUTBOX_OUT, str(tmp_path))
        async with paired.factory.get_queue_receiver(queue) as receiver:
            (found,) = await receiver.peek_messages()
    assert numbers == [None]
    assert found.scheduled_enqueue_time_utc == due


async def test_a_message_whose_entity_is_missing_is_set_aside(
    pair: RealPair, tmp_path: Path
) -> None:
    async with Leftovers(), pair.pair(outbox=tmp_path) as paired:
        kill_both(pair)
        await paired.sender("never-made").send_messages(message("m"))

        pair.primary.mend()
        await paired.until(EventKind.OUTBOX_OUT, str(tmp_path))

        status = outbox_of(paired)
    assert (status.dead_lettered, status.moved) == (1, 0)
    assert paired.events[-1].details == {"messages": 0, "dead_lettered": 1}


# -- closing and starting again ------------------------------------------------------


async def test_what_is_left_stays_in_the_folder_for_the_next_start(
    pair: RealPair, tmp_path: Path
) -> None:
    queue, folder = pair.queue(), str(tmp_path)
    async with Leftovers():
        async with pair.pair(outbox=tmp_path) as paired:
            kill_both(pair)
            await send_all(paired, queue)
        closed = paired.events[-1]
        assert (closed.kind, closed.path) == (EventKind.OUTBOX_CLOSED, folder)
        assert closed.details == {"messages": len(NAMES)}

        pair.mend()
        async with pair.pair(outbox=tmp_path, primary_name=pair.label) as paired:
            first = paired.events[0]
            assert (first.kind, first.details) == (
                EventKind.OUTBOX_IN,
                {"messages": 20},
            )
            await paired.until(EventKind.OUTBOX_OUT, folder)

    assert pair.primary.ids(queue) == NAMES


async def test_a_faulted_factory_gives_the_folder_back_when_it_is_closed(
    pair: RealPair, tmp_path: Path
) -> None:
    queue = pair.queue()
    async with Leftovers():
        async with pair.pair(outbox=tmp_path) as paired:
            kill_both(pair)
            await send_all(paired, queue)
            paired.factory.fault(RuntimeError("enough"))
            with pytest.raises(RuntimeError, match="enough"):
                await paired.sender(queue).send_messages(message("late"))
        pair.mend()
        async with pair.pair(outbox=tmp_path, primary_name=pair.label) as paired:
            assert outbox_of(paired).messages == len(NAMES)


# -- which folder --------------------------------------------------------------------


async def test_a_folder_belongs_to_one_pair(pair: RealPair, tmp_path: Path) -> None:
    async with Leftovers(), pair.pair(outbox=tmp_path):
        label = pair.label
        with pytest.raises(OutboxUnusable, match=f"of '{label}'.*of its own"):
            async with pair.pair(outbox=f"{tmp_path}/../{tmp_path.name}"):
                pass


@contextmanager
def other_process(folder: Path) -> Iterator[int]:
    """A process that has this folder; gives its number."""
    script = (
        f"import twinbus; twinbus.embedded({str(folder)!r}); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield other.pid
        other.communicate(b"\n")


async def test_a_folder_belongs_to_one_process(pair: RealPair, tmp_path: Path) -> None:
    with other_process(tmp_path) as number, pytest.raises(OutboxUnusable) as caught:
        async with pair.pair(outbox=tmp_path):
            pass

    assert f"is in use by process {number}" in str(caught.value)
    assert str(caught.value).endswith("choose another outbox.")


async def test_a_path_that_is_a_file_is_refused(pair: RealPair, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(PairingError, match=r"cannot be used .* another outbox"):
        async with pair.pair(outbox=file):
            pass


async def test_messages_for_another_primary_are_not_sent_to_this_one(
    pair: RealPair, tmp_path: Path
) -> None:
    async with pair.pair(outbox=tmp_path) as paired:
        former = pair.label
        kill_both(pair)
        await paired.sender("orders").send_messages(message("for the former"))
    pair.mend()

    with pytest.raises(OutboxUnusable, match=f"1 messages for another.*'{former}'"):
        async with pair.pair(outbox=tmp_path):
            pass


@pytest.mark.parametrize(("outbox", "error"), [(7, TypeError), ("", ValueError)])
async def test_what_is_no_path_is_refused(
    pair: RealPair, outbox: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match="outbox must be"):
        async with pair.pair(outbox=outbox):
            pass


# -- threads -------------------------------------------------------------------------


def test_threads_have_an_outbox_too(pair: RealPair, tmp_path: Path) -> None:
    queue = pair.queue()
    with pair.pair_blocking(outbox=tmp_path) as primary:
        sender = primary.get_queue_sender(queue)
        events = primary.pairing.events()
        kill_both(pair)
        for name in NAMES:
            sender.send_messages(message(name))
        pair.primary.mend()
        for event in events:
            if event.kind is EventKind.OUTBOX_OUT:
                break

    assert pair.primary.ids(queue) == NAMES
