"""`twinbus syphon` as a person and as a script use it, with a real Spark.

The keys of both namespaces are planted ones with the least rights that do, and after
the run everything that was said, written or shown is searched for them.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import Run
from tests.spark.syphon_pair import (
    PRIMARY,
    Pair,
    Server,
    Shape,
    filled,
    inside,
    judged,
    serving,
)
from twinbus.cli.pair.syphon_engine import EngineChoice, SyphonEngine, by_size

_SECONDS_MAX = 90
# Nothing listens there.
NOWHERE = (
    "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=x;SharedAccessKey=planted;"
    "UseDevelopmentEmulator=true"
)
JOURNAL = ("--journal", "/nowhere/at/all")
_UI_PAGES = (
    *(
        "/jobs/",
        "/stages/",
        "/environment/",
        "/executors/",
        "/SQL/",
        "/StreamingQuery/",
    ),
    "/api/v1/applications",
)


def planted() -> str:
    return base64.b64encode(b"planted" + secrets.token_bytes(25)).decode()


@dataclass
class Site:
    """A pair of servers, with a file for each connection string."""

    pair: Pair[Server]
    folder: Path
    keys: list[str]
    heard: dict[str, str] = field(default_factory=dict)

    @property
    def args(self) -> tuple[str, ...]:
        return (
            *("--primary", f"@{self.folder / 'primary'}"),
            *("--secondary", f"@{self.folder / 'secondary'}"),
            *("--primary-name", PRIMARY, "--journal", str(self.folder / "journal")),
        )

    def leaks(self) -> list[str]:
        """Where a key was said, or a token or the signature in one."""
        for file in self.folder.rglob("*"):
            if file.is_file() and file.parent != self.folder:
                self.heard[str(file)] = file.read_bytes().decode("latin-1")
        wanted = [*self.keys, "SharedAccessSignature", "sig="]
        return [
            f"{where}: {each}"
            for where, text in self.heard.items()
            for each in wanted
            if each in text
        ]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Keys that may send home and listen to the backlog, and nothing else."""
    keys = [planted(), planted()]
    rules = [
        {"name": "syphon", "rights": ["Send"], "primary_key": keys[0]},
        {"name": "syphon", "rights": ["Listen"], "primary_key": keys[1]},
    ]
    servers = tmp_path / "servers"
    folder = tmp_path / "site"
    folder.mkdir()
    with serving(servers, Shape(), rules=rules) as pair:
        named = ("primary", pair.primary), ("secondary", pair.secondary)
        for (name, server), key in zip(named, keys, strict=True):
            text = re.sub("KeyName=[^;]*", "KeyName=syphon", server.connection_string)
            text = re.sub("AccessKey=[^;]*", f"AccessKey={key}", text)
            (folder / name).write_text(text)
        yield Site(pair, folder, keys)


def children(pid: int) -> Iterator[int]:
    """A process and all that it started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from children(int(child))


def listen(site: Site, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Read the objects until everything was moved, then look around; the last one."""
    assert process.stdout is not None
    shot: dict[str, Any] = {}
    for line in process.stdout:
        site.heard["output"] = site.heard.get("output", "") + line
        shot = json.loads(line)
        if shot["moved"] == 600:
            break
    ui = http.client.HTTPConnection(
        shot["ui"].removeprefix("http://"), timeout=_SECONDS_MAX
    )
    for page in _UI_PAGES:
        ui.request("GET", page)
        answer = ui.getresponse()
        site.heard[page] = answer.read().decode()
        assert answer.status == 200, page
    ui.close()
    for pid in children(process.pid):
        file = Path(f"/proc/{pid}/cmdline")
        site.heard[str(file)] = file.read_bytes().decode("latin-1")
    return shot


