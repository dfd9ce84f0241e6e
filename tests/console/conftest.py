"""The browser of the console's tests: one for all of them in a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    pytest.importorskip("playwright", reason="not installed: playwright, of the extra dev")
    pytest.importorskip("axe_playwright_python", reason="not installed: axe, of the extra dev")
    from support import console_browser  # noqa: PLC0415 - only where a browser is

    with console_browser.chromium() as browser:
        yield browser
