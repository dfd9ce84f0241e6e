"""Orders for faults: loosely typed words in, a checked order out, or a mistake by its name.

The words come from a JSON body, a table of a scenario, the options of the command line or the
arguments of a test; what they may say is the same everywhere and is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from forewarn.core.errors import Invalid
from forewarn.core.model import SECOND_MS
from forewarn.core.spelling import shown
from forewarn.emulator import fault_kinds
from forewarn.emulator.durations import duration_text, parse_duration_ms
from forewarn.emulator.fault_kinds import BY_STATUS, KINDS, FaultKind, KindOfFault, Method

# What every kind can be narrowed with, and what only some kinds take.
SELECTORS = ("vm", "method", "count", "share", "for")
OF_SOME_KINDS = ("seconds", "retry_after", "by", "per_second")
WORDS = ("kind", *SELECTORS, *OF_SOME_KINDS)

_NAME_CHARS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOrder:
    """A fault that can be. None in a selector is no limit: every VM, both methods, for ever.

    `delay_ms` is how long an answer takes or stalls, in real time. `for_ms` is the emulator's.
    """

    kind: FaultKind
    vm: str | None = None
    method: Method | None = None
    count: int | None = None
    share: float | None = None
    for_ms: int | None = None
    delay_ms: int | None = None
    retry_after_s: int | None = None
    by: int | None = None
    per_second: float | None = None


def read_order(words: Mapping[str, object]) -> FaultOrder:
    """The order that these words mean. Raises Invalid with the word that is wrong, and why.

    `-` and `_` are the same in the name of a word; `for_s` is `for`, which is no name in Python.
    What is None or empty is not said.
    """
    said = _named(words)
    row = _kind(said.pop("kind", None))
    unfit = [word for word in OF_SOME_KINDS if word in said and word not in row.takes]
    if unfit:
        takes = _listed(row.takes) if row.takes else "nothing of its own"
        raise Invalid(
            f"A fault of the kind {row.kind} takes no {unfit[0]}.",
            f"It takes {takes}, and vm, method, count, share, for.",
        )
    return FaultOrder(
        kind=row.kind,
        vm=_vm(said.get("vm")),
        method=_method(said.get("method"), row),
        count=_whole("count", said.get("count"), fault_kinds.COUNT_MAX),
        share=_share(said.get("share"), row),
        for_ms=_for_ms(said, row),
        delay_ms=_delay_ms(said.get("seconds"), row),
        retry_after_s=_retry_after_s(said.get("retry_after")),
        by=_by(said.get("by"), row),
        per_second=_per_second(said.get("per_second"), row),
    )


def _named(words: Mapping[str, object]) -> dict[str, object]:
    said: dict[str, object] = {}
    for name, value in words.items():
        word = str(name).replace("-", "_")
        word = "for" if word == "for_s" else word
        if word not in WORDS:
            raise Invalid(
                f"A fault has no {shown(name)}.", f"These words are accepted: {_listed(WORDS)}."
            )
        if word in said:
            raise Invalid(f"{word} is said twice.", "Say it once.")
        if value is not None and value != "":
            said[word] = value
    return said


def _kind(value: object) -> KindOfFault:
    accepted = f"Kinds: {_listed(tuple(KINDS))}; or a status: {_listed(tuple(BY_STATUS))}."
    if value is None:
        raise Invalid("A fault needs a kind.", accepted)
    text = str(value)
    if isinstance(value, str | int) and text in BY_STATUS:
        return KINDS[BY_STATUS[text]]
    if isinstance(value, str) and text in tuple(FaultKind):
        return KINDS[FaultKind(text)]
    raise Invalid(f"There is no kind of fault {shown(value)}.", accepted)


def _vm(value: object) -> str | None:
    if value is None or (isinstance(value, str) and len(value) <= _NAME_CHARS_MAX):
        return value
    raise Invalid(f"vm was not understood: {shown(value)}.", "Give the name of one VM.")


def _method(value: object, row: KindOfFault) -> Method | None:
    """None where nothing narrows it: both methods, or whatever the kind looks at."""
    if value is None:
        return row.methods[0] if len(row.methods) == 1 else None
    text = value.upper() if isinstance(value, str) else ""
    if text not in tuple(Method):
        raise Invalid(f"method was not understood: {shown(value)}.", "Give GET or POST.")
    if not row.methods:
        raise Invalid(f"A fault of the kind {row.kind} takes no method.", "Leave it out.")
    if Method(text) not in row.methods:
        raise Invalid(
            f"A fault of the kind {row.kind} cannot hit {text}.", f"{row.methods[0]} is accepted."
        )
    return Method(text)


def _share(value: object, row: KindOfFault) -> float | None:
    share = _number("share", value)
    if share is None:
        return None
    if not row.can_share:
        raise Invalid(f"A fault of the kind {row.kind} takes no share.", "Leave it out.")
    if not 0 < share <= 1:
        raise Invalid(
            f"share was not understood: {shown(value)}.", "Above 0 and up to 1 is accepted."
        )
    return share


def _for_ms(said: Mapping[str, object], row: KindOfFault) -> int | None:
    for_ms = _ms("for", said.get("for"))
    if for_ms == 0:
        raise Invalid("A fault for no time would never hit.", "Give a length of time, like 70s.")
    if row.kind is not FaultKind.GONE:
        return for_ms
    most_ms = fault_kinds.GONE_FOR_MS_MAX
    if for_ms is None:
        return None if "count" in said else most_ms
    if for_ms > most_ms:
        raise Invalid(
            f"A 410 for {duration_text(for_ms)} is longer than the contract allows (E13): clients"
            " may give up after 70 s.",
            "At most 70s is accepted; unavailable (503) may last longer.",
        )
    return for_ms


def _delay_ms(value: object, row: KindOfFault) -> int | None:
    if "seconds" not in row.takes:
        return None
    slow = row.kind is FaultKind.SLOW_FIRST
    most_ms = fault_kinds.SLOW_FIRST_MS_MAX if slow else fault_kinds.STALL_MS_MAX
    usual_ms = fault_kinds.SLOW_FIRST_MS_DEFAULT if slow else fault_kinds.STALL_MS_DEFAULT
    delay_ms = _ms("seconds", value)
    if delay_ms is None:
        return usual_ms
    if not 0 < delay_ms <= most_ms:
        raise Invalid(
            f"seconds is {duration_text(delay_ms)}.",
            f"For {row.kind} more than nothing and at most {most_ms // SECOND_MS}s is accepted.",
        )
    return delay_ms


def _retry_after_s(value: object) -> int | None:
    ms = _ms("retry_after", value)
    if ms is None:
        return None
    if ms % SECOND_MS or ms > fault_kinds.RETRY_AFTER_MS_MAX:
        raise Invalid(
            f"retry_after was not understood: {shown(value)}.",
            f"Whole seconds are accepted, at most {duration_text(fault_kinds.RETRY_AFTER_MS_MAX)}.",
        )
    return ms // SECOND_MS


def _by(value: object, row: KindOfFault) -> int | None:
    if "by" not in row.takes:
        return None
    by = _whole("by", value, fault_kinds.SKIPPED_AT_ONCE_MAX)
    return fault_kinds.SKIPPED_AT_ONCE_DEFAULT if by is None else by


def _per_second(value: object, row: KindOfFault) -> float | None:
    if "per_second" not in row.takes:
        return None
    rate = _number("per_second", value)
    if rate is None:
        return fault_kinds.PER_SECOND_DEFAULT
    if not 0 < rate <= fault_kinds.PER_SECOND_MAX:
        raise Invalid(
            f"per_second was not understood: {shown(value)}.",
            f"Above 0 and up to {fault_kinds.PER_SECOND_MAX:.0f} is accepted.",
        )
    return rate


def _ms(word: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str | int | float):
        raise Invalid(f"{word} was not understood: {shown(value)}.", "Write it like 70s or 2m.")
    try:
        return parse_duration_ms(value)
    except Invalid as refused:
        raise Invalid(f"{word} was not understood: {refused.refused}", refused.accepted) from None


def _whole(word: str, value: object, most: int) -> int | None:
    number = _number(word, value)
    if number is None:
        return None
    if number != int(number) or not 1 <= number <= most:
        raise Invalid(
            f"{word} was not understood: {shown(value)}.",
            f"A whole number from 1 to {most} is accepted.",
        )
    return int(number)


def _number(word: str, value: object) -> float | None:
    """A number, also one that is written as text."""
    if value is None:
        return None
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number):
                return number
    except (ValueError, OverflowError):
        pass
    raise Invalid(f"{word} was not understood: {shown(value)}.", "Give a number.")


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words)
