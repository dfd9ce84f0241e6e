"""What each key of an inventory file takes: one table per kind of `[[...]]`, in words and as code.

One value at a time is judged here; how values fit together is `inventory_file`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forewarn.core import addresses
from forewarn.core.errors import Invalid
from forewarn.core.model import MINUTE_MS, EventType, Priority, ScopeKind
from forewarn.core.notice import TERMINATE_NOTICE_MS
from forewarn.core.principal import OPERATOR
from forewarn.core.scheduling import AUTO_APPROVED_BY
from forewarn.core.spelling import shown

NAME_CHARS_MAX = 64
CAPACITY_MAX = 100_000
DOMAIN_MAX = 9_999
TAGS_MAX = 50
TAG_NAME_CHARS_MAX = 512
TAG_VALUE_CHARS_MAX = 256
ZONE_CHARS_MAX = 64

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NAME_ACCEPTED = (
    f"1 to {NAME_CHARS_MAX} letters, digits and `_ . -`, beginning with a letter or digit"
)
# Who else the journal and forewarn_approvals_total may name where a VM can stand.
RESERVED_NAMES = (OPERATOR.name, AUTO_APPROVED_BY)
AUTO_APPROVE = {"reboot": EventType.REBOOT, "redeploy": EventType.REDEPLOY}
NOTICE_MINUTES = tuple(ms // MINUTE_MS for ms in TERMINATE_NOTICE_MS)


class Wrong(Exception):  # noqa: N818 - says what is the case
    """The value cannot be taken. Words, if any, say more than the value would; `part` is where."""

    def __init__(self, words: str = "", *, part: str | None = None) -> None:
        super().__init__(words)
        self.part = part


@dataclass(frozen=True, slots=True)
class Key:
    """What a key takes: in words, and as a function that returns the value or raises Wrong."""

    accepted: str
    read: Callable[[object], object]


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Wrong
    return value


def need_host_name(name: str) -> str:
    """The name, if an inventory file could give it to a host. Raises Invalid."""
    try:
        return _name(name)
    except Wrong:
        raise Invalid(
            f"{shown(name)} is no name for a host.", f"Accepted: {_NAME_ACCEPTED}."
        ) from None


def _vm_name(value: object) -> str:
    name = _name(value)
    if name.casefold() in RESERVED_NAMES:
        raise Wrong(f"the name {name} is reserved: as one who approves it is not a VM.")
    return name


def _number(low: int, high: int) -> Key:
    def read(value: object) -> int:
        if type(value) is not int or not low <= value <= high:  # True is no number here
            raise Wrong
        return value

    return Key(f"a whole number from {low} to {high}, without quotes", read)


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong
    return value


def _choice(values: Mapping[str, object]) -> Key:
    def read(value: object) -> object:
        if not isinstance(value, str) or value not in values:
            raise Wrong
        return values[value]

    return Key(" or ".join(f'"{value}"' for value in values), read)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > ZONE_CHARS_MAX or not value.isprintable():
        raise Wrong
    return value


def _address(value: object) -> str:
    try:
        return addresses.read_address(value if isinstance(value, str) else "")
    except Invalid:
        raise Wrong from None


def _listen(value: object) -> str:
    try:
        return addresses.listen_text(
            *addresses.read_listen(value if isinstance(value, str) else "")
        )
    except Invalid:
        raise Wrong from None


def _auto_approve(value: object) -> frozenset[EventType]:
    if not isinstance(value, list):
        raise Wrong
    if not all(isinstance(word, str) and word in AUTO_APPROVE for word in value):
        raise Wrong
    return frozenset(AUTO_APPROVE[word] for word in value)


def _tags(value: object) -> tuple[tuple[str, str], ...]:
    """In name order. `;` and `:` divide `compute.tags` of /metadata/instance, `a:1;b:2`."""
    if not isinstance(value, dict):
        raise Wrong
    if len(value) > TAGS_MAX:
        raise Wrong(f"{len(value)} tags are too many.")
    for name, text in value.items():
        if not 1 <= len(name) <= TAG_NAME_CHARS_MAX or not name.isprintable():
            raise Wrong(f"the tag name {shown(name)} is refused.", part=name)
        if ";" in name or ":" in name:
            raise Wrong(f"the tag name {shown(name)} is refused.", part=name)
        if not isinstance(text, str):
            raise Wrong(f"tag {shown(name)} = {shown(text)} is not a text.", part=name)
        if len(text) > TAG_VALUE_CHARS_MAX or not text.isprintable() or ";" in text:
            raise Wrong(f"tag {shown(name)} = {shown(text)} is refused.", part=name)
    return tuple(sorted(value.items()))


_NAME_KEY = Key(_NAME_ACCEPTED, _name)
_HOST_KEYS = {"name": _NAME_KEY, "capacity": _number(1, CAPACITY_MAX)}
_SCOPE_KEYS = {
    "name": _NAME_KEY,
    "kind": _choice({kind.value: kind for kind in ScopeKind}),
    "terminate_notice_minutes": _number(*NOTICE_MINUTES),
    "auto_approve": Key('a list of "reboot", "redeploy", both or none', _auto_approve),
    "only_listed": Key("true or false, without quotes", _yes_or_no),
}
_VM_KEYS = {
    "name": Key(f"{_NAME_ACCEPTED}, but not {' or '.join(RESERVED_NAMES)}", _vm_name),
    "scope": _NAME_KEY,
    "update_domain": _number(0, DOMAIN_MAX),
    "host": _NAME_KEY,
    "address": Key(addresses.ADDRESS_ACCEPTED, _address),
    "listen": Key(addresses.LISTEN_ACCEPTED, _listen),
    "priority": _choice({priority.value: priority for priority in Priority}),
    "tags": Key(
        f'a table of up to {TAGS_MAX} texts, like {{ owner = "shop" }}, printable, without `;`; '
        f"names of 1 to {TAG_NAME_CHARS_MAX} characters also without `:`, "
        f"values of up to {TAG_VALUE_CHARS_MAX}",
        _tags,
    ),
    "fault_domain": _number(0, DOMAIN_MAX),
    "zone": Key(f'a text of up to {ZONE_CHARS_MAX} printable characters, like "1"', _text),
    "os_type": _choice({"Linux": "Linux", "Windows": "Windows"}),
    "computer_name": _NAME_KEY,
}
# By kind of table: what its keys take, and which of them must be there.
TABLES: dict[str, tuple[Mapping[str, Key], tuple[str, ...]]] = {
    "host": (_HOST_KEYS, ("name",)),
    "scope": (_SCOPE_KEYS, ("name", "kind")),
    "vm": (_VM_KEYS, ("name", "host")),
}