@pytest.mark.timeout(2 * _SECONDS_MAX)
def test_it_drains_says_how_and_gives_nothing_away(site: Site) -> None:
    expected = filled(site.pair, 600, seed=7)
    logs = site.folder / "events"
    logs.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.log.level": "INFO",
        "spark.driver.memory": "512m",
    }
    command = [sys.executable, "-m", "twinbus.cli.main", "syphon", *site.args, "--json"]
    command += ["--checkpoint", str(site.folder / "checkpoint")]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    errors = logs / "stderr.log"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        try:
            shot = listen(site, process)
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=_SECONDS_MAX)
        finally:
            process.kill()

    assert process.returncode == 0, errors.read_text()[-2000:]
    last = json.loads(rest.splitlines()[-1])
    assert last["ended"] == "stopped"
    assert (last["moved"], last["depth"]) == (600, 0)
    assert {each["path"] for each in shot["destinations"]} == {
        *site.pair.shape.destinations
    }
    assert all(each["state"] == "ok" for each in shot["destinations"])
    assert judged(site.pair, expected).duplicates() == 0
    assert "MicroBatchExecution" in errors.read_text(), "the log was not looked at"
    assert site.leaks() == []


# -- without Spark -------------------------------------------------------------------


def test_a_small_backlog_is_drained_in_this_process(tmp_path: Path, run: Run) -> None:
    with inside(tmp_path, Shape()) as pair:
        expected = filled(pair, 90, seed=10)
        done = run(
            *("syphon", "--primary", pair.primary.connection_string),
            *("--secondary", pair.secondary.connection_string),
            *("--primary-name", PRIMARY, "--until-empty", "--json"),
        )
        home = judged(pair, expected)

    assert done.code == 0, done.err
    assert "Engine application: 90 messages are not more than 100000." in done.err
    last = json.loads(done.out.splitlines()[-1])
    assert (last["ended"], last["moved"], last["depth"]) == ("drained", 90, 0)
    assert last["ui"] is None
    assert home.duplicates() == 0


@pytest.mark.timeout(_SECONDS_MAX)
def test_the_application_engine_runs_on_until_it_is_interrupted(site: Site) -> None:
    expected = filled(site.pair, 600, seed=11)
    command = [sys.executable, "-m", "twinbus.cli.main", "syphon"]
    command += [*site.args[:-2], "--engine", "application", "--json"]
    errors = site.folder / "errors"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        assert process.stdout is not None
        moved = 0
        while moved < 600:
            moved = json.loads(process.stdout.readline())["moved"]
        process.send_signal(signal.SIGINT)
        last = json.loads(process.stdout.read().splitlines()[-1])

    assert process.returncode == 0, errors.read_text()
    assert "Engine application: --engine says so." in errors.read_text()
    assert (last["ended"], last["moved"], last["depth"]) == ("stopped", 600, 0)
    assert judged(site.pair, expected).duplicates() == 0


def test_the_engine_follows_the_options_and_then_the_size() -> None:
    on_cluster = EngineChoice(None, until_empty=True, for_spark={"--master": "yarn"})
    running_on = EngineChoice(None, until_empty=False)
    drains = EngineChoice(None, until_empty=True, for_spark={"--master": None})

    assert on_cluster.by_options() == (SyphonEngine.SPARK, "--master is for Spark")
    assert running_on.by_options() == (
        *(SyphonEngine.SPARK, "without --until-empty it runs on"),
    )
    assert drains.by_options() is None
    assert by_size(100_001)[0] is SyphonEngine.SPARK
    assert by_size(100_000)[0] is SyphonEngine.APPLICATION


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[object, ...]]:
    """Options for a pair inside this process, with a backlog of 90 messages."""
    with inside(tmp_path_factory.mktemp("quick"), Shape()) as pair:
        filled(pair, 90, seed=8)
        yield (
            *("--primary", pair.primary.connection_string),
            *("--secondary", pair.secondary.connection_string),
            *("--primary-name", PRIMARY),
        )


def test_a_dry_run_says_what_would_move_and_moves_nothing(
    quick: tuple[object, ...], run: Run
) -> None:
    told = run("syphon", *quick, "--dry-run", "--json").json

    assert told["messages"] == told["would_move"] == 90
    assert told["operations"] == 180
    assert {each["fate"] for each in told["queues"]} == {"move"}
    assert {each["destination"] for each in told["queues"]} == {*Shape().destinations}
    assert sum(each["messages"] for each in told["queues"]) == 90
    assert run("syphon", *quick, "--dry-run", "--json").json == told


