"""The console in a real browser: every screen, live updates, keyboard, no scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from playwright.sync_api import Browser, expect

from tests.console.browser import Scheme, chromium, sign_in, tab
from tests.console.pictures import FOLDER, PICTURES
from tests.console.site import KEYS, RULES, ConsoleSite
from twinbus.testing.server_process import ServerProcess

# Twenty-one screens are looked at by axe-core, which takes a second each.
pytestmark = pytest.mark.timeout(300)

PAYLOAD = "</textarea><script>alert(1)</script><img src=x onerror=alert(2)>\"'`${1}"
DEAD = "orders/$DeadLetterQueue"
BIG = "events/Subscriptions/big"

SCREENS = [
    "",
    "entity?path=orders",
    "entity?path=orders&text=x&state=active",
    f"entity?path={DEAD}",
    "entity?path=events",
    "entity?path=empty",
    "message?path=orders&sequence=3",
    "message/edit?path=orders&sequence=3",
    f"message?path={DEAD}&sequence=1",
    f"message/edit?path={DEAD}&sequence=1",
    "send?path=orders",
    "sessions?path=steps",
    "session?path=steps&name=one",
    f"rules?path={BIG}",
    "settings?path=orders",
    "pair",
    "connections",
    "access",
    "faults",
    "diagnostics",
    "audit",
]
# One of each layout: the overview, a table, a message, a form and pairs.
FEW = [
    "",
    f"entity?path={DEAD}",
    "message?path=orders&sequence=3",
    "settings?path=orders",
    "pair",
]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    """A server with something on every screen, and payloads wherever one can write."""
    rule = {"name": "amount", "filter": {"sql": "amount > 1"}}
    entities = {
        "authorization_rules": RULES,
        "queues": [
            "orders",
            "empty",
            {"name": "steps", "requires_session": True},
            "first/x-servicebus-transfer/0",
            "first/x-twinbus-events",
        ],
        "topics": [
            {"name": "events", "subscriptions": [{"name": "big", "rules": [rule]}]}
        ],
    }
    folder = tmp_path_factory.mktemp("shown")
    options = ["--faults"]
    with ServerProcess(folder, entities, name="contoso", options=options) as process:
        site = ConsoleSite(process)
        _fill(site)
        yield site
        assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()


def _fill(site: ConsoleSite) -> None:
    nasty = ServiceBusMessage(
        PAYLOAD,
        message_id=PAYLOAD,
        subject=PAYLOAD,
        correlation_id=PAYLOAD,
        content_type=PAYLOAD,
        application_properties={PAYLOAD: PAYLOAD},
    )
    site.send("orders", "first", "second", nasty, *(f"more {k}" for k in range(60)))
    site.send("steps", ServiceBusMessage("a", session_id="one"))
    site.send("steps", ServiceBusMessage("b", session_id=PAYLOAD))
    with site.bus() as bus, bus.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(2, max_wait_time=5):
            receiver.dead_letter_message(
                message, reason=PAYLOAD, error_description=PAYLOAD
            )
    told = [("suspect", "orders"), ("failed over", "orders"), ("suspect", PAYLOAD)]
    reports = [
        {"event": event, "path": path, "client": PAYLOAD, "cause": PAYLOAD}
        for event, path in told
    ]
    for report in reports:
        site.send("first/x-twinbus-events", json.dumps(report))
    site.send(
        "first/x-servicebus-transfer/0",
        ServiceBusMessage("x", application_properties={"x-ms-path": PAYLOAD}),
    )
    client = site.signed_in()
    client.post("session?path=steps&name=one", {"state": PAYLOAD})
    client.post("settings?path=orders", {"user_metadata": PAYLOAD})
    client.post("faults", {"kind": "throttle", "target": "empty"})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize(
    ("width", "scheme", "screens"),
    [
        (1280, "light", SCREENS),
        (390, "dark", FEW),
        pytest.param(390, "dark", SCREENS, marks=pytest.mark.campaign),
        pytest.param(1280, "dark", SCREENS, marks=pytest.mark.campaign),
        pytest.param(390, "light", SCREENS, marks=pytest.mark.campaign),
    ],
)
def test_every_screen_is_accessible_and_inert(
    shown: ConsoleSite, browser: Browser, width: int, scheme: Scheme, screens: list[str]
) -> None:
    with tab(browser, shown.port, width, scheme) as opened:
        opened.open("sign-in")
        opened.check()
        sign_in(opened)
        for screen in screens:
            opened.open(screen)
            opened.check()


@pytest.mark.parametrize(("right", "sees"), [("Listen", "Messages"), ("Send", "Send")])
def test_keys_of_one_right_open_an_entity_by_its_name(
    shown: ConsoleSite, browser: Browser, right: str, sees: str
) -> None:
    with tab(browser, shown.port, 390) as opened:
        opened.open("sign-in")
        page = opened.page
        page.get_by_label("Name of the key").fill(right.lower())
        page.get_by_label("Key", exact=True).fill(KEYS[right])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Open").wait_for()
        opened.check()

        page.get_by_role("textbox").fill("orders")
        page.get_by_role("button", name="Open").click()

        tabs = page.get_by_role("navigation", name="Pages of orders")
        expect(tabs.get_by_role("link", name=sees, exact=True)).to_be_visible()
        opened.check()


def test_a_missing_page_is_accessible_too(shown: ConsoleSite, browser: Browser) -> None:
    with tab(browser, shown.port) as opened:
        sign_in(opened)
        opened.page.goto(f"{opened.root}entity?path=nothing")
        expect(opened.page.get_by_role("alert")).to_contain_text("nothing")
        opened.failures.clear()
        opened.check()


def test_the_overview_follows_and_can_be_paused(
    shown: ConsoleSite, browser: Browser
) -> None:
    queue = shown.create_queue("follows")
    with tab(browser, shown.port) as opened:
        sign_in(opened)
        page = opened.page
        link = page.get_by_role("link", name=queue, exact=True)
        cell = page.locator("tr", has=link).locator("td[data-label=Active]")
        expect(cell).to_have_text("0")
        link.focus()

        shown.send(queue, "a", "b")

        expect(cell).to_have_text("2", timeout=15_000)
        focused = page.evaluate("document.activeElement.id")
        assert focused == f"entity-{queue}"
        pause = page.get_by_role("button", name="Pause updates")
        pause.click()
        expect(pause).to_have_attribute("aria-pressed", "true")
        shown.send(queue, "c")
        # Two more looks of the server come and go.
        with page.expect_event(
            "console", lambda said: said.text == "looked", timeout=15_000
        ):
            page.evaluate(
                """() => { let left = 2;
                document.addEventListener('htmx:sseBeforeMessage', () => {
                  left -= 1; if (left === 0) console.log('looked'); }); }"""
            )
            shown.send(queue, "d")
        expect(cell).to_have_text("2")
        opened.check()


def test_dead_letters_are_resubmitted_with_the_mouse(
    shown: ConsoleSite, browser: Browser
) -> None:
    queue = shown.create_queue("by-mouse")
    shown.send(queue, "a", "b", "c")
    with shown.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        for message in receiver.receive_messages(3, max_wait_time=5):
            receiver.dead_letter_message(message, reason="Late")
    with tab(browser, shown.port) as opened:
        sign_in(opened)
        page = opened.page
        opened.open(f"entity?path={queue}/$DeadLetterQueue")
        page.get_by_label("Choose all on this page").check()
        page.get_by_label("Choose message 2").uncheck()
        page.get_by_role("button", name="Preview").click()

        page.get_by_role("button", name="Resubmit 2").wait_for()
        opened.check()
        page.get_by_role("button", name="Resubmit 2").click()

        expect(page.get_by_text("Done: 2 resubmitted.")).to_be_visible()
        opened.check()
    assert shown.received(queue) == ["a", "c"]


def test_all_dead_letters_of_a_reason_are_resubmitted_with_two_clicks(
    shown: ConsoleSite, browser: Browser
) -> None:
    queue = shown.create_queue("by-reason")
    shown.send(queue, "a", "b", "c")
    with shown.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        for message in receiver.receive_messages(3, max_wait_time=5):
            reason = "Late" if str(message) == "b" else "Early"
            receiver.dead_letter_message(message, reason=reason)
    with tab(browser, shown.port) as opened:
        sign_in(opened)
        page = opened.page
        opened.open(f"entity?path={queue}/$DeadLetterQueue")

        page.get_by_role("button", name="Resubmit all with the reason").first.click()
        page.get_by_role("button", name="Resubmit 2").click()

        expect(page.get_by_text("Done: 2 resubmitted.")).to_be_visible()
    assert shown.received(queue) == ["a", "c"]


def test_a_message_is_edited_with_the_keyboard(
    shown: ConsoleSite, browser: Browser
) -> None:
    queue = shown.create_queue("by-keyboard")
    shown.send(queue, "old")
    with tab(browser, shown.port) as opened:
        sign_in(opened)
        page = opened.page
        opened.open(f"entity?path={queue}")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.get_by_role("link", name="1", exact=True).focus()
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Edit and resubmit").focus()
        page.keyboard.press("Enter")
        page.get_by_role("textbox", name="Body").focus()
        page.keyboard.press("Control+A")
        page.keyboard.type("new")
        page.get_by_role("button", name="Resubmit").focus()
        page.keyboard.press("Enter")

        expect(page.get_by_role("status").first).to_contain_text("was sent to")
        opened.check()
    assert shown.received(queue) == ["new"]


def test_everything_works_without_scripts(shown: ConsoleSite, browser: Browser) -> None:
    queue = shown.create_queue("without-scripts")
    with tab(browser, shown.port, scripted=False) as opened:
        sign_in(opened)
        page = opened.page
        opened.open(f"send?path={queue}")
        page.get_by_role("textbox", name="Body").fill("by hand")
        page.get_by_label("Copies").fill("3")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_text("Sent 3")).to_be_visible()
        opened.open(f"entity?path={queue}")
        page.get_by_label("all that match").check()
        page.get_by_label("Do this").select_option("delete")
        page.get_by_role("button", name="Preview").click()
        page.get_by_label("To delete them all").fill(queue)
        page.get_by_role("button", name="Delete 3").click()

        expect(page.get_by_text("Done: 3 deleted.")).to_be_visible()
    assert shown.received(queue) == []


def test_a_file_is_imported_in_the_browser(
    shown: ConsoleSite, browser: Browser, tmp_path: Path
) -> None:
    queue = shown.create_queue("by-file")
    file = tmp_path / "messages.jsonl"
    file.write_text('{"body": "one"}\n{"body": "two"}\n')
    with tab(browser, shown.port) as opened:
        sign_in(opened)
        page = opened.page
        opened.open(f"entity?path={queue}")
        page.get_by_text("Import messages").click()
        page.get_by_label("File", exact=True).set_input_files(file)
        page.get_by_role("button", name="Import").click()

        expect(page.get_by_text("Done: 2 imported.")).to_be_visible()
        opened.check()
    assert shown.received(queue) == ["one", "two"]


def test_the_guide_has_the_pictures_that_are_taken() -> None:
    guide = (FOLDER.parent / "console.md").read_text()

    assert re.findall(r"\(pictures/(console-[\w-]+)\.png\)", guide) == sorted(
        PICTURES, key=guide.index
    )
    for name in PICTURES:
        assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_signing_out_leads_to_the_sign_in(shown: ConsoleSite, browser: Browser) -> None:
    with tab(browser, shown.port) as opened:
        sign_in(opened)

        opened.page.get_by_role("button", name="Sign out").click()

        expect(opened.page.get_by_role("heading", name="Sign in")).to_be_visible()
        opened.page.goto(opened.root)
        expect(opened.page.get_by_role("heading", name="Sign in")).to_be_visible()
