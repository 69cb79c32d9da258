"""Diagnostics bundles: one JSON file for each failure of a server, the newest ten.

Owns the folder `diagnostics` in the data folder and what a bundle says: the reason, the
stacks of all threads, the last log records, the last metrics with the counts of
entities, limits, options and versions, and what could not be had. No message and no
secret is in it: nothing here reads a store's messages or the environment. Imports
nothing of the server, since the supervisor writes bundles.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.server.setup.reporter import Remains

FOLDER = "diagnostics"
_PACKAGES = ("twinbus", "uvloop", "starlette", "uvicorn", "cryptography")


def compose(remains: Remains) -> dict[str, Any]:
    """The bundle of a failure."""
    missing = list(remains.missing)
    vitals = json.loads(remains.vitals or "null")
    if vitals is None:
        missing.append("metrics and counts: the server has written none yet")
    elif vitals["entities_left_out"]:
        missing.append(f"counts of {vitals['entities_left_out']} further entities")
    return {
        "id": remains.id,
        "time": remains.time,
        "reason": remains.reason,
        "pid": remains.pid,
        "uptime_seconds": round(remains.seconds, 3),
        "restarts_before": remains.restarts,
        "gathered_seconds": round(remains.gathered_seconds, 3),
        "missing": missing,
        "versions": _versions(),
        "command": [_without_password(word) for word in remains.command],
        "ports": remains.ports,
        "stacks": remains.stacks.decode("utf-8", "replace").splitlines(),
        "metrics": vitals,
        "stores": None,
        "limits": {key: each for key, each in vars(limits).items() if key.isupper()},
        "log": [_event(record) for record in remains.log],
    }


def _without_password(word: str) -> str:
    """A word of the command line; the URL of a database may have a password."""
    word = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", word)
    return re.sub(r"(password=)\S+", r"\1***", word)


def _event(record: bytes) -> Any:
    try:
        return json.loads(record)
    except ValueError:
        # It was cut.
        return {"message": record.decode("utf-8", "replace")}


def _versions() -> dict[str, str]:
    import sqlite3

    found = {
        "python": sys.version,
        "platform": platform.platform(),
        "sqlite": sqlite3.sqlite_version,
    }
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


# -- files -------------------------------------------------------------------------


def write(data: Path, bundle: dict[str, Any]) -> None:
    """Keep a bundle, in place of an earlier state of it; the oldest ones go."""
    folder = data / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{bundle['id']}.json"
    part = file.with_suffix(".part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(part, flags, 0o600), "w", encoding="utf-8") as out:
        json.dump(bundle, out)
    part.replace(file)
    for old in _files(data)[: -limits.DIAGNOSTICS_KEPT_MAX]:
        old.unlink(missing_ok=True)


def load_all(data: Path) -> list[dict[str, Any]]:
    """All bundles of a data folder, the newest first."""
    if not data.is_dir():
        what = "is no folder" if data.exists() else "does not exist"
        raise ConfigError(f"{data} {what}. Check --data.")
    return [json.loads(file.read_text("utf-8")) for file in reversed(_files(data))]


def load(data: Path, bundle_id: str | None) -> dict[str, Any]:
    """One bundle: the one with that id, or the newest."""
    files = _files(data)
    if not files:
        raise ConfigError(
            f"{data} has no diagnostics. Check --data; they are made when a server "
            "fails that has a supervisor."
        )
    by_id = {file.stem: file for file in files}
    chosen = bundle_id or files[-1].stem
    if chosen not in by_id:
        raise ConfigError(
            f"{data} has no diagnostics {chosen}; `twinbus diagnostics list` has all."
        )
    bundle: dict[str, Any] = json.loads(by_id[chosen].read_text("utf-8"))
    return bundle


def _files(data: Path) -> list[Path]:
    """The files of all bundles, the oldest first: their names begin with the time."""
    return sorted((data / FOLDER).glob("*.json"))


__all__ = ["FOLDER", "compose", "load", "load_all", "write"]
