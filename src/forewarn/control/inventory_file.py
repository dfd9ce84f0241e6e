"""Reading an inventory file: TOML text in, `core.inventory.Inventory` out, or every mistake in it.

Only what can be judged from the text alone is judged here. What the running fleet forbids is
`core.reconciling`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forewarn.control.inventory_keys import NOTICE_MINUTES, TABLES, Wrong
from forewarn.control.toml_lines import NotToml, Path, TomlLines, read
from forewarn.core import slicing
from forewarn.core.errors import BadInventory, InventoryConflict
from forewarn.core.inventory import HostEntry, Inventory, ScopeEntry, VmEntry
from forewarn.core.model import MINUTE_MS, ScopeKind
from forewarn.core.spelling import first_of, meant, shown
from forewarn.logs import Log

# 200,000 VMs of 500 bytes each: all keys and some ten tags.
INVENTORY_BYTES_MAX = 96 * 1_024 * 1_024
NAMES_SHOWN_MAX = 3

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong, and where. An empty path is the file as a whole.

    `{line}` in the words stands for the line of `earlier`, which they refer to.
    """

    path: Path
    words: str
    earlier: Path = ()


class InventoryClash(InventoryConflict):
    """What began since a file was checked forbids it; its lines are not looked up yet."""

    found: tuple[Mistake, ...] = ()

    @classmethod
    def of(cls, found: Iterable[Mistake]) -> InventoryClash:
        clash = cls("The inventory was refused.", "Nothing of it was applied.")
        clash.found = tuple(found)
        return clash


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
    """Everything that is wrong with a file."""

    def __init__(self) -> None:
        self.found: list[Mistake] = []

    def add(self, path: Path, words: str) -> None:
        self.found.append(Mistake(path, words))

    def of(self, table: _Table, key: str, words: str, *, earlier: Path = ()) -> None:
        self.found.append(Mistake(table.path(key), f"{table.label}: {words}", earlier))


def parse(text: str, *, needs_channels: bool = True) -> Inventory:
    """The content of an inventory file. Raises BadInventory with every mistake and its line.

    Files that differ in comments, order and spelling of the same values are equal. A file
    `needs_channels`, an address or listener for each VM, where nothing else tells VMs apart; hosts
    that have joined know each VM by its tap.
    """
    written = _toml(text)
    mistakes = _Mistakes()
    tables = {kind: _read_tables(kind, written.get(kind, []), mistakes) for kind in TABLES}
    for key in written:
        if key not in TABLES:
            mistakes.add((key,), f"an inventory has no {shown(key)}. {meant(key, TABLES)}")
    if not written.get("host"):
        mistakes.add((), "the inventory lists no host. Write at least one [[host]] with its name.")
    for kind in TABLES:
        _refuse_repeated_names(tables[kind], mistakes)
    if needs_channels:
        _refuse_missing_channels(tables["vm"], mistakes)
    _refuse_shared_channels(tables["vm"], mistakes)
    own = _check_placing(tables, mistakes)
    if mistakes.found:
        raise BadInventory(*in_words(text, mistakes.found))
    return _inventory(tables, own)


@dataclass(frozen=True, slots=True)
class ByName:
    """What an inventory file says of scopes and VMs, by name."""

    text: str | None = None
    scopes: Mapping[str, ScopeEntry] = field(default_factory=dict)
    vms: Mapping[str, VmEntry] = field(default_factory=dict)


