"""What hosts, scopes and VMs may be called, and what may be said of them: limits and patterns.

An inventory file, the metadata of a libvirt domain and the report of a host all keep to these.
`text.attributes` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from forewarn.core.model import MINUTE_MS, EventType
from forewarn.core.notice import TERMINATE_NOTICE_MS
from forewarn.core.principal import OPERATOR, POLICY
from forewarn.core.suggestions import shown

NAME_CHARS_MAX = 64
CAPACITY_MAX = 100_000
DOMAIN_MAX = 9_999
TAGS_MAX = 50
TAG_NAME_CHARS_MAX = 512
TAG_VALUE_CHARS_MAX = 256
ZONE_CHARS_MAX = 64

NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_CHARS_MAX - 1}}}")
NAME_ACCEPTED = (
    f"1 to {NAME_CHARS_MAX} letters, digits and `_ . -`, beginning with a letter or digit"
)
# Who else the journal and forewarn_approvals_total may name where a VM can stand.
RESERVED_VM_NAMES = (OPERATOR.name, POLICY.name)
VM_NAME_ACCEPTED = f"{NAME_ACCEPTED}, but not {' or '.join(RESERVED_VM_NAMES)}"
# `;` and `:` divide `compute.tags` of /metadata/instance, `a:1;b:2`.
TAG_ACCEPTED = (
    f"printable text without `;`, a name of 1 to {TAG_NAME_CHARS_MAX} characters, "
    f"also without `:`, a value of up to {TAG_VALUE_CHARS_MAX}"
)
AUTO_APPROVE = {"reboot": EventType.REBOOT, "redeploy": EventType.REDEPLOY}
NOTICE_MINUTES = (TERMINATE_NOTICE_MS[0] // MINUTE_MS, TERMINATE_NOTICE_MS[1] // MINUTE_MS)


def tag_mistakes(tags: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What is wrong with tags: the name of one, and a sentence. No name: all of them together."""
    if len(tags) > TAGS_MAX:
        yield "", f"{len(tags)} tags are too many. Accepted: up to {TAGS_MAX}."
        return
    for name, text in tags.items():
        if not _is_plain(name, TAG_NAME_CHARS_MAX) or not name or ":" in name:
            words = f"the tag name {shown(name)} is refused."
        elif not isinstance(text, str):
            words = f"tag {shown(name)} = {shown(text)} is not a text."
        elif not _is_plain(text, TAG_VALUE_CHARS_MAX):
            words = f"tag {shown(name)} = {shown(text)} is refused."
        else:
            continue
        yield name, f"{words} Accepted: {TAG_ACCEPTED}."


def _is_plain(text: str, chars_max: int) -> bool:
    return len(text) <= chars_max and text.isprintable() and ";" not in text
