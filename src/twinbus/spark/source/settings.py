"""What the options of a source say, read once and checked together.

Owns the names, the defaults and the combinations; each error names the option to
change. Travels to the tasks, so it holds a connection string only as an `Access`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twinbus import limits
from twinbus.client.transport.endpoint import Endpoint
from twinbus.core.names import EntityPath, SubQueue, parse_address
from twinbus.errors import ArgumentError
from twinbus.spark.options import ACCESS, Access, Options
from twinbus.spark.source.rows import Place

SPOOL = "spool"
SINK = "sink"
PEEK = "peek"
_SETTLES = (SPOOL, SINK, PEEK)
_SUB_QUEUES = {
    "none": SubQueue.NONE,
    "deadLetter": SubQueue.DEAD_LETTER,
    "transferDeadLetter": SubQueue.TRANSFER_DEAD_LETTER,
}
_KNOWN = (
    *ACCESS,
    "entity",
    "subscription",
    "subQueue",
    "settle",
    "sessions",
    "maxMessagesPerBatch",
    "chunkSize",
    "parallelism",
    "taskBudgetSeconds",
    "spoolLocation",
    "firstSequence",
    "lastSequence",
)
# Options that only make sense for some kinds of reading.
_ONLY_FOR = {
    "spoolLocation": (SPOOL,),
    "chunkSize": (SPOOL, SINK),
    "taskBudgetSeconds": (SPOOL, SINK),
    "sessions": (SPOOL, SINK),
}


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Where to read, and how."""

    access: Access
    # The queue, subscription or dead-letter queue, in its canonical spelling.
    path: str
    # None: the DataFrame is read once, by browsing.
    settle: str | None
    sessions: bool
    messages_max: int
    chunk: int
    parallelism: int
    task_seconds: int
    spool: str | None
    first_sequence: int
    last_sequence: int

    @property
    def place(self) -> Place:
        """Where messages come from, as their rows say."""
        given = self.access.parsed()
        return Place(Endpoint(given.host, given.port).authority, self.path)

    @property
    def locks(self) -> bool:
        """Whether rows carry their locks, for the sink to settle."""
        return self.settle == SINK

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceSettings:
        """Read the options of `spark.read` or `spark.readStream`."""
        options = Options(given, _KNOWN)
        settle = None
        if options.has("settle"):
            settle = options.choice("settle", _SETTLES, "")
        for name, modes in _ONLY_FOR.items():
            if options.has(name) and settle not in modes:
                words = " or ".join(f"settle={mode}" for mode in modes)
                raise ArgumentError(f"Option '{name}' needs {words}.")
        if settle == SPOOL:
            options.needed(
                "spoolLocation",
                "settle=spool keeps every message in a file there before it is "
                "removed, on a disk that the driver and all executors share",
            )
        sessions = options.flag("sessions")
        if sessions and settle == SINK:
            raise ArgumentError(
                "Option 'sessions' needs settle=spool: the lock of a session ends with "
                "the task that received it, so a sink cannot settle its messages."
            )
        return cls(
            access=options.access(),
            path=_path(options),
            settle=settle,
            sessions=sessions,
            messages_max=options.integer(
                "maxMessagesPerBatch",
                limits.BATCH_MESSAGES_DEFAULT,
                low=1,
                high=limits.BATCH_MESSAGES_MAX_OPTION,
            ),
            chunk=options.integer(
                "chunkSize",
                limits.CHUNK_MESSAGES_DEFAULT,
                low=1,
                high=limits.CHUNK_MESSAGES_MAX,
            ),
            parallelism=options.integer(
                "parallelism", 1, low=1, high=limits.PARALLELISM_MAX
            ),
            task_seconds=options.integer(
                "taskBudgetSeconds",
                limits.SOURCE_TASK_SECONDS,
                low=1,
                high=limits.TASK_SECONDS_MAX,
            ),
            spool=options.folder("spoolLocation"),
            first_sequence=options.integer(
                "firstSequence", 1, low=1, high=limits.SEQUENCE_NUMBER_MAX
            ),
            last_sequence=options.integer(
                "lastSequence",
                limits.SEQUENCE_NUMBER_MAX,
                low=1,
                high=limits.SEQUENCE_NUMBER_MAX,
            ),
        )


def _path(options: Options) -> str:
    """The path that `entity`, `subscription` and `subQueue` name together."""
    entity = options.needed("entity", "it names the queue, or the topic")
    found = parse_address(entity)
    if found.management or found.is_namespace:
        raise ArgumentError(f"Option 'entity': '{entity}' is no queue or topic.")
    subscription = options.text("subscription") or found.subscription
    if found.subscription not in (None, subscription):
        raise ArgumentError(
            "Options 'entity' and 'subscription' name two different subscriptions."
        )
    choice = options.choice("subQueue", tuple(_SUB_QUEUES), "none")
    sub_queue = _SUB_QUEUES[choice]
    if sub_queue is SubQueue.NONE:
        sub_queue = found.sub_queue
    elif found.sub_queue not in (SubQueue.NONE, sub_queue):
        raise ArgumentError("Options 'entity' and 'subQueue' name two sub-queues.")
    return EntityPath(found.entity, subscription, sub_queue).text
