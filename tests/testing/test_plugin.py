"""The pytest plugin and the namespace behind it; the guide's examples are run."""

from __future__ import annotations

import ast
import asyncio
import datetime as dt
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from tests.printed import ROOT, blocks
from twinbus.errors import ConfigError, EntityExists, EntityNotFound
from twinbus.testing.namespace import ServedNamespace, serve_namespace

pytest_plugins = "pytester"

PAGE = "docs/testing.md"
GUIDE = ROOT / PAGE
# By the name in its first line.
EXAMPLES = {
    text.split("\n")[0].removeprefix("# "): text for _, text in blocks(PAGE, __file__)
}

CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {"Name": "sbemulatorns", "Queues": [{"Name": "queue.1"}], "Topics": []}
        ],
        "Logging": {"Type": "File"},
    }
}


def count(namespace: ServedNamespace, queue: str) -> int:
    def active(_namespace: object, _turn: object) -> int:
        entities = namespace._host.namespace.entities
        entity = entities.find(queue)
        assert entity is not None
        return namespace._host.namespace.store.counts(entity.id).active

    return namespace.run(active)


# -- the guide -------------------------------------------------------------------------


def test_the_examples_of_the_guide_work(pytester: pytest.Pytester) -> None:
    for name, code in EXAMPLES.items():
        (pytester.path / name).write_text(code)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    result = pytester.runpytest_subprocess("-q", "--strict-markers", timeout=100)

    result.assert_outcomes(passed=8)


@pytest.mark.parametrize(
    "example",
    [name for name in EXAMPLES if not name.startswith(("test_", "conftest."))],
)
def test_an_example_without_pytest_works(tmp_path: Path, example: str) -> None:
    code = EXAMPLES[example]
    # The recorders of a test have left it.
    (tmp_path / "history").touch()

    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=60)


def test_the_guide_names_everything_there_is() -> None:
    text = GUIDE.read_text()
    tree = ast.parse((ROOT / "src/twinbus/testing/namespace.py").read_text())
    [served] = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "ServedNamespace"
    ]
    methods = {
        node.name
        for node in served.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }

    assert "advance" in methods
    assert not [name for name in methods if not re.search(rf"`{name}\b", text)]


# -- the plugin ------------------------------------------------------------------------


def test_pytest_finds_the_plugin_by_itself() -> None:
    [found] = entry_points(group="pytest11", name="twinbus")

    assert found.value == "twinbus.testing.plugin"


def test_the_plugin_costs_nothing_where_it_is_not_used() -> None:
    code = "import sys, twinbus.testing.plugin; print('twinbus.server' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )

    assert told.stdout == "False\n"


def test_the_namespace_needs_no_pytest() -> None:
    code = "import sys, twinbus.testing.namespace; print('pytest' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )

    assert told.stdout == "False\n"


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ("clock='fast'", "*clock='fast' must be 'real' or 'manual'*"),
        ("data='cloud'", "*data='cloud' must be 'memory' or 'disk'*"),
        ("'orders'", "*servicebus takes names alone*"),
        ("clok='manual'", "*servicebus does not know 'clok'. It takes clock, data, q*"),
        ("queues=['a b']", "*entities.json: namespaces[[]0].queues[[]0]*"),
    ],
)
def test_a_wrong_marker_says_what_is_right(
    pytester: pytest.Pytester, marker: str, text: str
) -> None:
    pytester.makepyfile(f"""
        import pytest
        @pytest.mark.servicebus({marker})
        def test_it(servicebus_namespace):
            pass
    """)

    result = pytester.runpytest_inprocess("-q", "-p", "no:asyncio")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([text])


# -- the namespace ---------------------------------------------------------------------


