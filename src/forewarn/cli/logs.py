"""The log of a command that runs on: lines on standard error."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from typing import TextIO, cast

import structlog

STDERR_FILE = 2


class _Lines(io.TextIOBase):
    """Standard error for the log. A line that cannot be written is lost, and nothing else is.

    A command must go on when the reader of the log is gone, or the disk that it is kept on is
    full: a writer that died of its own log would leave every guest waiting.
    """

    def write(self, text: str) -> int:
        with suppress(OSError):
            os.write(STDERR_FILE, text.encode("utf-8", "replace"))
        return len(text)


def log_to_stderr() -> None:
    """Have every log line printed as `key=value` on standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(bool_as_flag=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lines())),
        cache_logger_on_first_use=True,
    )
