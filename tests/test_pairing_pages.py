"""The guides about pairing say what is true: their examples run.

The examples of a page run one after the other, as a reader would type them, on two real
namespaces. They may await, as in `python -m asyncio`. Only the way to the
administration is put in: on Azure it has the same connection string.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from twinbus.errors import QuotaExceeded
from twinbus.pairing.events import EventKind
from twinbus.pairing.options import _DEFAULTS, SendAvailabilityPairedNamespaceOptions
from twinbus.testing.namespace import ServedNamespace, serve_namespace

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_ADMIN = "ServiceBusAdministrationClient.from_connection_string(SECONDARY"


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNamespace]:
    tls = tmp_path_factory.mktemp("primary")
    entities = {"queues": ["orders"], "topics": [{"name": "events"}]}
    with serve_namespace(entities, tls=tls) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def secondary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNamespace]:
    with serve_namespace(tls=tmp_path_factory.mktemp("secondary")) as namespace:
        yield namespace


@pytest.fixture(autouse=True)
def environment(
    primary: ServedNamespace,
    secondary: ServedNamespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIMARY", primary.connection_string)
    monkeypatch.setenv("SECONDARY", secondary.connection_string)


def examples(page: Path) -> list[str]:
    """The Python examples of a page, in their order."""
    found = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert found, f"{page} has no examples"
    return found


async def run(page: Path, secondary: ServedNamespace, first: int = 0) -> dict[str, Any]:
    """Run the examples of a page; returns the names that they made."""
    scope: dict[str, Any] = {"__name__": page.stem}
    admin = f'"{secondary.admin_connection_string}", '
    admin += f'connection_verify="{secondary.ca_file}"'
    for number, example in enumerate(examples(page)[first:], first + 1):
        if "pyspark" in example:
            # See `tests/spark/test_example.py`.
            continue
        text = example.replace(_ADMIN, _ADMIN.replace("SECONDARY", admin))
        name = f"{page.name} {number}"
        code = compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, scope)  # noqa: S307 - our own page
        if inspect.isawaitable(result):
            await result
    return scope


async def test_the_examples_of_the_guide_run(
    primary: ServedNamespace,
    secondary: ServedNamespace,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope = await run(DOCS / "pairing.md", secondary)

    said = capsys.readouterr().out.splitlines()
    assert said[0] == "orders healthy 0 0"
    assert re.fullmatch(r"\d+ bytes of headroom", said[1])
    verdict = scope["full_queues_fail_over"](QuotaExceeded())
    assert verdict is scope["Verdict"].COUNTED
    assert scope["full_queues_fail_over"](ValueError()) is None
    # Both quick starts, the one with a timeout, and the one from the edge.
    assert primary.purge("orders") == 4


async def test_the_pair_of_the_readme_sends(
    primary: ServedNamespace, secondary: ServedNamespace
) -> None:
    # The first example is the quick start of the server; see `test_readme.py`.
    await run(ROOT / "README.md", secondary, first=1)

    assert primary.purge("orders") == 1


async def test_both_programs_of_the_page_for_azure_servicebus_send(
    primary: ServedNamespace, secondary: ServedNamespace
) -> None:
    await run(DOCS / "coming-from-azure-servicebus.md", secondary)

    assert primary.purge("orders") == 2


async def test_the_program_of_the_page_for_dotnet_pairs_and_sends(
    primary: ServedNamespace, secondary: ServedNamespace
) -> None:
    scope = await run(DOCS / "coming-from-dotnet.md", secondary)

    assert scope["sender"].paired
    assert scope["options"].failover_interval == timedelta(minutes=1)
    for name in ("primary", "secondary"):
        await scope[name].close()
    scope["manager"].close()
    assert primary.purge("orders") == 1


def _table(after: str) -> list[str]:
    """The first column of the first table after a heading of the guide."""
    text = (DOCS / "pairing.md").read_text().partition(f"## {after}\n")[2]
    rows = [line for line in text.partition("\n## ")[0].splitlines() if "|" in line]
    return [row.split("|")[1] for row in rows]


def test_the_guide_has_every_option() -> None:
    named = re.findall(r"`(\w+)`", " ".join(_table("Options")))
    arguments = inspect.signature(SendAvailabilityPairedNamespaceOptions).parameters

    positional = [name for name in arguments if name != "keywords"]
    assert named == [*positional, *_DEFAULTS]


def test_the_guide_has_every_event_and_metric() -> None:
    named = re.findall(r"`(\w+)`", " ".join(_table("Events, status, metrics")))
    kinds = {kind.name for kind in EventKind}
    metrics = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for metric in REGISTRY.collect()
        if metric.name.startswith("twinbus_pairing_")
    }

    assert {name for name in named if name.isupper()} == kinds
    assert {name for name in named if name.islower()} == metrics
