"""The outages that a report has found in a made-up ledger, beside its truth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from twinbus.ledger.synthetic.writing import TRUTH_FILE

Outage = Mapping[str, Any]
_MINUTE = timedelta(minutes=1)
_EQUAL = ("entities", "senders", "diverted_messages", "diverted_bytes", "duplicates")


def truth_of(ledger: Path) -> list[dict[str, Any]]:
    """The outages that were made up."""
    kept = json.loads((ledger / TRUTH_FILE).read_text())
    return list(kept["outages"])


def differences(found: Sequence[Outage], truth: Sequence[Outage]) -> list[str]:
    """What is missing, invented or measured wrong; bounds may be a minute off."""
    missing = list(truth)
    wrong = []
    for each in found:
        real = next((other for other in missing if _is_same(each, other)), None)
        if real is None:
            wrong.append(f"invented: {each}")
            continue
        missing.remove(real)
        wrong += [f"{text} of {real}" for text in _wrong(each, real)]
    return wrong + [f"not found: {each}" for each in missing]


def _is_same(found: Outage, real: Outage) -> bool:
    bounds = all(abs(_off(found, real, name)) <= _MINUTE for name in ("start", "end"))
    return found["primary"] == real["primary"] and bounds


def _off(found: Outage, real: Outage, name: str) -> timedelta:
    return datetime.fromisoformat(found[name]) - datetime.fromisoformat(real[name])


def _wrong(found: Outage, real: Outage) -> Iterator[str]:
    for name in _EQUAL:
        if found[name] != real[name]:
            yield f"{name} {found[name]}"
    if found["inferred"] != (real["told_by"] != "events"):
        yield f"inferred {found['inferred']}"
    if abs(found["drain_minutes"] - real["drain_minutes"]) > 1:
        yield f"drain_minutes {found['drain_minutes']}"
