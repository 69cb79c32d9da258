"""Frames as official clients encode them, recorded by `tests/sdk/recording.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinbus.wire import frames
from twinbus.wire.frames import Frame, FrameReader
from twinbus.wire.message.fast_sections import fast_parse
from twinbus.wire.message.parts import with_message_id
from twinbus.wire.message.sections import (
    DATA,
    Incoming,
    find_section,
    find_sections,
    parse,
    read_properties,
)
from twinbus.wire.performatives import Accepted, Disposition, Flow, Transfer

FRAMES: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "recorded" / "frames.json").read_text()
)
CLIENTS = ("python", "javascript", "java", "go")


def read(client: str, name: str) -> Frame:
    reader = FrameReader(65_536)
    reader.feed(bytes.fromhex(FRAMES[client][name]))
    frame = reader.next()
    assert isinstance(frame, Frame)
    assert reader.next() is None
    return frame


@pytest.mark.parametrize("client", CLIENTS)
def test_the_transfer_of_a_message_of_1_kib_is_read(client: str) -> None:
    frame = read(client, "transfer")

    assert isinstance(frame.performative, Transfer)
    assert not frame.performative.more
    message = parse(frame.payload)
    assert find_section(message.bare, DATA) is not None
    assert b"x" * 1024 in message.bare


@pytest.mark.parametrize("client", CLIENTS)
def test_a_flow_is_read(client: str) -> None:
    flow = read(client, "flow").performative

    assert isinstance(flow, Flow)
    assert flow.handle is not None
    assert flow.link_credit == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_disposition_is_read(client: str) -> None:
    disposition = read(client, "disposition").performative

    assert isinstance(disposition, Disposition)
    assert disposition.role is True
    assert disposition.first == (disposition.last or disposition.first)
    assert isinstance(disposition.state, Accepted)


@pytest.mark.parametrize("name", ["transfer", "flow", "disposition"])
@pytest.mark.parametrize("client", CLIENTS)
def test_frames_go_the_fast_way(
    client: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "decode_performative", None)

    assert read(client, name).performative is not None


@pytest.mark.parametrize("client", CLIENTS)
def test_messages_go_the_fast_way(client: str) -> None:
    assert fast_parse(Incoming(), read(client, "transfer").payload)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_message_gets_an_id_and_keeps_the_rest(client: str) -> None:
    bare = parse(read(client, "transfer").payload).bare

    named = with_message_id(bare, "given")

    before, after = read_properties(bare), read_properties(named)
    assert after == ["given", *before[1:]]
    sections = [bare[begin:end] for _, begin, _, end in find_sections(bare)][1:]
    assert named.endswith(b"".join(sections))
