"""The way to the thread of a store and back: in order, on the loop, and to its end."""

from __future__ import annotations

import asyncio
import threading
import weakref
from functools import partial

import pytest

from twinbus.errors import StoreFault
from twinbus.server.broker.store_thread import StoreThread


class Held:
    """Something that must not be kept alive."""


def fails() -> None:
    raise StoreFault("The disk is full.")


async def test_work_is_done_in_the_thread_and_told_on_the_loop() -> None:
    thread = StoreThread("store")
    told: list[tuple[object, int]] = []

    def tell(result: object) -> None:
        told.append((result, threading.get_ident()))

    thread.call(threading.get_ident, tell)
    thread.call(lambda: 2, tell)
    assert await thread.run(lambda: 3) == 3

    (first, where), second = told
    assert first != where == threading.get_ident()
    assert second == (2, where)
    thread.stop()


async def test_an_error_is_told_and_ends_nothing() -> None:
    thread = StoreThread("store")
    told: list[object] = []

    thread.call(fails, told.append)
    with pytest.raises(StoreFault):
        await thread.run(fails)

    assert isinstance(told[0], StoreFault)
    assert await thread.run(lambda: 1) == 1
    thread.stop()


async def test_the_loop_goes_on_while_work_hangs() -> None:
    thread, well = StoreThread("store"), threading.Event()
    hanging = asyncio.ensure_future(thread.run(well.wait))

    # Only the loop itself can end it.
    await asyncio.sleep(0)
    assert not hanging.done()
    well.set()

    assert await hanging
    thread.stop()


async def test_who_waits_no_more_is_not_told() -> None:
    thread, well = StoreThread("store"), threading.Event()
    loop, failures = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _loop, context: failures.append(context))
    hanging = asyncio.ensure_future(thread.run(well.wait))
    await asyncio.sleep(0)

    hanging.cancel()
    well.set()

    assert await thread.run(lambda: 1) == 1
    assert hanging.cancelled()
    assert not failures
    thread.stop()


async def test_stop_waits_for_what_was_given() -> None:
    thread = StoreThread("store")
    done: list[int] = []
    for number in range(3):
        thread.call(partial(done.append, number), lambda _told: None)

    thread.stop()

    assert done == [0, 1, 2]


async def test_nothing_is_kept_alive_by_the_wait_for_more() -> None:
    thread, held = StoreThread("store"), Held()
    gone = threading.Event()
    weakref.finalize(held, gone.set)

    await thread.run(partial(weakref.ref, held))
    del held
    # The thread lets go of it before it waits, which it does a moment later.
    assert await asyncio.to_thread(gone.wait, 10)
    thread.stop()


def test_the_thread_ends_if_the_loop_is_gone() -> None:
    well = threading.Event()

    async def leave() -> StoreThread:
        thread = StoreThread("store")
        thread.call(well.wait, lambda _told: None)
        return thread

    thread = asyncio.run(leave())
    well.set()

    # There is no loop that could stop it.
    thread._thread.join(10)
    assert not thread._thread.is_alive()
