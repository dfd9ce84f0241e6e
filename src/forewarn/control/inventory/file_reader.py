"""Reading an inventory file: TOML text in, an `Inventory` out, or every mistake in it.

Only what can be judged from the text alone is judged here. What the running fleet forbids is
`core.inventory.apply_file`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from forewarn.control.inventory.file_fields import TABLES
from forewarn.core.errors import BadInventory, InventoryConflict
from forewarn.core.inventory import slicing
from forewarn.core.inventory.entries import HostEntry, Inventory, ScopeEntry, VmEntry
from forewarn.core.model import ScopeKind
from forewarn.core.suggestions import meant
from forewarn.core.vm_profile import ATTRIBUTES, VmProfile
from forewarn.logs import Log
from forewarn.text.attributes import NAME
from forewarn.text.field_tables import Fields, Mistakes, Table, TomlFormat, tables_of
from forewarn.text.fields import Mistake, Wrong

__all__ = [
    "INVENTORY_BYTES_MAX",
    "ByName",
    "InventoryClash",
    "Mistake",
    "ReadFiles",
    "digest_of",
    "in_words",
    "parse",
]

# 200,000 VMs of 500 bytes each: all keys and some ten tags.
INVENTORY_BYTES_MAX = 96 * 1_024 * 1_024
NAMES_SHOWN_MAX = 3

log = Log(__name__)


_FORMAT = TomlFormat(
    what="The inventory",
    bytes_max=INVENTORY_BYTES_MAX,
    refuse=BadInventory,
    outcome="Nothing of it was applied.",
)
_FILE = Fields(fields={kind: tables_of(kind) for kind in TABLES}, unknown="an inventory has no")


class InventoryClash(InventoryConflict):
    """What began since a file was checked forbids it; its lines are not looked up yet."""

    found: tuple[Mistake, ...] = ()

    @classmethod
    def of(cls, found: Iterable[Mistake]) -> InventoryClash:
        clash = cls("The inventory was refused.", "Nothing of it was applied.")
        clash.found = tuple(found)
        return clash


def parse(text: str, *, needs_channels: bool = True) -> Inventory:
    """The content of an inventory file. Raises BadInventory with every mistake and its line.

    Files that differ in comments, order and spelling of the same values are equal. A file
    `needs_channels`, an address or listener for each VM, where nothing else tells VMs apart; hosts
    that have joined know each VM by its tap.
    """
    file = Table(_FORMAT.read(text))
    mistakes = Mistakes()
    _FILE.read(file, mistakes)
    tables = {kind: _read_tables(kind, file.values.get(kind, ()), mistakes) for kind in TABLES}
    if not file.written.get("host"):
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


class ByName(Struct, frozen=True):
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
        """True while a large one is being read: a caller that needs it comes later."""
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
        """What the file that was applied says, by name; nothing if no file was applied."""
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
    return _FORMAT.refusal(text, found)


def _read_tables(
    kind: str, written: Sequence[Mapping[str, object]], mistakes: Mistakes
) -> list[Table]:
    tables = []
    for number, one in enumerate(written):
        table = Table(one, _label(kind, number, one.get("name")), (kind, number))
        TABLES[kind].read(table, mistakes)
        tables.append(table)
    return tables


def _label(kind: str, number: int, name: object) -> str:
    """What a refusal calls a table: by its name, or by its number if it has none."""
    try:
        return f"[[{kind}]] {NAME.read(name)}"
    except Wrong:
        return f"[[{kind}]] number {number + 1}"


def _refuse_missing_channels(vms: list[Table], mistakes: Mistakes) -> None:
    for vm in vms:
        if not {"address", "listen"} & vm.written.keys():
            mistakes.of(
                vm,
                "name",
                "its requests could not be told from others: address and listen are missing. Write "
                'address = "192.0.2.7" (where its requests come from), listen = "127.0.0.1:8080" '
                "(a listener of its own), or both.",
            )


def _refuse_repeated_names(tables: list[Table], mistakes: Mistakes) -> None:
    """Agents may compare names without case (C10), so names differ in more than that."""
    first: dict[str, Table] = {}
    for table in tables:
        name = table.values.get("name")
        if name is None:
            continue
        other = first.setdefault(name.casefold(), table)
        if other is table:
            continue
        taken = other.values["name"]
        how = "" if taken == name else f" as {taken} (upper and lower case count as the same)"
        mistakes.of(
            table,
            "name",
            f"the name is taken{how}, on {{line}}. Give each {table.at[0]} a name of its own.",
            earlier=other.path("name"),
        )


def _refuse_shared_channels(vms: list[Table], mistakes: Mistakes) -> None:
    """A VM is known by its channel alone (P7), so no two VMs may have the same one."""
    first: dict[tuple[str, str], Table] = {}
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


def _check_placing(tables: Mapping[str, list[Table]], mistakes: Mistakes) -> set[str]:
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


def _check_scope(vm: Table, scopes: Mapping[str, Table], mistakes: Mistakes) -> None:
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


def _refuse_crowd(scope: Table, members: list[str], mistakes: Mistakes) -> None:
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


def _inventory(tables: Mapping[str, list[Table]], own: set[str]) -> Inventory:
    hosts = [HostEntry(**table.values, number=n) for n, table in enumerate(tables["host"])]
    scopes = [ScopeEntry(**table.values, number=n) for n, table in enumerate(tables["scope"])]
    vms = []
    for n, table in enumerate(tables["vm"]):
        values = {"scope": table.values["name"], **table.values}
        profile = VmProfile(**{key: values.pop(key) for key in ATTRIBUTES if key in values})
        vms.append(VmEntry(**values, profile=profile, number=n))
    scopes.extend(ScopeEntry(name=name, kind=ScopeKind.STANDALONE) for name in own)
    return Inventory(
        hosts=tuple(sorted(hosts, key=lambda entry: entry.name)),
        scopes=tuple(sorted(scopes, key=lambda entry: entry.name)),
        vms=tuple(sorted(vms, key=lambda entry: entry.name)),
    )
