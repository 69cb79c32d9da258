"""The director: lets the drill happen, part by part, with a child for every role.

Owns the order of things and every wait; each wait has an end, after which the drill has
failed and says what it was waiting for. Starts all processes and leaves none behind,
whatever happens. What is to happen is the plan's; whether it was right is the judge's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from twinbus import limits
from twinbus.drill.children import (
    Child,
    DrillFailed,
    Line,
    end_all,
    kill_leftovers,
    module_of,
)
from twinbus.drill.judge import Judgement, judge, read_histories
from twinbus.drill.look import FinalLook, empty
from twinbus.drill.plan import PLACES, Plan
from twinbus.drill.scene import Scene
from twinbus.drill.site.access import NamespaceAccess
from twinbus.drill.site.given_site import GivenNamespaces, GivenSite
from twinbus.drill.site.site import ServerSite, Site
from twinbus.errors import RemoteError
from twinbus.testing.events import Event, Recorder


class Screen(Protocol):
    """Who watches."""

    def show(self, scene: Scene) -> None:
        """The numbers of the moment."""


@dataclass(slots=True)
class Performance:
    """A drill that was carried through."""

    plan: Plan
    scene: Scene
    judgement: Judgement
    events: list[Event]
    # When the drill began, as events count time.
    begun_ms: float


class Director:
    """One drill."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        screen: Screen,
        given: GivenNamespaces | None = None,
    ) -> None:
        self.plan = plan
        self.scene = Scene(plan)
        self._screen = screen
        self._run = token_hex(8)
        self._folder = folder
        self._history = folder / "history"
        self._history.mkdir(parents=True)
        self._recorder = Recorder(self._history / "director.jsonl")
        self._begun_ms = self._recorder.now()
        self._begun = 0.0
        self._site: Site = (
            ServerSite(plan, folder, self._run)
            if given is None
            else GivenSite(plan, folder, self._run, given)
        )
        # Entities that could not be removed.
        self.left: list[str] = []
        self._senders: list[Child] = []
        self._receivers: list[Child] = []
        self._syphon: Child | None = None
        self._witness: Child | None = None
        self._ready: set[str] = set()
        self._drained = False
        self._deaths = 0
        self._replacing: asyncio.Task[None] | None = None
        self._fault: Event | None = None
        self._news = asyncio.Event()
        self._failure: asyncio.Future[None] | None = None

    # -- the whole of it ---------------------------------------------------------------

    async def run(self) -> Performance:
        """Carry it through; raises `DrillFailed` if that is not possible."""
        try:
            await self._site.check()
        except BaseException:
            await self._site.close()
            raise
        loop = asyncio.get_running_loop()
        self._begun = loop.time()
        self._failure = loop.create_future()
        script = loop.create_task(self._script())
        beside = [loop.create_task(self._paint()), loop.create_task(self._sample())]
        try:
            watched: list[asyncio.Future[Any]] = [script, self._failure, *beside]
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for each in watched[1:]:
                if each.done():
                    each.result()
            return script.result()
        finally:
            for task in (script, *beside):
                task.cancel()
            await asyncio.gather(script, *beside, return_exceptions=True)
            if not self._failure.done():
                self._failure.cancel()
            await self._clear(in_order=not script.cancelled())

    async def _script(self) -> Performance:
        await self._start()
        await self._be_well()
        await self._break()
        await self._restore()
        await self._bring_home()
        await self._settle()
        return await self._judge()

    # -- the parts ---------------------------------------------------------------------

    async def _start(self) -> None:
        self._begin("start")
        if self.plan.syphon == "spark":
            self.scene.spark = "Spark is starting"
        self._syphon = await self._child("syphon", f"syphon_{self.plan.syphon}")
        await self._site.start()
        self._give_job(self._syphon, 0)
        for number in range(limits.DRILL_RECEIVERS):
            child = await self._child(f"receiver-{number}", "receiver")
            self._receivers.append(child)
            self._give_job(child, number)
        self._witness = await self._child("witness", "witness")
        self._give_job(self._witness, 0)
        for number in range(self.plan.senders):
            child = await self._child(f"sender-{number}", "sender")
            self._senders.append(child)
            self._give_job(child, number)
        children = (self._witness, *self._senders, *self._receivers)
        names = {child.name for child in children}
        await self._until(
            lambda: names <= self._ready,
            limits.DRILL_READY_SECONDS,
            "all processes to be ready",
        )

    async def _be_well(self) -> None:
        self._begin("healthy")
        self.scene.traffic_at = self.scene.now
        for child in self._senders:
            child.tell(do="go")
        await self._sleep_until(self.plan.fault_at_ms)

    async def _break(self) -> None:
        self._begin("outage")
        fault = self._recorder.start("director", "fault", queue="primary")
        fault.state = self.plan.fault
        self._fault = fault
        # Begun before it happens: clients notice sooner than this process.
        lost = self._recorder.start("director", "restart")
        await self._site.break_primary()
        if self.plan.fault in ("kill", "stall"):
            self._recorder.finish(lost)
        if self.plan.rules.fails_over:
            await self._until_none_is(
                self.scene.not_yet_over, limits.DRILL_CHANGE_SECONDS, "fail over"
            )
        if self.plan.fault == "stall":
            self.scene.restarted = await self._site.stall_ended()
        else:
            await self._sleep_until(self.plan.fault_at_ms + self.plan.outage_ms)

    async def _restore(self) -> None:
        self._begin("back")
        await self._site.restore_primary()
        self.scene.restarted |= self.plan.fault == "kill"
        assert self._fault is not None
        ended = self._recorder.finish(self._fault)
        self.scene.fault = (
            (ended.invoke_at - self._begun_ms) / 1000,
            (ended.end_at - self._begun_ms) / 1000,
        )
        seconds = limits.DRILL_CHANGE_SECONDS
        if self.plan.rules.relapses:
            # The pause before the next ping may be as long as the fault was.
            seconds += self.plan.outage_ms / 1000
        await self._until_none_is(self.scene.not_yet_back, seconds, "fail back")
        if self.plan.rules.fails_over is False:
            # There is no backlog to bring home while sends still wait.
            await self._until_traffic_is_over()

    async def _bring_home(self) -> None:
        self._begin("home")
        await self._until(
            lambda: "syphon" in self._ready,
            limits.DRILL_SPARK_SECONDS,
            "the syphon to start",
        )
        for _ in range(limits.DRILL_DRAINS_MAX):
            await self._drain()
            await self._until_traffic_is_over()
            if await self._becomes_empty(self._site.secondary, self.plan.backlog, 0):
                return
            # On a machine this busy an entity may have failed over once more.
            self.scene.notes.append("The backlog had to be drained again.")
        raise DrillFailed("The backlog does not become empty.")

    async def _settle(self) -> None:
        self._begin("settle")
        # What is still there in the end is found by the final look, and told.
        places = [self.plan.real(place) for place in PLACES]
        await self._becomes_empty(
            self._site.primary, places, limits.DRILL_SETTLE_SECONDS
        )
        assert self._syphon is not None
        assert self._witness is not None
        self._syphon.release()
        await end_all([self._witness, *self._receivers, *self._senders])

    async def _judge(self) -> Performance:
        self._begin("judge")
        look = FinalLook(self.plan, self._recorder)
        left = await look.look(self._site.primary, self._site.secondary)
        self._recorder.close()
        events = await asyncio.to_thread(read_histories, self._history)
        judgement = await asyncio.to_thread(judge, self.plan, events, left)
        self._tick()
        self.scene.end()
        return Performance(self.plan, self.scene, judgement, events, self._begun_ms)

    # -- waiting -----------------------------------------------------------------------

    async def _until(
        self, ready: Callable[[], bool], seconds: float, what: str
    ) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not ready():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            text = f"Waited {seconds:g} seconds for {what}, in vain."
            raise DrillFailed(text) from None

    async def _until_none_is(
        self, missing: Callable[[], list[str]], seconds: float, verb: str
    ) -> None:
        """Until no entity is missing."""
        try:
            await self._until(lambda: not missing(), seconds, f"all to {verb}")
        except DrillFailed as error:
            names = ", ".join(missing())
            raise DrillFailed(f"{error.text} Not yet: {names}.") from None

    async def _sleep_until(self, at_ms: int) -> None:
        """Until so long after the begin of the traffic."""
        assert self.scene.traffic_at is not None
        self._tick()
        await asyncio.sleep(self.scene.traffic_at + at_ms / 1000 - self.scene.now)

    async def _until_traffic_is_over(self) -> None:
        assert self.scene.traffic_at is not None
        end = self.scene.traffic_at + self.plan.traffic_ms / 1000
        seconds = max(end - self.scene.now, 0) + limits.DRILL_SEND_SECONDS
        await self._until(self.scene.traffic_is_over, seconds, "the last sends")

    async def _becomes_empty(
        self, access: NamespaceAccess, places: Sequence[str], seconds: float
    ) -> bool:
        """Whether nothing is left in these places, now or soon."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            try:
                if await empty(access, places):
                    return True
            except RemoteError as error:
                text = f"A namespace does not answer: {error.text}"
                raise DrillFailed(text) from error
            if loop.time() >= until:
                return False
            await asyncio.sleep(limits.DRILL_EMPTY_SECONDS)

    # -- the syphon --------------------------------------------------------------------

    async def _drain(self) -> None:
        """Bring home what is in the backlog now."""
        assert self._syphon is not None
        self._drained = False
        self._syphon.tell(do="drain")
        if self.plan.syphon == "spark":
            await self._until(
                lambda: self._drained, limits.DRILL_DRAIN_SECONDS, "Spark to drain"
            )
            return
        if not await self._becomes_empty(
            self._site.secondary, self.plan.backlog, limits.DRILL_DRAIN_SECONDS
        ):
            raise DrillFailed("The syphon does not empty the backlog.")

    async def _replace_syphon(self) -> None:
        """Start the syphon again, as its operator would."""
        self._ready.discard("syphon")
        syphon = await self._child("syphon", f"syphon_{self.plan.syphon}")
        self._syphon = syphon
        self._give_job(syphon, 0)
        syphon.tell(do="drain")

    # -- children ----------------------------------------------------------------------

    async def _child(self, name: str, part: str) -> Child:
        child = Child(name, self._folder, self._heard, self._gone)
        await child.start(self._run, module_of(part, self.plan.cast))
        return child

    def _give_job(self, child: Child, number: int) -> None:
        child.tell(
            number=number,
            plan=self.plan.to_values(),
            history=str(self._history),
            folder=str(self._folder),
            primary=self._site.primary.to_values(),
            secondary=self._site.secondary.to_values(),
        )

    def _heard(self, child: Child, line: Line) -> None:
        if "ready" in line:
            self._ready.add(child.name)
            if "seconds" in line:
                self.scene.spark = f"Spark was ready after {line['seconds']} s"
                self.scene.spark_seconds = line["seconds"]
        if "accepted" in line:
            self.scene.sender_says(child.name, line)
        if "way" in line:
            self.scene.witness_says(line, self._begun_ms)
        if "received" in line:
            self.scene.receiver_says(child.name, line)
        if "moved" in line:
            self.scene.moved = line["moved"]
        if "drained" in line:
            self._drained = True
        self._news.set()

    def _gone(self, child: Child) -> None:
        """A child has ended."""
        if not child.died or self._failure is None or self._failure.done():
            return
        self._deaths += 1
        if self.plan.cast and self._deaths <= limits.DRILL_DEATHS_MAX:
            self.scene.notes.append(f"{child.name} died.")
            if child is self._syphon:
                self._replacing = asyncio.create_task(self._replace_syphon())
                return
            if child in self._senders:
                self._senders.remove(child)
                self.scene.forget_sender(child.name)
                self._news.set()
                return
        text = f"{child.name} ended by itself: {child.last_words()} ({child.log})"
        self._failure.set_exception(DrillFailed(text))

    async def _clear(self, *, in_order: bool) -> None:
        """End everything, and look whether it has ended."""
        children = [*self._senders, *self._receivers]
        children += [each for each in (self._syphon, self._witness) if each is not None]
        if not in_order:
            for child in children:
                child.kill()
        # First those that use the entities, then the entities.
        await end_all(children)
        self.left = await self._site.close()
        left = kill_leftovers(self._run)
        if left:
            self.scene.notes.append(f"Had to kill {len(left)} leftover processes.")

    # -- beside the script -------------------------------------------------------------

    def _begin(self, phase: str) -> None:
        self._tick()
        self.scene.begin(phase)
        self._screen.show(self.scene)

    def _tick(self) -> None:
        self.scene.now = asyncio.get_running_loop().time() - self._begun

    async def _paint(self) -> None:
        while True:
            self._tick()
            self._screen.show(self.scene)
            await asyncio.sleep(limits.DRILL_PAINT_SECONDS)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(limits.DRILL_SAMPLE_SECONDS)
            backlog = await self._depths()
            self._tick()
            self.scene.sample(backlog)

    async def _depths(self) -> dict[int, int]:
        if self.scene.phase == "start":
            return {}
        return await self._site.depths()
