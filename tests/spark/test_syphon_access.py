"""Keys stay with the driver; tasks get tokens, and nothing of either prints."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tests.client.site import message
from twinbus.core.sas import Secret, parse_connection_string, parse_token
from twinbus.errors import RemoteError
from twinbus.spark.syphon_job.access import KeyedNamespace, Ticket, Worker
from twinbus.spark.syphon_job.driver import (
    QueueState,
    SyphonDriver,
    SyphonJob,
    SyphonSettings,
)
from twinbus.spark.syphon_job.reports import QueueTotals
from twinbus.spark.syphon_job.source import (
    SyphonPartition,
    SyphonReader,
    SyphonSource,
    source_class,
)
from twinbus.testing.namespace import serve_namespace

KEYS = ("planted-primary-key", "planted-secondary-key")


def namespace(host: str, key: str) -> KeyedNamespace:
    text = f"Endpoint=sb://{host};SharedAccessKeyName=root;SharedAccessKey={key}"
    return KeyedNamespace(parse_connection_string(text))


@pytest.fixture
def job(tmp_path: Path) -> SyphonJob:
    settings = SyphonSettings("home", str(tmp_path), "away/home", "run-1")
    return SyphonJob(
        settings, namespace("home", KEYS[0]), namespace("away.example.org", KEYS[1])
    )


def tasks_of(job: SyphonJob) -> list[InputPartition]:
    driver = SyphonDriver(job.settings, job.primary, job.secondary)
    driver._states[0] = QueueState(5)
    driver._totals[0] = QueueTotals(0, "home/x-servicebus-transfer/0")
    return [SyphonPartition(task) for task in driver.tasks(1)]


def pickled(value: object) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def holds_key(data: bytes) -> bool:
    return any(key.encode() in data for key in KEYS)


def test_objects_sent_to_executors_hold_no_key(job: SyphonJob) -> None:
    # As Spark does it: the class is pickled, makes a source, which is pickled; that
    # makes a reader, and reader and source are pickled into every task.
    registered = pickle.loads(pickled(source_class(job)))  # noqa: S301
    source = pickle.loads(pickled(registered(options={})))  # noqa: S301
    assert isinstance(source, SyphonSource)
    reader = source.streamReader(schema=StructType())

    travelling = pickled((source, reader, tasks_of(job)))

    assert not holds_key(travelling)
    assert holds_key(pickled(job)), "the test looks for the wrong thing"


def test_the_reader_in_the_driver_keeps_what_it_needs(job: SyphonJob) -> None:
    source = source_class(job)(options={})
    reader = source.streamReader(schema=StructType())

    assert isinstance(reader, SyphonReader)
    assert reader.getDefaultReadLimit() is not None
    assert reader.initialOffset() == {"epoch": 0}


def test_no_credential_prints(job: SyphonJob) -> None:
    tasks = tasks_of(job)
    tokens = [task.value.primary.token.reveal() for task in tasks]

    said = f"{job} {tasks} {tasks[0].value!r} {job.primary} {vars(job)}"

    assert not any(secret in said for secret in (*KEYS, *tokens))


def test_a_task_may_listen_to_backlog_queues_alone(job: SyphonJob) -> None:
    [task] = tasks_of(job)

    secondary = parse_token(task.value.secondary.token.reveal())
    primary = parse_token(task.value.primary.token.reveal())

    assert secondary.resource_key == "home/x-servicebus-transfer"
    assert primary.resource_key == ""


def test_a_ready_token_is_passed_on_as_it_is() -> None:
    token = "SharedAccessSignature sr=x&sig=y&se=9999999999&skn=root"
    text = f"Endpoint=sb://home;SharedAccessSignature={token}"
    found = KeyedNamespace(parse_connection_string(text)).ticket("q")

    assert found.token == Secret(token)


def test_tickets_open_what_they_are_for_and_nothing_else() -> None:
    queues = ["home/x-servicebus-transfer/0", "other"]
    with serve_namespace({"queues": queues}) as served:
        given = KeyedNamespace(parse_connection_string(served.connection_string))
        here = Worker()
        ticket = given.ticket("home/x-servicebus-transfer")

        async def send(path: str) -> None:
            await here.connection(ticket).sender(path).send(message())

        here.run(lambda: send(queues[0]))
        with pytest.raises(RemoteError) as caught:
            here.run(lambda: send("other"))
        here.close()

    assert caught.value.condition == "amqp:unauthorized-access"


def test_a_newer_ticket_replaces_the_older_on_the_same_connection() -> None:
    way = namespace("home", "k").way
    here = Worker()
    old, new = Ticket(way, Secret("old")), Ticket(way, Secret("new"))

    connection = here.connection(old)

    assert here.connection(new) is connection
    assert here._kept[way][1].signature == "new"
    assert here.senders(new) is here.senders(old)
