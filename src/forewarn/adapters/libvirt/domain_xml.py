"""What a libvirt domain says of itself, read from its XML and written into it. Text and values.

Two elements of a domain's `<metadata>` are ours. TRAITS_NAMESPACE holds what the owner of the VM
has said of it (docs/host/reference.md describes every attribute). MARK_NAMESPACE holds what
Forewarn is doing to the domain, or did last: it travels with the domain, so that the next daemon
that looks at it, here or on another host, knows. No libvirt here, and nothing is asked or done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.attributes import AUTO_APPROVE, tag_mistakes
from forewarn.core.inventory.host_report import Nic, Power, Traits, WhenHostGoesDown
from forewarn.core.model import MINUTE_MS, ActionKind
from forewarn.core.suggestions import first_of, shown
from forewarn.core.vm_profile import IN_METADATA, NOTHING_SAID, VmProfile
from forewarn.text.attributes import AUTO_APPROVED, OF_VM, SCOPE_KIND, TERMINATE_NOTICE
from forewarn.text.field_tables import Fields, Mistakes, Table
from forewarn.text.fields import choice

TRAITS_NAMESPACE = "urn:forewarn:vm:1"
TRAITS_PREFIX = "forewarn"
MARK_NAMESPACE = "urn:forewarn:action:1"
MARK_PREFIX = "forewarn-action"

DETAIL_CHARS_MAX = 1_000

# Libvirt writes our element in one piece, with every `>` in a value escaped.
_MARK_TEXT = re.compile(
    r"\s*<(?:[\w.-]+:)?action\b[^>]*\bxmlns(?::[\w.-]+)?=[\"']"
    + re.escape(MARK_NAMESPACE)
    + r"[\"'][^>]*/>"
)


class DomainMark(Struct, frozen=True, kw_only=True):
    """What Forewarn does to a domain, as the domain carries it.

    `before` is only in the mark of a running domain that ran before the action began: one that was
    started since has a copy of its configuration's mark, which never has it. Times are monotonic
    milliseconds of the boot `boot_id` of `host`, which acts. `ended` is empty while the action is
    under way.
    """

    action_id: str
    kind: ActionKind
    before: bool = False
    step: str = ""
    found: Power | None = None
    since_ms: int = 0
    until_ms: int = 0
    host: str = ""
    boot_id: str = ""
    target_host: str = ""
    ended: str = ""
    detail: str = ""


class BadTraits(ValueError):  # noqa: N818 - says what is the case
    """The metadata element cannot be used; the words say why and what would be accepted."""


def _parsed(xml: str) -> ET.Element:
    # It comes from libvirt, which has parsed it and written it anew: no DTD is left in it.
    return ET.fromstring(xml)  # noqa: S314


# Reading and writing the mark.


def read_mark(domain_xml: str) -> DomainMark | None:
    """The mark of a domain. None if it has no mark, or one that is not understood."""
    if MARK_NAMESPACE not in domain_xml:
        return None
    element = _parsed(domain_xml).find(f"./metadata/{{{MARK_NAMESPACE}}}action")
    if element is None:
        return None
    given = element.attrib
    try:
        return DomainMark(
            action_id=given["id"],
            kind=ActionKind(given["kind"]),
            before=given.get("before") == "yes",
            step=given.get("step", ""),
            found=Power(given["found"]) if "found" in given else None,
            since_ms=int(given.get("since", "0")),
            until_ms=int(given.get("until", "0")),
            host=given.get("host", ""),
            boot_id=given.get("boot", ""),
            target_host=given.get("target", ""),
            ended=given.get("ended", ""),
            detail=given.get("detail", ""),
        )
    except (KeyError, ValueError):
        return None


def mark_element(mark: DomainMark) -> str:
    """The mark as libvirt's SetMetadata takes it: without a namespace, which libvirt adds."""
    values = {
        "id": mark.action_id,
        "kind": mark.kind.value,
        "before": "yes" if mark.before else "",
        "step": mark.step,
        "found": mark.found.value if mark.found else "",
        "since": str(mark.since_ms or ""),
        "until": str(mark.until_ms or ""),
        "host": mark.host,
        "boot": mark.boot_id,
        "target": mark.target_host,
        "ended": mark.ended,
        "detail": _printable(mark.detail)[:DETAIL_CHARS_MAX],
    }
    return f"<action{_attributes(values)}/>"


def without_mark(domain_xml: str) -> str:
    """The XML of a domain as if nothing had ever been done to it; the rest byte for byte."""
    return _MARK_TEXT.sub("", domain_xml)


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f" {name}={quoteattr(text)}" for name, text in values.items() if text)


def _printable(text: str) -> str:
    """What XML could not hold is left out; lines become one."""
    return "".join(c if c.isprintable() else " " for c in text)


# Reading and writing traits.


