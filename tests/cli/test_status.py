"""`twinbus status`: a running namespace on one screen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.run import Run, served

PORTS = ("--amqp-port", "0", "--http-port", "0")


def test_status_has_health_shards_counts_and_rates(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "entities.json"
    topics = [{"name": "events", "subscriptions": [{"name": "all"}]}]
    contoso = {"name": "contoso", "queues": [{"name": "orders"}], "topics": topics}
    config.write_text(json.dumps({"namespaces": [contoso]}))
    with served(tmp_path, "--dev", "--shards", "2", "--config", config, *PORTS) as on:
        string = on.ready["namespaces"]["contoso"]["connection_string"]
        bus = ("--connection-string", string)
        command = [sys.executable, "-m", "twinbus.cli.main"]
        with subprocess.Popen(
            [*command, "status", string, "--watch", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            idle = json.loads(process.stdout.readline())
            run("message", "send", "orders", "hello", "--count", "40", *bus)
            busy = idle
            while not busy["entities"][0]["in_per_second"]:
                busy = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        people = run("status", *bus)
        nothing = run("status")
        wrong = run("status", string.replace("SAS_KEY", "NO_KEY"))

    assert process.returncode == 0
    assert idle["health"]["status"] == "healthy"
    assert [shard["state"] for shard in idle["shards"]] == ["open", "open"]
    assert [one["entity"] for one in idle["entities"]] == [
        *("orders", "events", "events/Subscriptions/all"),
    ]
    assert idle["entities"][0]["in_per_second"] == 0.0
    assert busy["entities"][0]["active_messages"] == 40
    lines = people.out.splitlines()
    assert lines[0].startswith("namespace 'contoso' at 127.0.0.1:")
    assert lines[0].endswith(": healthy. Service is healthy.")
    (orders,) = [line.split() for line in lines if line.startswith("orders")]
    assert orders[:4] == ["orders", "queue", "Active", "40"]
    assert (nothing.code, wrong.code) == (2, 1)
    assert "--connection-string" in nothing.err
    assert wrong.err.count("\n") == 1
