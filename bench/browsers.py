"""One real browser at the console: the system's Chromium, driven by Playwright.

It shares the core of the clients, so its tasks are rather too long than too short.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass

from bench.guests import Operator
from bench.processes import Forewarn, program

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-proxy-server")
LIMIT_MS = 60_000
# Run before the page's own script. A long task is one of more than 50 ms.
_WATCH = """
window.tasks = [];
window.patches = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.tasks.push(one.duration);
}).observe({ type: "longtask", buffered: true });
const Source = window.EventSource;
window.EventSource = class extends Source {
  constructor(...given) {
    super(...given);
    this.addEventListener("patch", () => { window.patches += 1; });
  }
};
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """The long tasks of a browser: while it loaded the page, and while it followed."""

    load_ms: list[float]
    tasks_ms: list[float]
    patches: int


def missing() -> str:
    """What is not installed that this takes; empty if all is there."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: it is in the dev extra"
    return "" if program("chromium") else "chromium is not installed (Debian package chromium)"


def follow_now(service: Forewarn, meanwhile: Callable[[], None]) -> Watched:
    """Open the Now page, and follow it while `meanwhile` makes changes."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where it is installed

    operator = Operator(service)
    link = json.loads(operator.ask("POST", "/v1/console/links", {}).body)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program("chromium"), args=list(FLAGS))
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(LIMIT_MS)
            page.add_init_script(_WATCH)
            page.goto(f"http://127.0.0.1:{service.operator_port}{link['path']}")
            page.wait_for_url("**/console/")
            page.wait_for_selector("#live[data-is=live]")
            load_ms = page.evaluate("window.tasks.splice(0)")
            meanwhile()
            page.wait_for_timeout(1_000)
            return Watched(load_ms, page.evaluate("window.tasks"), page.evaluate("window.patches"))
        finally:
            browser.close()