@pytest.mark.servicebus(queues=["only-here"], topics=["events"])
def test_each_test_has_a_namespace_of_its_own(
    servicebus_namespace: ServedNamespace, servicebus_server: ServedNamespace
) -> None:
    with servicebus_namespace.client() as client:
        sender = client.get_queue_sender("only-here")
        sender.send_messages(ServiceBusMessage("a"))

    assert count(servicebus_namespace, "only-here") == 1
    assert servicebus_namespace.amqp_port != servicebus_server.amqp_port
    with pytest.raises(EntityNotFound):
        servicebus_server.purge("only-here")


@pytest.mark.servicebus(clock="manual", queues=["orders"])
def test_time_ends_locks_and_messages_and_brings_scheduled_ones(
    servicebus_namespace: ServedNamespace,
) -> None:
    namespace = servicebus_namespace
    namespace.create_queue("jobs", max_delivery_count=1, lock_duration="PT5S")
    client = namespace.client()
    sender = client.get_queue_sender("jobs")
    sender.send_messages(ServiceBusMessage("worn"))
    receiver = client.get_queue_receiver("jobs")
    assert len(receiver.receive_messages(max_wait_time=5)) == 1
    short = ServiceBusMessage("short", time_to_live=dt.timedelta(seconds=30))
    client.get_queue_sender("orders").send_messages(short)
    due = dt.datetime.now(dt.UTC) + dt.timedelta(days=365)
    client.get_queue_sender("orders").schedule_messages(ServiceBusMessage("late"), due)

    namespace.advance(31)

    dead = client.get_queue_receiver("jobs", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [worn] = dead.peek_messages()
    assert worn.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert count(namespace, "orders") == 0
    namespace.advance(366 * 86_400)
    assert count(namespace, "orders") == 1
    # A year later the client's token is as good as ever, and so is a new one.
    sender.send_messages(ServiceBusMessage("still here"))
    with namespace.client() as another:
        another.get_queue_sender("jobs").send_messages(ServiceBusMessage("new"))
    assert count(namespace, "jobs") == 2


def test_more_than_one_turn_brings_is_there_when_time_has_passed() -> None:
    with serve_namespace({"queues": ["q"]}, manual_clock=True) as namespace:
        with namespace.client() as client:
            sender = client.get_queue_sender("q")
            batch = [ServiceBusMessage("x") for _ in range(1200)]
            due = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
            sender.schedule_messages(batch, due)
        assert count(namespace, "q") == 0

        namespace.advance(3601)

        assert count(namespace, "q") == 1200


def test_a_real_clock_cannot_be_moved(servicebus_namespace: ServedNamespace) -> None:
    with pytest.raises(ConfigError, match="clock='manual'"):
        servicebus_namespace.advance(1)


@pytest.mark.servicebus(data="disk", queues=["orders"])
def test_data_may_be_on_disk(
    servicebus_namespace: ServedNamespace, tmp_path: Path
) -> None:
    assert (tmp_path / "servicebus" / "testing" / "messages.db").exists()


def test_a_folder_survives_the_namespace(tmp_path: Path) -> None:
    with (
        serve_namespace({"queues": ["q"]}, data=tmp_path) as namespace,
        namespace.client() as client,
    ):
        client.get_queue_sender("q").send_messages(ServiceBusMessage("kept"))

    with serve_namespace(data=tmp_path) as namespace:
        assert count(namespace, "q") == 1


def test_a_reset_leaves_the_entities_of_the_start() -> None:
    with serve_namespace({"queues": ["q"]}) as namespace:
        namespace.create_queue("extra")
        namespace.create_topic("t", subscriptions=["s", {"name": "z"}])
        with namespace.client() as client:
            for queue in ("q", "extra", "t"):
                client.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))

        namespace.reset()

        with namespace.admin_client() as admin:
            assert [queue.name for queue in admin.list_queues()] == ["q"]
            assert not list(admin.list_topics())
        assert count(namespace, "q") == 0
        with namespace.client() as client:
            client.get_queue_sender("q").send_messages(ServiceBusMessage("new"))
        assert count(namespace, "q") == 1


