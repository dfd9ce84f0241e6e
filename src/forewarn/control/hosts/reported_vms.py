"""What hosts show, judged one VM at a time by the rules that inventory files are judged by.

A host is not trusted to keep to them: its report is read here before anything is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from forewarn.control.inventory.file_fields import AUTO_APPROVE, NOTICE_MINUTES, TABLES, Wrong
from forewarn.core.errors import Invalid
from forewarn.core.inventory.host_report import SeenVm, Traits
from forewarn.core.model import MINUTE_MS
from forewarn.core.notice import TERMINATE_NOTICE_MS
from forewarn.core.suggestions import shown
from forewarn.core.vm_profile import IN_METADATA, VmProfile

VMS_PER_HOST_MAX = 10_000
DEFINITION_CHARS_MAX = 256 * 1_024
PROBLEM_CHARS_MAX = 2_000
NAME_CHARS_TOLD_MAX = 128  # more than a name that can be used may have
DIGEST_BYTES = 16

_VM_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEYS = TABLES["vm"].fields


def digested(host: str, seen: SeenVm) -> SeenVm:
    """The VM with a digest in place of its definition, which is long.

    The same definition on two hosts has two digests: it is also kept where it was seen.
    """
    text = kept_text(seen)
    problem = seen.problem
    if text != seen.definition:
        too_long = f"its definition has more than {DEFINITION_CHARS_MAX} characters and is not kept"
        problem = f"{problem} {too_long}: no other host could start it.".strip()
    digest = blake2b(f"{host}\0{text}".encode(), digest_size=DIGEST_BYTES).hexdigest()
    return replace(
        seen,
        name=seen.name[:NAME_CHARS_TOLD_MAX],
        vm_id=seen.vm_id[:NAME_CHARS_TOLD_MAX].lower(),
        definition=digest,
        problem=problem[:PROBLEM_CHARS_MAX],
    )


def kept_text(seen: SeenVm) -> str:
    """What is kept of a VM's definition: the whole, or nothing of one that is too long."""
    return seen.definition if len(seen.definition) <= DEFINITION_CHARS_MAX else ""


def refuse_too_many(host: str, vms: Sequence[SeenVm]) -> None:
    """Raise Invalid for a report that no host would make."""
    if len(vms) > VMS_PER_HOST_MAX:
        raise Invalid(
            f"Host {host} shows {len(vms)} VMs.", f"Up to {VMS_PER_HOST_MAX} are accepted."
        )


def read(seen: SeenVm) -> SeenVm | str:
    """The VM with what can be used of it, or why nothing can.

    Traits that cannot be used are all left out, and `problem` says so: half of what an owner said
    is not what they said.
    """
    try:
        _KEYS["name"].read(seen.name)
    except Wrong as wrong:
        why = str(wrong) or "its name cannot be used."
        return (
            f"{why} Accepted: {_KEYS['name'].accepted}. "
            f"Rename it while it is off: `virsh domrename {shown(seen.name)} NEW`."
        )
    if not _VM_ID.fullmatch(seen.vm_id):
        return f"its id {shown(seen.vm_id)} is not a UUID."
    try:
        return replace(seen, traits=read_traits(seen.traits))
    except Invalid as refused:
        said = f"{seen.problem} {refused} Its metadata is not used.".strip()
        return replace(seen, problem=said, traits=Traits())


def read_traits(said: Traits) -> Traits:
    """The traits in their canonical form. Raises Invalid with what would be accepted."""
    found = next(_mistakes(said), None)
    if found is not None:
        raise Invalid(*found)
    profile = said.profile
    read: dict[str, Any] = {key: _KEYS[key].read(value) for key, value in _in_metadata(profile)}
    return replace(said, profile=replace(profile, **read) if read else profile)


def _in_metadata(profile: VmProfile) -> Iterator[tuple[str, object]]:
    """What the metadata says of a VM, as an inventory file would say it."""
    for key in IN_METADATA:
        value = getattr(profile, key)
        if value not in (None, "", ()):
            yield key, dict(value) if key == "tags" else value


def _mistakes(said: Traits) -> Iterator[tuple[str, str]]:
    placed = (("scope", said.scope or None), ("update_domain", said.update_domain))
    for key, value in (*placed, *_in_metadata(said.profile)):
        if value is None:
            continue
        try:
            _KEYS[key].read(value)
        except Wrong as wrong:
            # An operator knows it as the attribute of the metadata element.
            refused = str(wrong) or f"{key.replace('_', '-')} = {shown(value)} is refused."
            yield refused, "" if wrong.inside else f"Accepted: {_KEYS[key].accepted}."
    notice_ms = said.terminate_notice_ms
    low_ms, high_ms = TERMINATE_NOTICE_MS
    if notice_ms is not None and not low_ms <= notice_ms <= high_ms:
        low, high = NOTICE_MINUTES
        minutes = f"{notice_ms / MINUTE_MS:g}"
        yield f"terminate-notice-minutes = {minutes} is refused.", f"Accepted: {low} to {high}."
    wrong_types = sorted((said.auto_approve or frozenset()).difference(AUTO_APPROVE.values()))
    if wrong_types:
        yield f"auto-approve of {wrong_types[0]} is refused.", "Accepted: Reboot and Redeploy."
