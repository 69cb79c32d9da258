"""One Spark session and one namespace for all tests of the pipeline.

A session takes seconds to start, so it is started once, and small. Tests keep out of
each other's way by names: every entity that a test makes has one of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.bus import Bus
from twinbus.spark.connections import close_connections
from twinbus.spark.environment import check_environment
from twinbus.testing.namespace import ServedNamespace

ROOT = Path(__file__).resolve().parents[2]
# The variable that holds the connection string, in workers too.
VARIABLE = "SERVICEBUS_CONNECTION_STRING"

# A driver that starts fast and stays small: the tests move some megabytes.
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # To compile a query takes longer than to run it on some rows; see `compiling`.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # An error is one line, without the trace of the worker.
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
}

_numbers = count(1)


@pytest.fixture(scope="session")
def spark(
    servicebus_server: ServedNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The session; workers have the namespace's connection string in a variable."""
    check_environment()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import what tests hand to them, and the package of this copy.
    os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    os.environ[VARIABLE] = servicebus_server.connection_string
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,4]").appName("twinbus tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    session = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def compiling(session: SparkSession) -> Iterator[None]:
    """Let Spark compile queries, as it does by default: faster with many rows."""
    names = [name for name in SETTINGS if name.startswith("spark.sql.codegen.")]
    for name in names:
        session.conf.unset(name)
    try:
        yield
    finally:
        for name in names:
            session.conf.set(name, SETTINGS[name])


@pytest.fixture(scope="session")
def _closed_at_the_end() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture
def bus(
    servicebus_server: ServedNamespace,
    tmp_path: Path,
    _closed_at_the_end: None,
) -> Bus:
    """The namespace, as the options of a job name it."""
    file = tmp_path / "connection-string"
    file.write_text(servicebus_server.connection_string)
    return Bus(servicebus_server, {"connectionStringFile": str(file)})


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"spark-{next(_numbers)}"


@pytest.fixture
def queue(bus: Bus, name: str, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own; `@pytest.mark.parametrize` may give its settings."""
    settings: dict[str, Any] = getattr(request, "param", {})
    return bus.namespace.create_queue(name, **settings)
