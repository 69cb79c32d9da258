"""Work on many messages: planned, started, watched, cancelled.

Owns the life of a job: it counts what it would do (the dry run), waits for a yes, and
then works through the messages chunk by chunk. Each chunk is one transaction, so a job
that is cancelled or killed has done some chunks and not the others: no message is lost,
and none is there twice. Messages that come after the plan are not touched. A job ends
when the key of the visitor does. Jobs are in memory: after a restart one is planned
again, and finds what is left.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.errors import BusyError, MessageNotFound, TwinbusError
from twinbus.server.broker import answers
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.console.actions import ActionOutcome, Delete, Resubmit
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.looking import LookPlace, place_of, places_at
from twinbus.server.http.console.scanning import MessageFilter, Scan
from twinbus.server.http.console.visit import Visit
from twinbus.store.base import Stored, sequence_of

COUNTING, PLANNED, RUNNING = "counting", "planned", "running"
DONE, CANCELLED, FAILED = "done", "cancelled", "failed"


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """What is to be done with which messages."""

    path: EntityPath
    # resubmit, move or delete.
    action: str
    # The messages by number, or all that match.
    numbers: tuple[int, ...] | None
    filter: MessageFilter
    # The key of the entity that they go to; None: each to where it came from.
    target_key: str | None = None
    # Keys of the entities that the visitor may send to; None: any.
    allowed: frozenset[str] | None = None


@dataclass(slots=True)
class Job:
    """One piece of work, and how far it is."""

    id: str
    title: str
    path: EntityPath
    visit: Visit
    state: str = RUNNING
    # What there is to do, as far as it is counted, and what is done.
    total: int = 0
    outcome: ActionOutcome = field(default_factory=ActionOutcome)
    problem: str = ""
    plan: BulkPlan | None = None
    # Where messages would go, and how many.
    targets: dict[str, int] = field(default_factory=dict)
    # The last number of each container at the time of the plan.
    bounds: dict[int, int] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    is_cancelled: bool = False

    @property
    def handled(self) -> int:
        done = self.outcome
        return done.done + done.locked + done.gone + sum(done.refused.values())

    @property
    def is_active(self) -> bool:
        return self.state in (COUNTING, RUNNING)

    def describe(self) -> dict[str, Any]:
        """What the page of the job shows."""
        return {
            "id": self.id,
            "title": self.title,
            "path": self.path.text,
            "state": self.state,
            "is_active": self.is_active,
            "total": self.total,
            "handled": self.handled,
            "targets": self.targets,
            "problem": self.problem,
            **asdict(self.outcome),
        }


class Jobs:
    """The jobs of a namespace."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def find(self, id: str) -> Job:
        """A job by its id; refuses one that is not known."""
        job = self._jobs.get(id)
        if job is None:
            raise MessageNotFound("There is no such job. Plan it again.")
        return job

    def begin(self, job: Job, work: Callable[[Job], Coroutine[Any, Any, None]]) -> Job:
        """Let a job work; it goes on when the request is answered."""
        others = [each for each in self._jobs.values() if each is not job]
        running = [each for each in others if each.is_active]
        if len(running) >= limits.CONSOLE_JOBS_MAX:
            raise BusyError("Too many jobs are running. Wait for one to end.")
        while len(self._jobs) >= limits.CONSOLE_JOBS_KEPT:
            old = next(k for k, each in self._jobs.items() if not each.is_active)
            del self._jobs[old]
        self._jobs[job.id] = job
        job.task = asyncio.get_running_loop().create_task(_guarded(job, work))
        return job

    def plan(self, visit: Visit, plan: BulkPlan) -> Job:
        """Begin to count what a plan would do."""
        job = Job(secrets.token_hex(8), _title(plan), plan.path, visit, COUNTING)
        job.plan = plan
        return self.begin(job, _count)

    def start(self, job: Job) -> None:
        """Do what was planned."""
        assert job.state == PLANNED
        job.state = RUNNING
        self.begin(job, _work_off)

    async def close(self) -> None:
        """The server stops: jobs end after the chunk in hand."""
        active = [each for each in self._jobs.values() if each.is_active]
        for job in active:
            job.is_cancelled = True
        tasks = [each.task for each in active if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=limits.HTTP_CLOSE_SECONDS_MAX)


