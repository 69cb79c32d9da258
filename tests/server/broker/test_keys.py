"""Authorization rules of a namespace: made once, kept, changed, never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.sas import DEV_KEY_TEXT, Secret
from twinbus.errors import ArgumentError, ConfigError, EntityExists, EntityNotFound
from twinbus.server.broker.directory import keys
from twinbus.store.base import Store
from twinbus.store.opening import open_store
from twinbus.store.shards import open_shards

NOW_MS = 1_700_000_000_000


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(None)
    store.begin()
    yield store
    store.rollback()
    store.close()


def reader(key: str = "k1") -> AuthorizationRule:
    return AuthorizationRule("reader", Right.LISTEN, Secret(key))


def test_the_root_rule_is_made_once_with_random_keys(store: Store) -> None:
    first = keys.ensure_root(store, NOW_MS)
    second = keys.ensure_root(store, NOW_MS)

    assert first == second == keys.load_rules(store)
    (root,) = first
    assert root.name == keys.ROOT_RULE_NAME
    assert root.rights == Right.MANAGE
    assert root.primary_key != root.secondary_key
    assert len(root.primary_key.reveal()) == 44


def test_keys_do_not_print(store: Store) -> None:
    (root,) = keys.ensure_root(store, NOW_MS)

    assert root.primary_key.reveal() not in f"{root} {root!r} {[root]}"


def test_merging_adds_and_changes_and_leaves_the_rest(store: Store) -> None:
    (root,) = keys.ensure_root(store, NOW_MS)
    keys.merge_rules(store, [reader("k1")], NOW_MS)
    keys.merge_rules(store, [reader("k2")], NOW_MS)
    keys.merge_rules(store, [], NOW_MS)

    assert keys.load_rules(store) == [root, reader("k2")]


def test_a_name_is_taken_once(store: Store) -> None:
    keys.add_rule(store, reader(), NOW_MS)

    with pytest.raises(EntityExists, match="reader"):
        keys.add_rule(store, reader(), NOW_MS)


def test_a_rule_without_rights_is_refused(store: Store) -> None:
    with pytest.raises(ArgumentError, match="no rights"):
        keys.add_rule(store, AuthorizationRule("x", Right(0), Secret("k")), NOW_MS)


def test_a_deleted_rule_is_gone_and_the_root_rule_stays(store: Store) -> None:
    keys.ensure_root(store, NOW_MS)
    keys.add_rule(store, reader(), NOW_MS)

    keys.delete_rule(store, "reader", NOW_MS)

    assert [rule.name for rule in keys.load_rules(store)] == [keys.ROOT_RULE_NAME]
    with pytest.raises(EntityNotFound):
        keys.delete_rule(store, "reader", NOW_MS)
    with pytest.raises(ConfigError, match="regenerate"):
        keys.delete_rule(store, keys.ROOT_RULE_NAME, NOW_MS)


@pytest.mark.parametrize("secondary", [False, True])
def test_one_key_changes_and_the_other_stays(store: Store, secondary: bool) -> None:
    (old,) = keys.ensure_root(store, NOW_MS)

    new = keys.regenerate_key(store, keys.ROOT_RULE_NAME, NOW_MS, secondary=secondary)

    assert keys.load_rules(store) == [new]
    assert (new.primary_key == old.primary_key) is secondary
    assert (new.secondary_key == old.secondary_key) is not secondary


def test_the_documented_key_works_beside_the_random_one(store: Store) -> None:
    (root,) = keys.ensure_root(store, NOW_MS)
    keys.add_rule(store, reader(), NOW_MS)

    dev_root, other = keys.with_dev_key(keys.load_rules(store), keys.DOCUMENTED_KEY)

    assert dev_root.keys == (Secret(DEV_KEY_TEXT), root.primary_key)
    assert other == reader()
    assert keys.load_rules(store)[0] == root


def test_rules_can_be_read_while_a_server_has_the_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.begin()
    made = keys.ensure_root(store, NOW_MS)
    store.commit()

    assert keys.read_rules(tmp_path) == made

    store.close()
    assert keys.read_rules(tmp_path) == made


def test_rules_are_read_from_another_shard_while_the_first_is_away(
    tmp_path: Path,
) -> None:
    stores = [shard.store for shard in open_shards(tmp_path, 2)]
    for store in stores:
        assert store is not None
        store.begin()
        made = keys.ensure_root(store, NOW_MS)
        store.commit()
        store.close()
    (tmp_path / "messages.db").unlink()

    assert keys.read_rules(tmp_path) == made


def test_a_folder_without_a_namespace_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no namespace in"):
        keys.read_rules(tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "messages.db").write_bytes(b"x" * 4096)

    with pytest.raises(ConfigError, match="cannot be read"):
        keys.read_rules(tmp_path)


def test_rules_have_times(store: Store) -> None:
    keys.ensure_root(store, 1000)
    keys.add_rule(store, reader(), 2000)
    keys.regenerate_key(store, "reader", 3000, secondary=True)
    keys.ensure_root(store, 4000)
    keys.merge_rules(store, [], 5000)

    found = [(r.created_at_ms, r.modified_at_ms) for r in keys.load_rules(store)]
    assert found == [(1000, 1000), (2000, 3000)]


def test_a_rule_is_put_with_new_keys_and_changed_without(store: Store) -> None:
    made = keys.put_rule(store, "guest", Right.SEND, 1000)
    changed = keys.put_rule(store, "guest", Right.LISTEN, 2000)

    assert changed.keys == made.keys
    assert [rule.rights for rule in keys.load_rules(store)] == [Right.LISTEN]
    with pytest.raises(ArgumentError, match="all rights"):
        keys.put_rule(store, keys.ROOT_RULE_NAME, Right.SEND, 3000)
