"""The loggers of all modules. Where lines go is decided by the command that runs: cli/logs.py."""

from __future__ import annotations

from typing import Any


class Log:
    """The logger of one module: an event in snake case, and fields."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._structlog: Any = None

    def info(self, event: str, **fields: object) -> None:
        self._lines().info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        self._lines().warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        self._lines().error(event, **fields)

    def critical(self, event: str, **fields: object) -> None:
        self._lines().critical(event, **fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error, with the exception that is being handled."""
        self._lines().exception(event, **fields)

    def _lines(self) -> Any:
        if self._structlog is None:
            # It loads all of rich and pygments, a hundred modules and a fifth of the emulator's
            # first start, and most emulators never log a line. Services load it to configure it.
            import structlog  # noqa: PLC0415 - see above

            self._structlog = structlog.get_logger(self._module)
        return self._structlog
