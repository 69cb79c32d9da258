"""SASL: only mechanisms that the server means are offered, and others are refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.blocking import BlockingConnection
from tests.server.raw import RawServer, serving
from tests.server.strangers import SASL, WAIT_SECONDS, answers
from twinbus import limits
from twinbus.errors import PeerError
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.wire.frames import SASL_HEADER, encode_frame
from twinbus.wire.performatives import SaslInit, SaslMechanisms, SaslOutcome

OFFERED = SaslMechanisms(mechanisms=["MSSBCBS", "PLAIN", "ANONYMOUS"])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving(tmp_path, NamespaceConfig("contoso")) as served:
        yield served


async def said_to(port: int, init: SaslInit) -> list[object]:
    """All that the server says to a login until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(SASL_HEADER + encode_frame(0, init, kind=SASL))
    # A clean close is an end of file; a reset would raise.
    data = await asyncio.wait_for(reader.read(), WAIT_SECONDS)
    writer.close()
    return answers(data)


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "SCRAM-SHA-256", ""])
async def test_a_mechanism_that_is_not_offered_is_refused(
    server: RawServer, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    caplog.set_level(logging.INFO, "twinbus.connection")
    init = SaslInit(mechanism=mechanism, initial_response=b"\0user\0password")

    said = await said_to(server.port, init)

    assert said == [OFFERED, SaslOutcome(code=1)]
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.endswith(
        f": SASL mechanism '{mechanism}' is not offered. Log in with PLAIN, or with "
        "MSSBCBS or ANONYMOUS and put a token to $cbs."
    )
    assert "password" not in caplog.text


async def test_a_client_with_a_password_is_told_that_its_login_was_refused(
    server: RawServer,
) -> None:
    connection = BlockingConnection("127.0.0.1", server.port)

    with pytest.raises(PeerError, match=r"refused the login \(1\)"):
        await asyncio.to_thread(connection.open, "RootManageSharedAccessKey", "key")

    connection.close()


@pytest.mark.parametrize(
    "response",
    [None, b"", b"name", b"name\0key", b"\0name\0key\0more", b"\0\xff\0key"],
)
async def test_a_login_that_cannot_be_read_is_refused(
    server: RawServer, caplog: pytest.LogCaptureFixture, response: bytes | None
) -> None:
    caplog.set_level(logging.INFO, "twinbus.connection")

    said = await said_to(server.port, SaslInit("PLAIN", response))

    assert said == [OFFERED, SaslOutcome(code=1)]
    assert "must have a name and a password" in caplog.text


async def test_too_many_wrong_logins_are_refused_without_a_reason(
    server: RawServer, caplog: pytest.LogCaptureFixture
) -> None:
    init = SaslInit("PLAIN", b"\0RootManageSharedAccessKey\0wrong")
    for _ in range(limits.TOKEN_FAILURES_MAX + 1):
        assert await said_to(server.port, init) == [OFFERED, SaslOutcome(code=1)]

    # The clock stands still, so nothing more may be said.
    assert caplog.text.count("refused a token") == limits.TOKEN_FAILURES_MAX
    assert caplog.text.count("closing") == limits.TOKEN_FAILURES_MAX
