"""The tier of a namespace from the command line: given, remembered and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import Result, Run, served
from tests.cli.test_serve import FREE

OPTIONS = ("--dev", *FREE, "--namespace", "contoso")
ALONE = ("--no-supervisor", "--no-ledger")


@pytest.fixture
def standard(tmp_path: Path) -> Path:
    """The folder of a namespace that was served as standard."""
    with served(tmp_path, *OPTIONS, *tier("standard")):
        pass
    return tmp_path


def tier(name: str) -> tuple[str, str]:
    return ("--tier", name)


def large(run: Run, name: str) -> Result:
    return run("queue", "create", name, "--max-message-size-in-kilobytes", 1024)


def test_a_folder_remembers_the_tier(at: Run, standard: Path) -> None:
    with served(standard, *OPTIONS):
        pass

    assert at("namespace", "show").json["tier"] == "standard"
    refused = large(at, "big")
    assert refused.code == 2
    assert "--max-message-size-in-kilobytes: the value for" in refused.err
    assert "serve the namespace with --tier premium" in refused.err


def test_a_namespace_becomes_premium_and_back(
    at: Run, run: Run, standard: Path
) -> None:
    with served(standard, *OPTIONS, *tier("premium")):
        pass
    assert large(at, "big").code == 0

    refused = run("serve", "--data", standard, *OPTIONS, *tier("standard"), *ALONE)
    assert refused.code == 2
    assert "'big' needs the tier premium, since it takes messages of 1024 KB" in (
        refused.err
    )
    assert at("namespace", "show").json["tier"] == "premium"

    at("queue", "update", "big", "--max-message-size-in-kilobytes", 256)
    with served(standard, *OPTIONS, *tier("standard")):
        pass
    assert at("namespace", "show").json["tier"] == "standard"


def test_all_shards_remember_the_tier(run: Run, tmp_path: Path) -> None:
    with served(tmp_path, *OPTIONS, "--shards", 2, *tier("standard")):
        pass
    config = tmp_path / "twinbus.yaml"
    queue = "{name: big, max_message_size_in_kilobytes: 1024}"
    config.write_text(f"namespaces: [{{name: contoso, queues: [{queue}]}}]")

    refused = run("serve", "--data", tmp_path, *OPTIONS, "--config", config, *ALONE)

    assert refused.code == 2
    assert "The configuration of 'big' cannot be applied: max_message" in refused.err


def test_a_tier_that_does_not_exist_is_refused(run: Run) -> None:
    refused = run("serve", "--tier", "gold", *ALONE)

    assert refused.code == 2
    assert "'gold' is not one of 'standard', 'premium'" in refused.err
