"""Log lines: one event a line, with its fields, as text for people or as JSON for programs."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import Any, TextIO

VALUE_CHARS_MAX = 1_000
SUBJECTS_MAX = 1_000  # that are remembered; the oldest is forgotten, and then warned of again


class Log:
    """Writes lines to a stream. A line that cannot be written is lost, and nothing else is.

    `once` says the same thing about the same subject only when it changes, so an endpoint that is
    away for an hour is one line and not thousands.
    """

    def __init__(self, *, as_json: bool = False, stream: TextIO | None = None) -> None:
        self._as_json = as_json
        self._stream = stream
        self._said: dict[str, str] = {}

    def info(self, what: str, **fields: Any) -> None:
        self._write("info", what, fields)

    def warning(self, what: str, **fields: Any) -> None:
        self._write("warning", what, fields)

    def error(self, what: str, **fields: Any) -> None:
        self._write("error", what, fields)

    def once(self, subject: str, what: str, **fields: Any) -> None:
        """Warn of something that lasts: said when it begins and when it becomes something else."""
        said = f"{what} {fields}"
        if self._said.get(subject) != said:
            self._said.pop(subject, None)
            self._said[subject] = said
            if len(self._said) > SUBJECTS_MAX:
                del self._said[next(iter(self._said))]
            self.warning(what, **fields)

    def over(self, subject: str, what: str, **fields: Any) -> None:
        """Say that what `once` warned of is over. Silent if it was never said."""
        if self._said.pop(subject, None) is not None:
            self.info(what, **fields)

    def _write(self, level: str, what: str, fields: dict[str, Any]) -> None:
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        if self._as_json:
            shown = {"at": at, "level": level, "what": what, **fields}
            line = json.dumps(shown, default=str, ensure_ascii=True)
        else:
            said = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
            line = f"{at} {level} {what}{said}"
        try:
            stream = self._stream or sys.stderr
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            return  # the reader is gone; the work goes on


def _shown(value: object) -> str:
    """A value on one line; what is no plain word is quoted, so that lines can be taken apart."""
    text = str(value)[:VALUE_CHARS_MAX]
    plain = text and all(letter.isalnum() or letter in "-_.:/+#@,%" for letter in text)
    return text if plain else json.dumps(text)
