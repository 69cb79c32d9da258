"""A server that is killed in the middle is waited for, and all goes on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.bus import message
from tests.spark.reading import Stream, ids_of
from twinbus.spark.connections import connection_for
from twinbus.spark.options import ACCESS, Options
from twinbus.spark.schema import arrow_schema, spark_schema
from twinbus.spark.sink.encoding import Identity
from twinbus.spark.sink.sink import SinkSettings, write_partition
from twinbus.testing.server_process import ServerProcess

IDS = [f"message-{number}" for number in range(40)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "server", {"queues": ["orders"]}) as made:
        yield made


@pytest.fixture
def access(server: ServerProcess, _closed_at_the_end: None) -> dict[str, str]:
    return {"connectionString": server.connection_string, "entity": "orders"}


def test_a_stream_waits_for_its_namespace(
    server: ServerProcess, access: dict[str, str], tmp_path: Path
) -> None:
    connection = connection_for(Options(access, (*ACCESS, "entity")).access())
    with connection.sender("orders") as sender:
        sender.send([message(each, b"") for each in IDS])
    options = {"settle": "spool", "spoolLocation": str(tmp_path / "spool")}
    stream = Stream({**access, **options, "chunkSize": "10"})
    planned = stream.plan()
    assert planned is not None
    rows = stream.reader.read(planned[0])
    found = ids_of(next(rows).to_pylist())

    server.kill()
    # What is left of the share is for later; the task does not fail.
    assert list(rows) == []
    stream.commit()
    with ThreadPoolExecutor() as pool:
        planning = pool.submit(stream.plan)
        server.start()
        planned = planning.result(60)

    assert planned is not None
    [more] = stream.read(planned)
    assert found + ids_of(more) == IDS
    stream.commit()
    assert stream.run() == []
    stream.close()


def test_a_sink_waits_for_its_namespace(
    server: ServerProcess, access: dict[str, str]
) -> None:
    schema = arrow_schema(locks=False)
    batches = [
        pa.RecordBatch.from_pylist([{"message_id": each, "body": b""}], schema=schema)
        for each in IDS
    ]
    settings = SinkSettings.of(access, spark_schema(locks=False))

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches[:20]
        server.kill()
        # It is asked for in vain at first: the next start comes from elsewhere.
        restarting.append(pool.submit(server.start))
        yield from batches[20:]

    restarting: list[object] = []
    with ThreadPoolExecutor() as pool:
        done = write_partition(settings, Identity("query", 0, 0), rows())

    assert done.sent == 40
    with connection_for(settings.access).receiver("orders") as receiver:
        found = [str(each.message_id) for each in receiver.receive(100, 5.0)]
    # A message whose outcome was lost is sent again, with the same id.
    assert list(dict.fromkeys(found)) == IDS
