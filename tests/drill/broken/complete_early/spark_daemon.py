"""Spark's Python daemon with the defect: workers are forked from it and have it too."""

from __future__ import annotations

from pyspark import daemon

from tests.drill.broken.complete_early.pump import complete_early

if __name__ == "__main__":
    complete_early()
    daemon.manager()
