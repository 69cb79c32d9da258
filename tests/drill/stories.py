"""A small drill that never ran: events, samples and parts to draw and to judge.

Owns the story that the tests of timeline, picture, report and judge share: two senders,
one outage of ten seconds, everything received in the end.
"""

from __future__ import annotations

from twinbus.drill.judge import judge
from twinbus.drill.plan import ENTITIES, PLACES, Plan, Wishes, make_plan, rules
from twinbus.drill.report.timeline import Timeline, timeline_of
from twinbus.drill.scene import PHASES, Scene
from twinbus.drill.sightings import NO, OK, SEND, WAYS, Sighting
from twinbus.testing.events import Event

BEGUN_MS = 1_700_000_000_000.0
_STARTS = {
    "start": 0.0,
    "healthy": 4.0,
    "outage": 10.0,
    "back": 20.0,
    "home": 22.0,
    "settle": 28.0,
    "judge": 29.0,
}
END = 30.0


def plan(fault: str = "kill") -> Plan:
    return make_plan(Wishes(fault, seed=1, senders=2, messages=200))


def ms(seconds: float) -> float:
    return BEGUN_MS + seconds * 1000


def scene() -> Scene:
    """As the director would leave it."""
    found = Scene(plan())
    for name in PHASES:
        found.now = _STARTS[name]
        found.begin(name)
    for number in range(2):
        line = {
            "accepted": dict.fromkeys(ENTITIES, 10),
            "held": 0,
            "failed": 0,
            "states": dict.fromkeys(ENTITIES, "healthy"),
            "over": list(ENTITIES),
            "done": True,
        }
        found.sender_says(f"sender-{number}", line)
    found.receiver_says(
        "receiver-0", {"received": dict.fromkeys(PLACES, 20), "pings": 0}
    )
    for at, depth in ((5.0, 0), (15.0, 40), (20.0, 100), (27.0, 0)):
        found.now = at
        found.sample({0: depth // 2, 1: depth - depth // 2})
    found.fault = (10.0, 20.0)
    found.sightings = [
        Sighting(way, at, 0.1, NO if way == SEND and 10 <= at < 20 else OK, "service")
        for way in WAYS
        for at in (9.0, 10.2, 15.0, 20.0)
    ]
    found.now = END
    found.end()
    found.moved = 100
    return found


def events() -> list[Event]:
    """One message to each entity from each sender, and what happened to the pair."""
    found = [Event("director", "fault", "", ms(10), ms(20), queue="primary")]
    sequence = 0
    for number in range(2):
        name = f"sender-{number}"
        for path in ENTITIES:
            found += _pairing(name, path)
            key = f"s{number}-{path}"
            send = Event(name, "send", key, ms(5), ms(5.01), queue=path)
            found.append(send)
            for place in rules(plan()).namespace.destinations(path):
                sequence += 1
                found += _received(key, place, sequence)
    places = (*PLACES, *(f"contoso/x-servicebus-transfer/{n}" for n in range(4)))
    for place in places:
        found.append(Event("look", "drained", "", ms(29), ms(29), queue=place))
    return found


def _pairing(name: str, path: str) -> list[Event]:
    times = {
        "suspect": 10.5,
        "failed over": 12.5,
        "failed back": 20.5,
        "relapsed": 20.6,
        "recovered": 21.0,
    }
    if path != "orders":
        del times["relapsed"]
    return [
        Event(name, "pairing", "", ms(at), ms(at), queue=path, state=state)
        for state, at in times.items()
    ]


def _received(key: str, place: str, sequence: int) -> list[Event]:
    receive = Event("receiver-0", "receive", key, ms(6), ms(6.01), queue=place)
    receive.sequence, receive.token = sequence, f"t{sequence}"
    receive.lock_until, receive.enqueued_at = ms(11.005), ms(5.005)
    complete = Event("receiver-0", "complete", key, ms(6.02), ms(6.03), queue=place)
    complete.token = receive.token
    return [receive, complete]


def timeline() -> Timeline:
    return timeline_of(events(), scene(), BEGUN_MS)


def verdict_text() -> str:
    """For a failing assertion."""
    return judge(plan(), events(), 0).report.text()
