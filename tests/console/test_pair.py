"""The page of a pair: backlogs at the secondary, and what clients report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.console.site import ConsoleClient, Stream, ended, planned, started
from tests.pairing.pair_site import PairSite, pair_site, wait_for
from twinbus.pairing.events import EventKind


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairSite]:
    with pair_site(tmp_path_factory.mktemp("pair")) as started:
        yield started


def page_of(site: PairSite, primary: str) -> dict[str, Any]:
    """What the page says of one primary."""
    client = ConsoleClient(site.away.http_port).sign_in()
    found: dict[str, Any] = next(
        each for each in client.json("pair")["pairs"] if each["primary"] == primary
    )
    return found


async def reported(site: PairSite, primary: str, event: str) -> dict[str, Any]:
    """The page, once it has an event; reports follow their events."""
    async with asyncio.timeout(30):
        while True:
            shown = await asyncio.to_thread(page_of, site, primary)
            if event in {each["event"] for each in shown["events"]}:
                return shown


async def test_an_outage_is_seen_at_the_secondary(site: PairSite) -> None:
    queue = site.queue()
    async with site.pair(report_events=True, primary_name="seen") as factory:
        events = factory.pairing.events()
        async with factory.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            site.fail()
            await sender.send_messages(ServiceBusMessage("diverted"))

            during = await reported(site, "seen", "failed over")

            site.proxy.heal()
            await wait_for(events, EventKind.FAILED_BACK)
            await sender.send_messages(ServiceBusMessage("after"))
            after = await reported(site, "seen", "recovered")

    assert (during["waiting"], during["diverted"], during["returned"]) == (1, 1, 0)
    [there] = during["destinations"]
    assert (there["path"], there["messages"]) == (queue, 1)
    [lane] = during["lanes"]
    assert (lane["path"], lane["state"]) == (queue, "failed over")
    [lane] = after["lanes"]
    assert lane["state"] == "healthy"
    assert "probation" in after["picture"] or lane["segments"] >= 3
    assert queue in after["picture"]
    [outage] = during["outages"]
    assert (outage["path"], outage["ended_at"]) == (queue, None)
    [outage] = after["outages"]
    assert (outage["clients"], outage["diverted"]) == (1, 1)
    assert outage["pings"] >= 1
    assert outage["cost"]["operations"] == 2 + outage["pings"]
    assert outage["ended_at"] is not None


async def test_nothing_is_reported_unless_it_is_asked_for(site: PairSite) -> None:
    async with site.pair(primary_name="silent"):
        names = [each.name for each in site.away.admin_client().list_queues()]
        shown = await asyncio.to_thread(page_of, site, "silent")

    assert "silent/x-twinbus-events" not in names
    assert len(shown["queues"]) == 2
    assert shown["events"] == []


def test_reports_of_several_clients_show_the_worst(site: PairSite) -> None:
    site.away.create_queue("many/x-twinbus-events")
    told = [
        ("failed over", "a"),
        ("suspect", "b"),
        ("recovered", "b"),
        ("failed back", "a"),
    ]
    reports = [
        json.dumps({"event": event, "path": "orders", "client": client})
        for event, client in told
    ]
    nasty = json.dumps({"event": "<script>x</script>", "path": "<script>", "client": 1})
    with site.away.client().get_queue_sender("many/x-twinbus-events") as sender:
        for body in [*reports, nasty, "no json", "[]"]:
            sender.send_messages(ServiceBusMessage(body))

    shown = page_of(site, "many")

    assert [each["path"] for each in shown["lanes"]] == ["orders"]
    assert shown["lanes"][0] == {"path": "orders", "state": "probation", "segments": 2}
    client = ConsoleClient(site.away.http_port).sign_in()
    page = client.get("pair").text
    assert "<script>x" not in page
    assert ">Pair</a>" in page


def test_an_outage_lasts_until_the_last_client_is_back(site: PairSite) -> None:
    site.away.create_queue("outages/x-twinbus-events")
    told = [
        ("failed over", "a", 10),
        ("failed over", "b", 0),
        ("failed back", "a", 14),
        ("failed back", "b", 2),
        ("recovered", "b", 3),
        ("failed over", "a", 14),
        ("recovered", "a", "many"),
    ]
    with site.away.client().get_queue_sender("outages/x-twinbus-events") as sender:
        for event, client, diverted in told:
            report = {"event": event, "path": "orders", "client": client}
            details = {"diverted": str(diverted)}
            sender.send_messages(
                ServiceBusMessage(json.dumps({**report, "details": details}))
            )

    later, first = page_of(site, "outages")["outages"]

    assert (first["clients"], first["diverted"]) == (2, 7)
    assert (later["clients"], later["diverted"]) == (1, 0)
    assert None not in (first["ended_at"], later["ended_at"])


def test_the_page_counts_what_was_diverted_and_returned(site: PairSite) -> None:
    queue = site.away.create_queue("counted/x-servicebus-transfer/0")
    with site.away.client() as bus:
        with bus.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage(f"{k}") for k in range(7)])
        with bus.get_queue_receiver(queue) as receiver:
            first, *others = receiver.receive_messages(4, max_wait_time=5)
            receiver.dead_letter_message(first, reason="NoSuchEntity")
            for message in others:
                receiver.complete_message(message)
    before = page_of(site, "counted")
    client = ConsoleClient(site.away.http_port).sign_in()
    page = client.get("pair").text

    dead = f"{queue}/$DeadLetterQueue"
    job = planned(client, dead, action="resubmit", scope="all")
    ended(client, started(client, job))
    after = page_of(site, "counted")

    names = ("diverted", "returned", "waiting", "dead")
    assert [before[name] for name in names] == [7, 3, 3, 1]
    assert [after[name] for name in names] == [7, 3, 4, 0]
    assert before["costs"]["so_far"]["operations"] == 7 + 3
    assert before["costs"]["to_drain"]["operations"] == 2 * 3
    assert after["costs"]["to_drain"] == {"operations": 8, "money_at_most": "0.000006"}
    assert f'aria-label="Replay the dead letters of {queue}"' in page
    assert "No syphon is connected" in page


def test_the_page_follows(site: PairSite) -> None:
    queue = site.away.create_queue("followed/x-servicebus-transfer/0")
    client = ConsoleClient(site.away.http_port).sign_in()
    stream = Stream(client, "events?view=pair")
    stream.until("event: backlogs")

    with site.away.client().get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])

    stream.until("<dt>Diverted</dt><dd>2</dd>")
    stream.close()


def test_a_namespace_without_backlogs_has_no_such_page(site: PairSite) -> None:
    client = ConsoleClient(site.home.http_port).sign_in()

    assert ">Pair</a>" not in client.get().text
    assert "no secondary" in client.get("pair").text