def _title(plan: BulkPlan) -> str:
    if plan.action == "move":
        return f"Move messages of {plan.path.text} to {plan.target_key}"
    return f"{plan.action.capitalize()} messages of {plan.path.text}"


async def _guarded(job: Job, work: Callable[[Job], Coroutine[Any, Any, None]]) -> None:
    try:
        await work(job)
    except TwinbusError as error:
        job.state, job.problem = FAILED, answers.text_of(error)
    except Exception:
        job.state, job.problem = FAILED, f"The job failed. {answers.SEE_LOG}"
        raise


# -- many messages ---------------------------------------------------------------------


async def _count(job: Job) -> None:
    """The dry run: how many, and where to."""
    plan = job.plan
    assert plan is not None
    for place in places_at(job.visit.host, plan.path):
        last = place.host.namespace.store.counts(place.container).last_sequence
        job.bounds[place.container] = place.base | last

    def take(place: LookPlace, stored: Stored) -> str:
        return plan.target_key or (stored.source or place.entity.name)

    async for _place, found in _chunks(job, take, limits.CONSOLE_SCAN_MESSAGES_MAX):
        job.total += len(found)
        for target in found if plan.action != "delete" else ():
            job.targets[target] = job.targets.get(target, 0) + 1
    job.state = CANCELLED if job.is_cancelled else PLANNED


async def _work_off(job: Job) -> None:
    """Chunk by chunk, each in a turn of its own."""
    plan = job.plan
    assert plan is not None

    def take(_place: LookPlace, stored: Stored) -> int:
        return stored.sequence

    async for place, found in _chunks(job, take, limits.CONSOLE_CHUNK_MESSAGES):
        audit = AuditEntry(job.visit.who, plan.action, plan.path.text, job.id)
        command = (
            Delete(place.container, found, audit)
            if plan.action == "delete"
            else Resubmit(place.container, found, audit, plan.target_key, plan.allowed)
        )
        job.outcome.add(await place.host.run(command))
    job.state = CANCELLED if job.is_cancelled else DONE


async def _chunks(
    job: Job, take: Callable[[LookPlace, Stored], Any], limit: int
) -> Any:
    """The messages of a plan, some at a time, until the job is cancelled."""
    plan = job.plan
    assert plan is not None
    if plan.numbers is not None:
        async for each in _chosen(job, take, limit):
            yield each
        return
    for place in places_at(job.visit.host, plan.path):
        until = job.bounds[place.container]
        scan = Scan(plan.filter, take, limit, until)
        start: int | None = place.base
        while start is not None and not job.is_cancelled:
            job.visit.admit()
            scanned = await scan.run(job.visit.console.looker, [place], start)
            start = scanned.next
            if scanned.found:
                yield place, scanned.found


async def _chosen(
    job: Job, take: Callable[[LookPlace, Stored], Any], limit: int
) -> Any:
    """Messages that were chosen one by one."""
    plan = job.plan
    assert plan is not None
    assert plan.numbers is not None
    by_place: dict[LookPlace, list[int]] = {}
    for number in plan.numbers:
        place = place_of(job.visit.host, plan.path, number)
        by_place.setdefault(place, []).append(sequence_of(number - place.base))
    for place, sequences in by_place.items():
        for at in range(0, len(sequences), limit):
            if job.is_cancelled:
                return
            job.visit.admit()
            part = sequences[at : at + limit]
            found = await place.host.run(partial(_find, place.container, part))
            yield place, [take(place, stored) for stored in found]


def _find(
    container: int, sequences: list[int], namespace: Namespace, turn: Turn
) -> list[Stored]:
    del turn
    return namespace.store.find(container, sequences)
