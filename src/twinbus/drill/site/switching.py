"""Faults that the primary makes itself: switched over HTTP, as `twinbus fault` does it.

Owns which faults of the drill are on, so that these and no others are ended. Each ends
by itself, too, should the drill be killed. In a namespace that the user has, a fault is
for the entities of the drill alone, where its kind allows that. Calls block; the site
runs them in threads.
"""

from __future__ import annotations

import threading
from typing import Any

from twinbus import limits
from twinbus.cli.remote import Remote
from twinbus.cli.sdk import ClientFailed
from twinbus.drill.children import DrillFailed
from twinbus.drill.plan import ENTITIES, WITNESS_QUEUE, Plan
from twinbus.server.broker.faults import KINDS, FaultKind


class Switch:
    """The switchboard of a primary, for one drill."""

    def __init__(self, plan: Plan, remote: Remote) -> None:
        self._plan = plan
        self._remote = remote
        self._on: list[int] = []
        self._over = False
        # A drill may be stopped while its fault is being switched on.
        self._lock = threading.Lock()

    def check(self) -> None:
        """Whether there is a switchboard; `ClientFailed` says why not."""
        self._remote.ask("GET", "/$faults")

    def on(self) -> None:
        """Switch the fault of the plan on."""
        plan = self._plan
        body: dict[str, Any] = {"kind": plan.fault}
        if plan.rules.delay_seconds:
            body["delay_seconds"] = plan.rules.delay_seconds
        if plan.fault == "stall":
            # It happens once, so it has no duration.
            self._ask("POST", "/$faults", body)
            return
        body["seconds"] = plan.outage_ms / 1000 + limits.DRILL_CHANGE_SECONDS
        with self._lock:
            for target in self._targets():
                if not self._over:
                    fault = self._ask("POST", "/$faults", {**body, "target": target})
                    self._on.append(fault["id"])

    def _targets(self) -> list[str]:
        """The entities that it is for; an empty name stands for the namespace."""
        if not self._plan.prefix or not KINDS[FaultKind(self._plan.fault)].entity:
            return [""]
        return [self._plan.real(path) for path in (*ENTITIES, WITNESS_QUEUE)]

    def off(self) -> None:
        """End what this drill has switched on."""
        self._over = True
        with self._lock:
            while self._on:
                self._ask("DELETE", f"/$faults/{self._on[-1]}")
                self._on.pop()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            return self._remote.ask(method, path, body)
        except ClientFailed as error:
            text = f"The primary's switchboard does not obey: {error.text}"
            raise DrillFailed(text) from error
