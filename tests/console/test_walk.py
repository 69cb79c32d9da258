"""A walk through the console: find the one message that failed among very many.

Owns the walk of an operator who was told that an order did not arrive: from the
overview to the reason, to the message, to a repaired body, until it has left. Each step
is something that the page offers; no address is typed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from playwright.sync_api import Page, expect

from tests.console.browser import Tab, chromium, sign_in, tab
from tests.console.site import ConsoleSite
from twinbus.testing.server_process import ServerProcess

# More than one look of the server, which stops after 10,000 messages.
SMALL, LARGE = 11_000, 100_000
_BATCH = 500
_SECONDS = 120
BROKEN = '{"order": "o-4711", "amount": -5}'
REPAIRED = '{"order": "o-4711", "amount": 5}'

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(
    params=[SMALL, pytest.param(LARGE, marks=pytest.mark.campaign)],
)
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ConsoleSite]:
    """A queue with so many dead letters, one of which has another reason."""
    queue = {"name": "orders", "dead_lettering_on_message_expiration": True}
    with ServerProcess(tmp_path, {"queues": [queue]}, name="contoso") as process:
        started = ConsoleSite(process)
        _expire(started, int(0.95 * request.param))
        _fail(started)
        _expire(started, int(0.05 * request.param))
        yield started
        assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()


def _expire(site: ConsoleSite, count: int) -> None:
    """Send messages that expire, and wait until they are dead."""
    client = site.signed_in()
    before = client.json("entity", path="orders")["figures"]["dead"]
    with site.bus() as bus, bus.get_queue_sender("orders") as sender:
        for at in range(0, count, _BATCH):
            sender.send_messages(
                [_order(number) for number in range(at, min(at + _BATCH, count))]
            )
    deadline = time.monotonic() + _SECONDS
    dead = before
    while dead < before + count:
        assert time.monotonic() < deadline, f"{dead} of {count} have expired"
        dead = client.json("entity", path="orders")["figures"]["dead"]


def _order(number: int) -> ServiceBusMessage:
    return ServiceBusMessage(
        f'{{"order": "o-{number}", "amount": 10}}',
        time_to_live=timedelta(seconds=1),
        application_properties={"customer": number % 900},
    )


def _fail(site: ConsoleSite) -> None:
    """Dead-letter one message as an application does that cannot handle it."""
    order = ServiceBusMessage(BROKEN, application_properties={"customer": 4711})
    site.send("orders", order)
    with site.bus() as bus, bus.get_queue_receiver("orders") as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=30)
        receiver.dead_letter_message(
            message,
            reason="AmountInvalid",
            error_description="The amount of an order must be more than 0.",
        )


def test_one_failed_message_is_found_among_many_and_repaired(
    site: ConsoleSite,
) -> None:
    with chromium() as browser, tab(browser, site.port) as opened:
        sign_in(opened)
        page = opened.page
        page.get_by_role("link", name=re.compile("dead letters of orders")).click()
        page.get_by_role("link", name="AmountInvalid").click(timeout=_SECONDS * 1000)
        _expect_found(opened)
        _search(page, "Text in body, property or reason", "o-4711")
        _expect_found(opened)
        _search(page, "Text in body, property or reason", "")
        page.get_by_role("link", name="any reason").click()
        _search(page, "Condition on properties", "customer = 4711")
        _expect_found(opened)

        page.get_by_role("table").last.get_by_role("link").click()
        expect(page.get_by_text("AmountInvalid: The amount")).to_be_visible()
        opened.check()
        page.get_by_role("link", name="Edit and resubmit").click()
        expect(page.get_by_text("AmountInvalid: The amount")).to_be_visible()
        page.get_by_role("textbox", name="Body").fill(REPAIRED)
        page.get_by_role("button", name="Resubmit").click()

        expect(page.get_by_role("status").first).to_contain_text("was sent to orders")
        expect(page.get_by_label("Condition on properties")).to_have_value(
            "customer = 4711"
        )
        nothing = page.get_by_text(re.compile("No message matches"))
        expect(nothing).to_be_visible(timeout=_SECONDS * 1000)
        _watch_it_leave(site, opened)


def _search(page: Page, label: str, text: str) -> None:
    page.get_by_label(label).fill(text)
    page.get_by_role("button", name="Search").click()


def _expect_found(opened: Tab) -> None:
    """The page goes on by itself until it has looked at all messages."""
    page = opened.page
    found = page.get_by_text(re.compile("^1 found, "))
    expect(found).to_be_visible(timeout=_SECONDS * 1000)
    expect(page.get_by_text(BROKEN)).to_be_visible()
    expect(page.locator("#rows > tr")).to_have_count(1)
    opened.check()


def _watch_it_leave(site: ConsoleSite, opened: Tab) -> None:
    page = opened.page
    page.get_by_role("link", name="Messages", exact=True).click()
    term = page.locator("dt", has_text=re.compile("^Active$"))
    active = term.locator("xpath=following-sibling::dd")
    expect(active).to_have_text("1")

    assert site.received("orders") == [REPAIRED]

    expect(active).to_have_text("0", timeout=15_000)
