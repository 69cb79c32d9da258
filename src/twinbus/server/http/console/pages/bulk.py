"""Pages about many messages: plans with a dry run, and jobs under way.

Owns the form of a plan. To delete all that match asks for the name of the entity.
"""

from __future__ import annotations

from starlette.responses import Response

from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.rights import Operation
from twinbus.errors import ArgumentError, CallerError
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.placement import get_entity
from twinbus.server.http.console.forms import ConsoleForm
from twinbus.server.http.console.jobs import PLANNED, BulkPlan, Job
from twinbus.server.http.console.page import url
from twinbus.server.http.console.pages.entity import found
from twinbus.server.http.console.pages.sending import target_of
from twinbus.server.http.console.scanning import FILTERS, MessageFilter
from twinbus.server.http.console.visit import Visit

ACTIONS = ("resubmit", "move", "delete")


async def plan(visit: Visit) -> Response:
    """Begin the dry run of what the form asks for."""
    path, entity = found(visit)
    form = await visit.form()
    action = form.text("action")
    if action not in ACTIONS:
        raise ArgumentError("Choose what to do: resubmit, move or delete.")
    visit.demand(Operation.BATCH_DELETE, path)
    target_key, allowed = _targets(visit, path, entity, form)
    numbers = None
    if form.text("scope") != "all":
        numbers = _numbers(form)
    listed = MessageFilter.of(
        {name: form.text(name) for name in FILTERS if form.all(name)}
    )
    job = visit.console.jobs.plan(
        visit, BulkPlan(path, action, numbers, listed, target_key, allowed)
    )
    return _shown(visit, job)


def _targets(
    visit: Visit, path: EntityPath, entity: Entity, form: ConsoleForm
) -> tuple[str | None, frozenset[str] | None]:
    """Where messages go, and which targets the visitor may send to."""
    action = form.text("action")
    if action == "delete":
        return None, None
    home = EntityPath(path.entity, path.subscription)
    if action == "move":
        needed = form.needed("target", "The queue or topic to move to")
        return target_of(visit, needed, home).key, None
    if path.sub_queue is SubQueue.NONE:
        raise CallerError("Only dead letters are resubmitted. Move these, or edit one.")
    visit.demand(Operation.SEND_LINK, home)
    del entity
    entities = visit.host.namespace.shards.entities()
    return None, frozenset(
        each.key for each in entities if visit.may(Operation.SEND_LINK, each.path)
    )


def _numbers(form: ConsoleForm) -> tuple[int, ...]:
    texts = form.all("sequence")
    if not texts:
        raise ArgumentError("Choose messages, or all that match.")
    if not all(text.isascii() and text.isdigit() for text in texts):
        raise ArgumentError("A sequence number is a whole number.")
    return tuple(dict.fromkeys(map(int, texts)))


async def show(visit: Visit) -> Response:
    """A job: its dry run, or how far it is."""
    job = _job(visit)
    if visit.wants_json:
        return visit.page("", job.describe())
    plan = job.plan
    entity = get_entity(visit.host, job.path)
    is_all = plan is not None and plan.numbers is None
    data = {
        "job": job.describe(),
        "action": plan.action if plan is not None else "import",
        "asks_name": plan is not None and plan.action == "delete" and is_all,
        "entity": entity.name,
    }
    return visit.page("job.html", data)


async def start(visit: Visit) -> Response:
    """Do what was planned."""
    job = _job(visit)
    if job.state != PLANNED:
        raise CallerError(f"The job is {job.state}. Plan it again.")
    plan = job.plan
    assert plan is not None
    form = await visit.form()
    name = get_entity(visit.host, job.path).name
    is_all = plan.numbers is None
    if plan.action == "delete" and is_all and form.text("confirm").strip() != name:
        raise ArgumentError(f"To delete them all, write the name of the entity: {name}")
    visit.console.jobs.start(job)
    return _shown(visit, job)


async def cancel(visit: Visit) -> Response:
    """Stop after the chunk in hand."""
    job = _job(visit)
    job.is_cancelled = True
    return _shown(visit, job)


def _job(visit: Visit) -> Job:
    """The job that the query names; of those who may do the same."""
    job = visit.console.jobs.find(visit.query("id"))
    needed = Operation.BATCH_DELETE if job.plan is not None else Operation.SEND_LINK
    visit.demand(needed, job.path)
    return job


def _shown(visit: Visit, job: Job) -> Response:
    if visit.wants_json:
        return visit.page("", job.describe())
    return visit.redirect(url("job", id=job.id))
