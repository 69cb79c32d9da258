"""What the broker reads from a peer beyond frames: connections, messages, requests.

The corpus of each is well-formed; the engine's mutations do the rest. A refusal by the
broker (`CallerError`) is an answer, so it counts as one; anything else is a finding.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from tests.fuzz import grammar
from tests.fuzz.engine import Target
from twinbus.clock import Now
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import EntityPath, parse_address
from twinbus.core.rights import AuthorizationRule, Operation, Right, claim_for
from twinbus.core.sas import Secret, make_token
from twinbus.errors import BusyError, CallerError, DecodeError, PeerError
from twinbus.server.amqp.management.operations import perform
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import SessionGrant
from twinbus.store.opening import open_store
from twinbus.wire.codec import encode
from twinbus.wire.connection import Engine
from twinbus.wire.events import Attached, Delivered, Opened
from twinbus.wire.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    encode_frame,
    encode_transfer,
)
from twinbus.wire.message import parts, sections
from twinbus.wire.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
)
from twinbus.wire.performatives import (
    Target as TargetTerminus,
)
from twinbus.wire.types import Array, Described, Symbol, Timestamp, UByte, UInt, ULong

_NOW_MS = 1_700_000_000_000
_OPENING = AMQP_HEADER + encode_frame(0, Open(container_id="c"))
_LOGIN = SASL_HEADER + encode_frame(0, SaslInit(mechanism="ANONYMOUS"), kind=1)
_BEGIN = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)


# -- connections ---------------------------------------------------------------------


def connection(random: Random) -> bytes:
    """A client's side of a conversation."""
    parts = [_LOGIN] if random.random() < 0.5 else []
    parts += [_OPENING, encode_frame(1, _BEGIN)]
    for handle in range(random.randrange(4)):
        attach = Attach(
            name=f"l{handle}",
            handle=handle,
            role=random.random() < 0.5,
            source=Source(address="q"),
            target=TargetTerminus(address="q"),
        )
        parts.append(encode_frame(1, attach))
    parts += [_talk(random) for _ in range(random.randrange(8))]
    return b"".join(parts)


def _talk(random: Random) -> bytes:
    handle = random.randrange(4)
    number = random.randrange(5)
    frames: list[Any] = [
        Flow(handle=handle, incoming_window=9, outgoing_window=9, link_credit=number),
        Disposition(role=random.random() < 0.5, first=0, last=number),
        Detach(handle=handle, closed=True),
        End(),
    ]
    if random.random() < 0.5:
        return encode_transfer(1, handle, number, b"t", b"x" * number, False, 512)
    if random.random() < 0.2:
        return grammar.amqp_frame(random)
    frame = random.choice(frames)
    if isinstance(frame, Flow):
        frame.next_outgoing_id = 0
    return encode_frame(1, frame)


def run_connection(data: bytes, random: Random) -> None:
    """The cut of a stream changes nothing."""
    whole = _converse(data, [len(data) or 1])
    sizes = [random.randint(1, 40) for _ in range(20)]
    assert _converse(data, sizes) == whole
    if whole and whole[-1].startswith("refused"):
        raise DecodeError(whole[-1])


def _converse(data: bytes, sizes: list[int]) -> list[str]:
    server = Engine(server=True, container_id="s")
    seen: list[str] = []
    position = turn = 0
    try:
        while position < len(data):
            size = sizes[turn % len(sizes)]
            server.feed(data[position : position + size])
            position += size
            turn += 1
            while (event := server.next_event()) is not None:
                seen.append(type(event).__name__)
                if isinstance(event, Opened):
                    server.open(Open())
                elif isinstance(event, Attached):
                    event.link.accept(Attach())
                elif isinstance(event, Delivered):
                    event.link.session.answer(
                        event.delivery_id, event.delivery_id, None
                    )
            server.take()
    except PeerError as error:
        seen.append(f"refused: {error.text}")
    return seen


# -- messages ------------------------------------------------------------------------


def _section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def message(random: Random) -> bytes:
    """A message with some of its sections, now and then in another order."""
    parts = [
        _section(sections.HEADER, [True, UByte(4), UInt(random.randrange(9999))]),
        _section(sections.DELIVERY_ANNOTATIONS, {Symbol("a"): 1}),
        _section(
            sections.MESSAGE_ANNOTATIONS,
            {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(5), Symbol("b"): "c"},
        ),
        _section(
            sections.PROPERTIES,
            ["id", b"user", None, "label", *[None] * 6, "session"],
        ),
        _section(sections.APPLICATION_PROPERTIES, {"p": 1, "q": UUID(int=5)}),
        _section(sections.DATA, random.randbytes(random.randrange(50))),
    ]
    kept = [part for part in parts if random.random() < 0.7]
    if random.random() < 0.2:
        random.shuffle(kept)
    return b"".join(kept)


