"""Sessions and links of the engine: windows, credit, deliveries, settlement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.wire.pair import Pair
from twinbus import limits
from twinbus.errors import FrameError, LimitExceeded
from twinbus.wire.connection import ConnectionState
from twinbus.wire.events import (
    Attached,
    Delivered,
    Detached,
    Disposed,
    Drained,
    Ended,
    Flowed,
    Passed,
    Unsettled,
)
from twinbus.wire.frames import HEARTBEAT, encode_frame, encode_transfer
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Error,
    Flow,
    Target,
    Transfer,
)


def kinds(events: list[Any]) -> list[type]:
    return [type(event) for event in events]


# -- sessions ------------------------------------------------------------------------


def test_a_session_ends_with_all_its_links() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)

    ours.session.end()
    pair.run()

    assert kinds(pair.server_events)[-1] is Ended
    assert theirs.state is LinkState.DETACHED
    assert not pair.server.sessions
    assert not pair.client.sessions


def test_channels_are_used_again() -> None:
    pair = Pair()
    for _ in range(3):
        session = pair.session()
        assert session.channel == 0
        session.end()
        pair.run()


def test_a_channel_in_use_cannot_begin_again() -> None:
    pair = Pair()
    session = pair.session()
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    pair.server.feed(encode_frame(session.channel, begin))

    with pytest.raises(FrameError):
        pair.server.next_event()


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSIONS_PER_CONNECTION_MAX", 3)
    pair = Pair()
    for _ in range(3):
        pair.session()
    pair.client.begin()

    with pytest.raises(LimitExceeded):
        pair.run()


def test_links_are_bounded_and_only_the_session_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LINKS_PER_SESSION_MAX", 3)
    pair = Pair()
    session = pair.session()
    for name in "abcd":
        session.attach(name, True, Attach(target=Target(address="q")))
    pair.run()

    assert isinstance(pair.client_events[-1], Ended)
    assert pair.client_events[-1].error is not None
    assert pair.client_events[-1].error.condition == "amqp:resource-limit-exceeded"
    assert pair.server.state is ConnectionState.OPEN


def test_a_transfer_without_a_link_ends_the_session_alone() -> None:
    pair = Pair()
    session = pair.session()
    pair.server.feed(encode_transfer(session.channel, 9, 0, b"t", b"", False, 512))

    event = pair.server.next_event()

    assert isinstance(event, Ended)
    assert event.error is not None
    assert event.error.condition == "amqp:session:unattached-handle"
    assert pair.server.state is ConnectionState.OPEN


def test_the_window_is_refreshed_at_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSION_WINDOW_FRAMES", 10)
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)
    theirs.grant(1000)
    pair.run()

    for number in range(100):
        ours.send(b"x", b"%d" % number)
        pair.run()

    delivered = [e for e in pair.server_events if isinstance(e, Delivered)]
    assert len(delivered) == 100


def test_transfers_wait_for_the_peers_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSION_WINDOW_FRAMES", 4)
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)
    theirs.grant(1000)
    pair.run()

    for number in range(50):
        ours.send(b"x", b"%d" % number)
    first = pair.client.take()

    assert first.count(b"\x00\x53\x14") <= 4
    pair.server.feed(first)
    while pair.server.next_event() is not None:
        pass
    pair.run()
    assert theirs.delivery_count == 50


# -- links ---------------------------------------------------------------------------


def test_a_refused_link_is_attached_to_nowhere_and_detached() -> None:
    pair = Pair()
    session = pair.session()
    session.attach("l", True, Attach(target=Target(address="q")))
    pair.server.feed(pair.client.take())
    event = pair.server.next_event()
    assert isinstance(event, Attached)

    event.link.refuse(Error(condition="amqp:not-found", description="no"))
    pair.run()

    attached, detached = pair.client_events[-2:]
    assert isinstance(attached, Attached)
    assert attached.link.peer_attach.target is None
    assert isinstance(detached, Detached)
    assert detached.error is not None
    assert detached.error.condition == "amqp:not-found"


def test_our_detach_is_answered_once_and_the_answer_not_at_all() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)

    theirs.detach(Error(condition="amqp:link:detach-forced"))
    data = pair.server.take()
    pair.client.feed(data)
    event = pair.client.next_event()

    assert isinstance(event, Detached)
    answer = pair.client.take()
    assert answer.count(b"\x00\x53\x16") == 1
    pair.server.feed(answer)
    assert isinstance(pair.server.next_event(), Detached)
    assert pair.server.take() == b""
    assert ours.state is theirs.state is LinkState.DETACHED


def test_a_handle_in_use_ends_the_session() -> None:
    pair = Pair()
    ours, _ = pair.link("l", client_sends=True)
    again = Attach(name="m", handle=ours.handle, role=False, target=Target(address="q"))
    pair.server.feed(encode_frame(ours.session.channel, again))

    event = pair.server.next_event()

    assert isinstance(event, Ended)
    assert event.error is not None
    assert event.error.condition == "amqp:session:handle-in-use"


def test_handles_are_used_again() -> None:
    pair = Pair()
    session = pair.session()
    for _ in range(3):
        link = session.attach("l", True, Attach(target=Target(address="q")))
        pair.run()
        assert link.handle == 0
        link.detach()
        pair.run()


def test_credit_is_absolute_and_counted_from_the_peers_view() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    ours.grant(5)
    pair.run()
    for _ in range(3):
        theirs.send(b"x", b"t")
    # The client says 5 again before it has seen the three: two are left, not five.
    ours.grant(5)
    pair.server.feed(pair.client.take())

    event = pair.server.next_event()

    assert isinstance(event, Flowed)
    assert theirs.credit == 2


def test_a_drain_is_answered_with_no_credit_left() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    ours.grant(5)
    ours.drain = True
    ours.write_flow()
    pair.run()
    assert theirs.drain

    theirs.send(b"x", b"t")
    theirs.drained()

    assert theirs.credit == 0
    assert theirs.delivery_count == 5
    assert not theirs.drain


def test_the_answer_to_a_drain_takes_the_credit_back() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    ours.grant(5)
    ours.drain = True
    ours.write_flow()
    pair.run()

    theirs.send(b"x", b"t")
    theirs.drained()
    pair.run()

    assert kinds(pair.client_events)[-2:] == [Delivered, Drained]
    assert (ours.credit, ours.delivery_count) == (0, 5)
    # Both count alike from here on.
    ours.drain = False
    ours.grant(2)
    pair.run()
    assert theirs.credit == 2


@pytest.mark.parametrize("count", [None, 0, 6, 0xFFFFFFFF])
def test_an_impossible_delivery_count_changes_nothing(count: int | None) -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    ours.grant(5)
    pair.run()

    flow = Flow(handle=theirs.handle, delivery_count=count, link_credit=0)
    theirs.session.write_flow(flow)
    pair.run()

    assert Drained not in kinds(pair.client_events)
    assert (ours.credit, ours.delivery_count) == (5, 0)


def test_the_initial_delivery_count_may_be_any_number() -> None:
    pair = Pair()
    session = pair.session()
    attach = Attach(name="l", handle=0, role=False, target=Target(address="q"))
    attach.initial_delivery_count = 0xFFFFFFFE
    pair.server.feed(encode_frame(session.channel, attach))
    event = pair.server.next_event()
    assert isinstance(event, Attached)

    event.link.accept(Attach(target=Target(address="q")))
    event.link.grant(10)

    assert event.link.delivery_count == 0xFFFFFFFE


def test_a_message_goes_in_the_format_that_it_is_sent_in() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)
    theirs.grant(2)
    pair.run()

    ours.send(b"batch" * 50_000, b"1", message_format=0x80013700)
    ours.send(b"single", b"2")
    pair.run()

    came = [each for each in pair.server_events if isinstance(each, Delivered)]
    assert [each.message_format for each in came] == [0x80013700, 0]


def test_a_message_in_many_frames_is_put_together() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)
    theirs.grant(10)
    pair.run()
    pair.client.peer_frame_bytes = limits.FRAME_BYTES_MIN
    body = bytes(range(256)) * 20

    ours.send(body, b"t")
    pair.run()

    delivery = pair.server_events[-1]
    assert isinstance(delivery, Delivered)
    assert delivery.payload == body


@pytest.mark.parametrize(
    ("size", "oversize"), [(999, False), (1000, False), (1001, True)]
)
@pytest.mark.parametrize("frame_bytes", [limits.FRAME_BYTES_MIN, 65536])
def test_a_message_over_the_limit_comes_without_its_payload(
    size: int, oversize: bool, frame_bytes: int
) -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)
    theirs.max_message_bytes = 1000
    theirs.grant(10)
    pair.run()
    pair.client.peer_frame_bytes = frame_bytes

    ours.send(b"x" * size, b"t")
    pair.run()

    delivery = pair.server_events[-1]
    assert isinstance(delivery, Delivered)
    assert delivery.oversize is oversize
    assert len(delivery.payload) == (0 if oversize else size)
    assert theirs.state is LinkState.ATTACHED


def test_a_message_without_end_loses_its_link_and_no_memory() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)
    theirs.max_message_bytes = 1000
    frame = encode_frame(
        ours.session.channel,
        Transfer(handle=ours.handle, delivery_id=0, delivery_tag=b"t", more=True),
        b"x" * 900,
    )
    for _ in range(30):
        pair.server.feed(frame)
        assert pair.server.next_event() is None

    assert theirs.state is LinkState.DETACHING
    assert pair.server.state is ConnectionState.OPEN


def test_an_aborted_message_is_dropped() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)
    theirs.grant(10)
    pair.run()
    first = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True)
    abort = Transfer(handle=0, more=False, aborted=True)
    channel = ours.session.channel
    pair.server.feed(encode_frame(channel, first, b"x") + encode_frame(channel, abort))
    assert pair.server.next_event() is None

    ours.send(b"whole", b"u")
    pair.run()

    delivery = pair.server_events[-1]
    assert isinstance(delivery, Delivered)
    assert delivery.payload == b"whole"


# -- settlement ----------------------------------------------------------------------


def test_dispositions_find_the_deliveries_they_speak_of() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    ours.grant(10)
    pair.run()
    for number in range(5):
        theirs.send(b"x", b"t", cookie=number)
    pair.run()

    ours.session.dispose(1, 3, False, Accepted())
    pair.run()

    event = pair.server_events[-1]
    assert isinstance(event, Disposed)
    assert [delivery.cookie for delivery in event.deliveries] == [1, 2, 3]
    theirs.session.settle(1, 3, Accepted())
    assert sorted(theirs.session.unsettled) == [0, 4]


def test_a_disposition_over_everything_costs_no_more_than_what_is_there() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    ours.grant(10)
    pair.run()
    theirs.send(b"x", b"t", cookie="only")
    pair.run()

    ours.session.dispose(0, 0xFFFFFFFF, True, Accepted())
    pair.run()

    event = pair.server_events[-1]
    assert isinstance(event, Disposed)
    assert [delivery.cookie for delivery in event.deliveries] == ["only"]
    assert not theirs.session.unsettled


def test_a_link_knows_what_is_not_settled_on_it() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    count = 3000
    ours.grant(2 * count)
    pair.run()
    for number in range(count):
        theirs.send(b"x", b"t", cookie=number)
        # All but every tenth are settled at once.
        if number % 10:
            theirs.session.settle(number, number, Accepted())

    assert [each.cookie for each in theirs.unsettled()] == list(range(0, count, 10))
    # Ids that were settled are not kept for ever.
    assert len(theirs._sent) == count // 10
    # An id that another link uses by now is not this link's.
    other = Link(theirs.session, "other", 1, True)
    theirs.session.unsettled[0] = Unsettled(0, other, None)
    assert len(theirs.unsettled()) == count // 10 - 1
    theirs.session.drop_link(theirs)
    assert list(theirs.session.unsettled.values()) == [Unsettled(0, other, None)]


@dataclass
class Sending:
    """How a link stands before a run is sent on it."""

    settled: bool = False
    window: int = 100
    frame_bytes: int = limits.FRAME_BYTES_MIN
    next_id: int = 0

    def link(self) -> Link:
        pair = Pair()
        ours, theirs = pair.link("l", client_sends=False)
        ours.grant(10)
        pair.run()
        theirs.settled_by_us = self.settled
        theirs.session._peer_window = self.window
        theirs.session.next_delivery_out = self.next_id
        pair.server.peer_frame_bytes = self.frame_bytes
        return theirs


@pytest.mark.parametrize(
    "sending",
    [
        Sending(),
        Sending(settled=True),
        Sending(window=2),
        Sending(window=0),
        Sending(next_id=0xFFFFFFFE),
        # The payloads have 440 and 450 bytes, and a frame has room for 448.
        Sending(frame_bytes=limits.FRAME_BYTES_MIN + 2),
    ],
    ids=str,
)
def test_a_run_is_sent_as_its_messages_are_one_by_one(sending: Sending) -> None:
    fronts = (b"a" * 40, b"b" * 40, b"c" * 50)
    run = [(front[:16], front, b"x" * 400) for front in fronts]
    one_by_one, together = sending.link(), sending.link()

    for number, (tag, front, back) in enumerate(run):
        one_by_one.send(front + back, tag, number)
    sizes = [len(front) + len(back) for _, front, back in run]
    together.send_run(run, sizes, range(3))

    def state(link: Link) -> tuple[object, ...]:
        session = link.session
        held = [(each.delivery_id, each.cookie) for each in session.unsettled.values()]
        numbers = (link.credit, link.delivery_count, session.next_delivery_out)
        windows = (session._peer_window, session._frames_out)
        waiting = [frames for frames, *_ in session._blocked]
        written = session.connection.take()
        return held, link._sent, numbers, windows, waiting, written

    assert state(together) == state(one_by_one)
    assert together.credit == 7


def test_who_waits_for_a_window_is_told_when_it_opens() -> None:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    told: list[str] = []
    theirs.session._peer_window = 0
    theirs.session.write_transfer(b"", 0)
    theirs.session.on_unblocked[lambda: told.append("session")] = None
    pair.server.on_unblocked[lambda: told.append("connection")] = None

    ours.session.write_flow(Flow())
    pair.run()

    assert told == ["session", "connection"]


def test_frames_without_an_event_do_not_keep_the_caller() -> None:
    pair = Pair()
    pair.session()
    count = limits.QUIET_FRAMES_MAX
    pair.server.feed(HEARTBEAT * (count + 1))

    assert pair.server.next_event() == Passed(count)
    assert pair.server.next_event() is None
