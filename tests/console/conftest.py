"""The browser of the console's tests: one for all tests of a module.

While Playwright is open, an event loop counts as running in its thread, and no other test could
begin one. So the browser does not outlive its module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    pytest.importorskip("playwright", reason="not installed: playwright, of the extra dev")
    pytest.importorskip("axe_playwright_python", reason="not installed: axe, of the extra dev")
    from support import console_browser  # noqa: PLC0415 - only where a browser is

    with console_browser.chromium() as browser:
        yield browser