# What each attribute of the element takes: what a file can say of a VM, what it can say of its
# scope, and what only a hypervisor has to know.
_ATTRIBUTES = Fields(
    fields={
        **{key.replace("_", "-"): replace(field, to=key) for key, field in OF_VM.items()},
        "scope-kind": replace(SCOPE_KIND, to="scope_kind"),
        "terminate-notice-minutes": TERMINATE_NOTICE,
        "auto-approve": replace(
            AUTO_APPROVED,
            accepted='"reboot", "redeploy", both with a space between, or nothing',
            to="auto_approve",
        ),
        "freeze": replace(choice({"pause": False, "move": True}), to="freeze_by_move"),
        "when-host-goes-down": replace(
            choice({policy.value: policy for policy in WhenHostGoesDown}), to="when_host_goes_down"
        ),
    },
    unknown="there is no attribute",
)
ATTRIBUTES = tuple(_ATTRIBUTES.fields)


def read_traits(domain_xml: str) -> Traits:
    """What the owner has said. Raises BadTraits, with every mistake, if it cannot be understood."""
    if TRAITS_NAMESPACE not in domain_xml:
        return Traits()
    element = _parsed(domain_xml).find(f"./metadata/{{{TRAITS_NAMESPACE}}}vm")
    if element is None:
        return Traits()
    table, mistakes = Table(element.attrib), Mistakes()
    _ATTRIBUTES.read(table, mistakes, as_text=True)
    tags: dict[str, str] = {}
    for child in element:
        # Libvirt puts the namespace on the outer element alone when it is set through its API.
        if child.tag in ("tag", f"{{{TRAITS_NAMESPACE}}}tag"):
            tags[child.get("name", "")] = child.get("value", "")
        else:
            mistakes.add((), f"there is no element {shown(str(child.tag))}. Accepted: tag.")
    for _, words in tag_mistakes(tags):
        mistakes.add((), words)
    if mistakes.found:
        raise BadTraits(" ".join(first_of([mistake.words for mistake in mistakes.found])))
    values = {**table.values, "tags": tuple(sorted(tags.items()))}
    profile = VmProfile(**{name: values.pop(name) for name in IN_METADATA if name in values})
    return Traits(**values, profile=profile)


def traits_element(traits: Traits) -> str:
    """Traits as libvirt's SetMetadata takes them; `read_traits` gives them back."""
    policy = traits.when_host_goes_down
    approve = traits.auto_approve
    values = {
        "scope": traits.scope,
        "update-domain": _given(traits.update_domain),
        "scope-kind": _given(traits.scope_kind),
        "terminate-notice-minutes": (
            ""
            if traits.terminate_notice_ms is None
            else str(traits.terminate_notice_ms // MINUTE_MS)
        ),
        **_profile_attributes(traits.profile),
        "freeze": "move" if traits.freeze_by_move else "",
        "when-host-goes-down": "" if policy is WhenHostGoesDown.RESTART else policy.value,
    }
    written = _attributes(values)
    if approve is not None:  # nothing at all is something that can be said
        words = [word for word, event_type in AUTO_APPROVE.items() if event_type in approve]
        written += f" auto-approve={quoteattr(' '.join(words))}"
    tags = "".join(f"<tag{_named(name, value)}/>" for name, value in traits.profile.tags)
    return f"<vm{written}>{tags}</vm>" if tags else f"<vm{written}/>"


def _profile_attributes(profile: VmProfile) -> dict[str, str]:
    """What an owner need not say is left out."""
    return {
        name.replace("_", "-"): str(value)
        for name in IN_METADATA
        if name != "tags" and (value := getattr(profile, name)) != getattr(NOTHING_SAID, name)
    }


def _named(name: str, value: str) -> str:
    return f" name={quoteattr(name)} value={quoteattr(value)}"


def _given(value: object) -> str:
    return "" if value is None else str(value)


# Whether it runs, its interfaces, and what a guest's power button does.

_RUNNING = re.compile(r"<domain\b[^>]*\sid=[\"']")


def is_live(domain_xml: str) -> bool:
    """Whether this is the XML of a running domain: only those have an id."""
    return _RUNNING.match(domain_xml.lstrip()) is not None


class DomainInterface(Struct, frozen=True):
    """An interface as XML has it; `network` is to be asked for its bridge."""

    nic: Nic
    network: str | None = None


def interfaces(domain_xml: str) -> tuple[DomainInterface, ...]:
    """The interfaces of a domain, in order. Taps are only in the XML of a running one."""
    found = []
    for element in _parsed(domain_xml).findall("./devices/interface"):
        mac = element.find("mac")
        if mac is None or not mac.get("address"):
            continue
        source, target = element.find("source"), element.find("target")
        given = source.attrib if source is not None else {}
        tap = target.get("dev") if target is not None else None
        found.append(
            DomainInterface(
                nic=Nic(
                    mac=str(mac.get("address")).lower(),
                    tap=tap or None,
                    bridge=given.get("bridge") or None,
                ),
                network=given.get("network") or None,
            )
        )
    return tuple(found)


def powers_off(domain_xml: str) -> bool:
    """Whether the domain goes off when its guest shuts down (`on_poweroff`, as is the default)."""
    element = _parsed(domain_xml).find("./on_poweroff")
    return element is None or element.text in (None, "destroy")
