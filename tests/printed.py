"""The blocks that the pages print, and the test that carries out each of them.

Owns how a page is read, and the table of tests. A test asks for the blocks that the
table gives to its file, and carries out all that it gets; `test_printed.py` checks
that the table has a place for every block of every page. So a block that is new or
changed is carried out, or a test fails. How that is done, `walking.py` knows.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# What a reader types, and what is shown alone. Shell lines have no language.
TYPED = ("", "python", "yaml", "sql", "haproxy")
SHOWN = ("text", "ini", "mermaid", "csharp")

ANY = "any"
# Targets of make, and packages that pip installs: compared with what they name.
LINES = "test_printed.py"
# By page: the file that carries out the blocks in a language, or that begin with a
# text, or any. The first that fits counts. A page instead of a file prints the same
# block.
TESTS: dict[str, dict[str, str]] = {
    "CONTRIBUTING.md": {"make ": LINES},
    "README.md": {
        "make ": LINES,
        "python3 -m venv ": LINES,
        ANY: "test_readme.py",
    },
    "docs/backlog.md": {ANY: "cli/test_backlog.py"},
    "docs/celery.md": {"pip install ": LINES, ANY: "test_celery_page.py"},
    "docs/cluster.md": {
        "pip install ": LINES,
        "haproxy": "cluster/test_haproxy.py",
        "sql": "cluster/test_standby_page.py",
        "pg_basebackup ": "cluster/test_standby_page.py",
        ANY: "cluster/test_cluster_page.py",
    },
    "docs/coming-from-azure-servicebus.md": {"python": "test_pairing_pages.py"},
    "docs/coming-from-dotnet.md": {"python": "test_pairing_pages.py"},
    "docs/console.md": {ANY: "console/test_console_page.py"},
    "docs/cost.md": {ANY: "cost/test_cost_page.py"},
    "docs/docker/README.md": {ANY: "test_docker_page.py"},
    "docs/drill.md": {"make ": LINES, ANY: "drill/test_given.py"},
    "docs/failures.md": {
        "twinbus drill ": "drill/test_drill.py",
        ANY: "test_failures_page.py",
    },
    "docs/notes/postgres-spike.md": {ANY: "bench/test_bench_quick.py"},
    "docs/pairing.md": {
        "python": "test_pairing_pages.py",
        "KEY=": "test_pairing_pages.py",
        "twinbus serve ": "README.md",
    },
    "docs/performance.md": {"make ": LINES},
    "docs/server.md": {ANY: "test_server_page.py"},
    "docs/spark-source-and-sink.md": {
        "pip install ": LINES,
        ANY: "test_spark_page.py",
    },
    "docs/spark-syphon.md": {
        "python": "spark/test_syphon.py",
        "twinbus syphon --master ": "spark/test_syphon_page.py",
        "twinbus syphon --primary ": "README.md",
    },
    "docs/testing.md": {
        "pip install ": LINES,
        "python": "testing/test_plugin.py",
        ANY: "cli/test_proxy.py",
    },
}


def printed(page: str) -> list[tuple[str, str]]:
    """All blocks of a page in their order, each with its language."""
    return _BLOCK.findall((ROOT / page).read_text())


def place(page: str, language: str, text: str) -> str | None:
    """The file or page that the table names for a block, if it names one."""
    for key, found in TESTS.get(page, {}).items():
        if fits(key, language, text):
            return found
    return None


def fits(key: str, language: str, text: str) -> bool:
    """Whether a key of the table is for a block."""
    begins = key not in TYPED and text.startswith(key)
    return begins or key in (ANY, language)


def blocks(page: str, test: str) -> list[tuple[str, str]]:
    """The blocks of a page that a test file carries out, in their order."""
    name = str(Path(test).resolve().relative_to(ROOT / "tests"))
    found = [
        (language, text)
        for language, text in printed(page)
        if language in TYPED and place(page, language, text) == name
    ]
    assert found, f"{page} has no block for {name}."
    return found
