"""The syphon on Spark with the defect in every worker.

Spark is told to start `spark_daemon` instead of its own daemon; it finds the module by
the path of this process.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.drill.broken.dying import may_die
from twinbus.drill.roles import syphon_spark
from twinbus.drill.roles.stage import Line

_DAEMON = "tests.drill.broken.complete_early.spark_daemon"


def break_workers(job: Line) -> None:
    may_die(job)
    os.environ["PYTHONPATH"] = f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"
    options = f"--conf spark.python.daemon.module={_DAEMON} pyspark-shell"
    os.environ["PYSPARK_SUBMIT_ARGS"] = options


if __name__ == "__main__":
    syphon_spark.main(break_workers)
