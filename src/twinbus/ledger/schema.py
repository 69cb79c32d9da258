"""The format of a ledger: its tables, their columns and the words in them.

A ledger is a folder:

    DIR/day=2026-11-15/<writer>-<HHMMSS>-<8 hex>.parquet          operations
    DIR/events/day=2026-11-15/<writer>-<HHMMSS>-<8 hex>.parquet   events of pairs

Days are UTC. A reader ignores names that begin with `.` or `_`, as Spark does. The
metadata of each file's schema has the version of the format.

Operations have one row per minute and distinct combination of the text columns and the
size class. `operations` are billable ones: for messages, each counts once for every
64 KB that it has begun (its size class); anything else counts once. A row that is about
no message that crossed the wire (poll, ping, settle, renew, cancel, manage) has size
class 0 and no messages. A row `gap` has no operations: it says for how many minutes,
from its own on, this writer has no rows, because it crashed or could not write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinbus import limits

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_KEY: Final = "twinbus_ledger"
VERSION: Final = "1"
EVENTS_FOLDER: Final = "events"
DAY_PREFIX: Final = "day="
FILE_SUFFIX: Final = ".parquet"

# -- words -----------------------------------------------------------------------------

# Values of the column `source`.
SERVER, CLIENT, SYPHON = "server", "client", "syphon"

# Values of the column `operation`.
SEND, RECEIVE, POLL, PING, SETTLE = "send", "receive", "poll", "ping", "settle"
RENEW, SCHEDULE, CANCEL, PEEK = "renew", "schedule", "cancel", "peek"
MANAGE, GAP = "manage", "gap"
OPERATIONS = (
    SEND,
    RECEIVE,
    POLL,
    PING,
    SETTLE,
    RENEW,
    SCHEDULE,
    CANCEL,
    PEEK,
    MANAGE,
    GAP,
)

# Values of the column `outcome`: done; denied because of load or rate; the client's
# mistake; the service's.
ACCEPTED, BUSY, REFUSED, FAILED = "accepted", "busy", "refused", "failed"
OUTCOMES = (ACCEPTED, BUSY, REFUSED, FAILED)

# Values of the column `connection`.
AMQP, AMQP_WS, HTTP, EMBEDDED = "amqp", "amqp-ws", "http", "embedded"
CONNECTIONS = (AMQP, AMQP_WS, HTTP, EMBEDDED)

# -- columns ---------------------------------------------------------------------------

# Name and type, as Arrow spells it; `time` is a timestamp in microseconds, UTC.
OPERATION_COLUMNS: tuple[tuple[str, str], ...] = (
    ("minute", "time"),
    ("namespace", "string"),
    ("writer", "string"),
    ("source", "string"),
    ("entity", "string"),
    ("operation", "string"),
    ("outcome", "string"),
    ("key", "string"),
    ("connection", "string"),
    ("size_class", "int32"),
    ("operations", "int64"),
    ("messages", "int64"),
    ("bytes_in", "int64"),
    ("bytes_out", "int64"),
    ("gap_minutes", "int32"),
)
EVENT_COLUMNS: tuple[tuple[str, str], ...] = (
    ("at", "time"),
    ("writer", "string"),
    ("primary", "string"),
    ("secondary", "string"),
    ("entity", "string"),
    ("event", "string"),
    ("messages", "int64"),
    ("bytes", "int64"),
    ("detail", "string"),
)


def arrow_schema(columns: tuple[tuple[str, str], ...]) -> pa.Schema:
    """The columns of a table, with the version; imports Arrow, which takes a while."""
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
    fields = [
        pa.field(name, types.get(kind, time), nullable=False) for name, kind in columns
    ]
    return pa.schema(fields, metadata={METADATA_KEY: VERSION})


def size_class(size_bytes: int) -> int:
    """How often a message of that size counts."""
    return max(1, -(-size_bytes // limits.LEDGER_UNIT_BYTES))
