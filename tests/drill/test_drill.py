"""Real drills on real servers: the honest one passes, the broken ones fail and say why.

They run with the syphon of the application, which saves the start of Spark; the
campaign runs the same drills with Spark. Some run at the same time, since each of them
waits more than it works.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.reading import events, totals
from tests.printed import ROOT, blocks
from twinbus.cli.drill import _check_spark
from twinbus.drill.children import leftovers
from twinbus.drill.tied import RUN
from twinbus.errors import ConfigError

COMMAND = [sys.executable, "-m", "twinbus.cli.main", "drill", "--json"]
SMALL = ["--messages", "900", "--senders", "2", "--syphon", "application"]
SECONDS_MAX = 110
LOST = "lost: accepted, and never seen again."
# Defects by their name, and what the judge says about each. One is in all tests.
BROKEN = {
    "acknowledge_early": LOST,
    "deliver_pings": "ping: a ping that a receiver could see.",
    "complete_early": LOST,
}
QUICK = "acknowledge_early"


@dataclass
class Done:
    """A drill that has ended."""

    code: int
    result: dict[str, Any]
    progress: list[dict[str, Any]]
    errors: str
    report: Path


class Running:
    """A drill as a process."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir()
        self.report = folder / "report.html"
        self.process = subprocess.Popen(
            [*COMMAND, *SMALL, "--report", str(self.report), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
            cwd=ROOT,
        )

    def wait(self) -> Done:
        out, errors = self.process.communicate(timeout=SECONDS_MAX)
        lines = [json.loads(line) for line in out.splitlines()]
        code = self.process.returncode
        return Done(code, lines[-1], lines[:-1], errors, self.report)

    def wait_for(self, phase: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["progress"]["phase"] == phase:
                return
        raise AssertionError(self.process.communicate()[1])

    def run_name(self) -> str:
        """As its processes have it in their environment."""
        number = self.process.pid
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        for child in children:
            for entry in Path(f"/proc/{child}/environ").read_text().split("\0"):
                if entry.startswith(f"{RUN}="):
                    return entry.partition("=")[2]
        raise AssertionError("no child has a name")


def run_all(folder: Path, wanted: dict[str, list[str]]) -> dict[str, Done]:
    """Run these drills at the same time, by name."""
    running = {
        name: Running(folder / name, "--seed", "1", *options)
        for name, options in wanted.items()
    }
    try:
        return {name: each.wait() for name, each in running.items()}
    finally:
        for each in running.values():
            each.process.kill()


@pytest.fixture(scope="module")
def drills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """Honest drills that run to their end, by their fault."""
    wanted = {"kill": ["--fault", "kill", "--no-cost"]}
    ((_, text),) = blocks("docs/failures.md", __file__)
    program, command, *options = shlex.split(text)
    assert (program, command) == ("twinbus", "drill")
    wanted["sick"] = [*options, "--no-cost"]
    return run_all(tmp_path_factory.mktemp("drills"), wanted)


def test_a_drill_loses_nothing(drills: dict[str, Done]) -> None:
    done = drills["kill"]

    assert done.code == 0, done.errors
    assert done.result["ok"], done.result["reasons"]
    figures = done.result["figures"]
    assert figures["accepted"] == done.result["plan"]["messages"] == 900
    assert figures["lost"] == 0
    assert figures["unknown"] == figures["refused"] == 0
    assert figures["unexplained_duplicates"] == 0
    # Five entities failed over in each of two senders, and came back.
    assert figures["failover_seconds"]["count"] >= 10
    assert figures["failback_seconds"]["count"] >= 10
    assert done.result["moved"] > 100
    assert done.result["pings_seen"] == 0
    assert "cannot contact it" in told(done, "saw")
    assert {"the pair", "a restart"} <= told(done, "helped")


def test_a_sick_primary_costs_relapses_and_no_message(drills: dict[str, Done]) -> None:
    done = drills["sick"]

    assert done.code == 0, done.errors
    assert done.result["ok"], done.result["reasons"]
    figures = done.result["figures"]
    assert figures["accepted"] == 900
    assert figures["lost"] == figures["unknown"] == figures["refused"] == 0
    assert done.result["moved"] > 100
    assert "cannot send" in told(done, "saw")
    assert {"the pair", "probation"} <= told(done, "helped")


@pytest.mark.campaign
def test_without_access_sends_raise_and_no_entity_fails_over(tmp_path: Path) -> None:
    fault = "unauthorized"
    done = run_all(tmp_path, {fault: ["--fault", fault, "--no-cost"]})[fault]

    assert done.code == 0, done.errors
    assert done.result["ok"], done.result["reasons"]
    figures = done.result["figures"]
    assert figures["accepted"] == 900
    assert figures["unknown"] > 0
    assert figures["lost"] == 0
    assert figures["failover_seconds"]["count"] == 0
    assert done.result["moved"] == 0
    assert {"cannot send", "cannot receive", "cannot manage"} <= told(done, "saw")
    assert told(done, "helped") == {"the application's retry"}


def told(done: Done, name: str) -> set[str]:
    return {each["what"] for each in done.result[name]}


def test_a_drill_goes_through_all_its_parts(drills: dict[str, Done]) -> None:
    phases = [line["progress"]["phase"] for line in drills["kill"].progress]

    assert list(dict.fromkeys(phases)) == [
        "start",
        "healthy",
        "outage",
        "back",
        "home",
        "settle",
        "judge",
    ]


def test_a_drill_cleans_up_and_leaves_its_report(drills: dict[str, Done]) -> None:
    report = drills["kill"].report

    assert "Nothing was lost" in report.read_text()
    left = sorted(path.name for path in report.parent.iterdir())
    assert left == ["report-ledger", "report.html"]


def test_the_ledgers_of_a_drill_have_its_messages(drills: dict[str, Done]) -> None:
    done = drills["sick"]
    kept = Path(done.result["ledger"])

    assert sorted(path.name for path in kept.iterdir()) == [
        "application",
        "primary",
        "secondary",
    ]
    application = totals(kept / "application", "source", "operation", "outcome")
    assert application["client", "send", "accepted"] >= 900
    told = [e for e in events(kept / "application") if e["event"] == "diverted"]
    diverted = sum(event["messages"] for event in told)
    secondary = totals(kept / "secondary", "operation", "outcome")
    assert secondary["send", "accepted"] == diverted > 0
    # A message may be brought home twice, and none is left behind.
    assert application["syphon", "send", "accepted"] >= diverted
    kinds = {event["event"] for event in events(kept / "application")}
    assert {"paired", "failed over", "failed back"} <= kinds


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == QUICK else pytest.mark.campaign)
        for name in BROKEN
    ],
)
def test_a_broken_pair_fails_the_drill(tmp_path: Path, name: str) -> None:
    options = ["--cast", f"tests.drill.broken.{name}", "--no-cost"]
    done = run_all(tmp_path, {name: options})[name]

    assert done.code == 1, done.errors
    assert not done.result["ok"]
    assert BROKEN[name] in done.result["reasons"][0]
    assert "The drill failed" in done.report.read_text()
    # What is needed to look into it is kept, and said where.
    [folder] = done.report.parent.glob("twinbus-drill-*")
    assert str(folder) in done.errors
    assert list(folder.glob("history/*.jsonl"))


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.campaign), signal.SIGINT],
)
def test_a_drill_that_is_stopped_leaves_nothing_behind(
    tmp_path: Path, number: int
) -> None:
    running = Running(tmp_path / "stopped", "--fault", "stop")
    running.wait_for("outage")
    run = running.run_name()
    assert leftovers(run)

    running.process.send_signal(number)
    _, errors = running.process.communicate(timeout=30)

    assert running.process.returncode == 130
    assert leftovers(run) == []
    assert "was stopped" in errors
    assert list((tmp_path / "stopped").iterdir()) == []


