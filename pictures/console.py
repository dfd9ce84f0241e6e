"""Pictures of the console in docs/pictures: the fleet of `console_fleet`, as a browser shows it.

They are not the same byte for byte on every machine, so a test asks only that each is there and
small. Chromium and Playwright are needed.
"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pictures import console_fleet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-lcd-text",  # no coloured edges of letters: a picture of half the size
)
WIDE, NARROW = 1100, 390
ZONE = "Europe/Berlin"
BYTES_MAX = 150_000
WAIT_MS = 60_000

Ask = Callable[[str], Any]


class Shot(Struct, frozen=True, kw_only=True):
    """One picture: a page, how large the window is, who looks at it. `path` may need an id."""

    path: Callable[[Ask], str]
    height: int
    width: int = WIDE
    dark: bool = False
    owner: Sequence[str] = ()


def _event(ask: Ask, phase: str) -> str:
    found = ask("events")["items"]
    return str(next(one["event_id"] for one in found if one["phase"] == phase))


SHOTS: Mapping[str, Shot] = {
    "console-now": Shot(path=lambda _: "/console/", height=720),
    "console-order": Shot(
        path=lambda _: "/console/orders/host-maintain/r2-h01?event_type=Reboot&look=yes",
        height=640,
    ),
    "console-event": Shot(
        path=lambda ask: f"/console/events/{_event(ask, 'started')}", height=760, dark=True
    ),
    "console-timeline": Shot(path=lambda _: "/console/timeline", height=560),
    "console-fleet": Shot(path=lambda _: "/console/fleet", height=560, dark=True),
    "console-owner": Shot(
        path=lambda _: "/console/inbox",
        height=780,
        width=NARROW,
        owner=("shop-web", "shop-api"),
    ),
    "console-emulator": Shot(path=lambda _: "/console/emulator", height=720),
}


def record(folder: Path) -> None:
    """Take every picture anew."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - an extra of development

    browser_path = shutil.which("chromium")
    if browser_path is None:
        sys.exit("make screenshots needs the Debian package chromium")
    with console_fleet.running() as fleet, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        for name, shot in SHOTS.items():
            _take(browser, fleet, shot, folder / f"{name}.png")
        browser.close()


def _take(browser: Browser, fleet: console_fleet.Fleet, shot: Shot, file: Path) -> None:
    url, token = fleet.cloud.operator_url, fleet.cloud.operator_token
    if shot.owner:
        made = fleet.order("tokens", name="the shop team", role="owner", scopes=list(shot.owner))
        token = made["token"]
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.dark else "light",
        timezone_id=ZONE,
        locale="en-GB",
    )
    try:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{url}{_call(url, token, 'console/links', {})['path']}")
        page.wait_for_url(f"{url}/console/")
        page.goto(f"{url}{shot.path(lambda path: _call(url, token, path))}")
        _settle(page)
        page.screenshot(path=file)
    finally:
        context.close()
    size = file.stat().st_size
    if size > BYTES_MAX:
        sys.exit(f"{file.name} has {size} bytes; {BYTES_MAX} are accepted.")


def _settle(page: Page) -> None:
    """Wait until the page follows its fleet, where it does."""
    if page.locator("#live").count():
        page.wait_for_function("document.getElementById('live').dataset.is === 'live'")


def _call(url: str, token: str, path: str, content: object = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(
        f"{url}/v1/{path}", data=body, headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
