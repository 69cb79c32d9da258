"""A machine that cannot run Spark is told so in one line."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from twinbus.errors import ConfigError
from twinbus.spark.environment import _INSTALL, check_environment

ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path, name: str, version: str) -> None:
    """Make a package seem installed in another version."""
    found = folder / f"{name}-{version}.dist-info"
    found.mkdir()
    (found / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )


def java(folder: Path, says: str) -> None:
    """A Java that says something when it is asked for its version."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)


def refusal() -> str:
    with pytest.raises(ConfigError) as caught:
        check_environment()
    assert "\n" not in caught.value.text
    return caught.value.text


def test_this_machine_can_run_spark() -> None:
    check_environment()


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("pyspark", "4.1.2", "PySpark 4.1.2 is too old; 4.2 or newer is needed"),
        ("pandas", "3.0.1", "pip install 'pandas<3'"),
    ],
)
def test_a_wrong_package_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    version: str,
    says: str,
) -> None:
    install(tmp_path, name, version)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert says in refusal()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])

    assert refusal() == (
        "Spark needs the package 'pyspark': pip install 'pyspark>=4.2' 'pandas<3'"
    )


def test_the_install_hint_matches_the_packages_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]["spark"]

    assert sorted(re.findall("'(.*?)'", _INSTALL)) == sorted(wanted)


@pytest.mark.parametrize(
    ("version", "name"), [("1.8.0_402", "Java 8"), ("11.0.2", "Java 11")]
)
def test_an_old_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, name: str
) -> None:
    java(tmp_path, f'openjdk version "{version}" 2024-01-01')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert f"is {name}, which Spark does not run on" in refusal()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_fits_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java(tmp_path, f'openjdk version "{version}" 2024-01-01')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    check_environment()


def test_a_java_that_is_no_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path, "what?")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert "does not say its version" in refusal()


def test_a_missing_java_is_one_line_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert refusal().startswith("Spark needs Java, and there is none: install Java 17")
    check_environment(java=False)


def test_a_shell_gets_the_line_and_a_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twinbus.spark.environment"],
        env={"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "JAVA_HOME" in done.stderr
