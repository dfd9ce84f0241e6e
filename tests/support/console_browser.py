"""A browser at the console: the system's Chromium, driven by Playwright. No test lives here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

from programs import program
from support.console_world import call

PATIENCE_MS = 60_000.0  # only ends a hang
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
)
ZONE = "Europe/Berlin"  # not UTC, so that both are seen
WIDE, NARROW = 1440, 390
TABS_MAX = 300  # presses of Tab until a page has been gone through twice
# Told once by the server that a page is refused; Chromium says so of each that is.
_EXPECTED = ("Failed to load resource",)


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser for many tests; each has a context of its own, with nothing in it."""
    path = program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A person with a browser of their own, at one console."""

    def __init__(self, browser: Browser, url: str, *, token: str, **context: Any) -> None:
        self.url = url
        self.token = token
        words = {"viewport": {"width": WIDE, "height": 900}, "timezone_id": ZONE, **context}
        self.context: BrowserContext = browser.new_context(locale="en-GB", **words)
        self.context.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.page = self.tab()

    def tab(self) -> Page:
        """Another tab of this browser. What it complains about is kept."""
        page = self.context.new_page()
        page.on("console", lambda one: self._complained(one.type, one.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._asked)
        return page

    def _complained(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not text.startswith(_EXPECTED):
            self.complaints.append(text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.elsewhere.append(request.url)

    def link(self) -> str:
        """A link that opens the console once."""
        answer = call(self.url, self.token, "POST", "/v1/console/links", {})
        return f"{self.url}{answer['path']}"

    def enter(self) -> Page:
        """Come in by a link."""
        self.page.goto(self.link())
        self.page.wait_for_url(f"{self.url}/console/")
        return self.page

    def open(self, path: str, page: Page | None = None) -> int:
        """Go to a page of the console: its status."""
        answer = (page or self.page).goto(f"{self.url}{path}")
        assert answer is not None
        return answer.status

    def close(self) -> None:
        self.context.close()


# What people do without a mouse.


def tab_to(page: Page, name: str) -> None:
    """Press Tab until what has the focus is called so."""
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"Tab never came to {name!r} on {page.url}")


def focused(page: Page) -> str:
    """What people and screen readers call the element that has the focus."""
    return str(
        page.evaluate(
            """() => {
                const one = document.activeElement;
                if (!one || one === document.body) return "";
                const labels = one.labels && one.labels[0];
                const text = labels ? labels.innerText.split("\\n")[0] : one.innerText || one.value;
                return (one.getAttribute("aria-label") || text || "").trim().replace(/\\s+/g, " ");
            }"""
        )
    )


def press(page: Page, name: str) -> None:
    """Tab to a link or button and press Enter; the page that follows is there then."""
    tab_to(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


# What is wrong with how a page looks.


def sideways(page: Page) -> int:
    """By how many pixels a page is wider than its window."""
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )


def barriers(page: Page, *, only: str = "") -> list[str]:
    """What axe finds, with the first place of each."""
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if only:
        options["runOnly"] = [only]
    found = Axe().run(page, options=options).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in found]


def when(page: Page, done: Callable[[], bool], what: str) -> None:
    """Wait for something that is not on the page."""
    for _ in range(round(PATIENCE_MS / 50)):
        if done():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {what}")
