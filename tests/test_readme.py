"""The README and the guides say what is true: their examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.sdk.servers import serving
from twinbus.server.setup.config import load_config

ROOT = Path(__file__).parent.parent


def _block(page: str, language: str) -> str:
    """The first example of a language on a page."""
    text = (ROOT / page).read_text()
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found, f"{page} has no {language} example"
    return found.group(1)


def test_the_quick_start_of_the_readme_works(tmp_path: Path) -> None:
    config = yaml.safe_load(_block("README.md", "yaml"))
    program = _block("README.md", "python")
    # The well-known port may be taken on this machine.
    with serving(tmp_path, config) as server:
        port = server.namespaces["contoso"].amqp_port
        program = program.replace("sb://127.0.0.1;", f"sb://127.0.0.1:{port};")
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello\n"


def test_the_entities_of_the_guide_load(tmp_path: Path) -> None:
    config = tmp_path / "twinbus.yaml"
    config.write_text(_block("docs/server.md", "yaml"))

    (namespace,) = load_config(config)

    assert [queue.name for queue in namespace.queues] == [
        "orders",
        "contoso/x-servicebus-transfer/0",
    ]
    assert namespace.queues[0].lock_duration_ms == 30_000
    assert namespace.topics[0].subscriptions[0].rules[0].name == "amount"


def test_every_page_that_is_linked_exists() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
