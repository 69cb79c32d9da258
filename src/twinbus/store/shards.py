"""The shards of a namespace on disk: their folders, and which one each is.

A shard is a store in a folder of its own, which can fail alone. Shard 0 is the folder
of the namespace itself, shard k its folder `shard-k`, unless the configuration names
the folders. So a folder with one store is a namespace with one shard. Shards elsewhere
have a link in the folder of the namespace, `shard-0` for the first: so they are found
without the configuration, and a start without it makes no new namespace.

Each store has a *record* (a setting): a random id of the namespace, its own number, and
the folders of all shards. Rules:

* A record that names folders is written only after all of these shards were made. To
  add shards, the new ones are made first, each with a record without folders (it is no
  shard of the namespace yet), and then all records are written, that of shard 0 first.
  A process that ends in between leaves what can be opened, and raised again.
* Nothing is made or changed before all places were looked at. The longest record
  counts, so the others say how many there are if shard 0 cannot be read.
* **A fault of one shard** leaves it closed, with the problem in words, and the others
  are opened: its folder or file is missing where the record says that it is, the disk
  is read-only or fails, the file is damaged, another process has it. A missing shard is
  never made again: it would be empty where messages were. If no shard can be opened,
  the start is refused.
* **A mistake of the operator** refuses the start: a store of another namespace, of
  another number or of a newer version, one folder twice, fewer shards than there are,
  more than `SHARDS_MAX`, a shard that is neither where it is configured nor was there.
* The first shard that is there decides which process has the namespace: if another
  process has it, the start is refused, so that two servers never share the shards.
* With one shard all problems refuse the start, and new shards are only added while all
  others can be opened.

In a database that several nodes share, each shard is a schema, and there is no fault of
one shard alone (`open_shared_shards`).

Knows nothing of entities or messages, nor which shard keeps what.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from twinbus import limits
from twinbus.errors import ConfigError, StoreFault, StoreInUse
from twinbus.store.base import Store
from twinbus.store.opening import (
    DatabaseUrl,
    find_stores,
    glance,
    open_shared,
    open_store,
    read_setting,
)

log = logging.getLogger("twinbus.store")

SETTING = "shard"
# The settings of shard 0 in a database: the number of shards, and that all were made.
_COUNT = "shards"
_ALL_MADE = "shards_made"


class OpenedShard(NamedTuple):
    """A shard, whether it could be opened or not."""

    number: int
    # None: it cannot be opened now, and `problem` says why, in one line.
    store: Store | None
    problem: str | None
    # Try again to open it: returns the store, or raises `ConfigError` or `StoreFault`.
    reopen: Callable[[], Store]


class ShardRecord(NamedTuple):
    """What a store knows about its place in the namespace."""

    namespace: str
    number: int
    # Of all shards, from the folder of shard 0; empty: it was made, and not added yet.
    folders: tuple[str, ...] = ()


def read_record(text: str | None) -> ShardRecord | None:
    """The record in the value of the setting."""
    if text is None:
        return None
    try:
        found = json.loads(text)
        folders = tuple(str(folder) for folder in found["folders"])
        return ShardRecord(str(found["namespace"]), int(found["number"]), folders)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreFault(f"The record of the shard is damaged: {text!r}.") from error


def open_shards(
    folder: Path | None,
    count: int | None = None,
    folders: Sequence[Path] | None = None,
    reserve_bytes: int | None = None,
) -> list[OpenedShard]:
    """Open the shards of a namespace, which is made if it is not there.

    `folder` is that of the namespace; None: in memory. `folders` names those of all
    shards, the first is shard 0. Without both numbers there are as many as before, or
    one. A higher number adds shards. `ConfigError` and `StoreFault` as in the module
    text; then nothing is open.
    """
    if folder is None:
        wanted = _checked(len(folders) if folders else 1 if count is None else count)
        makers = [partial(open_store, None, None, number) for number in range(wanted)]
        return [
            OpenedShard(number, make(), None, make)
            for number, make in enumerate(makers)
        ]
    layout = _Layout(folder, count, folders, reserve_bytes)
    layout.check()
    is_whole = len(layout.places) > layout.known or layout.known == 1
    shards = layout.open_all() if is_whole else layout.open_some()
    if folders:
        _warn_of_one_disk(folders)
        # The folder may be one of a disk that is missing.
        if all(shard.store for shard in shards):
            _link(folder, folders)
    return shards


def open_shared_shards(
    url: DatabaseUrl, namespace: str, count: int | None = None
) -> list[OpenedShard]:
    """Open the shards of a namespace in a database that several nodes share.

    The first node decides how many there are, and that never changes, since the name of
    an entity says which shard has it. Shard 0 remembers the number, and then that all
    were made: from there on, a missing one is not made again.
    """
    first = open_shared(url, namespace)
    stores = [first]
    try:
        wanted = _agreed_count(first, namespace, count)
        make = first.setting(_ALL_MADE) is None
        others = range(1, wanted)
        stores.extend(open_shared(url, namespace, k, make=make) for k in others)
        if make:
            _write(first, _ALL_MADE, "yes")
    except BaseException:
        for store in stores:
            store.close()
        raise
    return [
        OpenedShard(number, store, None, partial(open_shared, url, namespace, number))
        for number, store in enumerate(stores)
    ]


def _agreed_count(store: Store, namespace: str, count: int | None) -> int:
    """How many shards there are; the first node that asks decides."""
    known = store.setting(_COUNT)
    if known is None:
        # Those that were made when there was always one have entities and no number.
        wanted = 1 if store.entities() else _checked(count or 1)
        known = _write(store, _COUNT, str(wanted))
    if count not in (None, int(known)):
        has = "1 shard" if known == "1" else f"{known} shards"
        raise ConfigError(
            f"The namespace {namespace} has {has} in its database, and their number "
            f"cannot be changed to {count}. Start all nodes with the same number, or "
            "leave it out."
        )
    return int(known)


def _write(store: Store, name: str, value: str) -> str:
    """Write a setting, unless another node has; returns what it is."""
    store.begin()
    try:
        found = store.setting(name)
        if found is None:
            store.put_setting(name, value)
        store.commit()
    except BaseException:
        store.rollback()
        raise
    return found or value


def shard_folders(folder: Path) -> list[Path]:
    """Where the shards of a namespace are, as far as they can be read now."""
    return _Layout(folder, None, None, None).places


def read_copied(folder: Path, name: str) -> str | None:
    """A setting that all shards have a copy of, from the first that can be read.

    Also while a server has the folders. `ConfigError` as with shard 0 if none can.
    """
    first, *others = shard_folders(folder)
    try:
        return read_setting(first, name)
    except ConfigError:
        for place in others:
            with contextlib.suppress(ConfigError):
                return read_setting(place, name)
        raise


def find_namespaces(data: Path) -> list[Path]:
    """The folders of namespaces directly below `data`, in order."""
    found = set(find_stores(data))
    found.update(path.parent for path in data.glob("*/shard-*"))
    return sorted(found)


class _Place(NamedTuple):
    """What is in the folder of a shard, before it is opened."""

    folder: Path
    record: ShardRecord | None = None
    # There is no store, or none that was ever used.
    is_blank: bool = True
    # Why it cannot be read now.
    problem: str | None = None
    # Why it must not be opened.
    mistake: str | None = None


def _look(folder: Path) -> _Place:
    """See what is there, without a change."""
    try:
        found = glance(folder, SETTING)
        record = None if found is None else read_record(found.setting)
        return _Place(folder, record, found is None or found.is_blank)
    except ConfigError as error:
        return _Place(folder, is_blank=False, mistake=error.text)
    except StoreFault as fault:
        return _Place(folder, is_blank=False, problem=fault.text)


class _Layout:
    """Where the shards of a namespace are, and how many there are or shall be."""

    def __init__(
        self,
        folder: Path,
        count: int | None,
        folders: Sequence[Path] | None,
        reserve_bytes: int | None,
    ) -> None:
        self._reserve_bytes = reserve_bytes
        link = folder / _name(0)
        self._root = folder
        if folders:
            self._root = folders[0]
        elif link.is_symlink():
            self._root = Path(os.path.realpath(link))
        first = _look(self._root)
        _check_number(first, 0)
        others = [_look(each) for each in self._others(first, folder, folders)]
        records = [place.record for place in others if place.record]
        ids = {record.namespace for record in records}
        if first.record is not None:
            ids = {first.record.namespace}
        elif len(ids) > 1:
            named = ", ".join(str(place.folder) for place in others if place.record)
            raise ConfigError(
                f"The shards in {named} belong to different namespaces. Move those "
                "that do not belong here away, or correct the list of shards."
            )
        self._is_new = not ids
        self._id = ids.pop() if ids else uuid4().hex
        if first.record is not None:
            records.append(first.record)
        ours = [record.folders for record in records if record.namespace == self._id]
        recorded = max(ours, key=len, default=())
        # A link is made when the store was there.
        was_made = link.is_symlink() and _identity(link) == _identity(self._root)
        # How many shards there are; 0: the namespace is new.
        is_known = bool(ours) or not first.is_blank or was_made
        self.known = len(recorded) or int(is_known)
        self._recorded = [self._root / text for text in recorded]
        self.places = self._places(folder, count, folders)

    def _others(
        self, first: _Place, folder: Path, folders: Sequence[Path] | None
    ) -> list[Path]:
        """Where shards other than the first may have records."""
        if folders:
            return list(folders[1:])
        found = first.record.folders[1:] if first.record else ()
        usual = [folder / _name(number) for number in range(1, limits.SHARDS_MAX)]
        return list(dict.fromkeys([*(self._root / text for text in found), *usual]))

    def _places(
        self, folder: Path, count: int | None, folders: Sequence[Path] | None
    ) -> list[Path]:
        if folders:
            places = list(folders)
        else:
            wanted = self.known or 1 if count is None else count
            more = range(max(self.known, 1), wanted)
            places = self._recorded or [self._root]
            if wanted < len(places):
                self._too_few(wanted)
            places = [*places, *(folder / _name(number) for number in more)]
        if len(places) < self.known:
            self._too_few(len(places))
        _checked(len(places))
        return places

    def _too_few(self, wanted: int) -> None:
        _checked(wanted)
        raise ConfigError(
            f"The namespace in {self._root} has {self.known} shards, and their number "
            f"cannot be lowered to {wanted}. Ask for {self.known} shards or more."
        )

    # -- checks --------------------------------------------------------------------

    def check(self) -> None:
        """Refuse what the operator must correct; changes nothing."""
        seen: dict[object, int] = {}
        for number, folder in enumerate(self.places):
            other = seen.setdefault(_identity(folder), number)
            if other != number:
                raise ConfigError(
                    f"Shards {other} and {number} are in one folder, {folder}. Give "
                    "each shard a folder of its own."
                )
        for number, folder in enumerate(self.places):
            self._look(number, folder)

    def _look(self, number: int, folder: Path) -> _Place:
        place = _look(folder)
        if place.mistake is not None:
            raise ConfigError(place.mistake)
        record = place.record
        if record is None:
            is_used = not place.is_blank and place.problem is None
            if is_used and (number or not self._is_new):
                self._foreign(number, folder)
            if place.is_blank and number < self.known:
                self._check_moved(number, folder)
        elif record.namespace != self._id:
            self._foreign(number, folder)
        else:
            _check_number(place, number)
        return place

    def _foreign(self, number: int, folder: Path) -> None:
        if number == 0:
            raise ConfigError(
                f"The store in {folder} does not belong to the shards that are beside "
                "it. Restore the right one, or move them away."
            )
        raise ConfigError(
            f"The store in {folder} belongs to another namespace, so it cannot be "
            f"shard {number} of the one in {self._root}. Choose another folder."
        )

    def _check_moved(self, number: int, folder: Path) -> None:
        """A shard is missing: the folders must be the ones where the shards were."""
        for place, recorded in zip(self.places, self._recorded, strict=False):
            if _identity(place) != _identity(recorded):
                raise ConfigError(
                    f"Shard {number} is not in {folder}, and the record has {recorded} "
                    f"instead of {place}. Move the folder there, or correct the list "
                    "of shards."
                )

    # -- opening -------------------------------------------------------------------

    def open_all(self) -> list[OpenedShard]:
        """Open every shard, adding those that are new, or raise and open none."""
        stores: list[Store] = []
        try:
            for number in range(len(self.places)):
                if number < self.known:
                    stores.append(self._open(number, self.known))
                else:
                    stores.append(self._make(number))
            for number, store in enumerate(stores):
                self._write(store, number, len(self.places))
        except BaseException:
            for store in stores:
                store.close()
            raise
        return [
            OpenedShard(number, store, None, partial(self._open, number))
            for number, store in enumerate(stores)
        ]

    def open_some(self) -> list[OpenedShard]:
        """Open the shards that can be opened; raise if none can."""
        shards: list[OpenedShard] = []
        try:
            for number in range(len(self.places)):
                shards.append(self._try(number, first=not any(s.store for s in shards)))
        except BaseException:
            for shard in shards:
                if shard.store is not None:
                    shard.store.close()
            raise
        if not any(shard.store for shard in shards):
            raise ConfigError(
                f"No shard of the namespace can be opened. {shards[0].problem}"
            )
        return shards

    def _try(self, number: int, *, first: bool) -> OpenedShard:
        reopen = partial(self._open, number)
        try:
            return OpenedShard(number, reopen(), None, reopen)
        except (ConfigError, StoreFault) as error:
            if first and isinstance(error, StoreInUse):
                raise
            problem = f"Shard {number} cannot be opened: {error.text}"
            return OpenedShard(number, None, problem, reopen)

    def _open(self, number: int, shards: int | None = None) -> Store:
        """Open a shard that is there; its record names so many folders, or all."""
        folder = self.places[number]
        place = self._look(number, folder)
        if place.problem is not None and len(self.places) > 1:
            raise StoreFault(place.problem)
        if place.is_blank:
            raise ConfigError(
                f"There is no store in {folder}, where shard {number} was. Mount its "
                "disk or restore a backup; it is not made again, since its messages "
                "would be lost."
            )
        store = self._open_store(number)
        try:
            self._write(store, number, shards or len(self.places))
        except BaseException:
            store.close()
            raise
        return store

    def _make(self, number: int) -> Store:
        """Make a shard that was not there before, or was not added to the others."""
        store = self._open_store(number)
        try:
            # The first one is a namespace already; the others are added to it later.
            self._write(store, number, 0 if number else 1)
        except BaseException:
            store.close()
            raise
        return store

    def _open_store(self, number: int) -> Store:
        folder = self.places[number]
        try:
            return open_store(folder, self._reserve_bytes, number)
        except OSError as error:
            raise StoreFault(f"{folder} cannot be used ({error}).") from error

    def _write(self, store: Store, number: int, shards: int) -> None:
        """Let the record of a shard name that many folders."""
        folders = _texts(self.places[:shards])
        record = ShardRecord(self._id, number, folders)
        if read_record(store.setting(SETTING)) == record:
            return
        store.begin()
        try:
            store.put_setting(SETTING, json.dumps(record._asdict()))
            store.commit()
        except BaseException:
            store.rollback()
            raise
        self._is_new = False


def _name(number: int) -> str:
    return f"shard-{number}"


def _link(folder: Path, places: Sequence[Path]) -> None:
    """Let the folder of the namespace say where its shards are."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number, place in enumerate(places):
            link, target = folder / _name(number), os.path.realpath(place)
            if target == os.path.realpath(link):
                continue
            if link.is_symlink():
                link.unlink()
            if not link.exists() and target != os.path.realpath(folder):
                link.symlink_to(target)
    except OSError as error:
        # The shards are well, and they are found by the list.
        text = "%s cannot have links to the shards (%s)"
        log.warning(text, folder, error.strerror)