def test_a_dry_run_asks_the_primary_about_every_destination(
    tmp_path: Path, run: Run
) -> None:
    with inside(tmp_path, Shape(queues=("orders",), topics=())) as pair:
        before = Shape(queues=("orders", "gone"), topics=())
        filled(replace(pair, shape=before), 60, seed=9)
        told = run(
            *("syphon", "--primary", pair.primary.connection_string),
            *("--secondary", pair.secondary.connection_string),
            *("--primary-name", PRIMARY),
            *("--dry-run", "--json"),
        ).json

    fates = {each["destination"]: each["fate"] for each in told["queues"]}
    assert fates["orders"] == fates["rooms"] == "move"
    assert fates["gone"].startswith("dead-letter: ")
    dead = [
        each["messages"] for each in told["queues"] if each["destination"] == "gone"
    ]
    assert told["would_be_dead_lettered"] == sum(dead) > 0
    assert told["would_move"] == 60 - sum(dead)


def test_people_get_a_table_of_a_dry_run(quick: tuple[object, ...], run: Run) -> None:
    lines = run("syphon", *quick, "--dry-run").out.splitlines()

    assert lines[0].split()[:3] == ["index", "destination", "messages"]
    assert ["operations", "180"] in [line.split() for line in lines]
    assert lines[-1].split() == ["prices", "example"]


def test_a_dry_run_says_what_the_drain_costs_at_most(
    quick: tuple[object, ...], run: Run, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    # The dearest tier has 0.80 for a million operations.
    dear = run("cost", "prices").out.replace("0.80", "1000000")
    mine.write_text(dear.replace("name: example", "name: mine"))

    told = run("syphon", *quick, "--dry-run", "--prices", mine, "--json").json

    assert (told["prices"], told["currency"]) == ("mine", "EUR")
    assert told["money_at_most"] == "180.00"


@pytest.mark.parametrize(
    ("args", "says", "code"),
    [
        (("--chunk-size", 1), "twinbus: --chunk-size must be a whole number", 2),
        (("--ttl", "never"), "twinbus: --ttl must be", 2),
        (("--primary-name", "else"), "no backlog queue of 'else'", 1),
        (("--primary", "env:NOT_THERE"), "no variable NOT_THERE", 2),
        (("--primary", __file__), f"write '@{__file__}'", 2),
        (("--primary", NOWHERE), "The primary '127.0.0.1:9': ", 1),
        (("--secondary", NOWHERE), "The secondary '127.0.0.1:9': ", 1),
        (("--secondary", NOWHERE), "Check that the server runs", 1),
        (("--task-seconds", 0), "twinbus: --task-seconds must be a whole number", 2),
        (("--max-per-batch", -1), "twinbus: --max-per-batch must be a whole", 2),
        (("--primary-name", " "), "twinbus: --primary-name is empty", 2),
        (("--secondary", "x=y"), "twinbus: --secondary: ", 2),
        (("--ca-file", "/nowhere"), "/nowhere does not exist. Check --ca-file.", 2),
        (("--conf", "what"), "NAME=VALUE", 2),
        (("--engine", "application", "--conf", "a=b"), "twinbus: --conf is for", 2),
        (("--engine", "application", "--master", "yarn"), "or give --engine", 2),
        (("--prices", "mine.yaml"), "twinbus: --prices needs --dry-run", 2),
        (("--master", "spark://x:1"), "twinbus: --journal is missing", 2),
        (("--master", "spark://127.0.0.1:9", *JOURNAL), "does not answer", 2),
        (("--master", "sc://127.0.0.1:9/;x=y", *JOURNAL), "does not answer", 2),
    ],
)
def test_what_is_wrong_is_one_line_before_spark_starts(
    quick: tuple[object, ...], run: Run, args: tuple[object, ...], says: str, code: int
) -> None:
    refused = run("syphon", *quick, *args)

    assert refused.code == code
    assert says in refused.err
    assert len(refused.err.splitlines()) == 1
    assert "planted" not in refused.err
