"""`python -m tests.fuzz --cases N`: fuzz every parser, or one, and report."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.engine import Report, fuzz, run_case, shares
from tests.fuzz.targets import TARGETS


def main() -> int:
    arguments = _parse()
    names = [arguments.target] if arguments.target else list(TARGETS)
    seed = arguments.seed
    if arguments.case is not None:
        report = Report(names[0])
        run_case(report, TARGETS[names[0]], seed, arguments.case)
        return _show(report)
    print(f"seed {seed}")
    start = time.monotonic()
    status = 0
    for name, cases in shares(arguments.cases, names):
        status |= _show(fuzz(name, TARGETS[name], seed, cases))
    print(f"{arguments.cases} cases in {time.monotonic() - start:.0f} s")
    return status


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--cases", type=int, default=100_000, help="in total, over all targets"
    )
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="the clock, if not given"
    )
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    parser.add_argument("--case", type=int, help="run one case of a target again")
    arguments = parser.parse_args()
    if arguments.case is not None and arguments.target is None:
        parser.error("--case needs --target")
    return arguments


def _show(report: Report) -> int:
    print(report, flush=True)
    for finding in report.findings:
        print(f"\n{finding}", file=sys.stderr)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
