"""The guide to the server says what is true: each block of it is carried out.

All that a reader types is typed as it is printed and in the order of the page, in an
empty folder and in a network of its own, where the ports of the page are free.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.printed import ROOT, blocks, printed
from tests.walking import OwnNetwork, Walk
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.faults import KINDS
from twinbus.server.setup.config import load_config

pytestmark = pytest.mark.timeout(300)

PAGE = "docs/server.md"
TEXT = (ROOT / PAGE).read_text()
HEALTH, HEALTH_OVER_TLS = re.findall(r"`(curl [^`]+/health)`", TEXT)
FILE = re.compile(r"# (\S+\.py)\n")
# Files of a ledger, as the page writes their names.
PLACES = {
    "<day>": r"\d{4}-\d\d-\d\d",
    "<writer>": r".+",
    "<HHMMSS>": r"\d{6}",
    "<8 hex>": r"[0-9a-f]{8}",
}


def of(language: str) -> list[str]:
    """The blocks of the page in one language, in their order."""
    return [text for found, text in printed(PAGE) if found == language]


# Another one needs a test of its own.
ENTITIES, PARTITIONED, DISKS = of("yaml")


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    """A reader with the file that the page shows first."""
    with closing(OwnNetwork()) as network, Walk(tmp_path, network) as reader:
        reader.configure(ENTITIES)
        yield reader


def follow(walk: Walk, text: str) -> None:
    """Carry out a block of shell lines, after what the page says before it."""
    if text.startswith("twinbus serve "):
        # The folder belongs to one server.
        walk.stop()
    elif text.startswith("twinbus queue create ") and "--data " in text:
        walk.stop()
    elif text.startswith("twinbus diagnostics "):
        os.kill(walk.ready["pid"], signal.SIGKILL)
        # It is answered when the server is back, and the bundle was made before.
        walk.shell(HEALTH)
    if " --watch " in text:
        *before, last = text.splitlines()
        walk.shell(of("")[0])
        walk.shell("\n".join(before))
        watch(walk, last)
    else:
        walk.shell(text)


def watch(walk: Walk, command: str) -> None:
    """Look until a queue of the page is seen, then press Ctrl-C."""
    process = walk.start(command)
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if line.startswith("tasks "):
                break
        os.killpg(process.pid, signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 0


# What the commands do is in tests of their own; the README is walked in `make test`.
@pytest.mark.campaign
@pytest.mark.skipif(not OwnNetwork.is_allowed(), reason=OwnNetwork.NEEDS)
def test_the_page_works_from_nothing_as_it_is_printed(walk: Walk) -> None:
    for language, text in blocks(PAGE, __file__):
        if language == "":
            follow(walk, text)
        elif (named := FILE.match(text)) is not None:
            (walk.folder / named[1]).write_text(text)
        elif language == "python":
            walk.program(text)
            walk.shell(HEALTH_OVER_TLS)
        else:
            # Other tests here have these.
            assert language == "yaml", text
    walk.stop()

    keys, _, over_tls, rules, folder, running, messages, curl, *later = walk.printed
    assert keys.count("Endpoint=sb://localhost/;") == 2
    assert '"status":"healthy"' in over_tls
    assert rules.endswith("deleted  auditor\n")
    assert re.search(r"^jobs +Active ", folder, re.MULTILINE)
    assert re.match(r"name +tasks\n", running)
    assert messages.count("hello\n") == 2
    assert re.findall(r"^HTTP/1.1 (\d+)", curl, re.MULTILINE) == ["201", "200"]
    _, diagnostics, faults = later
    assert "The server ended by SIGKILL." in diagnostics
    assert (walk.folder / "bundle.json.gz").exists()
    assert faults.count(" sick ") == 2
    check_ledger(walk.folder / "data")


def check_ledger(data: Path) -> None:
    """The files of the ledger are called as the page says."""
    (shown,) = of("text")
    operations, events = (line.split("  ")[0] for line in shown.splitlines())
    assert events.replace("/events", "") == operations
    pattern = re.sub(r"\d{4}-\d\d-\d\d", r"<day>", operations).replace(".", r"\.")
    for place, meaning in PLACES.items():
        pattern = pattern.replace(place, meaning)
    files = [str(each.relative_to(data)) for each in data.glob("ledger/day=*/*")]
    assert files
    assert [each for each in files if not re.fullmatch(pattern, each)] == []


def loaded(text: str, folder: Path) -> NamespaceConfig:
    config = folder / "twinbus.yaml"
    config.write_text(text)
    (namespace,) = load_config(config)
    return namespace


def test_the_entities_of_the_guide_load(tmp_path: Path) -> None:
    namespace = loaded(ENTITIES, tmp_path)

    assert [queue.name for queue in namespace.queues] == [
        "orders",
        "contoso/x-servicebus-transfer/0",
    ]
    assert namespace.queues[0].lock_duration_ms == 30_000
    assert namespace.topics[0].subscriptions[0].rules[0].name == "amount"


def test_the_partitioned_queue_of_the_guide_loads(tmp_path: Path) -> None:
    namespace = loaded(PARTITIONED, tmp_path)

    assert namespace.shards == 4
    assert namespace.queues[0].enable_partitioning


def test_the_shards_of_the_guide_are_on_their_disks(tmp_path: Path) -> None:
    namespace = loaded(DISKS, tmp_path)

    assert namespace.shards == (Path("/disk1/contoso"), Path("/disk2/contoso"))


def test_the_guide_explains_every_fault() -> None:
    rows = [
        tuple(cell.strip() for cell in row.split("|")[1:-1])
        for row in re.findall(r"^\| `[a-z-]+` \|.*\|$", TEXT, re.MULTILINE)
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
