"""A driver is killed after its batch was spooled and before it was committed.

What follows from that is shown by one story, because a driver takes long to start: the
batch has the same rows again, the sink gives them the same ids, so that duplicate
detection drops what was sent before, and all that the driver wrote or showed is
searched for the key.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.bus import Bus, body_of, message
from tests.spark.driver import GIVEN, OUT, SHOW, SHOWN, SLICE_MESSAGES, SOURCE, start
from tests.spark.processes import workers
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions
from twinbus.spark.source.spool import Spool
from twinbus.testing.namespace import serve_namespace

# A session takes long to start where others are at work.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
KEY = "planted/Key+that+never/may/beSeen0123456789A="
COUNT = 3 * SLICE_MESSAGES
# One megabyte takes the copies of one task and not those of two.
SIZE_BYTES = 8_000
_SECONDS_MAX = 200.0


class Driver:
    """A process that runs the stream, with what it says in a file."""

    def __init__(self, folder: Path, text: str) -> None:
        self._errors = folder / "errors"
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", str(folder)],
                cwd=ROOT,
                env={**os.environ, GIVEN: text, "PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._output = (folder / "output").open("w")

    def show(self) -> None:
        """Have it show everything, and wait until it has."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{SHOW}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            self._output.write(line)
            if line.strip() == SHOWN:
                return
        raise AssertionError(self._errors.read_text()[-4000:])

    def finish(self) -> None:
        """Let it come to its end."""
        self.process.communicate(timeout=_SECONDS_MAX)
        assert self.process.returncode == 0, self._errors.read_text()[-4000:]

    def kill(self) -> None:
        """The end of the driver and its Java at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._output):
            assert pipe is not None
            pipe.close()


@contextmanager
def serving(megabytes: int, lock: str = "PT1M") -> Iterator[Bus]:
    """A namespace with a key that can be recognised, and room for some copies."""
    rule = {"name": "spark", "rights": ["Listen", "Send"], "primary_key": KEY}
    copies = {"requires_duplicate_detection": True, "lock_duration": "PT5M"}
    out = {"name": OUT, "max_size_in_megabytes": megabytes, **copies}
    source = {"name": SOURCE, "lock_duration": lock}
    entities = {"queues": [source, out], "authorization_rules": [rule]}
    with serve_namespace(entities) as namespace:
        text = (
            f"Endpoint=sb://localhost:{namespace.amqp_port}/;SharedAccessKeyName=spark;"
            f"SharedAccessKey={KEY};UseDevelopmentEmulator=true"
        )
        yield Bus(namespace, {"connectionString": text})


def fill(bus: Bus, count: int, size_bytes: int) -> list[str]:
    """Messages that carry their id in the body."""
    ids = [f"order-{number}" for number in range(count)]
    bus.send(SOURCE, [message(each, each.ljust(size_bytes).encode()) for each in ids])
    return ids


def copies(messages: list[Message]) -> list[str]:
    """The ids that bodies carry."""
    return [body_of(each).decode().strip() for each in messages]


def take_copies(bus: Bus, count: int, wait_seconds: float) -> list[str]:
    """Take so many copies, waiting for each; fewer if no more come."""
    found: list[str] = []
    with bus.connection.receiver(OUT, ReceiveOptions(deletes=True)) as receiver:
        while len(found) < count and (
            some := receiver.receive(count - len(found), wait_seconds)
        ):
            found += copies(some)
    return found


@dataclass(frozen=True)
class Story:
    """What happened."""

    folder: Path
    sent: list[str]
    # When the driver was killed: what it had sent on, what was in the spool and what
    # was in the queue.
    first: list[str]
    spooled: list[str]
    left: int
    # What was sent by the next one and not dropped, and what was in the queue then.
    second: list[str]
    end: int
    # Rows of the batches of the second one, and what it shows of itself.
    batches: list[int]
    said: str


@pytest.fixture(scope="module")
def story(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("killed")
    with serving(megabytes=1) as bus:
        text = bus.access["connectionString"]
        sent = fill(bus, COUNT, SIZE_BYTES)
        first = killed_when_full(bus, folder)
        left = bus.held(SOURCE)
        spool = Spool(str(folder / "spool"), SOURCE)
        batches = [
            batch
            for part in spool.parts(1)
            if not spool.ends(part)
            for batch in spool.read(part)
        ]
        spooled = [each for rows in batches for each in rows["message_id"].to_pylist()]
        query = start(spark, folder, text)
        second = take_copies(bus, COUNT - len(first), _SECONDS_MAX)
        assert query.awaitTermination(int(_SECONDS_MAX))
        second += take_copies(bus, COUNT, 0.0)
        rows = [each["numInputRows"] for each in query.recentProgress]
        said, end = str(query.recentProgress), bus.held(SOURCE)
        yield Story(folder, sent, first, spooled, left, second, end, rows, said)


def killed_when_full(bus: Bus, folder: Path) -> list[str]:
    """Run a driver until there is no room for more copies, and kill it.

    The copies are only locked meanwhile, so that they go on taking their room.
    """
    driver = Driver(folder, bus.access["connectionString"])
    found: list[Message] = []
    with bus.connection.receiver(OUT) as receiver:
        try:
            while len(found) < SLICE_MESSAGES:
                some = receiver.receive(SLICE_MESSAGES, _SECONDS_MAX)
                assert some, (folder / "errors").read_text()[-4000:]
                found += some
            driver.show()
        finally:
            driver.kill()
        while some := receiver.receive(SLICE_MESSAGES, 0.0):
            found += some
        receiver.complete(found)
    return copies(found)


def test_a_batch_that_was_spooled_has_the_same_rows_again(story: Story) -> None:
    assert len(story.spooled) == 2 * SLICE_MESSAGES
    assert story.left == COUNT - 2 * SLICE_MESSAGES
    # The batch was not done, and is read again from its files before the rest.
    assert len(story.first) < len(story.spooled)
    assert set(story.first) <= set(story.spooled)
    assert story.batches == [2 * SLICE_MESSAGES, SLICE_MESSAGES]
    assert set(story.spooled) - set(story.first) <= set(story.second)


def test_every_message_arrives_and_none_twice(story: Story) -> None:
    """What the killed driver had sent is sent again, and dropped as a duplicate."""
    assert sorted(story.first + story.second) == sorted(story.sent)
    assert story.end == 0


def test_the_key_is_in_no_file_or_log(story: Story) -> None:
    """In logs, events, plans, progress, pages, checkpoints and the spool."""
    forms = {KEY, urllib.parse.quote(KEY, safe=""), urllib.parse.quote(KEY)}
    files = [file for file in story.folder.rglob("*") if file.is_file()]
    leaks = [
        str(file.relative_to(story.folder))
        for file in files
        if any(form.encode() in file.read_bytes() for form in forms)
    ]

    assert leaks == []
    assert KEY not in story.said
    # There was something to find it in.
    said = b"".join(file.read_bytes() for file in files)
    signs = [b"MicroBatchScan", b"SparkListenerSQLExecutionStart", b"<html"]
    for sign in [*signs, b" INFO ", b" DEBUG "]:
        assert sign in said
    assert b"has no 'nowhere'" in said
    assert {"checkpoint", "events", "pages"} <= {
        file.relative_to(story.folder).parts[0] for file in files
    }


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_killed_nothing_is_lost_or_doubled(
    tmp_path: Path, seed: int
) -> None:
    """Drivers and workers are killed by chance; each time another goes on."""
    chance = random.Random(seed)
    with serving(megabytes=1024, lock="PT5S") as bus:
        text = bus.access["connectionString"]
        sent = fill(bus, 20 * SLICE_MESSAGES, 100)
        driver = Driver(tmp_path, text)
        arrived: list[str] = []
        try:
            for kind in chance.sample(["worker", "driver"] * 2, 4):
                wanted = chance.randrange(SLICE_MESSAGES, 3 * SLICE_MESSAGES)
                arrived += take_copies(bus, wanted, _SECONDS_MAX)
                print(f"seed {seed}: {kind} after {len(arrived)} messages")
                if kind == "worker":
                    victim = chance.choice(sorted(workers(driver.process.pid)))
                    os.kill(victim.pid, signal.SIGKILL)
                else:
                    driver.kill()
                    driver = Driver(tmp_path, text)
            driver.finish()
            while left := bus.held(SOURCE):
                print(f"seed {seed}: {left} were locked by who was killed")
                # They are in the queue, and the next run has them.
                driver.kill()
                driver = Driver(tmp_path, text)
                driver.finish()
        finally:
            driver.kill()
        arrived += take_copies(bus, len(sent), 0.0)

        assert len(arrived) == len(set(arrived))
        assert sorted(arrived) == sorted(sent)
        assert bus.held(SOURCE) == 0
