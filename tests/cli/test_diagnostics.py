"""`twinbus diagnostics`: bundles in a data folder, listed, shown and exported."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.run import Run
from tests.server.setup.test_diagnostics import remains
from twinbus.server.setup import diagnostics


def test_bundles_are_listed_shown_and_exported(tmp_path: Path, run: Run) -> None:
    for number in range(2):
        diagnostics.write(tmp_path, diagnostics.compose(remains(number)))
    at = ("--data", tmp_path)

    listed = run("diagnostics", "list", *at, "--json").json
    newest = run("diagnostics", "show", *at, "--json").json
    shown = run("diagnostics", "show", listed[1]["id"], *at)
    file = tmp_path / "one.json"
    exported = run("diagnostics", "export", file, *at, "--json").json

    assert [each["id"][16:19] for each in listed] == ["001", "000"]
    assert newest["id"] == listed[0]["id"]
    assert "The server ended by SIGKILL." in shown.out
    assert "  File x, line 1 in f" in shown.out
    assert "then info hello" in shown.out
    assert exported == {"id": newest["id"], "file": str(file)}
    assert json.loads(file.read_text()) == newest


def test_only_a_folder_that_exists_has_a_list(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "file"
    file.touch()

    empty = run("diagnostics", "list", "--data", tmp_path)
    refused = [run("diagnostics", "list", "--data", at) for at in (file, file / "no")]

    assert (empty.code, empty.err) == (0, "")
    assert [each.code for each in refused] == [2, 2]
    assert [each.out for each in refused] == ["", ""]
    assert refused[0].err == f"twinbus: {file} is no folder. Check --data.\n"
    assert refused[1].err == f"twinbus: {file}/no does not exist. Check --data.\n"


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, run: Run) -> None:
    none = run("diagnostics", "show", "--data", tmp_path)
    diagnostics.write(tmp_path, diagnostics.compose(remains()))
    unknown = run("diagnostics", "show", "other", "--data", tmp_path)
    taken = run("diagnostics", "export", tmp_path, "--data", tmp_path)

    assert (none.code, unknown.code, taken.code) == (2, 2, 2)
    assert none.err.startswith(f"twinbus: {tmp_path} has no diagnostics. Check --data")
    assert unknown.err.startswith(f"twinbus: {tmp_path} has no diagnostics other;")
    assert taken.err == f"twinbus: {tmp_path} cannot be made: File exists.\n"
