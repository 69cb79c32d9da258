"""The log of a server on standard error: one line per event, as text or as JSON.

Owns both forms. Whatever is in an event, it stays one line; what is secret prints as
stars long before it comes here.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from twinbus.errors import ConfigError

_LEVELS = ("debug", "info", "warning", "error")


class OneLine(logging.Formatter):
    """Writes an event as one line of text."""

    def format(self, record: logging.LogRecord) -> str:
        return " | ".join(super().format(record).splitlines())


class JsonLine(logging.Formatter):
    """Writes an event as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        event = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event)


_FORMS: dict[str, logging.Formatter] = {
    "text": OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"),
    "json": JsonLine(),
}


def log_to_stderr(level: str, form: str) -> None:
    """Send the log of this process to standard error from now on."""
    if level.lower() not in _LEVELS:
        raise ConfigError(f"--log-level {level} is not one of {', '.join(_LEVELS)}.")
    if form.lower() not in _FORMS:
        raise ConfigError(f"--log-format {form} is not one of {', '.join(_FORMS)}.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FORMS[form.lower()])
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
