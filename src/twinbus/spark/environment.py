"""Whether this machine can run Spark, answered in one line.

Owns the versions that are needed. Asks before anything of PySpark is imported, because
what a wrong Java or a missing package does otherwise is a page of Java's stack
traces. `python -m twinbus.spark.environment` asks from a shell.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from twinbus import limits
from twinbus.errors import ConfigError

_PYSPARK_MIN = (4, 2)
_PANDAS_MAX = (3,)
_JAVA_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
# What the extra `spark` has, spelled so that it works in any folder.
_INSTALL = "pip install 'pyspark>=4.2' 'pandas<3'"
_INSTALL_JAVA = (
    "install Java 17, 21 or 25 (on Debian: apt-get install openjdk-17-jre-headless) "
    "and set JAVA_HOME to it if there are several"
)


def check_environment(*, java: bool = True) -> None:
    """Raise `ConfigError` with what to do, unless Spark can run here.

    Without `java` for Spark Connect, whose Java is on another machine.
    """
    pyspark = _version("pyspark")
    if pyspark < _PYSPARK_MIN:
        raise ConfigError(
            f"PySpark {_text(pyspark)} is too old; 4.2 or newer is needed: {_INSTALL}"
        )
    _version("pyarrow")
    pandas = _version("pandas")
    if pandas >= _PANDAS_MAX:
        raise ConfigError(
            f"pandas {_text(pandas)} is newer than PySpark knows; install an older "
            "one: pip install 'pandas<3'"
        )
    if java:
        _check_java()


def _version(package: str) -> tuple[int, ...]:
    try:
        text = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(f"Spark needs the package '{package}': {_INSTALL}") from None
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise ConfigError(f"Spark needs Java, and there is none: {_INSTALL_JAVA}.")
    try:
        # The path is the user's own: JAVA_HOME or PATH.
        answer = subprocess.run(  # noqa: S603
            [found, "-version"],
            capture_output=True,
            text=True,
            timeout=limits.JAVA_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{found} does not run ({error}): {_INSTALL_JAVA}.") from None
    version = _VERSION.search(answer.stderr + answer.stdout)
    if version is None:
        raise ConfigError(f"{found} does not say its version: {_INSTALL_JAVA}.")
    if int(version[1]) < _JAVA_MIN:
        raise ConfigError(
            f"{found} is Java {version[1]}, which Spark does not run on: "
            f"{_INSTALL_JAVA}."
        )


if __name__ == "__main__":
    try:
        check_environment()
    except ConfigError as error:
        sys.exit(error.text)
