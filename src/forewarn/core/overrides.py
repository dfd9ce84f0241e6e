"""Overrides: what an operator does against a promise, and why. Only the rule for the reason."""

from __future__ import annotations

from forewarn.core.errors import Invalid

REASON_CHARS_MAX = 200
REASON_ACCEPTED = (
    f"A reason of 1 to {REASON_CHARS_MAX} printable characters would be accepted (--reason TEXT);"
)


def need_reason(text: str, refused: str, *, kept: str = "it is in the journal.") -> str:
    """Why an operator overrides a promise. Raises Invalid with `refused` if it says nothing.

    `kept` says where people read the reason afterwards.
    """
    reason = text.strip()
    if not 1 <= len(reason) <= REASON_CHARS_MAX or not reason.isprintable():
        raise Invalid(refused, f"{REASON_ACCEPTED} {kept}")
    return reason


def fitting(text: str) -> str:
    """Words that need not be there. Raises Invalid for what no line of the journal can hold."""
    return need_reason(text, "The reason is too long, or holds control characters.") if text else ""