def test_entities_may_be_given_by_their_names() -> None:
    subscriptions = {"s": {"lock_duration": dt.timedelta(seconds=7)}, "z": {}}
    topics = {"t": {"subscriptions": subscriptions}}
    with serve_namespace({"queues": {"q": {}}, "topics": topics}) as namespace:
        namespace.create_topic("u", subscriptions={"v": {}})

        with namespace.admin_client() as admin:
            assert [queue.name for queue in admin.list_queues()] == ["q"]
            found = {each.name: each for each in admin.list_subscriptions("t")}
            assert set(found) == {"s", "z"}
            assert found["s"].lock_duration == dt.timedelta(seconds=7)
            assert [each.name for each in admin.list_subscriptions("u")] == ["v"]


def test_entities_are_refused_as_in_a_file() -> None:
    with serve_namespace() as namespace:
        namespace.create_queue("q")
        with pytest.raises(EntityExists):
            namespace.create_queue("Q")
        with pytest.raises(ConfigError, match="lock_duration"):
            namespace.create_queue("slow", lock_duration=dt.timedelta(hours=1))
        with pytest.raises(ConfigError, match="colour"):
            namespace.create_topic("t", colour="red")
        with pytest.raises(ConfigError, match="type set"):
            namespace.create_topic("t", user_metadata={"a", "b"})
        with pytest.raises(EntityNotFound):
            namespace.create_subscription("nowhere", "s")
        with pytest.raises(EntityNotFound):
            namespace.delete("nowhere")


def test_a_subscription_gets_what_its_rules_let_through() -> None:
    rules = [{"name": "r", "filter": {"sql": "amount > 10"}}]
    with serve_namespace({"topics": ["t"]}) as namespace:
        namespace.create_subscription("t", "all")
        namespace.create_subscription("t", "large", rules=rules)
        with namespace.client() as client:
            sender = client.get_topic_sender("t")
            for amount in (1, 100):
                message = ServiceBusMessage("x")
                message.application_properties = {"amount": amount}
                sender.send_messages(message)

        assert namespace.purge("t/Subscriptions/large") == 1
        assert namespace.purge("t") == 2


def test_a_configuration_file_may_be_given(tmp_path: Path) -> None:
    import json

    emulator, several = tmp_path / "Config.json", tmp_path / "several.json"
    emulator.write_text(json.dumps(CONFIG))
    two = [{"name": "a"}, {"name": "b", "queues": [{"name": "of-b"}]}]
    several.write_text(json.dumps({"namespaces": two}))

    with serve_namespace(emulator) as namespace:
        assert namespace.name == "sbemulatorns"
        assert namespace.purge("queue.1") == 0
    with serve_namespace(several, name="B") as namespace:
        assert namespace.purge("of-b") == 0
    with pytest.raises(ConfigError, match="none is called 'testing'"):
        serve_namespace(several).__enter__()


def test_a_namespace_that_cannot_start_leaves_no_thread_behind() -> None:
    import threading

    before = threading.active_count()
    with pytest.raises(ConfigError):
        serve_namespace({"queues": ["a b"]}).__enter__()
    with pytest.raises(ConfigError):
        serve_namespace(data=Path("/dev/null/x")).__enter__()

    assert threading.active_count() == before


def test_clients_are_closed_with_the_namespace() -> None:
    with serve_namespace({"queues": ["q"]}) as namespace:
        client = namespace.client(retry_total=0)
        sender = client.get_queue_sender("q")
        sender.send_messages(ServiceBusMessage("x"))

    with pytest.raises((ServiceBusError, ValueError)):
        sender.send_messages(ServiceBusMessage("y"))


async def test_a_test_with_a_loop_can_use_it(
    servicebus_namespace: ServedNamespace,
) -> None:
    servicebus_namespace.create_queue("q")
    async with (
        servicebus_namespace.async_client() as client,
        client.get_queue_sender("q") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("x"))
    async with servicebus_namespace.async_admin_client() as admin:
        counted = await admin.get_queue_runtime_properties("q")

    assert counted.active_message_count == 1
    await asyncio.to_thread(servicebus_namespace.purge, "q")
