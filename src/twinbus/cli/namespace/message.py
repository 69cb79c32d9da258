"""`twinbus message`: send, receive, peek and purge, over AMQP.

Works with any namespace, a twinbus server or Azure, through the official client.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.confirm import Yes, confirm
from twinbus.cli.output import (
    Json,
    Listing,
    duration_ms,
    pairs,
    progress,
    show,
    show_all,
)
from twinbus.cli.sdk import ConnectionText, authority_of, connected
from twinbus.cli.trust import CaFile
from twinbus.core.durations import format_duration
from twinbus.core.names import EntityPath, SubQueue
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from azure.servicebus import (
        ServiceBusClient,
        ServiceBusReceivedMessage,
        ServiceBusReceiver,
    )

app = typer.Typer(
    help="Messages of a running namespace, over AMQP.", no_args_is_help=True
)

_COLUMNS = ("sequence_number", "message_id", "session_id", "subject", "body")

Entity = Annotated[str, typer.Argument(help="A queue or a topic.")]
Subscription = Annotated[
    str | None, typer.Option(help="The subscription, if the entity is a topic.")
]
SessionId = Annotated[str | None, typer.Option(help="The session.")]
DeadLetter = Annotated[
    bool, typer.Option("--dead-letter", help="Use the dead-letter queue.")
]
Maximum = Annotated[int, typer.Option("--max", min=1, help="How many at most.")]


def _check_wait(seconds: float) -> float:
    longest = limits.CLI_WAIT_SECONDS_MAX
    if not 0 < seconds <= longest:
        raise ConfigError(
            f"--wait {seconds:g} must be above 0 and at most {longest} seconds."
        )
    return seconds


Wait = Annotated[
    float,
    typer.Option("--wait", callback=_check_wait, help="Seconds to wait for messages."),
]


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where messages are taken from."""

    entity: str
    subscription: str | None
    session_id: str | None
    dead_letter: bool

    def __str__(self) -> str:
        """Which it is, for people."""
        sub_queue = SubQueue.DEAD_LETTER if self.dead_letter else SubQueue.NONE
        path = EntityPath(self.entity, self.subscription, sub_queue).text
        if self.session_id is None:
            return f"'{path}'"
        return f"session '{self.session_id}' of '{path}'"

    def receiver(
        self, client: ServiceBusClient, *, delete: bool = False
    ) -> ServiceBusReceiver:
        """A receiver of that place; `delete` takes messages without a lock."""
        from azure.servicebus import ServiceBusReceiveMode, ServiceBusSubQueue

        options: dict[str, Any] = {}
        if delete:
            options["receive_mode"] = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        if self.dead_letter:
            options["sub_queue"] = ServiceBusSubQueue.DEAD_LETTER
        if self.session_id is not None:
            options["session_id"] = self.session_id
        if self.subscription is None:
            return client.get_queue_receiver(self.entity, **options)
        return client.get_subscription_receiver(
            self.entity, self.subscription, **options
        )


def _shown(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    properties = message.application_properties or {}
    enqueued = message.enqueued_time_utc
    return {
        "sequence_number": message.sequence_number,
        "message_id": message.message_id,
        "session_id": message.session_id,
        "subject": message.subject,
        "content_type": message.content_type,
        "enqueued_at": enqueued.isoformat() if enqueued else None,
        "delivery_count": message.delivery_count,
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_error_description,
        "properties": {_plain(key): _plain(value) for key, value in properties.items()},
        "body": _body(message),
    }


def _body(message: ServiceBusReceivedMessage) -> str:
    """The body as text; bytes that are not UTF-8 are escaped."""
    try:
        return str(message)
    except UnicodeDecodeError:
        return b"".join(message.body).decode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, bool | int | float | None) else str(value)


