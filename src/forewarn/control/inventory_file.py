"""Reading an inventory file: TOML text in, `core.inventory.Inventory` out, or every mistake in it.

Only what can be judged from the text alone is judged here. What the running fleet forbids is
`core.reconciling`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from forewarn.control.toml_lines import Path, TomlLines, syntax_mistake
from forewarn.core import addresses
from forewarn.core.errors import BadInventory, Invalid
from forewarn.core.inventory import HostEntry, Inventory, ScopeEntry, VmEntry
from forewarn.core.model import MINUTE_MS, EventType, Priority, ScopeKind
from forewarn.core.notice import TERMINATE_NOTICE_MS

INVENTORY_CHARS_MAX = 16 * 1_024 * 1_024
MISTAKES_NAMED_MAX = 20
NAME_CHARS_MAX = 64
CAPACITY_MAX = 100_000
DOMAIN_MAX = 9_999
TAGS_MAX = 50
TAG_NAME_CHARS_MAX = 512
TAG_VALUE_CHARS_MAX = 256
ZONE_CHARS_MAX = 64
_SHOWN_CHARS_MAX = 64

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NAME_ACCEPTED = (
    f"1 to {NAME_CHARS_MAX} letters, digits and `_ . -`, beginning with a letter or digit"
)
_AUTO_APPROVE = {"reboot": EventType.REBOOT, "redeploy": EventType.REDEPLOY}
_NOTICE_MINUTES = tuple(ms // MINUTE_MS for ms in TERMINATE_NOTICE_MS)


class _Wrong(Exception):  # noqa: N818 - never leaves this module
    """The value cannot be taken. Words, if any, say more than the value itself would."""


@dataclass(frozen=True, slots=True)
class _Key:
    """What a key takes: in words, and as a function that returns the value or raises _Wrong."""

    accepted: str
    read: Callable[[object], object]


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _Wrong
    return value


def _number(low: int, high: int) -> _Key:
    def read(value: object) -> int:
        if type(value) is not int or not low <= value <= high:  # True is no number here
            raise _Wrong
        return value

    return _Key(f"a whole number from {low} to {high}, without quotes", read)


def _choice(values: Mapping[str, object]) -> _Key:
    def read(value: object) -> object:
        if not isinstance(value, str) or value not in values:
            raise _Wrong
        return values[value]

    return _Key(" or ".join(f'"{value}"' for value in values), read)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > ZONE_CHARS_MAX or not value.isprintable():
        raise _Wrong
    return value


def _address(value: object) -> str:
    try:
        return addresses.read_address(value if isinstance(value, str) else "")
    except Invalid:
        raise _Wrong from None


def _listen(value: object) -> str:
    try:
        return addresses.listen_text(
            *addresses.read_listen(value if isinstance(value, str) else "")
        )
    except Invalid:
        raise _Wrong from None


def _auto_approve(value: object) -> frozenset[EventType]:
    if not isinstance(value, list):
        raise _Wrong
    if not all(isinstance(word, str) and word in _AUTO_APPROVE for word in value):
        raise _Wrong
    return frozenset(_AUTO_APPROVE[word] for word in value)


def _tags(value: object) -> tuple[tuple[str, str], ...]:
    """In name order. `;` and `:` divide `compute.tags` of /metadata/instance, `a:1;b:2`."""
    if not isinstance(value, dict):
        raise _Wrong
    if len(value) > TAGS_MAX:
        raise _Wrong(f"{len(value)} tags are too many.")
    for name, text in value.items():
        shown = json.dumps(name[:_SHOWN_CHARS_MAX])
        if (
            not 1 <= len(name) <= TAG_NAME_CHARS_MAX
            or not name.isprintable()
            or set(name) & {*";:"}
        ):
            raise _Wrong(f"the tag name {shown} is refused.")
        if not isinstance(text, str):
            raise _Wrong(f"the value of tag {shown} is not a text.")
        if len(text) > TAG_VALUE_CHARS_MAX or not text.isprintable() or ";" in text:
            raise _Wrong(f"the value of tag {shown} is refused.")
    return tuple(sorted(value.items()))


_NAME_KEY = _Key(_NAME_ACCEPTED, _name)
_HOST_KEYS = {"name": _NAME_KEY, "capacity": _number(1, CAPACITY_MAX)}
_SCOPE_KEYS = {
    "name": _NAME_KEY,
    "kind": _choice({kind.value: kind for kind in ScopeKind}),
    "terminate_notice_minutes": _number(*_NOTICE_MINUTES),
    "auto_approve": _Key('a list of "reboot", "redeploy", both or none', _auto_approve),
}
_VM_KEYS = {
    "name": _NAME_KEY,
    "scope": _NAME_KEY,
    "update_domain": _number(0, DOMAIN_MAX),
    "host": _NAME_KEY,
    "address": _Key(addresses.ADDRESS_ACCEPTED, _address),
    "listen": _Key(addresses.LISTEN_ACCEPTED, _listen),
    "priority": _choice({priority.value: priority for priority in Priority}),
    "tags": _Key(
        f'a table of up to {TAGS_MAX} texts, like {{ owner = "shop" }}, printable, without `;`; '
        f"names of 1 to {TAG_NAME_CHARS_MAX} characters also without `:`, "
        f"values of up to {TAG_VALUE_CHARS_MAX}",
        _tags,
    ),
    "fault_domain": _number(0, DOMAIN_MAX),
    "zone": _Key(f'a text of up to {ZONE_CHARS_MAX} printable characters, like "1"', _text),
    "os_type": _choice({"Linux": "Linux", "Windows": "Windows"}),
    "computer_name": _NAME_KEY,
}
_TABLES: dict[str, tuple[Mapping[str, _Key], tuple[str, ...]]] = {
    "host": (_HOST_KEYS, ("name",)),
    "scope": (_SCOPE_KEYS, ("name", "kind")),
    "vm": (_VM_KEYS, ("name", "host")),
}


@dataclass(slots=True)
class _Table:
    """One `[[host]]`, `[[scope]]` or `[[vm]]`: what it says, and its good values by key."""

    kind: str
    number: int
    written: Mapping[str, object]
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        name = self.values.get("name")
        return f"[[{self.kind}]] {name or f'number {self.number + 1}'}"

    def path(self, *keys: str) -> Path:
        return (self.kind, self.number, *keys)


class _Mistakes:
    """Everything wrong with a file, each with its place."""

    def __init__(self) -> None:
        self.found: list[tuple[Path, str]] = []

    def add(self, path: Path, words: str) -> None:
        self.found.append((path, words))

    def of(self, table: _Table, key: str, words: str) -> None:
        self.add(table.path(key), f"{table.label}: {words}")


def parse(text: str) -> Inventory:
    """The content of an inventory file. Raises BadInventory with every mistake and its line.

    Files that differ in comments, order and spelling of the same values are equal.
    """
    written = _toml(text)
    mistakes = _Mistakes()
    tables = {kind: _read_tables(kind, written.get(kind, []), mistakes) for kind in _TABLES}
    for key in written:
        if key not in _TABLES:
            mistakes.add((key,), f"there is no {key!r} in an inventory.{_meant(key, _TABLES)}")
    if not written.get("host"):
        mistakes.add((), "the inventory lists no host. Write at least one [[host]] with its name.")
    for kind in _TABLES:
        _refuse_repeated_names(tables[kind], mistakes)
    _refuse_shared_channels(tables["vm"], mistakes)
    own = _check_placing(tables, mistakes)
    if mistakes.found:
        raise BadInventory(*in_words(text, mistakes.found))
    return _inventory(tables, own)


def in_words(text: str, found: Iterable[tuple[Path, str]]) -> tuple[str, str]:
    """What was refused, line by line, and what is the case now: the words of a refusal.

    A mistake with an empty path is about the file as a whole and names no line.
    """
    lines = TomlLines(text)
    placed = sorted(((lines.line_of(*path) if path else 0), words) for path, words in found)
    shown = [f"line {line}: {words}" if line else words for line, words in placed]
    more = len(shown) - MISTAKES_NAMED_MAX
    if more > 0:
        shown = [*shown[:MISTAKES_NAMED_MAX], f"... and {more} more mistakes."]
    if len(shown) == 1:
        return f"The inventory was refused: {shown[0]}", "Nothing of it was applied."
    return "\n".join(["The inventory was refused:", *shown]), "Nothing of it was applied."


def _toml(text: str) -> dict[str, Any]:
    if len(text) > INVENTORY_CHARS_MAX:
        raise BadInventory(
            f"The inventory has {len(text)} characters.",
            f"Up to {INVENTORY_CHARS_MAX} are accepted.",
        )
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        line, words = syntax_mistake(text, error)
        raise BadInventory(
            f"The inventory was refused: line {line}: this is not TOML: {words}.",
            "Nothing of it was applied.",
        ) from None
    except RecursionError:
        raise BadInventory(
            "The inventory was refused: its values are nested too deeply.",
            "Nothing is nested deeper than the tags of a VM.",
        ) from None


def _read_tables(kind: str, written: object, mistakes: _Mistakes) -> list[_Table]:
    if not isinstance(written, list) or not all(isinstance(one, dict) for one in written):
        mistakes.add((kind,), f"{kind!r} is not a list of tables. Write each as [[{kind}]].")
        return []
    tables = []
    for number, one in enumerate(written):
        table = _Table(kind, number, one)
        _read_keys(table, mistakes)
        tables.append(table)
    return tables


def _read_keys(table: _Table, mistakes: _Mistakes) -> None:
    keys, required = _TABLES[table.kind]
    for key in sorted(table.written, key=lambda key: key != "name"):  # the name first: the label
        value = table.written[key]
        if key not in keys:
            mistakes.of(table, key, f"there is no key {key!r}.{_meant(key, keys)}")
            continue
        try:
            table.values[key] = keys[key].read(value)
        except _Wrong as wrong:
            what = str(wrong) or f"{key} = {_shown(value)} is refused."
            mistakes.of(table, key, f"{what} Accepted: {keys[key].accepted}.")
    for key in required:
        if key not in table.written:
            mistakes.of(table, key, f"{key} is missing. Write {key} = ..., {keys[key].accepted}.")
    if table.kind == "vm" and not {"address", "listen"} & table.written.keys():
        mistakes.of(
            table,
            "name",
            "nobody could tell its requests from others: address and listen are missing. Write "
            'address = "192.0.2.7" (where its requests come from), listen = "127.0.0.1:8080" '
            "(a listener of its own), or both.",
        )


def _shown(value: object) -> str:
    if isinstance(value, str):
        shown = json.dumps(value[: _SHOWN_CHARS_MAX + 1])
    else:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= _SHOWN_CHARS_MAX else f"{shown[:_SHOWN_CHARS_MAX]}..."


def _meant(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(word, names, n=1)
    return f" Did you mean {close[0]}?" if close else f" There are: {', '.join(names)}."


def _refuse_repeated_names(tables: list[_Table], mistakes: _Mistakes) -> None:
    """Agents may compare names without case (C10), so names differ in more than that."""
    first: dict[str, _Table] = {}
    for table in tables:
        name = table.values.get("name")
        if name is None:
            continue
        other = first.setdefault(name.casefold(), table)
        if other is table:
            continue
        same = "is already there" if other.values["name"] == name else "differs only in case"
        mistakes.of(
            table,
            "name",
            f"the name {same}: it is {other.label}, the {_nth(other.number)} of its kind. "
            "Give each its own name.",
        )


def _nth(number: int) -> str:
    return f"number {number + 1}"


def _refuse_shared_channels(vms: list[_Table], mistakes: _Mistakes) -> None:
    """A VM is known by its channel alone (P7), so no two VMs may have the same one."""
    first: dict[tuple[str, str], _Table] = {}
    for vm in vms:
        for key in ("address", "listen"):
            value = vm.values.get(key)
            if value is None or (key == "listen" and value.endswith(":0")):
                continue
            other = first.setdefault((key, value), vm)
            if other is not vm:
                mistakes.of(
                    vm,
                    key,
                    f"{key} {value} is already that of {other.label}. Give each VM its own.",
                )


def _check_placing(tables: Mapping[str, list[_Table]], mistakes: _Mistakes) -> set[str]:
    """Check that VMs are on hosts and in scopes that exist and fit. Names of scopes VMs imply."""
    hosts = {table.values["name"] for table in tables["host"] if "name" in table.values}
    scopes = {t.values["name"]: t for t in tables["scope"] if "name" in t.values}
    folded = {name.casefold(): name for name in scopes}
    members: dict[str, list[str]] = {}
    own = set()
    for vm in tables["vm"]:
        host = vm.values.get("host")
        if host is not None and host not in hosts:
            mistakes.of(vm, "host", f"there is no host {host!r}.{_meant(host, sorted(hosts))}")
        if "scope" in vm.written:
            _check_scope(vm, scopes, mistakes)
            members.setdefault(vm.values.get("scope", ""), []).append(vm.label)
            continue
        name = vm.values.get("name")
        if name is None:
            continue
        own.add(name)
        clash = folded.get(name.casefold())
        if clash is not None:
            mistakes.of(
                vm,
                "name",
                f"without a scope it would have one of its own, but there is a [[scope]] {clash}. "
                f'Write scope = "{clash}", or rename one of them.',
            )
    for name, scope in scopes.items():
        _refuse_crowd(scope, members.get(name, []), mistakes)
    return own


def _check_scope(vm: _Table, scopes: Mapping[str, _Table], mistakes: _Mistakes) -> None:
    name = vm.values.get("scope")
    if name is None:
        return  # said already
    scope = scopes.get(name)
    if scope is None:
        close = get_close_matches(name, list(scopes), n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        mistakes.of(
            vm,
            "scope",
            f"there is no scope {name!r}.{meant} Declare it with [[scope]], "
            "or leave scope out for a standalone scope of its own.",
        )
        return
    kind = scope.values.get("kind")
    if kind not in (None, ScopeKind.STANDALONE) and "update_domain" not in vm.written:
        mistakes.of(
            vm,
            "name",
            f"update_domain is missing. In a scope of kind {kind} each VM says which of the VMs "
            "may be impacted together with it, like update_domain = 0.",
        )


def _refuse_crowd(scope: _Table, members: list[str], mistakes: _Mistakes) -> None:
    if scope.values.get("kind") is not ScopeKind.STANDALONE or len(members) == 1:
        return
    has = f"has {len(members)} VMs: {', '.join(members[:3])}" if members else "has no VM"
    mistakes.of(
        scope,
        "kind",
        f"a standalone scope is that of exactly one VM, but it {has}. Use another kind, or leave "
        "the scope out: a VM without one has a standalone scope of its own.",
    )


def _inventory(tables: Mapping[str, list[_Table]], own: set[str]) -> Inventory:
    hosts = [HostEntry(**table.values, number=table.number) for table in tables["host"]]
    scopes = [_scope_entry(table) for table in tables["scope"]]
    vms = []
    for table in tables["vm"]:
        values = {"scope": table.values["name"], **table.values}
        vms.append(VmEntry(**values, number=table.number))
    scopes.extend(ScopeEntry(name=name, kind=ScopeKind.STANDALONE) for name in own)
    return Inventory(
        hosts=tuple(sorted(hosts, key=lambda entry: entry.name)),
        scopes=tuple(sorted(scopes, key=lambda entry: entry.name)),
        vms=tuple(sorted(vms, key=lambda entry: entry.name)),
    )


def _scope_entry(table: _Table) -> ScopeEntry:
    values = dict(table.values)
    minutes = values.pop("terminate_notice_minutes", _NOTICE_MINUTES[0])
    return ScopeEntry(**values, terminate_notice_ms=minutes * MINUTE_MS, number=table.number)
