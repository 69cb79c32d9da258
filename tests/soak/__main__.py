"""Runs a soak and says how it went: `python -m tests.soak --seconds 600 --seed 1`.

Ends with 1 if a promise was broken, and keeps the history then. The seed decides which
faults come in which order; when exactly they meet which message is up to the machine.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
from pathlib import Path

from tests.soak.run import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="twinbus-soak-"))
    print(f"seed {given.seed}, {given.seconds:g} seconds, data in {folder}", flush=True)
    soak = Soak(folder, given.seed, given.seconds)
    report = soak.run()
    print(soak.text(report))
    figures = json.dumps(soak.figures(report))
    print(figures)
    if given.json:
        given.json.write_text(figures + "\n")
    if report.ok:
        soak.clean()
        return 0
    print(f"The history is kept in {folder}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
