"""The states of an entity in a drill, and which event of its pair leads to which.

Owns the words that are shown while a drill runs and in its picture, worst first. They
are those of a pair's status.
"""

from __future__ import annotations

from twinbus.pairing.events import EventKind

FAILED_OVER = "failed over"
REFUSED = "refused"
PROBATION = "probation"
SUSPECT = "suspect"
HEALTHY = "healthy"

WORST_FIRST = (FAILED_OVER, REFUSED, PROBATION, SUSPECT, HEALTHY)

# By the kind of the event, as histories have it.
STATE_AFTER = {
    EventKind.SUSPECT.value: SUSPECT,
    EventKind.FAILED_OVER.value: FAILED_OVER,
    EventKind.RELAPSED.value: FAILED_OVER,
    EventKind.REFUSED.value: REFUSED,
    EventKind.FAILED_BACK.value: PROBATION,
    EventKind.RECOVERED.value: HEALTHY,
}
