"""The container of docs/docker: its command line works where it may write little.

There is no Docker here. The command line of the Dockerfile and of compose.yaml runs,
with the key and the command of the page, in namespaces of its own: as an ordinary user,
with everything read-only but the volume and with a network that no other process has.
Needs root.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.printed import ROOT, blocks
from twinbus.core.sas import parse_connection_string

PAGE = "docs/docker/README.md"
DOCKER = ROOT / "docs" / "docker"
USER = 10001
AS_USER = f"setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs"
# Everything that is mounted becomes read-only, except what the kernel makes up. Folders
# above mount points are empty, so that the points can be made.
CONFINED = f"""
set -e
for place in {{above}}; do mount -t tmpfs tmpfs $place; done
mkdir {{volume}} && mount --bind {{data}} {{volume}}
touch {{config_place}} && mount --bind {{config}} {{config_place}}
for place in $(findmnt --noheadings --raw --output TARGET); do
    case $place in
        {{volume}}|/proc*|/sys*|/dev*) ;;
        *) mount -o remount,bind,ro $place ;;
    esac
done
ip link set lo up
exec {AS_USER} --bounding-set=-all {{command}}
"""


@pytest.fixture(scope="module")
def shown() -> tuple[str, list[str]]:
    """The key that the page makes, and the command that it runs in the container."""
    ((_, text),) = blocks(PAGE, __file__)
    export, up, execute = text.splitlines()
    assert up == "docker compose up --build --detach --wait"
    docker, compose, verb, service, *words = shlex.split(execute)
    assert (docker, compose, verb, service) == (*up.split()[:2], "exec", "twinbus")
    done = subprocess.run(
        ["sh", "-ec", f'{export}\nprintf %s "$TWINBUS_KEY"'],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout, words


def dockerfile() -> dict[str, Any]:
    """The instructions by their names; those that are lists as lists."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", "")
    found: dict[str, Any] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        value = value.removeprefix("CMD ") if name == "HEALTHCHECK" else value
        found[name] = json.loads(value) if value.startswith("[") else value
    return found


def compose() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    found: dict[str, Any] = service["services"]["twinbus"]
    return found


def command() -> list[str]:
    """The command line of the container, with the programs of this environment."""
    line = [*dockerfile()["ENTRYPOINT"], *compose()["command"]]
    assert line[0] == "twinbus"
    return [str(Path(sys.executable).with_name("twinbus")), *line[1:]]


@contextmanager
def confined(data: Path, key: str) -> Iterator[int]:
    """Run the container's command without Docker; gives its process id when ready."""
    volume, config_place = (each.split(":")[1] for each in compose()["volumes"])
    script = CONFINED.format(
        above=" ".join({str(Path(volume).parent), str(Path(config_place).parent)}),
        volume=volume,
        data=data,
        config=DOCKER / "twinbus.yaml",
        config_place=config_place,
        command=shlex.join(command()),
    )
    data.mkdir()
    os.chown(data, USER, USER)
    with subprocess.Popen(
        ["unshare", "--mount", "--net", "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TWINBUS_KEY": key},
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["ready"] is True
            yield process.pid
        finally:
            process.terminate()
    assert process.returncode == 0


def inside(pid: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the container, as `docker compose exec` does: with its key."""
    variables = Path(f"/proc/{pid}/environ").read_text().removesuffix("\0")
    enter = ["nsenter", "--mount", "--net", "--target", str(pid), *AS_USER.split()]
    return subprocess.run(
        [*enter, *words],
        check=False,
        capture_output=True,
        text=True,
        env=dict(each.split("=", 1) for each in variables.split("\0")),
    )


def _may_unshare() -> bool:
    words = ["unshare", "--mount", "--net", "true"]
    return not subprocess.run(words, check=False, capture_output=True).returncode


@pytest.mark.skipif(
    os.getuid() != 0 or not _may_unshare(), reason="needs root and namespaces"
)
def test_the_container_serves_as_an_ordinary_user_with_one_volume(
    tmp_path: Path, shown: tuple[str, list[str]]
) -> None:
    key, (program, *words) = shown
    twinbus, health = command()[0], dockerfile()["HEALTHCHECK"]
    with confined(tmp_path / "data", key) as pid:
        asked = inside(pid, sys.executable, *health[1:])
        written = inside(pid, "touch", "/tmp/new", "/srv/new", "/var/new")
        keys = inside(pid, twinbus, *words)
        (string,) = re.findall(r"^connection_string +(.*)", keys.stdout, re.MULTILINE)
        message = ("message", "send", "orders", "hello", "--connection-string", string)
        sent = inside(pid, twinbus, *message)

    assert asked.returncode == 0, asked.stderr
    assert written.stderr.count("Read-only file system") == 3, written.stderr
    parsed = parse_connection_string(string)
    assert (parsed.host, parsed.dev) == ("localhost", True)
    assert f"SharedAccessKey={key};" in string
    assert program == "twinbus"
    assert sent.returncode == 0, sent.stderr


def test_the_files_of_the_container_agree() -> None:
    image, service = dockerfile(), compose()

    ports = [each.split(":") for each in service["ports"]]
    assert {port for _, _, port in ports} == set(image["EXPOSE"].split())
    assert {address for address, _, _ in ports} == {"127.0.0.1"}
    assert image["VOLUME"] in [each.split(":")[1] for each in service["volumes"]]
    assert image["ENTRYPOINT"][-2:] == ["--data", image["VOLUME"]]
    assert service["read_only"] is True
    assert "TWINBUS_KEY:?" in service["environment"]["TWINBUS_KEY"]


def test_the_image_copies_what_the_package_is_built_from() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE)
    names = [name for line in copied for name in line.split()]

    project = (ROOT / "pyproject.toml").read_text()
    for name in ("README.md", "LICENSE", "src"):
        assert name in names
        assert name in project
    assert all((ROOT / name).exists() for name in names)