def run_sections(data: bytes, random: Random) -> None:
    """What was accepted can be read, edited and accepted again."""
    try:
        read = sections.parse(data)
    except CallerError:
        return
    read.head()
    sections.read_properties(read.bare)
    edited = parts.with_application_properties(read.bare, {"x": "y"})
    named = parts.with_message_id(edited, "given")
    again = sections.parse(named)
    assert again.message_id == "given"
    assert sections.read_application_properties(again.bare)["x"] == "y"
    assert random is not None


# -- $cbs ----------------------------------------------------------------------------

_RULE = AuthorizationRule("root", Right.MANAGE, Secret("key"), Secret("other"))


def put_token(random: Random) -> bytes:
    """A request that puts a token."""
    audience = random.choice(("sb://host/", "sb://host/q", "amqps://h/q/$management"))
    key = random.choice(("key", "other", "wrong"))
    token = make_token(audience, "root", Secret(key), random.choice((1, 1 << 33)))
    properties = {"operation": "put-token", "type": "jwt", "name": audience}
    return (
        _section(sections.PROPERTIES, [UUID(int=1), None, None, None, "reply"])
        + _section(sections.APPLICATION_PROPERTIES, properties)
        + _section(sections.VALUE, token)
    )


def run_cbs(data: bytes, random: Random) -> None:
    """A token gives its claim or is refused, and never gives more than its rule."""
    request = sections.Request(data)
    audience = request.application_properties.get("name")
    if not isinstance(audience, str) or not isinstance(request.body, str):
        raise DecodeError("no token")
    target = parse_address(audience)
    try:
        claim = claim_for(request.body, lambda _key: [_RULE], target, _NOW_MS // 1000)
    except CallerError:
        return
    assert claim.rights == Right.MANAGE
    assert claim.audience_path == target
    assert random is not None


# -- $management ---------------------------------------------------------------------


class _EveryClient:
    """A connection that may do everything and holds no session."""

    def authorize(self, operation: Operation, path: EntityPath) -> None:
        """Every client may."""

    def session_grant(self, container: int, session_id: str) -> SessionGrant | None:
        """It holds none."""

    def session_renewed(self, container: int, grant: SessionGrant) -> None:
        """So there is none to renew."""


def _namespace() -> Namespace:
    store = open_store(None)
    store.begin()
    namespace = Namespace("fuzz", store, new_id=lambda: "given")
    namespace.entities.create(QueueDescription("q"), _NOW_MS)
    namespace.entities.create(QueueDescription("s", requires_session=True), _NOW_MS)
    namespace.entities.create(TopicDescription("t"), _NOW_MS)
    namespace.entities.create(SubscriptionDescription("t", "s"), _NOW_MS)
    queue = namespace.entities.find("q")
    assert queue is not None
    for number in range(3):
        payload = _section(sections.PROPERTIES, [f"m{number}"])
        namespace.send(queue, [sections.parse(payload)], Turn(Now.at(_NOW_MS)))
    store.commit()
    return namespace


_NAMESPACE = _namespace()
_PATHS = [
    parse_address(text)
    for text in (
        "q/$management",
        "s/$management",
        "t/Subscriptions/s/$management",
        "q/$DeadLetterQueue/$management",
    )
]


def request(random: Random) -> bytes:
    """A management request with arguments that some operation wants."""
    operation = random.choice(
        [item.value for item in Operation if item.value.startswith("com.microsoft:")]
    )
    scheduled = _section(
        sections.MESSAGE_ANNOTATIONS,
        {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(_NOW_MS + 99_000)},
    )
    body = {
        "lock-tokens": Array(0x98, [UUID(int=1)]),
        "sequence-numbers": Array(0x81, [1, 2]),
        "receiver-settle-mode": UInt(random.randrange(2)),
        "from-sequence-number": random.randrange(4),
        "message-count": random.randrange(1, 5),
        "session-id": "a",
        "disposition-status": random.choice(("completed", "abandoned", "suspended")),
        "messages": [{"message-id": "1", "message": scheduled}],
        "last-updated-time": Timestamp(1),
        "skip": 0,
        "top": 5,
        "rule-name": "r",
        "rule-description": {"sql-filter": {"expression": "a = 1"}},
        "enqueued-time-utc": Timestamp(_NOW_MS),
    }
    kept = {key: value for key, value in body.items() if random.random() < 0.9}
    return (
        _section(sections.PROPERTIES, ["1", None, None, None, "reply"])
        + _section(sections.APPLICATION_PROPERTIES, {"operation": operation})
        + _section(sections.VALUE, kept)
    )


def run_management(data: bytes, random: Random) -> None:
    """A request is carried out or refused; the reply can be written."""
    asked = sections.Request(data)
    _NAMESPACE.store.begin()
    try:
        path = random.choice(_PATHS)
        reply = perform(_NAMESPACE, path, asked, {}, Turn(Now.at(_NOW_MS)))
        reply.encode(asked.message_id)
    except (CallerError, BusyError):
        return
    finally:
        _NAMESPACE.store.rollback()
        _NAMESPACE.entities.reload()


TARGETS: dict[str, Target] = {
    "connection": (connection, run_connection),
    "sections": (message, run_sections),
    "cbs": (put_token, run_cbs),
    "management": (request, run_management),
}
