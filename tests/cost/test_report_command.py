"""`twinbus cost report` says what is wrong in one line, and what it has found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.run import run_main
from tests.cost.ledgers import DAY, row, write
from tests.spark.conftest import SETTINGS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--from", "yesterday"], "--from 'yesterday' is no day."),
        (["--from", "2026-11-16", "--to", "2026-11-15"], "is after --to"),
        (["--html", "/missing/folder/page.html"], "--html /missing/folder/page.html"),
        (["--prices", "/missing.yaml"], "/missing.yaml"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    options: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ("cost", "report", "--ledger", tmp_path, *options)

    found = run_main(monkeypatch, capsys, args)

    assert found.code == 2
    assert text in found.err
    assert found.err.count("\n") == 1


def test_an_empty_range_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [row("10:00", "contoso", "send", 5)])
    args = ("cost", "report", "--ledger", tmp_path, "--to", "2026-01-01")

    found = run_main(monkeypatch, capsys, args)

    assert (found.code, found.err) == (0, "")
    assert found.out == f"There are no rows to 2026-01-01 in {tmp_path}.\n"


@pytest.mark.campaign
def test_a_report_with_a_bad_file_has_the_rest_and_exit_code_2(tmp_path: Path) -> None:
    write(tmp_path, [row("10:00", "contoso", "send", 5)])
    bad = tmp_path / f"day={DAY.date()}" / "bad.parquet"
    bad.write_bytes(b"PAR1")
    page = tmp_path / "page.html"
    options = ["--ledger", str(tmp_path), "--html", str(page), "--json"]
    options += ["--master", "local[1]"]
    for name, value in SETTINGS.items():
        if name.startswith("spark.sql."):
            options += ["--conf", f"{name}={value}"]
    command = [sys.executable, "-m", "twinbus.cli.main", "cost", "report", *options]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        # Java compiles quickly: it ends before better code would pay.
        env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
    )

    assert done.returncode == 2, done.stderr
    assert f"twinbus: {bad} is left out: damaged" in done.stderr
    found = json.loads(done.stdout)
    assert found["bill"]["operations"] == 5
    assert [each["kind"] for each in found["bad_files"]] == ["damaged"]
    assert "Files that were left out" in page.read_text()
