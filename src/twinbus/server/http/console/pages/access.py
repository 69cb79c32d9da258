"""Access: the authorization rules of the namespace, and their keys.

Owns the pages. A key is shown in the answer to the request that made it, and never
again. What is changed is changed by the commands that the HTTP API has.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from twinbus.core.rights import (
    AuthorizationRule,
    Operation,
    format_rights,
    parse_rights,
)
from twinbus.errors import ArgumentError
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Command, Turn
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.page import url, when
from twinbus.server.http.console.visit import Visit
from twinbus.server.http.upkeep import DeleteRule, PutRule, RegenerateKey


async def show(visit: Visit) -> Response:
    """The rules, without their keys."""
    visit.demand(Operation.READ_RULES)
    return visit.page("access.html", _data(visit))


def _data(visit: Visit, shown: AuthorizationRule | None = None) -> dict[str, Any]:
    namespace = visit.host.namespace
    configured = {rule.name for rule in namespace.config.authorization_rules}
    fresh = None
    if shown is not None:
        secondary = shown.secondary_key
        fresh = {
            "name": shown.name,
            "primary_key": shown.primary_key.reveal(),
            "secondary_key": secondary.reveal() if secondary else None,
        }
    return {
        "rules": [
            {
                "name": rule.name,
                "rights": list(format_rights(rule.rights)),
                "modified_at": when(rule.modified_at_ms),
                "is_configured": rule.name in configured,
            }
            for rule in namespace.rules
        ],
        "fresh": fresh,
        "may_change": visit.may(Operation.CHANGE_RULES),
    }


async def change(visit: Visit) -> Response:
    """Make a rule, replace a key of one, or delete one."""
    visit.demand(Operation.CHANGE_RULES)
    form = await visit.form()
    name = form.needed("name", "The name of the rule")
    action = form.text("action")
    audit = AuditEntry(visit.who, f"{action} authorization rule", name)
    if action == "delete":
        if form.text("confirm").strip() != name:
            raise ArgumentError(f"To delete it, write the name of the rule: {name}")
        await visit.host.run(_Audited(DeleteRule(name), audit))
        return visit.done(f"{name} is deleted.", url("access"), {"deleted": name})
    command: Command[AuthorizationRule]
    if action == "create":
        rights = parse_rights(form.all("right"))
        command = PutRule(name, rights, only_new=True)
    elif action in ("rotate primary", "rotate secondary"):
        command = RegenerateKey(name, secondary=action.endswith("secondary"))
    else:
        raise ArgumentError("Choose what to do: create, rotate or delete.")
    rule = await visit.host.run(_Audited(command, audit))
    return visit.page("access.html", _data(visit, rule))


class _Audited:
    """A command with its line in the log."""

    def __init__(self, command: Command[Any], audit: AuditEntry) -> None:
        self._command = command
        self._audit = audit

    def __call__(self, namespace: Namespace, turn: Turn) -> Any:
        result = self._command(namespace, turn)
        self._audit.note(namespace, turn, 1)
        return result
