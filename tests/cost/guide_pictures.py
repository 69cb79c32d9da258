"""Draws the pictures of the guide to costs, from the made-up ledger that it shows.

    python -m tests.cost.guide_pictures

They are those of the page of its report. A test compares them with what is drawn, so
that they cannot be of an older report or page.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from twinbus.cli.cost_report import priced
from twinbus.cli.cost_report_view import report_json
from twinbus.cli.spark_session import spark_session
from twinbus.cost.forecast import STAGES
from twinbus.cost.page import page, pictures
from twinbus.cost.prices import load_prices
from twinbus.ledger.synthetic.traffic import SyntheticPlan
from twinbus.ledger.synthetic.writing import write_synthetic
from twinbus.spark.reports.job import SPARK_SETTINGS, ReportData, ReportPlan, report

# The ledger that a command of the guide makes up.
PLAN = SyntheticPlan(rows=300_000, days=40)
COMMAND = f"twinbus cost synthetic --rows {PLAN.rows} --days {PLAN.days} "
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
NAMES = ("cost-calendar", "cost-rates", "cost-stages", "cost-backlog")
_WIDTH = 640


def drawn(found: ReportData) -> dict[str, str]:
    """The pictures of a report by name, each with the style that it needs."""
    shown = report_json(found, priced(found, load_prices(None)))
    days, outages = page.by_day(shown)
    place = max(
        shown["around"], key=lambda name: found.outages[int(name)]["diverted_messages"]
    )
    minutes = shown["around"][place]
    texts = (
        pictures.calendar(days, outages, _WIDTH),
        pictures.rates(shown, _WIDTH),
        pictures.costs(shown, (*STAGES, "other"), _WIDTH),
        pictures.backlog(shown["outages"][int(place)], minutes, _WIDTH),
    )
    return dict(zip(NAMES, map(_alone, texts), strict=True))


def _alone(picture: str) -> str:
    """A picture with its style inside, in lines that can be compared."""
    style = (Path(page.__file__).with_name("page.css")).read_text()
    # A picture in a page has the background of the page.
    colours = style[: style.index("* {")].replace("  color-scheme: light dark;\n", "")
    rules = style[style.index("text {") : style.index("@media (max-width")]
    own = f"svg {{ font: 12px system-ui, sans-serif; }}\n{colours}{rules}"
    head, content = picture.replace("><", ">\n<").split(">", 1)
    return f"{head}>\n<style>\n{own}</style>{content}\n"


def main() -> None:
    spark = spark_session("pictures of the guide", "local[2]", SPARK_SETTINGS, {})
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        write_synthetic(PLAN, ledger)
        found = report(spark, ReportPlan([str(ledger)]))
    for name, text in drawn(found).items():
        (FOLDER / f"{name}.svg").write_text(text)
    spark.stop()


if __name__ == "__main__":
    main()
