"""What is expected of an answer: its status, and how a refusal looks."""

from __future__ import annotations

from typing import Any

from forewarn.verify.check import expect
from forewarn.verify.connection import Answer


def expect_status(answer: Answer, *accepted: int) -> None:
    """Fail unless the answer has one of these statuses."""
    words = " or ".join(map(str, accepted))
    expect(answer.status in accepted, answer, words)


def expect_refused(answer: Answer) -> None:
    """Fail unless the answer is a refusal of the request, whichever."""
    expect(400 <= answer.status < 500 and answer.status != 429, answer, "a status 4xx")


def expect_newest(answer: Answer) -> None:
    """Fail unless the body names api-versions that would be accepted."""
    content: Any = answer.json
    newest = content.get("newest-versions") if isinstance(content, dict) else None
    good = (
        isinstance(newest, list)
        and len(newest) == 3
        and all(isinstance(version, str) for version in newest)
        and newest == sorted(newest, reverse=True)
    )
    expect(good, answer, '"newest-versions" with the three newest, newest first')


def expect_error_object(answer: Answer) -> None:
    """Fail unless the body is the error object of the service."""
    content: Any = answer.json
    good = isinstance(content, dict) and isinstance(content.get("error"), str)
    expect(good and content["error"], answer, 'a JSON object with "error", a text')