class ReadFiles:
    """What the file that counts and the last one that was read say: large ones take long to read.

    Told on the event loop; asked by the writer's thread too.
    """

    def __init__(self) -> None:
        self._last: tuple[tuple[str, Inventory], ...] = ()
        self.looked_at = ByName()  # what `by_name` was last asked for
        self._by_scope: tuple[tuple[str, slicing.ByScope], ...] = ()
        self._digest: tuple[str, str] = ("", digest_of(""))
        self._none_is_read = asyncio.Event()
        self._none_is_read.set()

    @property
    def reading(self) -> bool:
        """True while a large one is being read: whoever has to know it comes later."""
        return not self._none_is_read.is_set()

    @reading.setter
    def reading(self, now: bool) -> None:
        if now:
            self._none_is_read.clear()
        else:
            self._none_is_read.set()

    async def read_by_now(self) -> None:
        """Wait until none is being read."""
        await self._none_is_read.wait()

    def keep(self, text: str, inventory: Inventory, *, counts: str | None = None) -> None:
        """Know what a file says. What is known of the one that `counts` is kept beside it.

        However many are refused after that: the writer must not read it again.
        """
        of_that = [one for one in self._last if counts is not None and one[0] == counts]
        self._last = ((text, inventory), *of_that[:1])

    def forget(self) -> None:
        """Know nothing any more."""
        self._last = ()

    def known(self, text: str) -> Inventory | None:
        """What a file says, if it was read before."""
        for known, inventory in self._last:
            if known is text or known == text:
                return inventory
        return None

    def read(self, text: str) -> Inventory:
        """What a file says that was applied. Raises BadInventory."""
        return self.known(text) or parse(text, needs_channels=False)

    def digest(self, text: str) -> str:
        """What tells a text from others. Of the same value it is made once."""
        if self._digest[0] is not text:
            self._digest = (text, digest_of(text))
        return self._digest[1]

    def keep_by_scope(
        self, text: str, parts: slicing.ByScope, *, counts: str | None = None
    ) -> None:
        """Know what a large file wants of each scope, beside what the one that `counts` does."""
        self.forget_by_scope(text)
        of_that = [one for one in self._by_scope if counts is not None and one[0] == counts]
        self._by_scope = ((text, parts), *of_that[:1])

    def by_scope(self, text: str) -> slicing.ByScope:
        """What a file wants of each scope. Raises BadInventory."""
        for known, parts in self._by_scope:
            if known is text or known == text:
                return parts
        return slicing.by_scope(self.read(text))

    def forget_by_scope(self, text: str) -> None:
        """Nothing is left to do of a large file."""
        self._by_scope = tuple(one for one in self._by_scope if one[0] != text)

    def by_name(self, text: str | None) -> ByName:
        """What the file that was applied says, by name; nothing if there is none."""
        if text is self.looked_at.text:
            return self.looked_at
        try:
            inventory = self.read(text) if text is not None else None
        except BadInventory as refused:
            # Written under older rules; what it meant then is in the fleet.
            log.warning("inventory_not_understood", reason=str(refused))
            inventory = None
        self.looked_at = ByName(
            text=text,
            scopes={entry.name: entry for entry in inventory.scopes} if inventory else {},
            vms={entry.name: entry for entry in inventory.vms} if inventory else {},
        )
        return self.looked_at


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def in_words(text: str, found: Iterable[Mistake]) -> tuple[str, str]:
    """The words of a refusal: what was refused, line by line, and what is the case now."""
    lines = TomlLines(text)
    placed = []
    for mistake in found:
        line = lines.line_of(*mistake.path) if mistake.path else 0
        words = mistake.words
        if mistake.earlier:
            words = words.replace("{line}", f"line {lines.line_of(*mistake.earlier)}")
        placed.append((line, words))
    said = first_of([f"line {line}: {words}" if line else words for line, words in sorted(placed)])
    if len(said) == 1:
        return f"The inventory was refused: {said[0]}", "Nothing of it was applied."
    return "\n".join(["The inventory was refused:", *said]), "Nothing of it was applied."


def _toml(text: str) -> dict[str, Any]:
    try:
        size = len(text.encode())
        if size > INVENTORY_BYTES_MAX:
            raise BadInventory(
                f"The inventory has {size} bytes.", f"Up to {INVENTORY_BYTES_MAX} are accepted."
            )
        return read(text)
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise BadInventory(
            f"The inventory was refused: line {line}: a character is half of a surrogate pair.",
            "Write the file in UTF-8.",
        ) from None
    except NotToml as error:
        where = f"line {error.line}: " if error.line else ""
        raise BadInventory(
            f"The inventory was refused: {where}{error.words}.", "Nothing of it was applied."
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
    keys, required = TABLES[table.kind]
    for key in sorted(table.written, key=lambda key: key != "name"):  # the name first: the label
        value = table.written[key]
        if key not in keys:
            mistakes.of(table, key, f"there is no key {shown(key)}. {meant(key, keys)}")
            continue
        try:
            table.values[key] = keys[key].read(value)
        except Wrong as wrong:
            what = str(wrong) or f"{key} = {shown(value)} is refused."
            words = f"{table.label}: {what} Accepted: {keys[key].accepted}."
            mistakes.add(table.path(key, *([wrong.part] if wrong.part else [])), words)
    for key in required:
        if key not in table.written:
            mistakes.of(table, key, f"{key} is missing. Write {key} = ..., {keys[key].accepted}.")


def _refuse_missing_channels(vms: list[_Table], mistakes: _Mistakes) -> None:
    for vm in vms:
        if not {"address", "listen"} & vm.written.keys():
            mistakes.of(
                vm,
                "name",
                "nobody could tell its requests from others: address and listen are missing. Write "
                'address = "192.0.2.7" (where its requests come from), listen = "127.0.0.1:8080" '
                "(a listener of its own), or both.",
            )


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
        taken = other.values["name"]
        how = "" if taken == name else f" as {taken}, and a difference in case is none"
        mistakes.of(
            table,
            "name",
            f"the name is taken{how}, on {{line}}. Give each {table.kind} a name of its own.",
            earlier=other.path("name"),
        )


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
                    f"{key} {value} is already that of {other.label}, on {{line}}. "
                    f"Give each VM a {key} of its own.",
                    earlier=other.path(key),
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
            mistakes.of(vm, "host", f"there is no host {host}. {meant(host, sorted(hosts))}")
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
        mistakes.of(
            vm,
            "scope",
            f"there is no scope {name}. {meant(name, sorted(scopes))} Declare it with [[scope]], "
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
    has = (
        f"has {len(members)} VMs: {', '.join(members[:NAMES_SHOWN_MAX])}"
        if members
        else "has no VM"
    )
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
    minutes = values.pop("terminate_notice_minutes", NOTICE_MINUTES[0])
    return ScopeEntry(**values, terminate_notice_ms=minutes * MINUTE_MS, number=table.number)
