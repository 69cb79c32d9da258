"""Where a namespace is served, and the connection strings that lead there.

Owns both strings, one for messages and one for administration, which speaks HTTPS
alone; and the file in the folder of a namespace that remembers the ports, so that
`twinbus keys` prints strings that work. The file holds no key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinbus.core.sas import Secret, format_connection_string

FILE_NAME = "served-at.json"
# Where clients go that are told no port: messages, then administration.
_DEFAULT_PORTS = (5671, 443)
_STRINGS = ("connection_string", "admin_connection_string")


@dataclass(frozen=True, slots=True)
class ServedAt:
    """The address of one namespace."""

    host: str = "localhost"
    # By kind; one that is missing is not served, or not known.
    ports: Mapping[str, int] = field(default_factory=dict)
    # Clients are told to speak clear text.
    dev: bool = False

    @property
    def message_port(self) -> int | None:
        """Where clients for messages connect."""
        kinds = ("amqp", "amqps") if self.dev else ("amqps", "amqp")
        return next((self.ports[kind] for kind in kinds if kind in self.ports), None)

    def strings(self, key_name: str, key: Secret | None) -> dict[str, str | None]:
        """Both connection strings; without a key its part is missing."""
        https, amqp = self.ports.get("https"), self.message_port
        if not self.dev and (amqp, https) == _DEFAULT_PORTS:
            # Both clients find them, so that one string serves both.
            without = _string(self.host, None, key_name, key, dev=False)
            return dict.fromkeys(_STRINGS, without)
        for_messages = _string(self.host, amqp, key_name, key, self.dev)
        for_administration = None
        if https is not None:
            for_administration = _string(self.host, https, key_name, key, dev=False)
        return dict(zip(_STRINGS, (for_messages, for_administration), strict=True))

    def remember(self, folder: Path) -> None:
        """Write it into the folder of the namespace."""
        text = json.dumps({"host": self.host, "dev": self.dev, "ports": {**self.ports}})
        new = folder / f"{FILE_NAME}.new"
        new.touch(0o600)
        new.write_text(text)
        new.replace(folder / FILE_NAME)

    @classmethod
    def remembered(cls, folder: Path) -> ServedAt | None:
        """Where the namespace was served last; None if that is not known."""
        try:
            found: Any = json.loads((folder / FILE_NAME).read_text())
            ports = {kind: int(found["ports"][kind]) for kind in found["ports"]}
            return cls(str(found["host"]), ports, found["dev"] is True)
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _string(
    host: str, port: int | None, key_name: str, key: Secret | None, dev: bool
) -> str:
    if key is not None:
        return format_connection_string(host, port, key_name, key, dev)
    # Keys are shown by `twinbus keys` alone, which adds the missing part.
    text = format_connection_string(host, port, key_name, Secret(""), dev=False)
    return text.removesuffix(";SharedAccessKey=")
