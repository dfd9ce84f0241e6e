"""Every page as people see it: wide and narrow, light and dark, without a barrier, with its times.

The fleet is the one of the pictures: a failed host, a held scope, operations in all phases,
windows, scopes that are silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from programs import needs

pytest.importorskip("playwright", reason="not installed: playwright, of the extra dev")
pytest.importorskip("axe_playwright_python", reason="not installed: axe, of the extra dev")

from pictures import console_fleet

from support.console_browser import NARROW, WIDE, Visitor, barriers, sideways
from support.console_world import call

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs("chromium")


class Scenery:
    """The fleet of the pictures, and who looks at it."""

    def __init__(self, fleet: console_fleet.Fleet, visitor: Visitor, paths: Mapping[str, str]):
        self.fleet = fleet
        self.visitor = visitor
        self.paths = paths


@pytest.fixture(scope="module")
def scenery(chromium: Browser) -> Iterator[Scenery]:
    with console_fleet.running() as fleet:
        cloud = fleet.cloud
        visitor = Visitor(chromium, cloud.operator_url, token=cloud.operator_token)
        visitor.enter()
        yield Scenery(fleet, visitor, paths_of(cloud.operator_url, cloud.operator_token))
        visitor.close()


def paths_of(url: str, token: str) -> dict[str, str]:
    """Every page by its name."""

    def ask(path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = call(url, token, "GET", path)["items"]
        return items

    call(url, token, "POST", "/v1/tokens", {"name": "ci", "role": "viewer"})
    events = ask("/v1/events")
    started = next(e["event_id"] for e in events if e["phase"] == "started")
    waits = next(e["event_id"] for e in events if e["phase"] == "scheduled" and e["operation_id"])
    operation = ask("/v1/operations")[0]["operation_id"]
    token_id = ask("/v1/tokens")[0]["token_id"]
    orders = "/console/orders"
    return {
        "now": "/console/",
        "fleet": "/console/fleet",
        "silent scopes": "/console/fleet?show=silent",
        "hosts": "/console/hosts",
        "a host": "/console/hosts/r1-h04",
        "a failed host": "/console/hosts/r3-h12",
        "a scope": "/console/scopes/shop-web",
        "a vm": "/console/vms/checkout-2",
        "timeline": "/console/timeline",
        "a week": "/console/timeline?range=7d",
        "an event": f"/console/events/{started}",
        "an event that waits": f"/console/events/{waits}",
        "a receipt": f"/console/events/{waits}/receipt",
        "an operation": f"/console/operations/{operation}",
        "inbox": "/console/inbox",
        "journal": "/console/journal",
        "access": "/console/access",
        "order maintenance": f"{orders}/host-maintain/r2-h01",
        "confirm maintenance": f"{orders}/host-maintain/r2-h01?event_type=Reboot&look=yes",
        "approve": f"{orders}/event-approve/{waits}",
        "postpone": f"{orders}/event-postpone/{waits}?until=%2B9h&look=yes",
        "declare failed": f"{orders}/host-fail/r2-h02?look=yes",
        "make a token": f"{orders}/token-make/new?name=x&role=viewer&look=yes",
        "revoke a token": f"{orders}/token-revoke/{token_id}",
        "emulator": "/console/emulator",
        "log in": "/console/login",
    }


PAGES = (
    "now",
    "fleet",
    "silent scopes",
    "hosts",
    "a host",
    "a failed host",
    "a scope",
    "a vm",
    "timeline",
    "a week",
    "an event",
    "an event that waits",
    "a receipt",
    "an operation",
    "inbox",
    "journal",
    "access",
    "order maintenance",
    "confirm maintenance",
    "approve",
    "postpone",
    "declare failed",
    "make a token",
    "revoke a token",
    "emulator",
    "log in",
)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_barrier_and_no_sideways_scrolling_in_both_themes(
    scenery: Scenery, name: str
) -> None:
    visitor, page = scenery.visitor, scenery.visitor.page
    page.set_viewport_size({"width": WIDE, "height": 900})
    page.emulate_media(color_scheme="light")
    assert visitor.open(scenery.paths[name]) == 200
    assert sideways(page) == 0
    assert barriers(page) == []
    page.emulate_media(color_scheme="dark")
    assert barriers(page, only="color-contrast") == []
    page.set_viewport_size({"width": NARROW, "height": 844})
    assert sideways(page) == 0
    assert barriers(page, only="color-contrast") == []
    page.emulate_media(color_scheme="light")
    assert sideways(page) == 0
    assert visitor.complaints == [], "nothing that the browser refused or that broke"
    assert visitor.elsewhere == [], "nothing is loaded from elsewhere"
    assert page.locator("h1").count() == 1


def test_a_page_that_is_not_there_says_so_and_has_no_barrier(scenery: Scenery) -> None:
    visitor = scenery.visitor
    assert visitor.open("/console/hosts/nosuch") == 404
    assert barriers(visitor.page) == []
    assert "There is no host nosuch" in visitor.page.inner_text("h1")


def test_now_shows_ten_things_in_their_order(scenery: Scenery) -> None:
    page = scenery.visitor.page
    scenery.visitor.open("/console/")
    assert page.locator("h2").all_inner_texts() == [
        "2 things are broken",
        "Operations",
        "Under way and next",
        "Who has not approved",
        "Who will not hear us",
        "The fleet",
        "Notice of the last 7 days",
        "Journal",
        "Capacity",
        "This service",
    ]


def test_times_are_in_the_zone_of_the_reader_with_utc_beside_them(scenery: Scenery) -> None:
    page = scenery.visitor.page
    scenery.visitor.open("/console/journal")
    shown = page.locator("td time").first
    assert re.fullmatch(r"11:33:\d\d ?10:33 UTC", shown.inner_text())
    assert "Europe/Berlin" in str(shown.get_attribute("title"))
    assert re.fullmatch(r"11:33:\d\d CET ?10:33 UTC", page.locator("#clock").inner_text())


def test_an_instant_of_another_day_says_which_day(scenery: Scenery) -> None:
    page = scenery.visitor.page
    scenery.visitor.open("/console/")
    away = page.locator("#b-consent time", has_text="Mar").first
    assert away.inner_text().startswith("Sun 15 Mar 11:33")


def test_a_page_works_without_script(scenery: Scenery, chromium: Browser) -> None:
    cloud = scenery.fleet.cloud
    visitor = Visitor(
        chromium, cloud.operator_url, token=cloud.operator_token, java_script_enabled=False
    )
    try:
        page = visitor.enter()
        assert "2 things are broken" in page.inner_text("#b-broken")
        assert re.search(r"10:33:\d\d UTC", page.inner_text("#clock"))
        page.click("nav >> text=Fleet")
        page.click("text=as a list")
        page.fill("input[name=find]", "r2-h09")
        page.click("button:has-text('Find')")
        page.click("td >> text=r2-h09")
        page.click("text=Order maintenance")
        page.click("text=See what it would do")
        assert "at the earliest" in page.inner_text(".effect")
    finally:
        visitor.close()


def test_a_receipt_is_printed_without_the_console_around_it(scenery: Scenery) -> None:
    page = scenery.visitor.page
    scenery.visitor.open(scenery.paths["a receipt"])
    page.emulate_media(media="print")
    try:
        for hidden in ("header.top", ".bar", "[data-print]"):
            assert not page.locator(hidden).is_visible()
        shown = page.inner_text("main")
        for words in ("EventId", "Why it has not started yet", "Notice promised", "First read"):
            assert words in shown
    finally:
        page.emulate_media(media="screen")


def test_the_timeline_has_windows_as_bands_and_a_table_that_says_the_same(
    scenery: Scenery,
) -> None:
    page = scenery.visitor.page
    scenery.visitor.open("/console/timeline")
    assert page.locator("rect.window").count() == 1
    assert page.locator("line.now").count() == page.locator(".span-row:not(.scale)").count()
    drawn = page.locator(".span-row .who").all_inner_texts()[1:]
    assert page.locator("#table td:first-child").all_inner_texts() == drawn
