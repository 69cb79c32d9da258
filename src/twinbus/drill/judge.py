"""The judgement: whether every promise was kept, and if not, why.

Owns what counts as a failure of the drill. Most of it is the history checker's verdict;
beside that, a drill fails if a message was accepted and not received by its end, and if
it does not show what its fault has to show (`FAULTS` in `plan.py`): who fails over, and
whether a send may raise. Reads the histories of all processes. Knows nothing about how
they came to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinbus import limits
from twinbus.drill.answers import answers_in
from twinbus.drill.plan import ENTITIES, Plan, rules
from twinbus.testing.events import Event, load
from twinbus.testing.history_evidence import PairHealth
from twinbus.testing.history_paired import PairedReport, check_paired
from twinbus.testing.verdict import KINDS


@dataclass(slots=True)
class Judgement:
    """What the drill has shown."""

    report: PairedReport
    # Why it failed, one sentence each; empty if it did not.
    reasons: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.reasons

    def figures(self) -> dict[str, Any]:
        """Plain values, for machines and for the report."""
        verdict = self.report.verdict
        return {
            **self.report.figures(),
            "ok": self.ok,
            "reasons": self.reasons,
            "counts": dict(verdict.counts),
            "broken": dict(verdict.broken),
            "findings": [str(each) for each in verdict.findings],
        }


def read_histories(folder: Path) -> list[Event]:
    """All events of all processes."""
    return [event for path in sorted(folder.glob("*.jsonl")) for event in load(path)]


def judge(plan: Plan, events: Sequence[Event], left: int) -> Judgement:
    """Judge a drill. `left` is how many messages the final look has found."""
    report = check_paired(events, rules(plan))
    judgement = Judgement(report)
    say = judgement.reasons.append
    for kind, meaning in KINDS.items():
        count = report.verdict.broken[kind]
        if count:
            say(f"{count:,} {kind}: {meaning}. {_examples(report, kind)}")
    if left:
        say(f"Messages that were still waiting at the end: {left:,}.")
    for reason in (*_raised(plan, report, events), *_not_shown(plan, events)):
        say(reason)
    return judgement


def _raised(plan: Plan, report: PairedReport, events: Sequence[Event]) -> list[str]:
    """Sends that raised where none may, and messages that were given up."""
    if not plan.rules.raises:
        count = report.unknown + report.refused
        text = f"Sends that did not succeed: {count:,}. A paired send never fails."
        return [text] if count else []
    sends = [event for event in events if event.op == "send"]
    accepted = {event.key for event in sends if event.result == "ok"}
    lacking = {event.key for event in sends} - accepted
    text = f"Messages that no send was accepted for: {len(lacking):,}."
    return [text] if lacking else []


def _examples(report: PairedReport, kind: str) -> str:
    found = [each for each in report.verdict.findings if each.kind == kind]
    texts = [f"{each.key or '-'} in {each.queue}: {each.text}" for each in found]
    return "For example " + "; ".join(texts[: limits.DRILL_FINDINGS_MAX]) + "."


def _not_shown(plan: Plan, events: Sequence[Event]) -> list[str]:
    """What a drill has to show, and this one has not."""
    pairing = [event for event in events if event.op == "pairing"]
    spans = list(PairHealth(pairing).spans())
    over = {(process, path) for process, path, span in spans if span.failed_over}
    found = []
    for number in range(plan.senders):
        name = f"sender-{number}"
        missing = [path for path in ENTITIES if (name, path) not in over]
        if missing and plan.rules.fails_over:
            found.append(f"{name} never failed over with {', '.join(missing)}.")
    if over and plan.rules.fails_over is False:
        names = ", ".join(sorted({path for _, path in over}))
        found.append(f"These failed over, which this fault is no reason for: {names}.")
    if plan.rules.relapses and not any(span.relapsed for _, _, span in spans):
        found.append("No entity relapsed, though pings were accepted and sends failed.")
    if plan.rules.answer and not answers_in(events)[plan.rules.answer]:
        found.append(f"No send was answered with {plan.rules.answer}.")
    return found