def _checked(count: int) -> int:
    if not 1 <= count <= limits.SHARDS_MAX:
        raise ConfigError(
            f"A namespace has 1 to {limits.SHARDS_MAX} shards; {count} is not possible."
        )
    return count


def _check_number(place: _Place, number: int) -> None:
    if place.record is not None and place.record.number != number:
        raise ConfigError(
            f"{place.folder} holds shard {place.record.number}, but it is in the place "
            f"of shard {number}. Put the folders of the shards in their order."
        )


def _identity(folder: Path) -> object:
    """Equal for two ways to write one folder, and for two mounts of it."""
    path = Path(os.path.realpath(folder))
    try:
        found = path.stat()
    except OSError:
        return path
    return found.st_dev, found.st_ino


def _warn_of_one_disk(folders: Sequence[Path]) -> None:
    """Folders that were given are meant to fail one by one: say it if they cannot."""
    seen: dict[int, Path] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            other = seen.setdefault(folder.stat().st_dev, folder)
            if other is not folder:
                text = "shards in %s and %s are on one disk, so they fail together"
                log.warning(text, other, folder)


def _texts(folders: Sequence[Path]) -> tuple[str, ...]:
    """Folders for a record: from that of shard 0 if all are in it, else absolute."""
    paths = [folder.absolute() for folder in folders]
    if all(path.is_relative_to(paths[0]) for path in paths):
        return tuple(str(path.relative_to(paths[0])) for path in paths)
    return tuple(str(path) for path in paths)
