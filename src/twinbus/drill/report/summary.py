"""What a drill has shown, as plain values and as one sentence.

Owns the final figures: the table, the JSON and the report all show these. Judges
nothing, and counts nothing that others have counted.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.drill.plan import Plan
from twinbus.drill.report.lessons import helped, seen
from twinbus.drill.scene import PHASES, Scene

if TYPE_CHECKING:
    from twinbus.drill.director import Performance
    from twinbus.drill.judge import Judgement

_SYPHONS = {"spark": "Spark", "application": "the application's own syphon"}


def summary_of(performance: Performance) -> dict[str, Any]:
    """Everything, as JSON has it."""
    plan, scene = performance.plan, performance.scene
    judgement = performance.judgement
    return {
        "ok": judgement.ok,
        "sentence": sentence(plan, scene, judgement),
        "reasons": judgement.reasons,
        "seconds": round(scene.now, 1),
        "plan": plan.to_values(),
        "fault": plan.fault_text,
        "saw": [asdict(each) for each in seen(scene.sightings, scene.fault or (0, 0))],
        "helped": [asdict(each) for each in helped(scene, performance.events)],
        "moved": scene.moved,
        "backlog_max": max((sum(s.backlog.values()) for s in scene.samples), default=0),
        "phases": [
            {
                "name": phase.name,
                "text": PHASES[phase.name],
                "seconds": round(phase.seconds(scene.now), 1),
            }
            for phase in scene.phases
        ],
        "entities": [asdict(line) for line in scene.entities()],
        "pings_seen": scene.pings,
        "figures": judgement.figures(),
        "spark": scene.spark,
        "notes": scene.notes,
        "settings": settings(plan),
        "repeat": repeat(plan),
        "repeat_with_make": repeat_with_make(plan),
    }


def sentence(plan: Plan, scene: Scene, judgement: Judgement) -> str:
    """The outcome, in words."""
    report = judgement.report
    if not judgement.ok:
        count = len(judgement.reasons)
        found = "reason" if count == 1 else "reasons"
        return f"The drill failed, for {count} {found}."
    copies, again = report.duplicates.total(), "none came twice"
    redelivered = report.verdict.counts["delivered_again"]
    if copies == 1:
        again = "1 further copy came, for a known reason"
    elif copies:
        again = f"{copies:,} further copies came, each for a known reason"
    elif redelivered:
        again = "no second copy was made"
    if redelivered:
        again += f" ({redelivered:,} delivered again: an answer was lost)"
    seconds = sum(
        phase.seconds(scene.now) for phase in scene.phases if phase.name == "outage"
    )
    home = ""
    if scene.moved:
        home = (
            f" {scene.moved:,} of them came home through the backlog with "
            f"{_SYPHONS[plan.syphon]}."
        )
    return (
        f"Nothing was lost. {report.accepted:,} messages were accepted, although for "
        f"{seconds:.0f} seconds the primary had this fault: {plan.fault_text}.{home} "
        f"All were received, and {again}."
    )


def settings(plan: Plan) -> dict[str, str]:
    """How it was set up, for people."""
    cast = {"cast": plan.cast} if plan.cast else {}
    if plan.prefix:
        cast["entities"] = f"in your namespaces, as {plan.prefix}..."
    return {
        "fault of the primary": plan.fault_text,
        "traffic": f"{plan.messages:,} messages in {plan.traffic_ms / 1000:g} s from "
        f"{plan.senders} processes",
        "failover interval": f"{limits.DRILL_FAILOVER_SECONDS:g} s (usual: 1 minute)",
        "ping interval": f"{limits.DRILL_PING_SECONDS:g} s (usual: 1 minute)",
        "backlog queues": f"{limits.DRILL_BACKLOG_QUEUES} (usual: 10)",
        "syphon": _SYPHONS[plan.syphon],
        "seed": str(plan.seed),
        **cast,
    }


def repeat(plan: Plan) -> str:
    """The command that does the same again."""
    words = ["twinbus drill", f"--fault {plan.fault}", f"--seed {plan.seed}"]
    seconds = plan.traffic_ms / 1000
    if plan.messages != round(seconds * limits.DRILL_RATE):
        words.append(f"--messages {plan.messages}")
    elif seconds != limits.DRILL_SECONDS:
        words.append(f"--seconds {seconds:g}")
    if plan.senders != 3:
        words.append(f"--senders {plan.senders}")
    if plan.syphon != "spark":
        words.append(f"--syphon {plan.syphon}")
    if plan.cast:
        words.append(f"--cast {plan.cast}")
    if plan.given:
        words.append(plan.given)
    return " ".join(words)


def repeat_with_make(plan: Plan) -> str:
    """The same with make, which knows no other options."""
    command = f"make drill FAULT={plan.fault} SEED={plan.seed}"
    return command if repeat(plan).count("--") == 2 else ""


def figures(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The numbers that people want, with their names."""
    found = summary["figures"]
    over, back = found["failover_seconds"], found["failback_seconds"]
    copies = found["duplicates"]
    return [
        ("accepted", f"{found['accepted']:,}"),
        ("lost", f"{found['lost']:,}"),
        ("sends that raised", f"{found['refused'] + found['unknown']:,}"),
        ("came home through the backlog", f"{summary['moved']:,}"),
        ("most in the backlog", f"{summary['backlog_max']:,}"),
        ("further copies, explained", f"{sum(copies.values()):,}"),
        ("further copies, unexplained", f"{found['unexplained_duplicates']:,}"),
        ("delivered again, no copy", f"{found['counts'].get('delivered_again', 0):,}"),
        ("pings that a receiver saw", f"{summary['pings_seen']:,}"),
        ("longest send", f"{found['send_seconds_max']:.1f} s"),
        ("time to fail over", _spread(over)),
        ("time to fail back", _spread(back)),
        ("the whole drill", f"{summary['seconds']:.0f} s"),
    ]


def _spread(found: dict[str, float]) -> str:
    if not found.get("count"):
        return "never"
    return f"{found['median']:.1f} s, at most {found['max']:.1f} s"
