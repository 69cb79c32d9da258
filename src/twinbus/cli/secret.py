"""Secrets on the command line: as they are, from a file, or from the environment.

`@FILE` reads a file and `env:NAME` a variable, so that keys stay out of the history of
the shell and out of the list of processes. `TWINBUS_KEY` is the key of `serve --dev`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.core.sas import Secret
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.store.opening import DatabaseUrl

DEV_KEY_VARIABLE = "TWINBUS_KEY"
# What a key is made of, so that it fits into a connection string.
_KEY = re.compile(r"[A-Za-z0-9+/=_-]*")


def dev_key() -> Secret | None:
    """The key that takes the place of the documented one, if the environment has it."""
    text = os.environ.get(DEV_KEY_VARIABLE)
    if text is None:
        return None
    low, high = limits.DEV_KEY_CHARS_MIN, limits.KEY_CHARS_MAX
    if not low <= len(text) <= high or not _KEY.fullmatch(text):
        raise ConfigError(
            f"{DEV_KEY_VARIABLE} must have {low} to {high} letters, digits or +/=_- "
            f"and has {len(text)} characters. Make one: openssl rand -base64 32"
        )
    return Secret(text)


def database_url(given: str) -> DatabaseUrl:
    """The database that an option stands for, which may have a password."""
    from twinbus.store.opening import DatabaseUrl

    return DatabaseUrl(read_secret(given).reveal())


def read_secret(given: str) -> Secret:
    """The secret that an option stands for."""
    if given.startswith("@"):
        return Secret(_from_file(Path(given[1:])))
    if given.startswith("env:"):
        name = given.removeprefix("env:")
        value = os.environ.get(name)
        if not value:
            raise ConfigError(f"The environment has no variable {name}. Set it first.")
        return Secret(value.strip())
    if "=" not in given and Path(given).is_file():
        raise ConfigError(f"'{given}' is a file. To read it, write '@{given}'.")
    return Secret(given.strip())


def _from_file(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(limits.CLI_SECRET_CHARS_MAX)
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not a text file.") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}).") from error
    if not text.strip():
        raise ConfigError(f"{file} is empty. Write the secret into it.")
    return text.strip()
