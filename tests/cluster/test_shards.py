"""A namespace with several shards in one database, served by two nodes."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from azure.core.exceptions import ResourceExistsError
from azure.servicebus import ServiceBusMessage

from tests.cluster.site import Cluster, cluster
from tests.cluster.test_faults import ENTITIES as STORY
from tests.cluster.test_faults import Load, under_load, until
from tests.cluster.test_nodes import send, taken
from tests.cluster.test_refusals import refused
from tests.postgres import shared_server

SHARDS = 4

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("shards")
    url = shared_server().new_database()
    with cluster(folder, url, ENTITIES, 2, SHARDS) as running:
        yield running


def named(prefix: str, shard: int) -> str:
    """A name that belongs to a shard."""
    names = (f"{prefix}-{number}" for number in range(1_000))
    return next(name for name in names if zlib.crc32(name.encode()) % SHARDS == shard)


ENTITIES: dict[str, Any] = {
    "queues": [{"name": named("given", shard)} for shard in reversed(range(SHARDS))]
    + [
        {"name": "parted", "enable_partitioning": True},
        {
            "name": "parted-sessions",
            "enable_partitioning": True,
            "requires_session": True,
        },
    ]
}


def placed(url: str) -> dict[str, set[int]]:
    """The shards that have each queue, as the database says."""
    found: dict[str, set[int]] = {}
    with psycopg.connect(url) as connection:
        for (schema,) in connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'twinbus%'"
        ).fetchall():
            _, _, number = schema.partition(".")
            query = f'SELECT key FROM "{schema}".entity'  # noqa: S608
            for (key,) in connection.execute(query).fetchall():
                found.setdefault(key, set()).add(int(number or 0))
    return found


def test_each_queue_is_in_the_shard_of_its_name(site: Cluster) -> None:
    for shard in reversed(range(SHARDS)):
        name = named("made", shard)
        site.admin(shard % 2).create_queue(name)
        assert placed(site.url)[name] == {shard}
        assert placed(site.url)[named("given", shard)] == {shard}


def test_messages_of_all_shards_pass_between_nodes(site: Cluster) -> None:
    for shard in range(SHARDS):
        queue = named("given", shard)
        send(site, shard % 2, queue, "a", "b")
        with site.client((shard + 1) % 2).get_queue_receiver(queue) as receiver:
            assert taken(receiver, 2) == ["a", "b"]


def test_a_queue_can_be_used_at_once_at_another_node(site: Cluster) -> None:
    for shard in range(SHARDS):
        name = named("at-once", shard)
        site.admin(0).create_queue(name)

        assert site.post(1, name, b"a") == 201
        with site.client(1).get_queue_receiver(name) as receiver:
            assert taken(receiver, 1) == ["a"]


def test_a_message_is_forwarded_to_a_queue_that_was_made_just_now(
    site: Cluster,
) -> None:
    source, admin = named("from", 0), site.admin(0)
    admin.create_queue(source)
    assert site.post(1, source, b"0") == 201
    for shard in range(SHARDS):
        for number in range(3):
            target = named(f"to-{number}", shard)
            admin.create_queue(target, enable_partitioning=number == 2)
            described = admin.get_queue(source)
            described.forward_to = target
            admin.update_queue(described)

            # That node knows the source, and may not have heard of the target.
            assert site.post(1, source, b"a") == 201

            with site.client(1).get_queue_receiver(target) as receiver:
                assert taken(receiver, 1) == ["a"]


def test_two_nodes_make_a_queue_once(site: Cluster) -> None:
    made: list[int] = []
    for number in range(6):
        start = threading.Barrier(2)

        def make(node: int, name: str, start: threading.Barrier) -> None:
            admin = site.admin(node)
            start.wait()
            try:
                admin.create_queue(name)
            except ResourceExistsError:
                return
            made.append(node)

        makers = [
            threading.Thread(target=make, args=(node, f"both-{number}", start))
            for node in range(2)
        ]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()

        assert len(made) == number + 1
        assert len(placed(site.url)[f"both-{number}"]) == 1


def test_a_partitioned_queue_has_a_fragment_in_each_shard(site: Cluster) -> None:
    assert placed(site.url)["parted"] == set(range(SHARDS))
    send(site, 0, "parted", *map(str, range(20)))

    with site.client(1).get_queue_receiver("parted") as receiver:
        assert sorted(taken(receiver, 20)) == sorted(map(str, range(20)))


def test_a_partitioned_queue_made_at_one_node_serves_at_the_other(
    site: Cluster,
) -> None:
    site.admin(0).create_queue("parted-new", enable_partitioning=True)
    with site.client(1).get_queue_sender("parted-new") as sender:
        for key in range(8):
            message = ServiceBusMessage(str(key))
            message.partition_key = str(key)
            sender.send_messages(message)

    with site.client(0).get_queue_receiver("parted-new") as receiver:
        assert sorted(taken(receiver, 8)) == sorted(map(str, range(8)))


def test_a_session_of_a_partitioned_queue_keeps_its_order(site: Cluster) -> None:
    for session in "abcd":
        send(site, 0, "parted-sessions", "1", session_id=session)
        send(site, 1, "parted-sessions", "2", session_id=session)
    for session in "abcd":
        client = site.client(1)
        with client.get_queue_receiver("parted-sessions", session_id=session) as held:
            assert taken(held, 2) == ["1", "2"]


def test_another_node_carries_what_a_killed_one_has_left(tmp_path: Path) -> None:
    source, target = named("source", 0), named("target", 1)
    entities = {"queues": [{"name": target}, {"name": source, "forward_to": target}]}
    url = shared_server().new_database()
    with cluster(tmp_path, url, entities, 2, SHARDS) as site:
        sent = 0
        with site.client(0).get_queue_sender(source) as sender:
            for _ in range(20):
                batch = sender.create_message_batch()
                for _ in range(50):
                    batch.add_message(ServiceBusMessage("x" * 500))
                sender.send_messages(batch)
                sent += 50
        site.nodes[0].kill()

        admin = site.admin(1)
        until(
            lambda: (
                admin.get_queue_runtime_properties(target).active_message_count == sent
            )
        )
        found: list[str] = []
        with site.client(1).get_queue_receiver(target) as receiver:
            while peeked := receiver.peek_messages(250, sequence_number=len(found) + 1):
                found += [str(message.message_id) for message in peeked]
        assert len(set(found)) == len(found) == sent


@pytest.mark.campaign
def test_nothing_is_lost_when_a_node_of_four_shards_is_killed(tmp_path: Path) -> None:
    def disturb(running: Load) -> None:
        running.site.nodes[0].kill()

    url = shared_server().new_database()
    with cluster(tmp_path, url, STORY, 3, SHARDS) as site:
        verdict, running = under_load(site, tmp_path, disturb)

    assert not verdict.broken, verdict.text()
    assert running.broken == {0}


# -- refusals ------------------------------------------------------------------------


def test_the_number_of_shards_is_not_changed(site: Cluster, tmp_path: Path) -> None:
    line = refused(tmp_path, site.url, "--shards", "3", namespace=site.nodes[0].name)

    assert "has 4 shards in its database" in line
    assert "cannot be changed to 3" in line


def test_a_shard_that_is_missing_is_not_made_anew(tmp_path: Path) -> None:
    url = shared_server().new_database()
    with cluster(tmp_path / "nodes", url, {}, 1, 2) as site:
        name = site.nodes[0].name
    with psycopg.connect(url) as connection:
        connection.execute(f'DROP SCHEMA "twinbus_{name}.1" CASCADE')

    line = refused(tmp_path, url, namespace=name)

    assert "Shard 1 of" in line
    assert "is missing" in line
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'twinbus%'"
        assert connection.execute(query).fetchone() == (1,)
