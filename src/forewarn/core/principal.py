"""Who wants a change: the principal of every command, and of what it leaves in the journal."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from forewarn.core.errors import Invalid


class PrincipalKind(StrEnum):
    """In which capacity a principal acts."""

    OPERATOR = "operator"
    OWNER = "owner"  # of named scopes
    HOST = "host"
    VM = "vm"
    CONTROL = "control"  # control itself: its ticker, its clock, its inventory file


class Principal(Struct, frozen=True, kw_only=True):
    """Who gives an order: an operator, an owner, a host, a VM or control.

    `name` is what people read. `id` is unique and says how an operator or owner came in:
    `operator` (the operator's token), `socket:<uid>`, `token:<token id>`.
    """

    kind: PrincipalKind
    id: str
    name: str

    def __str__(self) -> str:
        return self.name


# Who did something: a principal, or the name alone where no more than that was kept.
Who = Principal | str


def kept_of(who: Who | None) -> tuple[str | None, PrincipalKind | None, str | None]:
    """What is kept of who did something: the name, the kind and the id."""
    if isinstance(who, Principal):
        return who.name, who.kind, who.id
    return who, None, None


def who_was(name: str, kind: PrincipalKind | None, principal_id: str | None) -> Who:
    """Who did something, from what was kept."""
    if kind is None or principal_id is None:
        return name
    return Principal(kind=kind, id=principal_id, name=name)


def the_host(name: str) -> Principal:
    """The daemon of a host."""
    return Principal(kind=PrincipalKind.HOST, id=name, name=name)


def the_vm(name: str) -> Principal:
    """A guest, by the VM that it runs in."""
    return Principal(kind=PrincipalKind.VM, id=name, name=name)


def _control(part: str) -> Principal:
    return Principal(kind=PrincipalKind.CONTROL, id=part, name=part)


def operator_named(name: str) -> Principal:
    """Who has the operator token, by the name that the journal says. Raises Invalid."""
    refuse_name(name, "an operator")
    return Principal(kind=PrincipalKind.OPERATOR, id="operator", name=name)


def refuse_name(name: str, whose: str) -> None:
    """Raises Invalid for what the journal cannot show as the name of a person or program."""
    well_formed = name.isprintable() and name == name.strip()
    if not (well_formed and 1 <= len(name) <= OPERATOR_NAME_CHARS_MAX):
        raise Invalid(f"This is not a name for {whose}.", OPERATOR_NAME_ACCEPTED)
    if name.casefold() in RESERVED_NAMES:
        raise Invalid("Control uses this name for what it does itself.", OPERATOR_NAME_ACCEPTED)


TICKER = _control("ticker")
CLOCK = _control("clock")
INVENTORY_FILE = _control("inventory")
WEBHOOKS = _control("webhooks")  # what sends the feed to its webhooks
POLICY = _control("policy")  # of a scope: what its owner orders needs no approval

OPERATOR_NAME_CHARS_MAX = 64
RESERVED_NAMES = frozenset(part.name for part in (TICKER, CLOCK, INVENTORY_FILE, WEBHOOKS, POLICY))
OPERATOR_NAME_ACCEPTED = (
    f"1 to {OPERATOR_NAME_CHARS_MAX} printable characters, no space at either end, and none of "
    + ", ".join(sorted(RESERVED_NAMES))
)
OPERATOR = operator_named("operator")
