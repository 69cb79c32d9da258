"""The supervisor and its server, as real processes that are hurt."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.server.setup.supervised_site import (
    ROOT,
    SupervisedSite,
    answer_to_header,
    configured,
    send,
    send_in_vain,
    supervised,
    wait_for_end,
)
from twinbus.cli.remote import reach
from twinbus.store.sqlite.file import FILE_NAME

# Runs the command line and prints at its end what was imported.
_IMPORTED = """
import atexit, sys
from twinbus.cli.main import main
sys.argv = ["twinbus", "serve", "--help"]
names = lambda: [n for n in sys.modules if n.partition(".")[0] != "encodings"]
atexit.register(lambda: print("imported", *names()))
main()
"""
_ALLOWED = {
    "twinbus",
    "twinbus.cli",
    "twinbus.cli.main",
    "twinbus.cli.server",
    "twinbus.cli.server.logs",
    "twinbus.cli.server.supervise",
    "twinbus.errors",
    "twinbus.limits",
    "twinbus.server",
    "twinbus.server.setup",
    "twinbus.server.setup.black_box",
    "twinbus.server.setup.handover",
    "twinbus.server.setup.reporter",
    "twinbus.server.setup.supervisor",
}


def connect(site: SupervisedSite) -> socket.socket:
    return socket.create_connection(("127.0.0.1", site.amqp_port), timeout=30)


def is_served(site: SupervisedSite) -> bool:
    with connect(site) as client:
        return answer_to_header(client)[:4] == b"AMQP"


def test_the_supervisor_imports_nothing_of_the_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    help_text, _, line = done.stdout.rpartition("imported ")
    imported = set(line.split())
    assert "--no-supervisor" in help_text
    assert {name for name in imported if name.startswith("twinbus")} == _ALLOWED
    assert not imported & {"asyncio", "sqlite3", "ssl", "subprocess", "typer", "uvloop"}


def test_a_disk_that_hangs_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    stop_seconds = {"SERVER_STOP_SECONDS_MAX": 1}
    with supervised(tmp_path, ["--faults"], limits=stop_seconds) as site:
        ((_, described),) = site.ready["namespaces"].items()
        port = described["http_port"]
        fault = {"kind": "storage-slow", "delay_seconds": 3600}
        reached = reach(site.connection_string, f"http://127.0.0.1:{port}", None)
        reached.ask("POST", "/$faults", fault)
        # It tells so when a commit has taken too long, and that one goes on.
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as asking:
            asking.request("GET", "/health")
            assert b"could not be stored" in asking.getresponse().read()

        site.process.terminate()
        site.wait_for_log("namespace contoso did not stop in 1 s: the disk hangs.")

        assert site.ended() == 1
    assert "was killed" not in site.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_ready_line_names_both_and_a_signal_stops_both(
    tmp_path: Path, number: int
) -> None:
    with supervised(tmp_path) as site:
        assert site.ready["supervisor_pid"] == site.process.pid
        assert site.pid != site.process.pid
        pidfd = os.pidfd_open(site.pid)
        assert is_served(site)

        code = site.stop(number)

        assert code == 0, site.log
        wait_for_end(pidfd)
        os.close(pidfd)
    assert "restart" not in site.log
    assert "ERROR" not in site.log


def test_ctrl_c_at_a_terminal_stops_both(tmp_path: Path) -> None:
    """A terminal sends the signal to all processes of the group."""
    with supervised(tmp_path) as site:
        os.kill(site.pid, signal.SIGINT)

        assert site.stop(signal.SIGINT) == 0
    assert "ERROR" not in site.log


def test_a_server_that_crashes_is_back_on_the_same_port(tmp_path: Path) -> None:
    with supervised(tmp_path) as site:
        first = site.pid

        site.crash()
        # It is away: who connects now waits.
        with connect(site) as client:
            assert answer_to_header(client)[:4] == b"AMQP"
        site.wait_for_restart()

        assert site.pid not in (first, site.process.pid)
        assert f"(process {first}) ended by SIGKILL" in site.log
        assert is_served(site)
        assert site.stop() == 0, site.log


def test_a_server_that_stalls_is_restarted(tmp_path: Path) -> None:
    with supervised(tmp_path) as site:
        site.stall()
        with connect(site) as client:
            assert answer_to_header(client)[:4] == b"AMQP"
        site.wait_for_restart()

        assert "is stalled: its event loop has not moved for 1 seconds" in site.log
        assert is_served(site)
        assert site.stop() == 0, site.log


def test_a_stopped_process_is_restarted(tmp_path: Path) -> None:
    with supervised(tmp_path) as site:
        site.hurt(signal.SIGSTOP)
        site.wait_for_restart()

        assert is_served(site)


def test_a_server_without_supervisor_ends(tmp_path: Path) -> None:
    with supervised(tmp_path) as site:
        pidfd = os.pidfd_open(site.pid)
        with connect(site) as client:
            assert answer_to_header(client)[:4] == b"AMQP"

            site.process.kill()

            wait_for_end(pidfd)
        os.close(pidfd)


def test_a_stalled_server_without_supervisor_ends(tmp_path: Path) -> None:
    with supervised(tmp_path, limits={"ORPHAN_STOP_SECONDS_MAX": 0.2}) as site:
        pidfd = os.pidfd_open(site.pid)
        site.stall()

        site.process.kill()

        wait_for_end(pidfd)
        os.close(pidfd)


def test_a_stalled_server_is_killed_when_it_should_stop(tmp_path: Path) -> None:
    short = {"SUPERVISOR_STOP_SECONDS_MAX": 0.2, "HEARTBEAT_SILENCE_SECONDS_MAX": 60}
    with supervised(tmp_path, limits=short) as site:
        site.stall()

        assert site.stop() == 1
    assert "did not stop in time, and was killed" in site.log


def test_wrong_counters_are_set_right_and_the_server_restarted(tmp_path: Path) -> None:
    options = configured(tmp_path, "orders")
    with supervised(tmp_path, options, limits={"AUDIT_SECONDS": 0.05}) as site:
        send(site, "orders", *(ServiceBusMessage(f"{n}") for n in range(3)))
        store = sqlite3.connect(site.data / "contoso" / FILE_NAME)
        with store:
            store.execute(
                "DELETE FROM message WHERE id = (SELECT min(id) FROM message)"
            )
        store.close()
        bundle = site.wait_for_bundle()
        site.wait_for_restart()
        with (
            ServiceBusClient.from_connection_string(site.connection_string) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            left = [str(m) for m in receiver.receive_messages(5, max_wait_time=5)]
        assert site.stop() == 0

    assert left == ["1", "2"]
    assert bundle["reason"].startswith(
        "The server is broken: orders of contoso: the counters had 3 active, "
    )
    # It was right after the restart.
    assert site.log.count("is broken") == 1


def test_a_turn_that_fails_twice_restarts_the_server(tmp_path: Path) -> None:
    options = configured(tmp_path, "orders")
    with supervised(tmp_path, options, {"SICK_TURN": "1"}) as site:
        send_in_vain(site, "orders", "one")
        bundle = site.wait_for_bundle()

    assert bundle["reason"].startswith(
        "The server is broken: a turn of contoso failed twice with ZeroDivisionError at"
    )


def test_five_restarts_in_a_minute_are_enough(tmp_path: Path) -> None:
    with supervised(tmp_path, environment={"SICK_CRASH": "3"}) as site:
        code = site.ended()

    assert code == 1
    assert site.log.count("the server is back") == 5
    *_, last = site.log.splitlines()
    assert last.startswith("twinbus: the server failed 6 times in ")
    assert last.endswith("is not started again; the last one ended with code 3.")


def test_a_server_that_cannot_start_says_why_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "twinbus.cli.main", "serve", "--dev"]
    done = subprocess.run(
        [*command, "--data", str(tmp_path), "--host", "192.0.2.1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("twinbus: --dev uses a published key")
