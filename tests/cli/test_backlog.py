"""`twinbus backlog` against a secondary that runs in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import Result, Run, run_at_terminal
from tests.printed import blocks, printed
from tests.walking import Walk
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.pairing.rules.envelope import divert
from twinbus.pairing.rules.naming import backlog_path
from twinbus.testing.namespace import ServedNamespace, serve_namespace
from twinbus.wire.message.sections import GROUP_ID, MESSAGE_ID, encode_message

PAGE = "docs/backlog.md"
PRIMARY = "contoso"
QUEUES = [
    {"name": backlog_path(PRIMARY, index), "lock_duration": "PT5M"} for index in (0, 1)
]
DIVERTED_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def served() -> Iterator[ServedNamespace]:
    with serve_namespace({"queues": QUEUES}) as namespace:
        yield namespace


@pytest.fixture
def secondary(served: ServedNamespace) -> ServedNamespace:
    served.reset()
    return served


@pytest.fixture
def backlog(run: Run, secondary: ServedNamespace) -> Run:
    """Run a backlog command on the secondary, in JSON."""

    def call(*args: object) -> Result:
        place = ("--secondary", secondary.connection_string, "--primary-name", PRIMARY)
        return run("backlog", *args, *place, "--json")

    return call


def diverted(name: str, path: str, session_id: str | None = None) -> bytes:
    properties: dict[int, Any] = {MESSAGE_ID: name}
    if session_id is not None:
        properties[GROUP_ID] = session_id
    body = f"body of {name}".encode()
    return divert(encode_message(body, properties, 3_600_000), path, DIVERTED_MS)


def put(namespace: ServedNamespace, index: int, *messages: bytes) -> None:
    async def send() -> None:
        async with _connection(namespace) as connection:
            await connection.sender(backlog_path(PRIMARY, index)).send(messages)

    asyncio.run(send())


def kill(namespace: ServedNamespace, index: int, *reasons: str) -> None:
    """Dead-letter as many messages as there are reasons."""

    async def dead_letter() -> None:
        async with (
            _connection(namespace) as connection,
            connection.receiver(backlog_path(PRIMARY, index)) as receiver,
        ):
            for reason in reasons:
                message = await receiver.receive(1, 5)
                await receiver.dead_letter(message, reason, f"because of {reason}")

    asyncio.run(dead_letter())


def received(namespace: ServedNamespace, index: int) -> list[Message]:
    async def receive() -> list[Message]:
        async with (
            _connection(namespace) as connection,
            connection.receiver(backlog_path(PRIMARY, index)) as receiver,
        ):
            found = await receiver.receive(100, 1)
            await receiver.complete(found)
            return found

    return asyncio.run(receive())


def _connection(namespace: ServedNamespace) -> Connection:
    return Connection.from_connection_string(namespace.connection_string)


def test_the_queues_are_listed_with_counts_and_destinations(
    backlog: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 0, diverted("a", "orders"), diverted("b", "orders"))
    put(secondary, 0, diverted("c", "events"), diverted("d", "events"))
    kill(secondary, 0, "MessageTooLarge")

    first, second = backlog("list").json

    assert first["messages"] == 3
    assert first["dead_lettered"] == 1
    assert first["destinations"] == {"orders": 1, "events": 2}
    assert first["dead_letter_reasons"] == {"MessageTooLarge": 1}
    assert first["looked_at_all"] is True
    assert (second["index"], second["messages"]) == (1, 0)


def test_a_deep_queue_is_counted_without_looking_at_all_of_it(
    backlog: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 1, *(diverted(str(number), "orders") for number in range(700)))

    _, deep = backlog("list", "--max", 10).json

    assert deep["messages"] == 700
    assert deep["destinations"] == {"orders": 10}
    assert deep["looked_at_all"] is False


def test_people_see_one_line_for_each_queue(
    run: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 0, diverted("a", "orders"), diverted("b", "events"))

    place = ("--secondary", secondary.connection_string, "--primary-name", PRIMARY)
    shown = run("backlog", "list", *place).out.splitlines()

    assert shown[0].split()[:3] == ["index", "messages", "dead_lettered"]
    assert shown[1].endswith("events 1, orders 1")
    assert len(shown) == 3


def test_aliases_are_read_when_peeking(
    backlog: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 1, diverted("a", "rooms", "red"), encode_message(b"x"))

    first, second = backlog("peek").json

    assert first["index"] == 1
    assert first["destination"] == "rooms"
    assert first["session_id"] == "red"
    assert first["time_to_live"] == "PT1H"
    assert first["diverted_at"] == "2023-11-14T22:13:20.000Z"
    assert first["message_id"] == "a"
    assert first["body"] == "body of a"
    assert first["problem"] is None
    assert second["destination"] is None
    assert "x-ms-path" in second["problem"]


def test_peeking_ends_at_the_maximum_and_starts_at_a_number(
    backlog: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 0, *(diverted(str(number), "orders") for number in range(5)))

    found = backlog("peek", "--index", 0, "--from", 2, "--max", 2).json

    assert [each["sequence_number"] for each in found] == [2, 3]


def test_dead_letters_are_shown_with_their_reason(
    backlog: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 0, diverted("a", "orders"))
    kill(secondary, 0, "DestinationNotFound")

    [found] = backlog("peek", "--dead-letter").json

    assert found["dead_letter_reason"] == "DestinationNotFound"
    assert found["dead_letter_description"] == "because of DestinationNotFound"
    assert found["destination"] == "orders"


def test_replayed_messages_are_back_as_they_were(
    backlog: Run, secondary: ServedNamespace
) -> None:
    messages = [diverted("a", "orders", "red"), diverted("b", "events")]
    put(secondary, 0, *messages)
    kill(secondary, 0, "DestinationNotFound", "MessageTooLarge")

    done = backlog("replay").json

    assert done["replayed"] == 2
    assert done["reasons"] == {"DestinationNotFound": 1, "MessageTooLarge": 1}
    assert [each.message_id for each in received(secondary, 0)] == ["a", "b"]
    assert backlog("peek", "--dead-letter").json == []


def test_only_the_wanted_reason_is_replayed(
    backlog: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 0, *(diverted(name, "orders") for name in "abc"))
    kill(secondary, 0, "TTLExpiredException", "MessageTooLarge", "MessageTooLarge")

    done = backlog("replay", "--reason", "MessageTooLarge", "--max", 1).json

    assert done == {"replayed": 1, "reasons": {"MessageTooLarge": 1}}
    assert [each.message_id for each in received(secondary, 0)] == ["b"]
    left = backlog("peek", "--dead-letter").json
    assert [each["message_id"] for each in left] == ["a", "c"]
    # Those that stay were not touched.
    assert {each["delivery_count"] for each in left} == {0}


def test_people_are_told_the_reasons_of_what_is_replayed(
    run: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 0, *(diverted(name, "orders") for name in "abc"))
    kill(secondary, 0, "MessageTooLarge", "AliasInvalid", "MessageTooLarge")
    place = ("--secondary", secondary.connection_string, "--primary-name", PRIMARY)

    done = run("backlog", "replay", *place)

    assert done.out.splitlines() == [
        *("replayed  3", "reasons   AliasInvalid 1, MessageTooLarge 2"),
    ]


def test_a_refused_key_is_named_with_its_namespace(
    run: Run, secondary: ServedNamespace
) -> None:
    text = re.sub("AccessKey=[^;]*", "AccessKey=wrong", secondary.connection_string)
    authority = text.partition("sb://")[2].partition("/")[0]

    for args, option in (
        (("backlog", "list", "--primary-name", PRIMARY, "--secondary"), "--secondary"),
        (("message", "peek", "orders", "--connection-string"), "--connection-string"),
    ):
        refused = run(*args, text)

        assert refused.code == 1
        assert authority in refused.err
        assert refused.err.endswith(f"Check the key in {option}.\n")
        assert refused.err.count("\n") == 1


def test_purging_needs_a_yes(backlog: Run, secondary: ServedNamespace) -> None:
    put(secondary, 0, diverted("a", "orders"))

    refused = backlog("purge")

    assert refused.code == 2
    assert "--yes" in refused.err
    assert "at most 1 message of contoso/x-servicebus-transfer/0" in refused.err
    assert len(received(secondary, 0)) == 1


def test_a_person_types_the_name_of_the_primary(secondary: ServedNamespace) -> None:
    put(secondary, 0, diverted("a", "orders"))
    place = ("--secondary", secondary.connection_string, "--primary-name", PRIMARY)

    refused = run_at_terminal("yes", "backlog", "purge", *place)
    done = run_at_terminal(PRIMARY, "backlog", "purge", *place, "--json")

    assert refused.code == 2
    assert done.json == {"purged": 1}


def test_one_queue_or_its_dead_letters_are_purged(
    backlog: Run, secondary: ServedNamespace
) -> None:
    put(secondary, 0, diverted("a", "orders"), diverted("b", "orders"))
    put(secondary, 1, diverted("c", "orders"))
    kill(secondary, 0, "MessageTooLarge")

    assert backlog("purge", "--index", 0, "--dead-letter", "--yes").json["purged"] == 1
    assert backlog("purge", "--index", 0, "--yes").json == {"purged": 1}
    assert backlog("purge", "--yes").json == {"purged": 1}


@pytest.mark.parametrize(
    ("args", "says", "code"),
    [
        (("--primary-name", "else"), "no backlog queue of 'else'", 2),
        ((), "give --primary or --primary-name", 2),
        (("--primary-name", PRIMARY, "--ca-file", "/nowhere"), "Check --ca-file", 2),
    ],
)
def test_a_wrong_option_is_one_line(
    run: Run, secondary: ServedNamespace, args: tuple[str, ...], says: str, code: int
) -> None:
    place = ("--secondary", secondary.connection_string)

    refused = run("backlog", "list", *place, *args)

    assert refused.code == code
    assert says in refused.err
    assert len(refused.err.splitlines()) == 1


def test_an_index_that_is_not_there_is_named(backlog: Run) -> None:
    refused = backlog("peek", "--index", 7)

    assert refused.code == 2
    assert "contoso/x-servicebus-transfer/7" in refused.err


def test_a_secondary_that_is_away_is_one_line(run: Run) -> None:
    text = (
        "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=x;SharedAccessKey=planted;"
        "UseDevelopmentEmulator=true"
    )

    failed = run("backlog", "list", "--secondary", text, "--primary-name", PRIMARY)

    assert failed.code == 1
    assert len(failed.err.splitlines()) == 1
    assert failed.err.endswith("Check that the server runs, and its host and port.\n")
    assert "planted" not in failed.err


def test_the_name_of_the_primary_comes_from_its_connection_string(
    run: Run, secondary: ServedNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;"
    monkeypatch.setenv("TWINBUS_PRIMARY", text + "SharedAccessKey=b")
    monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)

    assert len(run("backlog", "list", "--json").json) == 2


def test_the_commands_of_the_guide_work(
    secondary: ServedNamespace, tmp_path: Path
) -> None:
    put(secondary, 0, diverted("a", "orders"), diverted("b", "orders"))
    put(secondary, 1, *(diverted(name, "billing") for name in "cde"))
    kill(secondary, 1, "DestinationNotFound", "MessageTooLarge")
    with Walk(tmp_path) as walk:
        walk.shell(f"export BACKLOG_STRING='{secondary.connection_string}'")
        for _, text in blocks(PAGE, __file__):
            walk.shell(text)

    _, listed, peeked, replayed, purged = walk.printed
    (shown,) = [text for language, text in printed(PAGE) if language == "text"]
    assert listed.splitlines()[0] == shown.splitlines()[0]
    assert [line.split()[:3] for line in listed.splitlines()[1:]] == [
        ["0", "2", "0"],
        ["1", "1", "2"],
    ]
    assert "body of e" in peeked
    assert replayed.split() == ["replayed", "1", "reasons", "DestinationNotFound", "1"]
    assert purged.split() == ["purged", "1"]
