"""What a service manager hears from `twinbus serve --no-supervisor`."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.server.setup.supervised_site import ROOT


def test_a_service_manager_hears_that_it_is_ready_moves_and_stops(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "twinbus.cli.main", "serve", "--no-supervisor"]
    command += ["--dev", "--data", str(tmp_path / "data")]
    command += ["--amqp-port", "0", "--http-port", "0"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        variables = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "20000",
        }
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, **variables}, cwd=ROOT
        ) as process:
            heard = [manager.recv(100) for _ in range(5)]
            process.send_signal(signal.SIGTERM)
            while (last := manager.recv(100)) == b"WATCHDOG=1":
                pass
            code = process.wait()

    assert heard == [b"READY=1", *[b"WATCHDOG=1"] * 4]
    assert last == b"STOPPING=1"
    assert code == 0


def test_the_unit_file_has_options_that_exist() -> None:
    text = (ROOT / "docs" / "server.md").read_text()
    (unit,) = re.findall(r"```ini\n(.*?)```", text, re.DOTALL)
    command = [sys.executable, "-m", "twinbus.cli.main", "serve", "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, check=True)

    options = re.findall(r"--[a-z-]+", unit)
    assert "--no-supervisor" in options
    assert [option for option in options if option not in helped.stdout] == []
    # As long as our own supervisor waits.
    assert "WatchdogSec=5\n" in unit
