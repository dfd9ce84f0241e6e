"""`/metadata/instance` with values of a test's own: any path, for one VM or for all.

Over what the product tells; nothing here decides what is asked or who asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from forewarn.core.errors import Invalid, NotFound
from forewarn.core.suggestions import meant, shown
from forewarn.wire.instance import Tree

PATH_ELEMENTS_MAX = 16
VALUES_MAX = 1_000
ITEMS_MAX = 100  # of a list that a path makes longer
_EXAMPLE = "Write it like compute/vmSize, or network/interface/0/macAddress."


class InstanceValue(Struct, frozen=True):
    """One value. `vm` None is every VM; `value` None takes the element away."""

    path: tuple[str, ...]
    value: Tree | None
    vm: str | None = None


def read_value(path: str, value: object, vm: str | None = None) -> InstanceValue:
    """The value that these words mean. Raises Invalid.

    Every leaf is a text, as on the wire (I1): a number is written out, and true is `true`.
    """
    elements = tuple(str(path).strip("/").split("/"))
    if not all(elements) or len(elements) > PATH_ELEMENTS_MAX:
        raise Invalid(f"{shown(path)} is no path of /metadata/instance.", _EXAMPLE)
    return InstanceValue(elements, None if value is None else _tree(value), vm)


def read_option(text: str) -> InstanceValue:
    """`[VM:]PATH=VALUE`, as the command line has it. Raises Invalid."""
    name, equals, value = text.partition("=")
    vm, colon, path = name.rpartition(":")
    if not equals:
        raise Invalid(
            f"--instance {shown(text)} has no value.",
            "Write [VM:]PATH=VALUE, like compute/vmSize=Standard_D2s_v3.",
        )
    return read_value(path if colon else name, value, vm or None)


def _tree(value: object) -> Tree:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _tree(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_tree(one) for one in value]
    raise Invalid(
        f"{shown(value)} cannot stand in /metadata/instance.",
        "Give a text, a number, or a table or list of these.",
    )


class InstanceValues:
    """All values, oldest first: of two for one path the later one holds. Belongs to the loop."""

    def __init__(self, first: Sequence[InstanceValue]) -> None:
        self._values: list[InstanceValue] = list(first)

    def add(self, value: InstanceValue, vms: Collection[str]) -> None:
        """It holds from now on. Raises NotFound for its VM, Invalid if there are too many."""
        if value.vm is not None and value.vm not in vms:
            raise NotFound(f"There is no VM {shown(value.vm)}.", meant(value.vm, vms))
        if len(self._values) >= VALUES_MAX:
            raise Invalid(f"There are {VALUES_MAX} values already.", "Clear them first.")
        self._values.append(value)

    def clear(self) -> None:
        self._values.clear()

    def over(self, tree: Tree, vm: str) -> Tree:
        """The tree with the values of a VM; the tree that is given stays as it is."""
        for one in self._values:
            if one.vm in (None, vm):
                tree = _put(tree, one.path, one.value)
        return tree


def _put(tree: Tree, path: Sequence[str], value: Tree | None) -> Tree:
    if not path:
        return "" if value is None else value
    name, rest = path[0], path[1:]
    if isinstance(tree, list) and name.isascii() and name.isdigit() and int(name) <= ITEMS_MAX:
        return _put_item(tree, int(name), rest, value)
    table = dict(tree) if isinstance(tree, dict) else {}
    key = next((known for known in table if known.casefold() == name.casefold()), name)
    if value is None and not rest:
        table.pop(key, None)
    else:
        table[key] = _put(table.get(key, {}), rest, value)
    return table


def _put_item(items: list[Tree], number: int, rest: Sequence[str], value: Tree | None) -> Tree:
    longer: list[Tree] = [*items, *({} for _ in range(number + 1 - len(items)))]
    if value is None and not rest:
        del longer[number]
    else:
        longer[number] = _put(longer[number], rest, value)
    return longer
