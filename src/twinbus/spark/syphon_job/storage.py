"""Where a journal lies: a folder of this machine, or a shared storage by its address.

Owns how bytes become durable there. A file of a folder is appended to and synced. Other
storage (`s3://`, `gs://`, `hdfs://`, ...) cannot append, or does not say when it is
safe; there every part is a file of its own, and closing it makes it durable. Readers
see the same in both: parts by the name of what they belong to, each from where they
stopped reading. Knows nothing about receipts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from twinbus.errors import ArgumentError

_PART = ".part"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file: its name below the location, and how long it is."""

    name: str
    size_bytes: int


class Appender(Protocol):
    """Writes one series of parts."""

    def append(self, data: bytes) -> None:
        """Add a part; durable when it returns."""

    def close(self) -> None:
        """Nothing more will be added."""


class Storage(Protocol):
    """Files by their names; a slash stands between folders."""

    # Whether all machines see the same.
    shared: bool

    def entries(self, folder: str) -> list[StoredFile]:
        """The files right below a folder, by name; none if there is no such folder."""

    def folders(self, folder: str) -> list[str]:
        """The names of folders right below a folder."""

    def read(self, name: str, start: int = 0) -> pa.Buffer:
        """The content from a byte on."""

    def write(self, name: str, data: bytes) -> None:
        """Make a file, or replace it; readers never see half of it."""

    def append_to(self, name: str) -> Appender:
        """A new series of parts with this name, or beginning with it."""

    def is_in_use(self, name: str) -> bool:
        """Whether a process may still append to it."""

    def delete(self, name: str) -> None:
        """Remove a file; it may be gone already."""

    def delete_folder(self, name: str) -> None:
        """Remove a folder with all that is in it; it may be gone already."""


def storage_at(location: str) -> Storage:
    """The storage that an option names: a path, or an address with a scheme."""
    scheme = urlsplit(location).scheme
    if scheme in ("", "file"):
        path = urlsplit(location).path if scheme else location
        return FolderStorage(Path(path).expanduser().absolute())
    try:
        files, root = fs.FileSystem.from_uri(location)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArgumentError(
            f"'{location}' is no place for a journal: {error}. Give a folder, or the "
            "address of a shared one (s3://, gs://, hdfs://)."
        ) from None
    return RolledStorage(fs.SubTreeFileSystem(root, files))


# -- a folder ------------------------------------------------------------------------


class FolderStorage:
    """A folder of this machine, which may be mounted on others too."""

    shared = False

    def __init__(self, root: Path) -> None:
        self.root = root

    def entries(self, folder: str) -> list[StoredFile]:
        found = []
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(self.root / folder) as a,
        ):
            for each in a:
                if each.is_file() and not each.name.endswith(_PART):
                    size = each.stat().st_size
                    found.append(StoredFile(f"{folder}/{each.name}", size))
        return sorted(found, key=lambda entry: entry.name)

    def folders(self, folder: str) -> list[str]:
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(self.root / folder) as a,
        ):
            return sorted(each.name for each in a if each.is_dir())
        return []

    def read(self, name: str, start: int = 0) -> pa.Buffer:
        with (self.root / name).open("rb") as file:
            file.seek(start)
            return pa.py_buffer(file.read())

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_PART}")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)

    def append_to(self, name: str) -> Appender:
        return _AppendedFile(self.root / name)

    def is_in_use(self, name: str) -> bool:
        try:
            with (self.root / name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def delete_folder(self, name: str) -> None:
        for entry in self.entries(name):
            self.delete(entry.name)
        with contextlib.suppress(OSError):
            (self.root / name).rmdir()


class _AppendedFile:
    """A file that grows; locked, so that it is not packed while it is written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        _sync_folder(path.parent)

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _sync_folder(path: Path) -> None:
    """A name has to survive as well as the content."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# -- shared storage ------------------------------------------------------------------


class RolledStorage:
    """Storage whose files are written once, through Arrow."""

    shared = True

    def __init__(self, files: fs.FileSystem) -> None:
        self._files = files

    def entries(self, folder: str) -> list[StoredFile]:
        return [
            StoredFile(info.path, info.size)
            for info in self._below(folder)
            if info.type == fs.FileType.File
        ]

    def folders(self, folder: str) -> list[str]:
        return [
            info.base_name
            for info in self._below(folder)
            if info.type == fs.FileType.Directory
        ]

    def _below(self, folder: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(folder, allow_not_found=True)
        return sorted(self._files.get_file_info(selector), key=lambda info: info.path)

    def read(self, name: str, start: int = 0) -> pa.Buffer:
        with self._files.open_input_file(name) as file:
            file.seek(start)
            return file.read_buffer()

    def write(self, name: str, data: bytes) -> None:
        self._files.create_dir(name.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(name) as file:
            file.write(data)

    def append_to(self, name: str) -> Appender:
        return _RolledFiles(self, name)

    def is_in_use(self, name: str) -> bool:
        """Never: what is there is complete."""
        del name
        return False

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(name)

    def delete_folder(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_dir(name)


class _RolledFiles:
    """A series of files, one for each part."""

    def __init__(self, storage: RolledStorage, name: str) -> None:
        self._storage = storage
        self._stem, dot, self._ending = name.rpartition(".")
        assert dot, "the name of a series has an ending"
        self._count = 0

    def append(self, data: bytes) -> None:
        name = f"{self._stem}.{self._count:06}.{self._ending}"
        self._storage.write(name, data)
        self._count += 1

    def close(self) -> None:
        pass