# -- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--fault", "fire"], "both, random, not 'fire'."),
        (["--messages", "1"], "--messages must be from"),
        (["--messages", "900", "--seconds", "20"], "Give --messages or --seconds"),
        (["--cast", "no.such"], "--cast no.such: there is no such package."),
        (["--report", "/nowhere/at/all.html"], "there is no folder '/nowhere/at'"),
    ],
)
def test_what_cannot_be_is_one_line_and_no_drill(
    options: list[str], text: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*COMMAND, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert text in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_java_the_drill_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError) as raised:
        _check_spark()

    assert "install Java" in raised.value.text
    assert "--syphon application" in raised.value.text
    assert "\n" not in raised.value.text


# Spark starts for it alone, which takes a minute or two on two cores.
@pytest.mark.campaign
def test_the_cost_report_of_a_drill_counts_what_the_judge_counts(
    drills: dict[str, Done], tmp_path: Path
) -> None:
    result = drills["kill"].result
    page = tmp_path / "cost.html"
    command = [sys.executable, "-m", "twinbus.cli.main", "cost", "report", "--json"]
    command += ["--master", "local[2]", "--html", str(page)]
    for ledger in Path(result["ledger"]).iterdir():
        command += ["--ledger", str(ledger)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    (outage,) = json.loads(done.stdout)["outages"]
    diverted = outage["diverted_messages"]
    assert diverted == outage["home_messages"] == result["moved"] > 0
    assert not outage["inferred"]
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.campaign
def test_the_report_of_a_drill_links_a_page_of_costs(tmp_path: Path) -> None:
    done = Running(tmp_path / "cost", "--seed", "1").wait()

    page = Path(done.result["cost"]["page"])
    assert page.read_text().startswith("<!doctype html>")
    assert f'href="{page.name}"' in done.report.read_text()
