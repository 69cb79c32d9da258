"""Takes the pictures of the guide to the console, on a server with made-up messages.

    python -m tests.console.pictures

A test compares the list of pictures with the guide.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from playwright.sync_api import Page, expect

from tests.console.browser import chromium, sign_in, tab
from tests.console.site import ConsoleSite
from twinbus.testing.server_process import ServerProcess

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
DEAD = "orders/$DeadLetterQueue"
# The page of each picture.
PICTURES = {
    "console-overview": "",
    "console-messages": "entity?path=orders&sql=amount%20%3E%20100",
    "console-dead-letters": f"entity?path={DEAD}&reason=NoSuchCustomer&source=",
    "console-message": f"message?path={DEAD}&sequence=2",
    "console-pair": "pair",
}
_WIDTH = 1120
_HEIGHT = 720
# This one has its lanes below the backlogs.
_HEIGHTS = {"console-pair": 1180}
_ENTITIES = {
    "queues": [
        "orders",
        "payments",
        {"name": "shipments", "requires_session": True},
        "contoso/x-servicebus-transfer/0",
        "contoso/x-servicebus-transfer/1",
        "contoso/x-twinbus-events",
    ],
    "topics": [{"name": "events", "subscriptions": ["audit", "billing"]}],
}


def _order(number: int, chance: random.Random) -> ServiceBusMessage:
    amount = chance.randrange(5, 400)
    order = {"order": 41_000 + number, "customer": f"C-{chance.randrange(900)}"}
    return ServiceBusMessage(
        json.dumps({**order, "amount": amount, "currency": "EUR"}),
        message_id=f"order-{41_000 + number}",
        subject="placed",
        content_type="application/json",
        application_properties={
            "amount": amount,
            "region": chance.choice(["eu", "us"]),
        },
    )


def fill(site: ConsoleSite) -> None:
    """Send what the pictures show."""
    chance = random.Random(7)
    site.send("orders", *(_order(number, chance) for number in range(240)))
    site.send("payments", *(f"payment {number}" for number in range(31)))
    site.send("events", *(f"event {number}" for number in range(90)))
    site.send(
        "shipments",
        *(ServiceBusMessage("x", session_id=f"C-{k % 4}") for k in range(9)),
    )
    reasons = ["NoSuchCustomer", "NoSuchCustomer", "AmountInvalid", "Timeout"]
    with site.bus() as bus, bus.get_queue_receiver("orders") as receiver:
        for number, message in enumerate(
            receiver.receive_messages(28, max_wait_time=5)
        ):
            receiver.dead_letter_message(
                message,
                reason=reasons[number % 4],
                error_description="The customer of the order is not known.",
            )
    _report(site)


def _report(site: ConsoleSite) -> None:
    told = [
        *(("suspect", "orders", 0), ("suspect", "payments", 0)),
        *(("failed over", "orders", 0), ("failed over", "payments", 0)),
        *(("failed back", "payments", 12), ("recovered", "payments", 12)),
        ("failed back", "orders", 24),
    ]
    for event, path, diverted in told:
        report = {"event": event, "path": path, "client": "shop-1-4711"}
        details = {"diverted": str(diverted), "pings": str(bool(diverted) * 2)}
        site.send("contoso/x-twinbus-events", json.dumps(report | {"details": details}))
    for number in range(36):
        path = "orders" if number % 3 else "payments"
        message = ServiceBusMessage("x", application_properties={"x-ms-path": path})
        site.send(f"contoso/x-servicebus-transfer/{number % 2}", message)


def _busy(site: ConsoleSite, page: Page) -> None:
    """Let the overview see some traffic."""
    waiting = 31
    for count in (40, 12, 55, 30, 75, 20):
        site.send("payments", *(["x"] * count))
        waiting += count
        row = page.locator("tr", has=page.get_by_role("link", name="payments"))
        cell = row.locator("td[data-label=Active]")
        expect(cell).to_have_text(str(waiting), timeout=30_000)


def _take(page: Page, name: str) -> None:
    page.screenshot(
        path=FOLDER / f"{name}.png",
        clip={"x": 0, "y": 0, "width": _WIDTH, "height": _HEIGHTS.get(name, _HEIGHT)},
        full_page=True,
    )


def _take_all(site: ConsoleSite) -> None:
    with chromium() as browser, tab(browser, site.port, _WIDTH) as opened:
        sign_in(opened)
        for name, address in PICTURES.items():
            opened.open(address)
            opened.check()
            if not address:
                _busy(site, opened.page)
            _take(opened.page, name)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with ServerProcess(place, _ENTITIES, name="contoso-west") as process:
            site = ConsoleSite(process)
            fill(site)
            _take_all(site)


if __name__ == "__main__":
    main()
