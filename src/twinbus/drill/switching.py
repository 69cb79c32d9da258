"""Faults that the primary makes itself: switched over HTTP, as `twinbus fault` does it.

Owns which faults of the drill are on, so that these and no others are ended. Each ends
by itself, too, should the drill be killed. Calls block; the site runs them in threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twinbus import limits
from twinbus.cli.remote import Remote
from twinbus.cli.sdk import ClientFailed
from twinbus.drill.children import DrillFailed
from twinbus.drill.plan import Plan

# These happen once: the server takes no duration for them.
_ONCE = ("stall",)


class Switch:
    """The switchboard of a primary, for one drill."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._on: list[int] = []

    def on(self, plan: Plan, targets: Sequence[str] = ("",)) -> None:
        """Switch the fault of a plan on, for the namespace or for these entities."""
        for target in targets:
            body: dict[str, Any] = {"kind": plan.fault}
            if target:
                body["target"] = target
            if plan.rules.delay_seconds:
                body["delay_seconds"] = plan.rules.delay_seconds
            if plan.fault in _ONCE:
                self._ask("POST", "/$faults", body)
                continue
            outage = plan.outage_ms / 1000
            body["seconds"] = outage + limits.DRILL_CHANGE_SECONDS
            self._on.append(self._ask("POST", "/$faults", body)["id"])

    def off(self) -> None:
        """End what this drill has switched on."""
        while self._on:
            self._ask("DELETE", f"/$faults/{self._on[-1]}")
            self._on.pop()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            return self._remote.ask(method, path, body)
        except ClientFailed as error:
            text = f"The primary's switchboard does not obey: {error.text}"
            raise DrillFailed(text) from error
