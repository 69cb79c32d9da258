"""Spark's Python daemon with a broken syphon in it; for `--broken complete-early`.

Spark is told to start this module instead of its own daemon. Workers are forked from
it, so each of them has the defect. Owns nothing else.
"""

from __future__ import annotations

from pyspark import daemon

from twinbus.drill.broken import complete_early

if __name__ == "__main__":
    complete_early()
    daemon.manager()
