"""Chromium, driven by Playwright, and what is looked for on every page.

Owns the browser and its checks: axe-core finds no violation, the policy of the page
blocked nothing, no script failed, no dialog opened, and nothing lies outside of the
window, which may be as narrow as a phone. Knows nothing about what a page is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

from tests.console.site import ROOT

CHROMIUM = "/usr/bin/chromium"
AXE = Path(__file__).parents[1] / "sdk/js/node_modules/axe-core/axe.min.js"
# Rules of WCAG 2.2 A and AA, and what is good practice beside them.
_AXE_TAGS = [
    *("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"),
]
_WATCH = """
window.blocked = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.blocked.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""

Scheme = Literal["light", "dark"]


@cache
def _axe() -> str:
    assert AXE.exists(), "axe-core is missing: run `make setup`"
    return AXE.read_text()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        # Tests may run as root, for whom its sandbox does not work.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@dataclass
class Tab:
    """One page in the browser, signed in."""

    page: Page
    root: str
    # What went wrong in it.
    failures: list[str] = field(default_factory=list)

    def open(self, address: str) -> None:
        """Go to a page of the console; it must be there."""
        answer = self.page.goto(f"{self.root}{address}")
        assert answer is not None
        assert answer.status == 200, (address, answer.status)

    def check(self) -> None:
        """Look for what no page may have."""
        blocked: list[str] = self.page.evaluate("window.blocked")
        self.page.evaluate(_axe())
        found: dict[str, Any] = self.page.evaluate(
            "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})",
            _AXE_TAGS,
        )
        violations = [_violation(each) for each in found["violations"]]
        wide, window = self.page.evaluate(
            "[document.documentElement.scrollWidth, window.innerWidth]"
        )
        outside = [f"{wide} pixels wide"] if wide > window else []
        problems = [*self.failures, *blocked, *violations, *outside]
        assert problems == [], (self.page.url, problems)


def _violation(found: dict[str, Any]) -> str:
    nodes = [each["html"] for each in found["nodes"]]
    return f"{found['id']}: {found['help']}: {nodes[:3]}"


@contextmanager
def tab(
    browser: Browser,
    port: int,
    width: int = 1280,
    scheme: Scheme = "light",
    *,
    scripted: bool = True,
) -> Iterator[Tab]:
    """A page of its own, without cookies of others."""
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
        java_script_enabled=scripted,
    )
    context.add_init_script(_WATCH)
    page = context.new_page()
    made = Tab(page, f"http://127.0.0.1:{port}{ROOT}")
    page.on("pageerror", lambda error: made.failures.append(str(error)))
    page.on("dialog", lambda dialog: made.failures.append(dialog.message))
    page.on(
        "console",
        lambda said: made.failures.append(said.text) if said.type == "error" else None,
    )
    yield made
    context.close()


def sign_in(tab: Tab) -> None:
    """Sign in with what the form of a server with --dev has filled in."""
    tab.open("sign-in")
    tab.page.get_by_role("button", name="Sign in").click()
    tab.page.get_by_role("button", name="Sign out").wait_for()
