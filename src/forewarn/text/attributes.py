"""The fields of scopes and VMs that more than one format has, by the rules of `core.attributes`.

An inventory file and the metadata of a domain are made of these; a host's report is held to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.core import attributes
from forewarn.core.attributes import (
    AUTO_APPROVE,
    DOMAIN_MAX,
    NAME_ACCEPTED,
    NOTICE_MINUTES,
    RESERVED_VM_NAMES,
    TAG_ACCEPTED,
    TAGS_MAX,
    VM_NAME_ACCEPTED,
    ZONE_CHARS_MAX,
    tag_mistakes,
)
from forewarn.core.model import MINUTE_MS, ScopeKind
from forewarn.core.vm_profile import IN_METADATA, Priority
from forewarn.text.fields import (
    ADDRESS,
    LISTEN,
    Field,
    Mistake,
    Wrong,
    choice,
    line,
    number,
    pattern,
    several,
)

NAME = pattern(NAME_ACCEPTED, attributes.NAME)


def _vm_name(value: object) -> object:
    name = NAME.read(value)
    if name.casefold() in RESERVED_VM_NAMES:
        raise Wrong(f"the name {name} is reserved: an approval by it is not one by a VM.")
    return name


def _tags(value: object) -> tuple[tuple[str, str], ...]:
    """In name order."""
    if not isinstance(value, dict):
        raise Wrong
    wrong = [Mistake((name,) if name else (), words) for name, words in tag_mistakes(value)]
    if wrong:
        raise Wrong(inside=wrong)
    return tuple(sorted(value.items()))


VM_NAME = Field(VM_NAME_ACCEPTED, _vm_name)
DOMAIN = number(0, DOMAIN_MAX)
SCOPE_KIND = choice({kind.value: kind for kind in ScopeKind})
TERMINATE_NOTICE = number(*NOTICE_MINUTES).then(
    lambda minutes: minutes * MINUTE_MS, to="terminate_notice_ms"
)
AUTO_APPROVED = several(
    'a list of "reboot", "redeploy", both or none',
    choice(AUTO_APPROVE),
    split=str.split,
).then(frozenset)
TAGS = Field(f'a table of up to {TAGS_MAX} texts, like {{ owner = "shop" }}: {TAG_ACCEPTED}', _tags)
# What each attribute of a profile takes.
PROFILE: Mapping[str, Field] = {
    "priority": choice({priority.value: priority for priority in Priority}),
    "address": ADDRESS,
    "listen": LISTEN,
    "tags": TAGS,
    "fault_domain": DOMAIN,
    "zone": line(
        f'a text of up to {ZONE_CHARS_MAX} printable characters, like "1"', ZONE_CHARS_MAX
    ),
    "os_type": choice(("Linux", "Windows")),
    "computer_name": NAME,
}
# What the owner of a VM can say of it, in a file and in the domain alike; tags aside.
OF_VM: Mapping[str, Field] = {
    "scope": NAME,
    "update_domain": DOMAIN,
    **{name: PROFILE[name] for name in IN_METADATA if name != "tags"},
}
