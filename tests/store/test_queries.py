"""The named queries: each has a description, is called, and finds rows by an index."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from twinbus.errors import Bug
from twinbus.store import queries
from twinbus.store.sqlite.store import SqliteStore
from twinbus.store.tables.rows import TOPICS

# Those of the reader and of packs are beside them.
SQLITE_TOPICS = (*TOPICS, "packs", "reading")


@pytest.fixture(scope="module")
def named() -> dict[str, str]:
    return queries.load("sqlite", *SQLITE_TOPICS)


def test_every_query_of_every_file_is_loaded_and_called(named: dict[str, str]) -> None:
    folder = files("twinbus.store") / "sqlite"
    rules = files("twinbus.store") / "tables"
    there = {path.name for path in (folder / "sql").iterdir()}
    assert there == {f"{topic}.sql" for topic in SQLITE_TOPICS} | {"migrations"}
    python = "".join(
        path.read_text("utf-8")
        for path in (*folder.iterdir(), *rules.iterdir())
        if path.name.endswith(".py")
    )

    called = {name for name in named if f'"{name}"' in python}

    # Those of one kind are called in a loop.
    assert {name for name in named if name not in called} == {
        name for name in named if name.startswith(("empty_", "some_"))
    }


def test_both_databases_have_the_same_queries_for_the_rules_of_rows() -> None:
    rules = files("twinbus.store") / "tables"
    python = "".join(
        path.read_text("utf-8") for path in rules.iterdir() if path.is_file()
    )
    called = set(re.findall(r'self\._sql\["(\w+)"\]', python))
    looped = {
        name for name in load_all("sqlite") if name.startswith(("empty_", "some_"))
    }

    for dialect in ("sqlite", "postgres"):
        assert (called | looped) - set(load_all(dialect)) == set(), dialect


def load_all(dialect: str) -> dict[str, str]:
    return queries.load(dialect, *TOPICS, "reading")


def test_every_query_of_postgres_is_called() -> None:
    folder = files("twinbus.store") / "postgres"
    rules = files("twinbus.store") / "tables"
    topics = (*TOPICS, "nodes", "reading", "turns")
    named = queries.load("postgres", *topics)
    there = {path.name for path in (folder / "sql").iterdir()}
    assert there == {f"{topic}.sql" for topic in topics} | {"migrations"}
    python = "".join(
        path.read_text("utf-8")
        for path in (*folder.iterdir(), *rules.iterdir())
        if path.name.endswith(".py")
    )

    for name in named:
        is_looped = name.startswith(("empty_", "some_"))
        assert is_looped or f'"{name}"' in python, name


def test_no_query_reads_a_whole_table_or_sorts(named: dict[str, str]) -> None:
    store = SqliteStore.memory()
    # These are few: entities, other stores, sessions whose lock has ended just now,
    # damaged rows.
    allowed = {
        "applied_sources",
        "containers",
        "entities",
        "free_entity",
        "last_entity",
        "mirrored",
        "outbox_targets",
        "ended_session",
        "quarantined",
        "retired",
    }
    for name in named.keys() - allowed:
        sql = named[name]
        marks = dict.fromkeys(re.findall(r":(\w+)", sql), 0)
        numbers = [int(number) for number in re.findall(r"\?(\d+)", sql)]
        values = marks or (0,) * max(numbers, default=sql.count("?"))
        plan = store._connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
        for *_, step in plan.fetchall():
            scan = re.match(r"SCAN (?!wanted|json_each|CONSTANT ROW)", step)
            assert scan is None, (name, step)
            assert "TEMP B-TREE" not in step, (name, step)
    store.close()


def test_a_query_needs_a_description_and_a_name_of_its_own() -> None:
    good = "-- name: one\n-- Says what.\nSELECT 1;\n"

    assert queries.parse(good) == {"one": "SELECT 1"}
    for bad in ("-- name: one\nSELECT 1;\n", good + good):
        with pytest.raises(Bug):
            queries.parse(bad)
