"""The fields of an inventory file: one table of them per kind of `[[...]]`.

One value at a time is judged here; how values fit together is `inventory_file`.
"""

from __future__ import annotations

from forewarn.core import attributes
from forewarn.core.attributes import AUTO_APPROVE, CAPACITY_MAX, NOTICE_MINUTES
from forewarn.core.errors import Invalid
from forewarn.core.suggestions import shown
from forewarn.text.attributes import (
    AUTO_APPROVED,
    NAME,
    OF_VM,
    PROFILE,
    SCOPE_KIND,
    TERMINATE_NOTICE,
    VM_NAME,
)
from forewarn.text.field_tables import Fields
from forewarn.text.fields import SWITCH, Wrong, number

__all__ = ["AUTO_APPROVE", "NOTICE_MINUTES", "TABLES", "Wrong", "need_host_name"]


def need_host_name(name: str) -> str:
    """The name, if an inventory file could give it to a host. Raises Invalid."""
    if not attributes.NAME.fullmatch(name):
        raise Invalid(f"{shown(name)} is no name for a host.", f"Accepted: {NAME.accepted}.")
    return name


# By kind of table: what its keys take, and which of them must be there.
TABLES: dict[str, Fields] = {
    "host": Fields(
        fields={"name": NAME, "capacity": number(1, CAPACITY_MAX)},
        required=("name",),
    ),
    "scope": Fields(
        fields={
            "name": NAME,
            "kind": SCOPE_KIND,
            "terminate_notice_minutes": TERMINATE_NOTICE,
            "auto_approve": AUTO_APPROVED,
            "only_listed": SWITCH,
        },
        required=("name", "kind"),
    ),
    "vm": Fields(
        fields={
            "name": VM_NAME,
            **OF_VM,
            "host": NAME,
            **PROFILE,
        },
        required=("name", "host"),
    ),
}
