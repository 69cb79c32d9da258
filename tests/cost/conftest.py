"""The Spark session of the pipeline's tests, for reports as well."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
