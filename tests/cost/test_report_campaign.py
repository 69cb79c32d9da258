"""Reports at full size: on a cluster, of every simulated month, and of a year.

A report on a cluster of several machines is that of one machine, row by row.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cost.months import MONTHS, check_report
from tests.cost.truth import differences, truth_of
from tests.spark.syphon_drain import standalone
from twinbus.ledger.synthetic.traffic import SyntheticPlan
from twinbus.ledger.synthetic.writing import write_synthetic

pytestmark = pytest.mark.campaign

PLAN = SyntheticPlan(rows=200_000, days=20, entities=200)
YEAR = SyntheticPlan(rows=10_000_000, days=365, outages=100)


def reported(ledger: Path, kept: Path, master: str) -> Any:
    options = ["--ledger", str(ledger), "--parquet", str(kept), "--master", master]
    command = [sys.executable, "-m", "twinbus.cli.main", "cost", "report", *options]
    settings = ["--conf", "spark.executor.memory=512m", "--json"]
    done = subprocess.run(
        [*command, *settings],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_standalone_cluster_gives_the_same_answer(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    write_synthetic(PLAN, ledger)
    here = reported(ledger, tmp_path / "here", "local[2]")

    with standalone(tmp_path / "cluster", workers=2) as address:
        there = reported(ledger, tmp_path / "there", address)

    assert len(here["outages"]) == PLAN.outages
    assert there == here


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_outages_of_a_year_are_those_that_were_made_up(
    tmp_path: Path, seed: int
) -> None:
    ledger = tmp_path / "ledger"
    write_synthetic(replace(YEAR, seed=seed), ledger)

    found = reported(ledger, tmp_path / "kept", "local[2]")

    assert differences(found["outages"], truth_of(ledger)) == []


@pytest.mark.parametrize("name", MONTHS)
def test_the_report_of_a_simulated_month_is_its_forecast(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    check_report(spark, tmp_path, name)
