"""A lean client on Qpid Proton's engine, in a process of its own.

Takes the commands of `bench.worker`, and answers with the processor time of this
process too. Each command has a connection of its own; the log-in, the attach and the
making of messages are not counted. At most `WINDOW` messages are without an outcome, or
on their way to us. A receive ends when the server has answered the close of the
connection, which it reads behind the last acceptance. Run as
`python -m bench.proton_worker TARGET`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from bench.blocking import CBS
from bench.messages import contents
from bench.proton_engine import ACCEPTED, ProtonConnection, Tag, encode
from bench.target import QUEUE, Target
from bench.worker import make_token
from twinbus.wire.frames import Frame, FrameReader
from twinbus.wire.message.sections import Request, encode_request

COMMANDS = ("send", "receive")
# Frames with a message of 1 KiB as official clients encode it, by client.
RECORDED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent.parent / "tests/wire/recorded/frames.json").read_text()
)
WINDOW = 1000
# Larger than any message here; one that fills it fails the run.
_BUFFER_BYTES = 64 * 1024
# Messages that are given to the engine before their bytes go to the socket.
_CHUNK_MESSAGES = 128


class ProtonWorker:
    """The client; it keeps the messages, and no connection."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._messages: list[tuple[Tag, bytes]] = []
        self._encoding = ""

    def do(self, command: dict[str, Any]) -> dict[str, float]:
        """Carry out one command."""
        count = int(command["count"])
        sends = command["do"] == "send"
        encoding = command.get("encoding", "proton")
        if sends and (len(self._messages), self._encoding) != (count, encoding):
            self._encoding = encoding
            self._messages = [
                (tag(number), message)
                for number, message in enumerate(_messages(encoding, count))
            ]
            # They live as long as the worker: never look at them again.
            gc.freeze()
        connection = ProtonConnection(self._target)
        entity = command.get("entity", QUEUE)
        log_in(connection, self._target, entity)
        address = self._target.address.format(entity)
        link = connection.link(address, sends=sends)
        cpu, started = time.process_time(), time.perf_counter()
        if sends:
            send(connection, link, self._messages)
        else:
            receive(connection, link, count)
            connection.close()
        took = {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - cpu,
        }
        if sends:
            connection.close()
        return took


def _messages(encoding: str, count: int) -> Iterator[bytes]:
    """Messages as a client encodes them; those of other clients are all the same."""
    if encoding not in RECORDED:
        return (encode(*each) for each in contents(count))
    reader = FrameReader(_BUFFER_BYTES)
    reader.feed(bytes.fromhex(RECORDED[encoding]["transfer"]))
    frame = reader.next()
    assert isinstance(frame, Frame)
    return repeat(frame.payload, count)


def tag(number: int) -> Tag:
    """The name of a delivery."""
    return Tag(4, number.to_bytes(4, "big"))


def log_in(connection: ProtonConnection, target: Target, entity: str) -> None:
    """Show the token that a server of ours wants to see."""
    if target.connection_string is None:
        return
    reply_to = "cbs-reply"
    uri, token = make_token(target, entity)
    properties = {
        "operation": "put-token",
        "type": "servicebus.windows.net:sastoken",
        "name": uri,
    }
    replies = connection.link(CBS, sends=False, near=reply_to)
    requests = connection.link(CBS, sends=True)
    request = encode_request(reply_to, properties, token)
    send(connection, requests, [(tag(0), request)])
    answer = Request(receive(connection, replies, 1)).application_properties
    assert answer["status-code"] in (200, 202), answer


def send(
    connection: ProtonConnection, link: int, encoded: list[tuple[Tag, bytes]]
) -> None:
    """Send, and wait until every message is accepted."""
    pn = connection.pn
    deliver, write, advance = pn.delivery, pn.link_send, pn.link_advance
    count, sent, accepted = len(encoded), 0, 0
    while accepted < count:
        room = min(pn.link_credit(link), WINDOW - sent + accepted, _CHUNK_MESSAGES)
        chunk = encoded[sent : sent + max(room, 0)]
        for tag, message in chunk:
            deliver(link, tag)
            write(link, message, len(message))
            advance(link)
        sent += len(chunk)
        connection.pump(blocks=not chunk)
        settled = _settle(connection)
        accepted += settled
        if not chunk and not settled:
            connection.check(link)


def _settle(connection: ProtonConnection) -> int:
    """Take the outcomes that have come; each must be an acceptance."""
    pn = connection.pn
    head, state, settle = pn.work_head, pn.delivery_remote_state, pn.delivery_settle
    settled = 0
    while (delivery := head(connection.handle)) is not None:
        assert state(delivery) == ACCEPTED, f"outcome {state(delivery):#x}"
        settle(delivery)
        settled += 1
    return settled


def receive(connection: ProtonConnection, link: int, count: int) -> bytes:
    """Receive, accept and settle; credit is given for no more. Returns the last."""
    pn = connection.pn
    current, partial = pn.link_current, pn.delivery_partial
    read, advance = pn.link_recv, pn.link_advance
    update, settle = pn.delivery_update, pn.delivery_settle
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    place = ctypes.addressof(buffer)
    taken = granted = size = 0
    while taken < count:
        on_their_way = granted - taken
        if on_their_way <= WINDOW // 2 and granted < count:
            more = min(WINDOW - on_their_way, count - granted)
            pn.link_flow(link, more)
            granted += more
        before = taken
        connection.pump(blocks=True)
        while (delivery := current(link)) is not None and not partial(delivery):
            size = read(link, place, _BUFFER_BYTES)
            assert 0 < size < _BUFFER_BYTES, size
            advance(link)
            update(delivery, ACCEPTED)
            settle(delivery)
            taken += 1
        if taken == before:
            connection.check(link)
    return buffer.raw[:size]


def main() -> None:
    worker = ProtonWorker(Target(**json.loads(sys.argv[1])))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
