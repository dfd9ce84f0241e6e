"""Pages that stay true while they are open: streams, many tabs, a cut, a session that ends."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from programs import needs

pytest.importorskip("playwright", reason="not installed: playwright, of the extra dev")
pytest.importorskip("axe_playwright_python", reason="not installed: axe, of the extra dev")

from playwright.sync_api import expect

from support.console_browser import PATIENCE_MS, Visitor, tab_to, when
from support.console_world import ConsoleWorld, console_world

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = needs("chromium")
TABS = 7  # a browser opens six connections to one place
LIVE = re.compile("live")
ASKS = re.compile("every 5 s")


@pytest.fixture
def world() -> Iterator[ConsoleWorld]:
    with console_world() as found:
        yield found


@pytest.fixture
def visitor(chromium: Browser, world: ConsoleWorld) -> Iterator[Visitor]:
    found = Visitor(chromium, world.url, token=world.token)
    found.enter()
    yield found
    assert found.complaints == []
    found.close()


def is_live(page: Page) -> None:
    expect(page.locator("#live")).to_have_text(LIVE, timeout=PATIENCE_MS)


def shows(page: Page, block: str, words: str) -> None:
    expect(page.locator(block)).to_contain_text(words, timeout=PATIENCE_MS)


def test_what_changes_is_shown_without_loading_the_page_again(
    world: ConsoleWorld, visitor: Visitor
) -> None:
    page = visitor.page
    is_live(page)
    page.evaluate("window.kept = true")
    shows(page, "#b-broken", "Nothing is broken.")
    world.order("hosts/h3/fail")
    shows(page, "#b-broken", "Host h3 has failed")
    shows(page, "#b-work", "1 VM of failed host h3")
    shows(page, "#b-tail", "host-failed")
    expect(page.locator("#b-grid .f")).to_have_count(1, timeout=PATIENCE_MS)
    world.order("hosts/h3/repair")
    expect(page.locator("#b-grid .f")).to_have_count(0, timeout=PATIENCE_MS)
    for cell in page.locator("#b-grid .hosts > *").all():
        seen = "one => getComputedStyle(one).backgroundColor"
        assert cell.evaluate(seen) != "rgba(0, 0, 0, 0)", "a host that is well again is seen"
    assert page.evaluate("window.kept") is True


def test_the_headline_is_said_in_one_sentence_and_nothing_else_is(
    world: ConsoleWorld, visitor: Visitor
) -> None:
    page = visitor.page
    is_live(page)
    assert page.locator("[aria-live]").count() == 1
    page.evaluate(
        """() => {
            window.heard = [];
            const said = document.getElementById("said");
            new MutationObserver(() => window.heard.push(said.textContent))
                .observe(said, { childList: true, characterData: true });
        }"""
    )
    for host in ("h2", "h1"):
        world.maintain(host)
    world.order("hosts/h3/fail")
    shows(page, "#said", "1 thing is broken.")
    world.order("hosts/h3/repair")
    shows(page, "#said", "Nothing is broken.")
    assert page.evaluate("window.heard") == ["1 thing is broken.", "Nothing is broken."]


def test_the_focus_and_what_is_open_are_kept_when_a_block_is_drawn_anew(
    world: ConsoleWorld, visitor: Visitor
) -> None:
    page = visitor.page
    world.maintain("h2")
    visitor.open("/console/")
    is_live(page)
    tab_to(page, "Approve")
    before = page.evaluate("document.activeElement.getAttribute('href')")
    world.maintain("h1", not_before="+3h")
    shows(page, "#b-consent", "db-0")
    assert page.evaluate("document.activeElement.getAttribute('href')") == before
    visitor.open("/console/timeline")
    is_live(page)
    page.click("#table summary")
    world.order("vms/lonely/restart")
    shows(page, "#b-spans", "Reboot of lonely")
    assert page.evaluate("document.getElementById('table').open") is False, (
        "closed, it stays closed"
    )


def test_seven_tabs_work_and_all_of_them_show_what_changes(
    world: ConsoleWorld, visitor: Visitor
) -> None:
    tabs = [visitor.page, *(visitor.tab() for _ in range(TABS - 1))]
    for tab in tabs:
        assert visitor.open("/console/", tab) == 200
    states = [expect(tab.locator("#live")) for tab in tabs]
    for state in states:
        state.to_have_text(re.compile("live|every 5 s"), timeout=PATIENCE_MS)
    told = [tab.inner_text("#live") for tab in tabs]
    assert (told.count("live"), told.count("every 5 s")) == (4, 3)
    world.order("hosts/h3/fail")
    for tab in tabs:
        shows(tab, "#b-broken", "Host h3 has failed")
    assert visitor.open("/console/fleet", tabs[-1]) == 200


def test_a_page_whose_stream_was_cut_misses_nothing(chromium: Browser, world: ConsoleWorld) -> None:
    line = Line(world.url)
    visitor = Visitor(chromium, line.url, token=world.token)
    try:
        page = visitor.page
        page.goto(f"{line.url}{world.order('console/links')['path']}")
        page.wait_for_url(f"{line.url}/console/")
        is_live(page)
        page.evaluate("window.kept = true")
        line.cut()
        expect(page.locator("#live")).to_have_text("reconnecting", timeout=PATIENCE_MS)
        world.order("hosts/h3/fail")
        world.order("vms/web-1/restart")
        line.mend()
        is_live(page)
        shows(page, "#b-broken", "Host h3 has failed")
        shows(page, "#b-work", "Reboot of web-1")
        shows(page, "#b-tail", "web-1")
        assert page.evaluate("window.kept") is True, "by replay, not by loading the page again"
        assert line.asked_with_position > 0
    finally:
        visitor.close()
        line.close()


def test_a_session_that_ends_under_an_open_page_is_said_there(
    chromium: Browser, world: ConsoleWorld
) -> None:
    visitor = Visitor(chromium, world.url, token=world.token_for("operator", name="leaver"))
    try:
        page = visitor.enter()
        is_live(page)
        world.order("tokens/leaver/revoke")
        expect(page.locator("#live")).to_have_text(
            "session ended: log in again", timeout=PATIENCE_MS
        )
        page.click("nav >> text=Fleet")
        page.wait_for_url("**/console/login?to=%2Fconsole%2Ffleet")
    finally:
        visitor.close()


def test_a_hidden_tab_has_no_stream_and_shows_what_it_missed_when_it_is_seen(
    world: ConsoleWorld, visitor: Visitor
) -> None:
    page = visitor.page
    is_live(page)
    hide(page, hidden=True)
    expect(page.locator("#live")).to_have_text("paused", timeout=PATIENCE_MS)
    world.order("hosts/h3/fail")
    hide(page, hidden=False)
    is_live(page)
    shows(page, "#b-broken", "Host h3 has failed")


def hide(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_the_emulators_clock_is_told_to_open_pages(world: ConsoleWorld, visitor: Visitor) -> None:
    page = visitor.page
    is_live(page)
    shows(page, "#clock", "11:00:00")
    world.cloud.clock.advance(hours=2)
    world.order("hosts/h3/close")
    when(page, lambda: "13:00:00" in page.inner_text("#clock"), "the clock is the new one")


class Line:
    """A connection to the console that can be cut: a small forwarder on a port of its own."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked_with_position = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._whole = True
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        self._pumps: list[threading.Thread] = []

    def cut(self) -> None:
        with self._lock:
            self._whole = False
            for one in self._open:
                one.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def mend(self) -> None:
        with self._lock:
            self._whole = True

    def close(self) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in (self._thread, *self._pumps):
            thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if not self._whole:
                    near.close()
                    continue
                far = socket.create_connection((self._to.hostname, self._to.port))
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                pump = threading.Thread(target=self._pump, args=(one, other))
                pump.start()
                self._pumps.append(pump)

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):  # it was cut
            while part := one.recv(65_536):
                if b"last-event-id:" in part.lower():
                    self.asked_with_position += 1
                other.sendall(part)
        with self._lock:
            if one in self._open:
                self._open.discard(one)
                self._shut(other)
        one.close()

    @staticmethod
    def _shut(other: socket.socket) -> None:
        with suppress(OSError):  # it went first
            other.shutdown(socket.SHUT_WR)
