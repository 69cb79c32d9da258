"""Records how official clients encode their busiest frames.

    python -m tests.sdk.recording

Runs one case of each client behind a proxy that sees the bytes, and writes its
transfer of a message of 1 KiB, its flow and its disposition to
`tests/wire/recorded/frames.json`, as hex. The programs for Java and Go are those of
`make sdks`. Only for when a client has changed: the test of the file needs no client.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.sdk import runs, test_go, test_java, test_javascript
from tests.sdk.servers import Server, serving
from twinbus.testing.proxy import FaultyProxy
from twinbus.wire.frames import FrameReader
from twinbus.wire.performatives import Disposition, Flow, Transfer

CASE = "a_message_of_1_kib_is_settled"
FILE = Path(__file__).parent.parent / "wire" / "recorded" / "frames.json"
FRAME_BYTES_MAX = 65_536
HEADER_BYTES = 8

Case = runs.Case
Client = Callable[[Server], None]


def main() -> None:
    """Record all clients."""
    node = ["node", str(test_javascript.FOLDER / "run.mjs")]
    recorded = {
        "python": record(python_client),
        "javascript": record(program(node)),
        "java": record(program(test_java.COMMAND)),
        "go": record(program(test_go.COMMAND)),
    }
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(recorded, indent=1) + "\n")


def program(command: list[str]) -> Client:
    """A client that is a program of cases."""

    def run(server: Server) -> None:
        trust = {"TWINBUS_CA_FILE": server.ca_file}
        with runs.running(command, [CASE], server, trust) as running:
            failure = running.failure(CASE)
        assert failure is None, failure

    return run


def python_client(server: Server) -> None:
    """The client for Python."""
    text = server.namespaces["plain"].connection_string
    with ServiceBusClient.from_connection_string(text) as client:
        with client.get_queue_sender(CASE) as sender:
            sender.send_messages(ServiceBusMessage("x" * 1024))
        with client.get_queue_receiver(CASE) as receiver:
            (message,) = receiver.receive_messages(1, 10)
            receiver.complete_message(message)


def record(client: Client) -> dict[str, str]:
    """What a client has sent, by the name of the frame."""
    streams: dict[int, bytearray] = defaultdict(bytearray)

    def tap(connection: int, side: str, data: bytes, came_ms: int) -> None:
        del came_ms
        if side == "server":
            streams[connection] += data

    case = {"namespace": "plain", "queues": [{"name": CASE}], "topics": []}
    configuration = runs.configuration([case], {"plain": {}})
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), configuration) as server,
        FaultyProxy(
            "127.0.0.1", server.namespaces["plain"].amqp_port, tap=tap
        ) as proxy,
    ):
        client(runs.through(server, proxy.port))
    found: dict[str, str] = {}
    for stream in streams.values():
        for frame in cut(bytes(stream)):
            name = interesting(frame)
            if name:
                found[name] = frame.hex()
    assert set(found) == {"transfer", "flow", "disposition"}, set(found)
    return found


def cut(stream: bytes) -> list[bytes]:
    """The frames of a stream, without its protocol headers."""
    frames = []
    while stream:
        is_header = stream.startswith(b"AMQP")
        size = HEADER_BYTES if is_header else int.from_bytes(stream[:4], "big")
        if not is_header:
            frames.append(stream[:size])
        stream = stream[size:]
    return frames


def interesting(frame: bytes) -> str:
    """The name to record a frame under, or nothing."""
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(frame)
    performative = getattr(reader.next(), "performative", None)
    if isinstance(performative, Transfer) and b"x" * 1024 in frame:
        return "transfer"
    if isinstance(performative, Flow) and performative.link_credit == 1:
        return "flow"
    if isinstance(performative, Disposition) and performative.role:
        return "disposition"
    return ""


if __name__ == "__main__":
    main()
