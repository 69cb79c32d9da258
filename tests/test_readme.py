"""The README and the guides say what is true: their examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.conftest import ROOT
from tests.walking import blocks, peeked, walked
from twinbus.server.broker.faults import KINDS
from twinbus.server.setup.config import load_config

# Sessions of Spark take long to start where others are at work.
pytestmark = pytest.mark.timeout(600)


def test_the_readme_works_from_nothing(tmp_path: Path) -> None:
    with walked(
        "README.md", tmp_path, passed_over=("make ", "python3 -m venv ")
    ) as walk:
        primary = walk.variable("PRIMARY")
        orders, copies = (peeked(primary, name) for name in ("orders", "copies"))

    received, paired, backlog, purged, _, shown = walk.printed
    assert (received, paired) == ("hello\n", "")
    assert backlog.startswith("index  messages")
    assert purged.split() == ["purged", "0"]
    assert "[68 65 6C 6C 6F]" in shown
    assert orders == copies == ["hello"]


def test_the_entities_of_the_guide_load(tmp_path: Path) -> None:
    config = tmp_path / "twinbus.yaml"
    text = next(text for kind, text in blocks("docs/server.md") if kind == "yaml")
    config.write_text(text)

    (namespace,) = load_config(config)

    assert [queue.name for queue in namespace.queues] == [
        "orders",
        "contoso/x-servicebus-transfer/0",
    ]
    assert namespace.queues[0].lock_duration_ms == 30_000
    assert namespace.topics[0].subscriptions[0].rules[0].name == "amount"


def test_the_partitioned_queue_of_the_guide_loads(tmp_path: Path) -> None:
    config = tmp_path / "twinbus.yaml"
    found = [text for kind, text in blocks("docs/server.md") if kind == "yaml"]
    config.write_text(next(text for text in found if "enable_partitioning" in text))

    (namespace,) = load_config(config)

    assert namespace.shards == 4
    assert namespace.queues[0].enable_partitioning


def test_the_guide_explains_every_fault() -> None:
    text = (ROOT / "docs/server.md").read_text()
    rows = [
        tuple(cell.strip() for cell in row.split("|")[1:-1])
        for row in re.findall(r"^\| `[a-z-]+` \|.*\|$", text, re.MULTILINE)
        if row.count("|") == 6
    ]

    assert rows == [
        (
            f"`{kind.value}`",
            rules.text,
            "yes" if rules.entity else "",
            "yes" if rules.share else "",
            f"{rules.delay_seconds} s" if rules.delay_seconds else "",
        )
        for kind, rules in KINDS.items()
    ]


def test_every_page_that_is_linked_exists() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
