"""Orders for faults: loosely typed words in, a checked order out, or every mistake.

The words come from a JSON body, a table of a scenario, the options of the command line or the
arguments of a test; what they may say is the same everywhere and is decided here. What each kind
takes is `kinds`' table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.errors import Invalid
from forewarn.core.model import SECOND_MS
from forewarn.core.suggestions import shown
from forewarn.emulator.faults import kinds
from forewarn.emulator.faults.kinds import BY_STATUS, KINDS, FaultKind, KindOfFault, Method
from forewarn.text.field_tables import Fields, Mistakes, Table, refusal_of
from forewarn.text.fields import ACCEPTED, Field, Wrong, duration, pattern

# What every kind can be narrowed with, and what only some kinds take.
SELECTORS = ("vm", "method", "count", "share", "for")
OF_SOME_KINDS = ("seconds", "retry_after", "by", "per_second", "document")
WORDS = ("kind", *SELECTORS, *OF_SOME_KINDS)

_NAME_CHARS_MAX = 256


class FaultOrder(Struct, frozen=True, kw_only=True):
    """A fault that can be. None in a selector is no limit: every VM, both methods, for ever.

    `delay_ms` is how long an answer takes or stalls, in real time; of documents and actions it is
    the emulator's, as `for_ms` is.
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
    document: str | None = None


def read_order(words: Mapping[str, object]) -> FaultOrder:
    """The order that these words mean. Raises Invalid with every word that is wrong, and why."""
    try:
        return read_fault(words)
    except Wrong as wrong:
        row = _row(words.get("kind"))
        what = "The fault" if row is None else f"The fault {row.kind}"
        refused = refusal_of(what, [mistake.words for mistake in wrong.inside])
        sentence, accepted, remedy = refused.rpartition(ACCEPTED)
        if len(wrong.inside) == 1 and accepted:  # a caller shows the remedy on its own
            raise Invalid(sentence, f"{accepted.lstrip()}{remedy}") from None
        raise Invalid(refused, "No fault was added.") from None


def read_fault(words: object) -> FaultOrder:
    """The order that a table means. Raises Wrong with the mistakes inside it.

    `-` and `_` are the same in the name of a word; `for_s` is `for`, which is no name in Python.
    What is None or empty is not said.
    """
    if not isinstance(words, Mapping):
        raise Wrong
    mistakes = Mistakes()
    said = _named(words, mistakes)
    table = Table(said)
    kind = table.written.get("kind")
    row = _row(kind)
    (_ANY if row is None else _FIELDS[row.kind]).read(table, mistakes)
    if row is None:
        what = "kind is missing." if kind is None else f"there is no kind of fault {shown(kind)}."
        accepted = f"{', '.join(KINDS)}; or a status: {', '.join(BY_STATUS)}"
        mistakes.add(("kind",), f"{what} Accepted: {accepted}.")
    missing = () if row is None else tuple(word for word in row.needs if word not in said)
    for word in missing:
        mistakes.add((word,), f"{word} is missing. Accepted: {_DOCUMENT_ACCEPTED}.")
    if row is None or mistakes.found:
        raise Wrong(inside=mistakes.found)
    return _order(row, table.values)


def _named(words: Mapping[str, object], mistakes: Mistakes) -> dict[str, object]:
    said: dict[str, object] = {}
    for name, value in words.items():
        word = str(name).replace("-", "_")
        word = "for" if word == "for_s" else word
        if word in said:
            mistakes.add((str(name),), f"{word} is given twice. Give it once.")
        if value is not None and value != "":
            said[word] = value
    return said


def _row(kind: object) -> KindOfFault | None:
    text = str(kind)
    if isinstance(kind, str | int) and text in BY_STATUS:
        return KINDS[BY_STATUS[text]]
    if isinstance(kind, str) and text in tuple(FaultKind):
        return KINDS[FaultKind(text)]
    return None


def _order(row: KindOfFault, said: Mapping[str, Any]) -> FaultOrder:
    """What was said, and what is assumed where nothing was."""
    values = {key: value for key, value in said.items() if key != "kind"}
    if len(row.methods) == 1:
        values["method"] = row.methods[0]
    if row.kind is FaultKind.GONE and "count" not in values:
        values.setdefault("for_ms", kinds.GONE_FOR_MS_MAX)
    if row.delay_ms is not None:
        values.setdefault("delay_ms", row.delay_ms[0])
    if "by" in row.takes:
        values.setdefault("by", kinds.SKIPPED_AT_ONCE_DEFAULT)
    if "per_second" in row.takes:
        values.setdefault("per_second", kinds.PER_SECOND_DEFAULT)
    return FaultOrder(kind=row.kind, **values)


