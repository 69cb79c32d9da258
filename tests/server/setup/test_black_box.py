"""The mapped file: what is written is read by another process, whole, at any time."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from twinbus import limits
from twinbus.server.setup.black_box import BlackBox, BlackBoxHandler, make_file

# Writes for ever, records and vitals whose content says how long they are.
_WRITER = """
import itertools, sys
from twinbus.server.setup.black_box import BlackBox
box = BlackBox(int(sys.argv[1]))
for number in itertools.count():
    text = b"%d " % number + b"x" * (number * 7919 % 5000)
    box.add_record(b"%d:" % len(text) + text)
    box.put_vitals(b"%d:" % len(text) + text)
    box.beat()
    if number == 5000:
        print("writing", flush=True)
"""


@pytest.fixture(name="descriptor")
def _descriptor() -> Iterator[int]:
    descriptor = make_file()
    yield descriptor
    os.close(descriptor)


@pytest.fixture(name="box")
def _box(descriptor: int) -> Iterator[BlackBox]:
    box = BlackBox(descriptor)
    yield box
    box.close()


def is_whole(text: bytes) -> bool:
    length, _, rest = text.partition(b":")
    return len(rest) == int(length)


def test_a_new_box_is_empty(box: BlackBox) -> None:
    assert (box.beats, box.vitals(), box.records()) == (0, b"", [])


def test_the_last_vitals_count(box: BlackBox) -> None:
    box.put_vitals(b"first, and longer")
    box.put_vitals(b"second")
    assert box.vitals() == b"second"

    box.put_vitals(b"x" * (limits.VITALS_BYTES_MAX + 1))
    assert box.vitals() == b"second"


def test_the_ring_keeps_the_last_ten_thousand_records(box: BlackBox) -> None:
    for number in range(12_000):
        box.add_record(b"%d" % number)

    assert box.records() == [b"%d" % number for number in range(2_000, 12_000)]


def test_long_records_push_out_old_ones_and_are_cut(box: BlackBox) -> None:
    record = b"y" * (limits.LOG_RECORD_BYTES_MAX + 1)
    for _ in range(1000):
        box.add_record(record)
    box.add_record(b"last")

    kept = box.records()
    room = limits.LOG_RING_BYTES // (limits.LOG_RECORD_BYTES_MAX + 4)
    assert len(kept) == room + 1
    assert kept[0] == record[:-1]
    assert kept[-1] == b"last"


def test_a_writer_that_is_killed_leaves_whole_records(
    box: BlackBox, descriptor: int
) -> None:
    for _ in range(5):
        command = [sys.executable, "-c", _WRITER, str(descriptor)]
        writer = subprocess.Popen(
            command, stdout=subprocess.PIPE, pass_fds=[descriptor]
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        writer.send_signal(signal.SIGKILL)
        writer.communicate()

        assert is_whole(box.vitals())
        assert all(map(is_whole, box.records()))
    assert box.beats > 25_000


def test_the_text_of_an_exception_is_not_kept(box: BlackBox) -> None:
    log = logging.getLogger("tests.black_box")
    log.addHandler(handler := BlackBoxHandler(box))
    try:
        int("payload")
    except ValueError:
        log.exception("a turn of %s failed", "contoso")
    finally:
        log.removeHandler(handler)

    (kept,) = map(json.loads, box.records())
    assert kept["message"] == "a turn of contoso failed"
    assert kept["level"] == "error"
    assert kept["exception"].endswith(" | ValueError")
    assert __file__ in kept["exception"]
    assert b"payload" not in box.records()[0]
