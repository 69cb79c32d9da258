"""Commands on a data folder see all shards of a namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import Run, served
from tests.suites.store_suite import NOW, records
from twinbus.clock import Now
from twinbus.server.broker.directory import keys
from twinbus.server.setup.namespaces import close_all, open_namespace

FREE = ("--amqp-port", 0, "--http-port", 0)
NAMES = ("a", "b", "c", "d")
SHARDS = range(3)


@pytest.fixture
def at_shards(at: Run, tmp_path: Path) -> Run:
    """Run one command on a namespace with three shards, which has no entities."""
    close_all(open_namespace(tmp_path, "contoso", wanted=3).shards)
    return at


def shards_of(data: Path) -> dict[str, int]:
    """The shard of each entity."""
    shards = open_namespace(data, "contoso").shards
    found = {entity.key: entity.shard for entity in shards.entities()}
    close_all(shards)
    return found


def put_messages(data: Path) -> None:
    """Two messages into each queue."""
    shards = open_namespace(data, "contoso").shards
    for shard in shards:
        shard.store.begin()
        for entity in shard.entities:
            shard.store.append(entity.id, records("xy"), Now.at(NOW))
        shard.store.commit()
    close_all(shards)


def names(run: Run, *command: str) -> list[str]:
    return [str(one["name"]) for one in run(*command).json]


def test_new_entities_are_spread_and_all_are_listed(
    at_shards: Run, tmp_path: Path
) -> None:
    for name in NAMES:
        at_shards("queue", "create", name)
    at_shards("topic", "create", "t")
    at_shards("subscription", "create", "t", "s")

    assert names(at_shards, "queue", "list") == list(NAMES)
    assert names(at_shards, "topic", "list") == ["t"]
    found = shards_of(tmp_path)
    assert {found[name] for name in NAMES} == {0, 1, 2}
    assert found["t"] == found["t/subscriptions/s"]
    again = at_shards("queue", "create", "B")
    assert (again.code, "already exists" in again.err) == (1, True)


def test_an_entity_is_changed_and_deleted_in_its_shard(
    at_shards: Run, tmp_path: Path
) -> None:
    for name in NAMES:
        at_shards("queue", "create", name)
    assert set(shards_of(tmp_path).values()) == {0, 1, 2}

    for name in NAMES:
        changed = at_shards("queue", "update", name, "--max-delivery-count", 3).json
        assert changed["max_delivery_count"] == 3
        assert at_shards("queue", "show", name).json == changed
    at_shards("queue", "delete", "b", "--yes")

    assert names(at_shards, "queue", "list") == ["a", "c", "d"]
    assert at_shards("queue", "show", "b").code == 1


def test_rules_of_a_subscription_are_changed_in_its_shard(
    at_shards: Run, tmp_path: Path
) -> None:
    topics = ("t", "u", "v")
    for name in topics:
        at_shards("topic", "create", name)
        at_shards("subscription", "create", name, "s")
    assert set(shards_of(tmp_path).values()) == {0, 1, 2}

    for name in topics:
        at_shards("rule", "create", name, "s", "big", "--sql", "amount > 10")
        at_shards("rule", "delete", name, "s", "$Default", "--yes")

        assert names(at_shards, "rule", "list", name, "s") == ["big"]


def test_a_reset_deletes_the_entities_of_all_shards(
    at_shards: Run, tmp_path: Path
) -> None:
    for name in NAMES:
        at_shards("queue", "create", name)
    config = tmp_path / "config.yaml"
    queues = "[{name: b, forward_to: e}, {name: e}, {name: f}]"
    config.write_text(f"namespaces: [{{name: contoso, queues: {queues}}}]")

    result = at_shards("namespace", "reset", "--config", config, "--yes")

    assert result.json == {"deleted": 4, "made": 3}
    assert names(at_shards, "queue", "list") == ["b", "e", "f"]
    assert set(shards_of(tmp_path).values()) == {0, 1, 2}


def test_a_purge_empties_entities_of_all_shards(at_shards: Run, tmp_path: Path) -> None:
    for name in NAMES:
        at_shards("queue", "create", name)
    put_messages(tmp_path)

    assert at_shards("namespace", "purge", "b", "--yes").json == {"purged": 2}
    counts = [one["active_messages"] for one in at_shards("queue", "list").json]
    assert counts == [2, 0, 2, 2]
    assert at_shards("namespace", "purge", "--all", "--yes").json == {"purged": 6}
    assert at_shards("namespace", "purge", "none", "--yes").code == 1


def test_a_key_that_was_changed_is_known_without_shard_0(
    at_shards: Run, tmp_path: Path
) -> None:
    at_shards("keys", "create", "reader", "--right", "Listen")
    made = at_shards("keys", "regenerate", "reader", "--yes").json
    shown = at_shards("keys", "show", "reader").json
    assert shown["primary_key"] == made["primary_key"]
    # The server brings the copies to the other shards.
    with served(tmp_path, "--dev", "--namespace", "contoso", *FREE) as server:
        assert server.stop().code == 0
    (tmp_path / "contoso" / "messages.db").rename(tmp_path / "away")

    rules = keys.read_rules(tmp_path / "contoso")

    assert rules[1].primary_key.reveal() == made["primary_key"]
    again = at_shards("keys", "show", "reader").json
    assert again["primary_key"] == shown["primary_key"]


def test_commands_need_all_shards(at_shards: Run, tmp_path: Path) -> None:
    (tmp_path / "contoso" / "shard-1").rename(tmp_path / "away")

    for command in (("queue", "list"), ("queue", "create", "a")):
        result = at_shards(*command)
        assert result.code == 2
        assert result.err.count("\n") == 1
        assert "Shard 1 cannot be opened: There is no store in" in result.err
    assert not (tmp_path / "contoso" / "shard-1").exists()


def test_a_server_finds_its_folders_and_refuses_them_in_another_order(
    run: Run, tmp_path: Path
) -> None:
    data, config = tmp_path / "data", tmp_path / "config.yaml"
    text = "namespaces: [{name: contoso, shards: [%s], queues: [{name: a}, {name: b}]}]"
    config.write_text(text % "disk1/x, disk2/x")
    options = ("--dev", "--config", config, *FREE)
    with served(data, *options) as server:
        assert server.ready["namespaces"]["contoso"]["shards"] == 2
        told = server.stop().err
    assert f"{tmp_path}/disk1/x and {tmp_path}/disk2/x are on one disk" in told
    listed = run("queue", "list", "--data", data, "--json").json
    assert [one["name"] for one in listed] == ["a", "b"]

    config.write_text(text % "disk2/x, disk1/x")
    result = run("serve", "--no-supervisor", "--data", data, *options)

    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "disk2/x holds shard 1, but it is in the place of shard 0." in result.err


# -- shards and fragments --------------------------------------------------------------


def test_show_tells_shards_and_fragments(
    at_shards: Run, run: Run, tmp_path: Path
) -> None:
    at_shards("queue", "create", "q", "--enable-partitioning")
    in_folder = at_shards("namespace", "show").json
    # What waits is on its way from the home to the other fragments.
    assert max(each["outbox_rows"] for each in in_folder["shards"]) >= 2

    with served(tmp_path, "--dev", "--namespace", "contoso", *FREE) as server:
        text = server.ready["namespaces"]["contoso"]["connection_string"]
        asked = ("namespace", "show", "--connection-string", text)
        found = run(*asked, "--json").json
        _tier, _, *shown = run(*asked).out.splitlines()
        assert server.stop().code == 0
    assert [each["state"] for each in found["shards"]] == ["open"] * 3
    (queue,) = found["partitioned"]
    assert sorted(each["shard"] for each in queue["fragments"]) == [0, 1, 2]
    columns = shown[0].split()
    assert columns[:3] == ["shard", "state", "entities"]
    assert columns[-3:] == ["spool_rows", "spool_age_seconds", "denied"]
    assert set(columns) <= set(found["shards"][0])
    assert [line.split()[:2] for line in shown[1:4]] == [
        [str(k), "open"] for k in SHARDS
    ]
    assert shown[5].split() == ["name", "kind", "fragments", "shards", "messages"]
    assert shown[6].split()[:3] == ["q", "queue", "3"]
    assert len(shown) == 7


def test_show_says_that_one_shard_has_one_fragment(run: Run, tmp_path: Path) -> None:
    place = ("--data", tmp_path)
    made = run("queue", "create", "q", "--namespace", "n", *place)
    assert made.code == 0
    assert "fragment" not in run("namespace", "show", *place).out
    run("topic", "create", "t", "--enable-partitioning", *place)

    tier, _, *shown = run("namespace", "show", *place).out.splitlines()

    assert tier == "The tier is premium."
    assert shown[1].split()[:3] == ["0", "open", "2"]
    assert shown[4].split() == ["t", "topic", "1", "0", "0"]
    assert shown[-1] == "With one shard, a partitioned entity has one fragment."
