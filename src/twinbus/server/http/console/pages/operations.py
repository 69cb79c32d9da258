"""Pages for operators: rehearsed faults, diagnostics, and the log of changes."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import JSONResponse, Response

from twinbus.core.rights import Operation
from twinbus.errors import CallerError, MessageNotFound, StoreFault
from twinbus.server.broker.directory.placement import find_entity
from twinbus.server.broker.faults import KINDS, read_request
from twinbus.server.broker.host import Host
from twinbus.server.http.console.audit import read_audit
from twinbus.server.http.console.page import url, when
from twinbus.server.http.console.visit import Visit

# -- faults ----------------------------------------------------------------------------


async def faults(visit: Visit) -> Response:
    """What is rehearsed now, and what can be."""
    visit.demand(Operation.REHEARSE_FAULTS)
    now_ms = visit.host.clock.now_ms()
    on = visit.host.faults
    data = {
        "is_enabled": on is not None,
        "faults": [
            {
                **each.describe(),
                "left_seconds": max(each.until_ms - now_ms, 0) // 1000,
                "text": each.kind.rules.text,
            }
            for each in (on.on.values() if on is not None else ())
        ],
        "kinds": [
            {"name": kind.value, "text": rules.text} for kind, rules in KINDS.items()
        ],
    }
    return visit.page("faults.html", data)


async def switch_fault(visit: Visit) -> Response:
    """Switch a fault on, or off."""
    visit.demand(Operation.REHEARSE_FAULTS)
    switchboard = visit.console.port.switchboard
    if switchboard is None:
        raise CallerError("This server was started without --faults.")
    form = await visit.form()
    number = form.line("clear")
    if number is not None:
        chosen = None if number == "all" else form.number("clear", 0, 1 << 31, 0)
        cleared = switchboard.clear(chosen)
        await visit.note("end fault", ", ".join(map(str, cleared)))
        return visit.done("Ended.", url("faults"), {"cleared": len(cleared)})
    given: dict[str, Any] = {"kind": form.text("kind"), "target": form.line("target")}
    for name in ("seconds", "delay_seconds", "share"):
        text = form.line(name)
        if text is not None:
            given[name] = _number(text, name)
    host = visit.host
    asked = read_request(
        given, lambda key: find_entity(host, key) is not None, len(host.hosts)
    )
    await visit.note("begin fault", f"{asked.kind.value} {asked.key}".strip())
    fault = switchboard.add(asked)
    return visit.done(f"{fault} is on.", url("faults"), fault.describe())


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CallerError(f"'{name}' must be a number.") from None


# -- diagnostics -----------------------------------------------------------------------


async def diagnostics(visit: Visit) -> Response:
    """How each shard does: turns, commits, load, and what went wrong."""
    visit.demand(Operation.READ_NAMESPACE)
    bundles = await asyncio.to_thread(visit.console.port.bundles)
    data = {
        "instance": visit.host.instance,
        "shards": [_diagnosed(host) for host in visit.host.hosts],
        "bundles": [{name: each[name] for name in _BUNDLED} for each in bundles],
    }
    return visit.page("diagnostics.html", data)


_BUNDLED = ("id", "time", "reason", "uptime_seconds")


async def bundle(visit: Visit) -> Response:
    """What is known of one failure, as a file; it holds no message and no key."""
    visit.demand(Operation.READ_NAMESPACE)
    wanted = visit.query("id")
    for each in await asyncio.to_thread(visit.console.port.bundles):
        if each["id"] == wanted:
            headers = {
                "Content-Disposition": f'attachment; filename="{wanted}.json"',
                "Cache-Control": "no-store",
            }
            return JSONResponse(each, 200, headers)
    raise MessageNotFound("There is no such bundle any more: the newest ten are kept.")


def _diagnosed(host: Host) -> dict[str, Any]:
    namespace = host.namespace
    return {
        "shard": namespace.shard,
        "problem": None if host.fault is None else host.fault.text,
        "turns": host.turns,
        "turn_seconds": _spread(host.turn_seconds.cumulative()),
        "commit_seconds": _spread(host.commit_seconds.cumulative()),
        "pending_bytes": host.pending.size_bytes,
        "quarantined": namespace.store.quarantined(),
        "is_nearly_full": namespace.store.is_nearly_full(),
        "defects": dict(namespace.defects),
        "load": host.load.figures()["facets"],
    }


def _spread(cumulative: Any) -> list[dict[str, Any]]:
    """How many values were up to each bound, without those above."""
    before, listed = 0, []
    for bound, count in cumulative:
        if count > before:
            shown = None if bound == float("inf") else bound
            listed.append({"up_to": shown, "count": count - before})
        before = count
    return listed


# -- the log of changes ----------------------------------------------------------------


async def audit(visit: Visit) -> Response:
    """Who did what to how many, when; newest first."""
    visit.demand(Operation.READ_NAMESPACE)
    hosts = [host for host in visit.host.hosts if host.fault is None]
    found = await asyncio.gather(
        *(host.run(read_audit) for host in hosts), return_exceptions=True
    )
    entries: list[dict[str, Any]] = []
    for each in found:
        if isinstance(each, StoreFault):
            continue
        if isinstance(each, BaseException):
            raise each
        entries += each
    entries.sort(key=lambda each: -each["at_ms"])
    for entry in entries:
        entry["at"] = when(entry["at_ms"])
    return visit.page("audit.html", {"entries": entries})
