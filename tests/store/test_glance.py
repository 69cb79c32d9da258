"""A look at a store that makes and changes no file, and nonces with a shard."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.errors import ConfigError, StoreFault, StoreInUse
from twinbus.store.base import shard_of_nonce
from twinbus.store.opening import glance, open_store, read_setting
from twinbus.store.sqlite.file import FILE_NAME, Glance
from twinbus.store.sqlite.store import random_nonce


def test_a_setting_is_read_without_a_trace(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.begin()
    store.put_setting("name", "value")
    store.commit()
    open_now = read_setting(tmp_path, "name")
    store.close()
    files = sorted(path.name for path in tmp_path.iterdir())

    assert open_now == read_setting(tmp_path, "name") == "value"
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_a_folder_without_a_store_and_a_blank_one_differ(tmp_path: Path) -> None:
    assert glance(tmp_path, "name") is None
    # As a process leaves it that ended before it had made the tables.
    (tmp_path / FILE_NAME).touch()
    assert glance(tmp_path, "name") == Glance(None, is_blank=True)
    store = open_store(tmp_path)
    store.close()
    assert glance(tmp_path, "name") == Glance(None, is_blank=True)
    store = open_store(tmp_path)
    store.begin()
    store.insert_entity("queue", "orders", "{}", 1)
    store.commit()
    store.close()
    assert glance(tmp_path, "name") == Glance(None, is_blank=False)


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"garbage!" * 4096)

    with pytest.raises(StoreFault, match="cannot be read"):
        glance(tmp_path, "name")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_setting(tmp_path, "name")


def test_a_folder_in_use_has_an_error_of_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    with pytest.raises(StoreInUse):
        open_store(tmp_path)
    store.close()


def test_a_nonce_has_the_number_of_its_shard_in_its_upper_bits() -> None:
    for shard in (0, 1, 63):
        nonce = random_nonce(shard)
        assert shard_of_nonce(nonce) == shard
        assert 0 <= nonce < 1 << 63
