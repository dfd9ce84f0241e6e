"""Everything that can go wrong, by name. Each says what happened and what would help."""

from __future__ import annotations


class GuestError(Exception):
    """The root of the tree: catch it and nothing of this package escapes.

    `remedy` is what would help, in a sentence, or empty.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy


class EndpointError(GuestError):
    """The endpoint could not be asked, or answered what no client can use."""


class NotFound(EndpointError):  # noqa: N818 - says what is the case
    """No endpoint was found anywhere."""


class Unreachable(EndpointError):  # noqa: N818 - says what is the case
    """Nothing answered, or the connection broke, or the answer did not come in time."""


class Refused(EndpointError):  # noqa: N818 - says what is the case
    """The endpoint refused the request: it will not get better by itself (3xx, 4xx)."""

    def __init__(self, message: str, remedy: str = "", *, status: int) -> None:
        super().__init__(message, remedy)
        self.status = status


class Busy(EndpointError):  # noqa: N818 - says what is the case
    """The endpoint cannot answer now: 410, 429, 5xx or an empty 200, longer than the client waits.

    `retry_after_s` is what it asked for by Retry-After, or None.
    """

    def __init__(
        self, message: str, remedy: str = "", *, status: int, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.retry_after_s = retry_after_s


class BadAnswer(EndpointError):  # noqa: N818 - says what is the case
    """The answer is no document: wrong type, too long, not JSON, not an object."""


class NotOnThisSystem(GuestError):  # noqa: N818 - says what is the case
    """What was asked for needs Linux."""


class ConfigError(GuestError):
    """The configuration must not be used. `mistakes` says each, with its line."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class NotToml(GuestError):  # noqa: N818 - says what is the case
    """A text is not TOML, or more of it than is taken. `line` is where."""

    def __init__(self, message: str, remedy: str = "", *, line: int) -> None:
        super().__init__(message, remedy)
        self.line = line


class JournalError(GuestError):
    """The journal cannot be read or written."""


class JournalDamaged(JournalError):  # noqa: N818 - says what is the case
    """A line in the middle of the journal is not what was written."""


class JournalFull(JournalError):  # noqa: N818 - says what is the case
    """Nothing can be written now; what was asked for was not kept."""


class StepError(GuestError):
    """A built-in step could not do what it is for."""