@app.command()
def send(
    entity: Entity,
    body: Annotated[str, typer.Argument(help="The text; - reads standard input.")],
    connection_string: ConnectionText,
    count: Annotated[int, typer.Option(min=1, help="How many times.")] = 1,
    message_id: Annotated[str | None, typer.Option(help="Its id.")] = None,
    session_id: SessionId = None,
    subject: Annotated[str | None, typer.Option(help="Its subject (label).")] = None,
    content_type: Annotated[str | None, typer.Option(help="Its type.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="An application property, as text; several.",
        ),
    ] = None,
    time_to_live: Annotated[
        str | None, typer.Option(metavar="DURATION", help="For example PT1H.")
    ] = None,
    deliver_in: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Not before this has passed: PT10M."),
    ] = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Send a message to a queue or a topic."""
    # Bytes as they are: what comes from a file need not be text.
    content = sys.stdin.buffer.read() if body == "-" else body
    fields: dict[str, Any] = {
        "message_id": message_id,
        "session_id": session_id,
        "subject": subject,
        "content_type": content_type,
        "application_properties": dict(pairs("--property", properties)) or None,
        "time_to_live": None if time_to_live is None else _time_to_live(time_to_live),
        "scheduled_enqueue_time_utc": None if deliver_in is None else _due(deliver_in),
    }
    with connected(connection_string, ca_file) as client:
        _send(client, entity, [content] * count, fields)
    show({"sent": count}, as_json)


def _time_to_live(text: str) -> timedelta:
    ttl_ms = duration_ms("--time-to-live", text)
    longest_ms = limits.HEADER_TTL_MS_MAX
    if not 0 < ttl_ms <= longest_ms:
        longest = format_duration(longest_ms)
        raise ConfigError(
            f"--time-to-live {text} must be above PT0S and at most {longest}. Without "
            "it, that of the entity counts."
        )
    return timedelta(milliseconds=ttl_ms)


def _due(text: str) -> datetime:
    delay = timedelta(milliseconds=duration_ms("--deliver-in", text))
    try:
        return datetime.now(UTC) + delay
    except OverflowError:
        raise ConfigError(
            f"--deliver-in {text} must end before the year 10000. Use a shorter one."
        ) from None


def _send(
    client: ServiceBusClient,
    entity: str,
    bodies: Sequence[str | bytes],
    fields: dict[str, Any],
) -> None:
    from azure.servicebus import ServiceBusMessage

    given = {name: value for name, value in fields.items() if value is not None}
    with client.get_queue_sender(entity) as sender, progress(len(bodies)) as advance:
        for start in range(0, len(bodies), limits.CLI_RECEIVE_MESSAGES_MAX):
            part = bodies[start : start + limits.CLI_RECEIVE_MESSAGES_MAX]
            messages = [ServiceBusMessage(body, **given) for body in part]
            # One message of any size goes alone; several must fit into a batch.
            sender.send_messages(messages if len(messages) > 1 else messages[0])
            advance(len(part))


@app.command()
def receive(
    entity: Entity,
    connection_string: ConnectionText,
    subscription: Subscription = None,
    session_id: SessionId = None,
    dead_letter: DeadLetter = False,
    maximum: Maximum = 1,
    wait: Wait = 5.0,
    settle: Annotated[
        str, typer.Option(help="complete, abandon, defer or dead-letter.")
    ] = "complete",
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Receive messages, print them, and settle them."""
    settlement = f"{settle.replace('-', '_')}_message"
    known = ("complete", "abandon", "defer", "dead-letter")
    if settle not in known:
        raise ConfigError(f"--settle {settle} is not one of {', '.join(known)}.")
    place = MessagePlace(entity, subscription, session_id, dead_letter)
    # Abandoned messages come again at once, so they are held until the end.
    held: list[ServiceBusReceivedMessage] = []
    count = 0
    with (
        connected(connection_string, ca_file) as client,
        place.receiver(client) as receiver,
        Listing(_COLUMNS, as_json) as listing,
    ):
        while count < maximum:
            wanted = min(maximum - count, limits.CLI_RECEIVE_MESSAGES_MAX * 10)
            part = receiver.receive_messages(wanted, max_wait_time=wait)
            if not part:
                break
            count += len(part)
            # Printed before it is settled: an unseen message must not be lost.
            listing.add([_shown(message) for message in part])
            if settle == "abandon":
                held += part
                continue
            for message in part:
                getattr(receiver, settlement)(message)
        for message in held:
            receiver.abandon_message(message)


@app.command()
def peek(
    entity: Entity,
    connection_string: ConnectionText,
    subscription: Subscription = None,
    session_id: SessionId = None,
    dead_letter: DeadLetter = False,
    start: Annotated[
        int,
        typer.Option(
            "--from",
            min=0,
            max=limits.SEQUENCE_NUMBER_MAX,
            help="The first sequence number.",
        ),
    ] = 0,
    maximum: Maximum = 10,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Look at messages without taking them."""
    place = MessagePlace(entity, subscription, session_id, dead_letter)
    shown: list[dict[str, Any]] = []
    with (
        connected(connection_string, ca_file) as client,
        place.receiver(client) as receiver,
    ):
        while len(shown) < maximum:
            wanted = min(maximum - len(shown), limits.CLI_RECEIVE_MESSAGES_MAX)
            part = receiver.peek_messages(wanted, sequence_number=start)
            shown.extend(_shown(message) for message in part)
            if not part:
                break
            start = (part[-1].sequence_number or 0) + 1
    show_all(shown, _COLUMNS, as_json)


@app.command()
def purge(
    entity: Entity,
    connection_string: ConnectionText,
    subscription: Subscription = None,
    session_id: SessionId = None,
    dead_letter: DeadLetter = False,
    wait: Wait = 2.0,
    yes: Yes = False,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Delete all messages that can be received now."""
    place = MessagePlace(entity, subscription, session_id, dead_letter)
    confirm(
        f"delete all messages that can be received from {place} at "
        f"{authority_of(connection_string)}",
        subscription or entity,
        yes=yes,
    )
    purged = 0
    with (
        connected(connection_string, ca_file) as client,
        place.receiver(client, delete=True) as receiver,
        progress(None) as advance,
    ):
        while part := receiver.receive_messages(
            limits.CLI_RECEIVE_MESSAGES_MAX * 10, max_wait_time=wait
        ):
            purged += len(part)
            advance(len(part))
    show({"purged": purged}, as_json)