# What each word takes, by kind.


def _fields_of(row: KindOfFault) -> Fields:
    fields = {
        "kind": Field("a kind", lambda value: value),  # it is known already
        "vm": pattern("the name of one VM", rf"(?s:.{{1,{_NAME_CHARS_MAX}}})"),
        "method": _method(row),
        "count": _whole(kinds.COUNT_MAX),
        "share": _real(1.0),
        "for": _for(row),
        "seconds": _seconds(row),
        "retry_after": _retry_after(),
        "by": _whole(kinds.SKIPPED_AT_ONCE_MAX),
        "per_second": _real(kinds.PER_SECOND_MAX),
        "document": Field(_DOCUMENT_ACCEPTED, _document),
    }
    not_taken = {word for word in OF_SOME_KINDS if word not in row.takes}
    if not row.methods:
        not_taken.add("method")
    if not row.can_share:
        not_taken.add("share")
    if not row.can_count:
        not_taken.add("count")
    taken = {word: field for word, field in fields.items() if word not in not_taken}
    return Fields(fields=taken, elsewhere=WORDS)


def _method(row: KindOfFault) -> Field:
    def read(value: object) -> Method:
        text = value.upper() if isinstance(value, str) else ""
        if text not in row.methods:
            raise Wrong
        return Method(text)

    return Field(" or ".join(row.methods), read)


def _for(row: KindOfFault) -> Field:
    accepted = 'a length of time like "70s", more than 0s'
    most_ms = None
    if row.kind is FaultKind.GONE:
        most_ms = kinds.GONE_FOR_MS_MAX
        accepted += (
            f" and at most {most_ms // SECOND_MS}s, as long as the contract allows a 410 (E13):"
            " clients may give up after that; unavailable (503) may last longer"
        )
    return replace(duration(accepted, more_than_ms=0, most_ms=most_ms), to="for_ms")


def _seconds(row: KindOfFault) -> Field:
    most_ms = kinds.STALL_MS_MAX if row.delay_ms is None else row.delay_ms[1]
    accepted = f'a length of time like "30s", more than 0s and at most {most_ms // SECOND_MS}s'
    return replace(duration(accepted, more_than_ms=0, most_ms=most_ms), to="delay_ms")


def _retry_after() -> Field:
    most_ms = kinds.RETRY_AFTER_MS_MAX
    accepted = f"a length of time in whole seconds, at most {most_ms // SECOND_MS}s"
    whole = duration(accepted, most_ms=most_ms, unit_ms=SECOND_MS)
    return whole.then(lambda ms: ms // SECOND_MS, to="retry_after_s")


_DOCUMENT_ACCEPTED = (
    f"a document with DocumentIncarnation and Events, at most {kinds.DOCUMENT_CHARS_MAX} characters"
)


def _document(value: object) -> str:
    """The document as it is sent: a text as it is, a table as JSON."""
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Wrong from None
    whole = isinstance(found, dict) and {"DocumentIncarnation", "Events"} <= found.keys()
    if not whole or len(text) > kinds.DOCUMENT_CHARS_MAX:
        raise Wrong
    return text


def _whole(most: int) -> Field:
    def read(value: object) -> int:
        found = _finite(value)
        if found != int(found) or not 1 <= found <= most:
            raise Wrong
        return int(found)

    return Field(f"a whole number from 1 to {most}", read)


def _real(most: float) -> Field:
    def read(value: object) -> float:
        found = _finite(value)
        if not 0 < found <= most:
            raise Wrong
        return found

    return Field(f"a number above 0 and up to {most:g}", read)


def _finite(value: object) -> float:
    """A number, also one that is written as text."""
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            found = float(value)
            if math.isfinite(found):
                return found
    except (ValueError, OverflowError):
        pass
    raise Wrong


_ANY = Fields(fields=dict.fromkeys(WORDS, Field("", lambda value: value)))
_FIELDS = {row.kind: _fields_of(row) for row in KINDS.values()}
