"""How long a restart takes, with a queue that is deep.

`make campaigns` measures it with few messages and with a million, and prints what it
saw; that a server comes back is in the tests of the supervisor. A client asks for the
first message as soon as the server has failed; it waits until there is one that
answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from tests.server.setup.supervised_site import SupervisedSite, supervised
from twinbus import limits
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.sync.connection import Connection
from twinbus.wire.message.sections import MESSAGE_ID, encode_message

_BODY = bytes(1000)
_GROUP = 1000
# What clients may wait for, after the failure was noticed.
_BACK_SECONDS_MAX = 3.0
_MILLION = 1_000_000


def fill(site: SupervisedSite, count: int) -> None:
    connect = Connection.from_connection_string
    with connect(site.connection_string) as connection:
        sender = connection.sender("deep")
        for first in range(0, count, _GROUP):
            numbers = range(first, min(first + _GROUP, count))
            sender.send([encode_message(_BODY, {MESSAGE_ID: str(n)}) for n in numbers])


def first_answer(site: SupervisedSite) -> float:
    """The moment at which a client has its first message."""
    connect = Connection.from_connection_string
    with connect(site.connection_string, timeout_seconds=60) as connection:
        options = ReceiveOptions(deletes=True)
        taken = connection.receiver("deep", options).receive(1, 60)
        assert len(taken) == 1
        return monotonic()


def restarts(folder: Path, count: int) -> dict[str, float]:
    """Seconds from each kind of failure to the first message."""
    queue = {"name": "deep", "max_size_in_megabytes": 81920}
    file = folder / "config.json"
    file.write_text(
        json.dumps({"namespaces": [{"name": "contoso", "queues": [queue]}]})
    )
    real = {"HEARTBEAT_SILENCE_SECONDS_MAX": limits.HEARTBEAT_SILENCE_SECONDS_MAX}
    found: dict[str, float] = {}
    failures: dict[str, Callable[[SupervisedSite], None]] = {
        "crash": SupervisedSite.crash,
        "stall": SupervisedSite.stall,
    }
    with supervised(folder, ["--config", str(file)], limits=real) as site:
        fill(site, count)
        for name, fail in failures.items():
            fail(site)
            began = monotonic()
            found[name] = first_answer(site) - began
            site.wait_for_restart()
        assert site.stop() == 0
    return found


@pytest.mark.campaign
@pytest.mark.parametrize("count", [_GROUP, _MILLION])
def test_a_restart_does_not_depend_on_depth(tmp_path: Path, count: int) -> None:
    seconds = restarts(tmp_path, count)

    print(f"{count} messages, seconds to the first answer: {seconds}")
    noticed = limits.HEARTBEAT_SILENCE_SECONDS_MAX + limits.HEARTBEAT_SECONDS
    noticed += limits.SUPERVISOR_LOOK_SECONDS + limits.STACKS_SECONDS_MAX
    if count == _MILLION:
        assert seconds["crash"] < _BACK_SECONDS_MAX
        assert seconds["stall"] < _BACK_SECONDS_MAX + noticed
