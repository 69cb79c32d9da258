"""A Spark session that drains the backlog whenever it is told to.

Run as `python -m bench.syphon_spark JOURNAL MASTER`. Reads one line of JSON for each
drain, with the connection strings of `primary` and `secondary`, and answers with one
line when the query has ended. The session stays, so that only the first drain starts
Python workers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType

from pyspark.sql import SparkSession

from bench.syphon_backlog import PRIMARY
from twinbus.spark import syphon
from twinbus.spark.syphon_job.job import SPARK_SETTINGS

_SETTINGS = {
    **SPARK_SETTINGS,
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def _session(master: str, folder: str) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("twinbus bench")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    return builder.config("spark.local.dir", folder).getOrCreate()


def _end(number: int, frame: FrameType | None) -> None:
    """Leave by the way that stops the session."""
    del number, frame
    sys.exit(0)


def main() -> None:
    journal, master = sys.argv[1:]
    signal.signal(signal.SIGTERM, _end)
    spark = _session(master, f"{journal}-spark")
    try:
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            query = syphon(
                spark,
                until_empty=True,
                primaryConnectionString=command["primary"],
                secondaryConnectionString=command["secondary"],
                primaryName=PRIMARY,
                journalLocation=journal,
            )
            query.awaitTermination()
            print(json.dumps({"drained": True}), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
