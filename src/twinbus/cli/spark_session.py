"""A Spark session for a command, or one line that says why there is none.

Owns what is the same for every job: a quiet terminal, loopback and this Python for a
local master, and a master that is asked whether it answers before Spark tries for
minutes. Knows no job.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Of Spark Connect, where a master names none.
_CONNECT_PORT = "15002"
# Instead of Spark's own, which is too talkative beside a table.
_FILE = Path(__file__).with_name("spark_log4j2.properties").as_uri()
_LOGGING = f"-Dlog4j2.configurationFile={_FILE}"


def spark_session(
    name: str, master: str, usual: Mapping[str, str], given: Mapping[str, str]
) -> SparkSession:
    """Start Spark; `ConfigError` says what to do. What is given wins over the usual."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if master.startswith("local"):
        # Its pages are for this machine, and its workers are this Python.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _check_answers(master)
    builder = SparkSession.builder.appName(name)
    settings = dict(given)
    if master.startswith("sc:"):
        # The server has its settings already.
        builder = builder.remote(master)
    else:
        builder = builder.master(master)
        java = f"{_LOGGING} {usual.get(JAVA_OPTIONS, '')}".strip()
        quiet = {"spark.ui.showConsoleProgress": "false"}
        settings = {**quiet, **usual, JAVA_OPTIONS: java, **given}
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        needs = "Java 17 or newer, and a master that can be reached"
        if master.startswith("sc:"):
            needs = "pip install 'pyspark[connect]', and a server that can be reached"
        shown = _without_token(master)
        why = first_line(str(error)).replace(master, shown)
        raise ConfigError(
            f"Spark cannot start with --master {shown}: {why} It needs {needs}."
        ) from None


def _without_token(master: str) -> str:
    """For people: the parameters of Spark Connect may hold a token."""
    return master.partition(";")[0]


def _check_answers(master: str) -> None:
    """Refuse a master that does not answer: Spark itself would try for minutes."""
    found = re.match(r"(?:sc|spark)://([^/;]+)", master)
    if found is None:
        return
    for authority in found.group(1).split(","):
        host, _, port = authority.rpartition(":")
        if not port.isdigit():
            host, port = authority, _CONNECT_PORT
        try:
            with socket.create_connection(
                (host.strip("[]"), int(port)), limits.CLI_MASTER_SECONDS
            ):
                return
        except (OSError, OverflowError) as error:
            last = error
    raise ConfigError(
        f"--master {_without_token(master)} does not answer ({last}). Start it, or "
        "name another."
    )


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
