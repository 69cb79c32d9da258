"""The guides about pairing say what is true: their examples run.

The examples of a page run one after the other, as a reader would type them, on two real
namespaces. They may await, as in `python -m asyncio`. The environment is the one that
the guide says to set, with the ports of these namespaces. Only a page that is written
for Azure gets the way to the administration put in: there it is the same string.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from tests.printed import ROOT, blocks, printed
from twinbus.errors import QuotaExceeded
from twinbus.pairing.events import EventKind
from twinbus.pairing.options import _DEFAULTS, SendAvailabilityPairedNamespaceOptions
from twinbus.testing.namespace import ServedNamespace, serve_namespace

GUIDE = "docs/pairing.md"
_ADMIN = "ServiceBusAdministrationClient.from_connection_string(SECONDARY)"


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNamespace]:
    tls = tmp_path_factory.mktemp("primary")
    # The pages say that it has what the quick start of the README describes.
    (config,) = (text for language, text in printed("README.md") if language == "yaml")
    (entities,) = yaml.safe_load(config)["namespaces"]
    del entities["name"]
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
    # The pages start the secondary with its data here.
    ca_file = Path("backup/tls/ca.pem")
    ca_file.parent.mkdir(parents=True)
    shutil.copy(secondary.ca_file, ca_file)
    places = {
        "127.0.0.1;": f"127.0.0.1:{primary.amqp_port};",
        ":5673;": f":{secondary.amqp_port};",
        ":8443;": f":{secondary.https_port};",
    }
    for name, said in exported().items():
        text = said
        for old, new in places.items():
            text = text.replace(old, new)
        monkeypatch.setenv(name, text)


def exported() -> dict[str, str]:
    """What the environment has after the shell lines of the guide that set it."""
    (lines,) = (text for language, text in blocks(GUIDE, __file__) if language == "")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{lines}\nenv"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return {name: found[name] for name in re.findall(r"export (\w+)=", lines)}


async def run(page: str, secondary: ServedNamespace) -> dict[str, Any]:
    """Run the examples of a page; returns the names that they made."""
    scope: dict[str, Any] = {"__name__": Path(page).stem}
    admin = f'"{secondary.admin_connection_string}", '
    admin += f'connection_verify="{secondary.ca_file}"'
    examples = [text for name, text in blocks(page, __file__) if name == "python"]
    for number, example in enumerate(examples, 1):
        text = example.replace(_ADMIN, _ADMIN.replace("SECONDARY", admin))
        code = compile(text, f"{page} {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, scope)  # noqa: S307 - our own page
        if inspect.isawaitable(result):
            await result
    return scope


async def test_the_examples_of_the_guide_run(
    primary: ServedNamespace,
    secondary: ServedNamespace,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope = await run(GUIDE, secondary)

    said = capsys.readouterr().out.splitlines()
    assert said[0] == "orders healthy 0 0"
    assert re.fullmatch(r"\d+ bytes of headroom", said[1])
    verdict = scope["full_queues_fail_over"](QuotaExceeded())
    assert verdict is scope["Verdict"].COUNTED
    assert scope["full_queues_fail_over"](ValueError()) is None
    assert said[2] == "0 messages in the outbox"
    # Both quick starts, the one with a timeout, the one from the edge and the till's.
    assert primary.purge("orders") == 5


async def test_both_programs_of_the_page_for_azure_servicebus_send(
    primary: ServedNamespace, secondary: ServedNamespace
) -> None:
    await run("docs/coming-from-azure-servicebus.md", secondary)

    assert primary.purge("orders") == 2


async def test_the_program_of_the_page_for_dotnet_pairs_and_sends(
    primary: ServedNamespace, secondary: ServedNamespace
) -> None:
    scope = await run("docs/coming-from-dotnet.md", secondary)

    assert scope["sender"].paired
    assert scope["options"].failover_interval == timedelta(minutes=1)
    for name in ("primary", "secondary"):
        await scope[name].close()
    scope["manager"].close()
    assert primary.purge("orders") == 1


def _table(after: str) -> list[str]:
    """The first column of the first table after a heading of the guide."""
    text = (ROOT / GUIDE).read_text().partition(f"## {after}\n")[2]
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
