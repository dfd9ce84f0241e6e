"""What a libvirt domain says of itself, read from its XML and written into it. Text and values.

Two elements of a domain's `<metadata>` are ours. TRAITS_NAMESPACE holds what the owner of the VM
has said of it (docs/libvirt.md describes every attribute). MARK_NAMESPACE holds what Forewarn is
doing to the domain, or did last: it travels with the domain, so that whoever looks at it next,
here or on another host, knows. No libvirt here, and nothing is asked or done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from forewarn.core import addresses
from forewarn.core.errors import Invalid
from forewarn.core.machines import Nic, Power, Traits, WhenHostGoesDown
from forewarn.core.model import MINUTE_MS, ActionKind, EventType, Priority, ScopeKind
from forewarn.core.notice import TERMINATE_NOTICE_MS
from forewarn.core.spelling import meant, shown

TRAITS_NAMESPACE = "urn:forewarn:vm:1"
TRAITS_PREFIX = "forewarn"
MARK_NAMESPACE = "urn:forewarn:action:1"
MARK_PREFIX = "forewarn-action"

# What an inventory accepts as a name; Resources of a document show it (C6).
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
NAME_ACCEPTED = "1 to 64 letters, digits and `_ . -`, beginning with a letter or digit"
NUMBER_MAX = 9_999
TAGS_MAX = 50
TAG_NAME_CHARS_MAX = 512
TAG_VALUE_CHARS_MAX = 256
ZONE_CHARS_MAX = 64
DETAIL_CHARS_MAX = 1_000

# Libvirt writes our element in one piece, with every `>` in a value escaped.
_MARK_TEXT = re.compile(
    r"\s*<(?:[\w.-]+:)?action\b[^>]*\bxmlns(?::[\w.-]+)?=[\"']"
    + re.escape(MARK_NAMESPACE)
    + r"[\"'][^>]*/>"
)
_NOTICE_MINUTES = tuple(ms // MINUTE_MS for ms in TERMINATE_NOTICE_MS)
_AUTO_APPROVE = {"reboot": EventType.REBOOT, "redeploy": EventType.REDEPLOY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
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


def read_mark(domain_xml: str) -> Mark | None:
    """The mark of a domain. None if there is none, or one that is not understood."""
    if MARK_NAMESPACE not in domain_xml:
        return None
    element = _parsed(domain_xml).find(f"./metadata/{{{MARK_NAMESPACE}}}action")
    if element is None:
        return None
    given = element.attrib
    try:
        return Mark(
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


def mark_element(mark: Mark) -> str:
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


def _text(text: str) -> str:
    if len(text) > ZONE_CHARS_MAX or not text.isprintable():
        raise BadTraits(f"up to {ZONE_CHARS_MAX} printable characters")
    return text


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise BadTraits(NAME_ACCEPTED)
    return text


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not low <= int(text[:9]) <= high:
            raise BadTraits(f"a whole number from {low} to {high}")
        return int(text)

    return read


def _one_of(values: Mapping[str, object]) -> Callable[[str], object]:
    def read(text: str) -> object:
        if text not in values:
            raise BadTraits(" or ".join(values))
        return values[text]

    return read


def _address(text: str) -> str:
    try:
        return addresses.read_address(text)
    except Invalid:
        raise BadTraits(addresses.ADDRESS_ACCEPTED) from None


def _auto_approve(text: str) -> frozenset[EventType]:
    words = text.split()
    if not all(word in _AUTO_APPROVE for word in words):
        raise BadTraits('"reboot", "redeploy", both with a space between, or nothing')
    return frozenset(_AUTO_APPROVE[word] for word in words)


def _minutes(text: str) -> int:
    return _number(*_NOTICE_MINUTES)(text) * MINUTE_MS


# By attribute: the field of Traits, and how its text is read.
_ATTRIBUTES: dict[str, tuple[str, Callable[[str], object]]] = {
    "scope": ("scope", _name),
    "update-domain": ("update_domain", _number(0, NUMBER_MAX)),
    "scope-kind": ("scope_kind", _one_of({kind.value: kind for kind in ScopeKind})),
    "terminate-notice-minutes": ("terminate_notice_ms", _minutes),
    "auto-approve": ("auto_approve", _auto_approve),
    "priority": ("priority", _one_of({priority.value: priority for priority in Priority})),
    "address": ("address", _address),
    "fault-domain": ("fault_domain", _number(0, NUMBER_MAX)),
    "zone": ("zone", _text),
    "freeze": ("freeze_by_move", _one_of({"pause": False, "move": True})),
    "when-host-goes-down": (
        "when_host_goes_down",
        _one_of({policy.value: policy for policy in WhenHostGoesDown}),
    ),
}
ATTRIBUTES = tuple(_ATTRIBUTES)


def read_traits(domain_xml: str) -> Traits:
    """What the owner has said. Raises BadTraits, with every mistake, if it cannot be understood."""
    if TRAITS_NAMESPACE not in domain_xml:
        return Traits()
    element = _parsed(domain_xml).find(f"./metadata/{{{TRAITS_NAMESPACE}}}vm")
    if element is None:
        return Traits()
    values: dict[str, Any] = {}
    mistakes = []
    for name, text in element.attrib.items():
        if name not in _ATTRIBUTES:
            mistakes.append(f"there is no attribute {shown(name)}. {meant(name, _ATTRIBUTES)}")
            continue
        field, read = _ATTRIBUTES[name]
        try:
            values[field] = read(text)
        except BadTraits as accepted:
            mistakes.append(f"{name}={shown(text)} is refused. Accepted: {accepted}.")
    try:
        values["tags"] = _tags(element)
    except BadTraits as wrong:
        mistakes.append(str(wrong))
    if mistakes:
        raise BadTraits(" ".join(mistakes))
    return Traits(**values)


def _tags(element: ET.Element) -> tuple[tuple[str, str], ...]:
    tags = {}
    for child in element:
        # Libvirt puts the namespace on the outer element alone when it is set through its API.
        if child.tag not in ("tag", f"{{{TRAITS_NAMESPACE}}}tag"):
            raise BadTraits(f"there is no element {shown(str(child.tag))}. Accepted: tag.")
        name, value = child.get("name", ""), child.get("value", "")
        good_name = 1 <= len(name) <= TAG_NAME_CHARS_MAX and name.isprintable()
        good_value = len(value) <= TAG_VALUE_CHARS_MAX and value.isprintable()
        if not good_name or not good_value or ";" in name + value or ":" in name:
            raise BadTraits(
                f"the tag {shown(name)} = {shown(value)} is refused. Accepted: printable text "
                f"without `;`, a name of 1 to {TAG_NAME_CHARS_MAX} characters also without `:`, "
                f"a value of up to {TAG_VALUE_CHARS_MAX}."
            )
        tags[name] = value
    if len(tags) > TAGS_MAX:
        raise BadTraits(f"{len(tags)} tags are too many. Accepted: up to {TAGS_MAX}.")
    return tuple(sorted(tags.items()))


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
        "priority": _given(traits.priority),
        "address": traits.address or "",
        "fault-domain": _given(traits.fault_domain),
        "zone": traits.zone,
        "freeze": "move" if traits.freeze_by_move else "",
        "when-host-goes-down": "" if policy is WhenHostGoesDown.RESTART else policy.value,
    }
    written = _attributes(values)
    if approve is not None:  # nothing at all is something that can be said
        words = [word for word, event_type in _AUTO_APPROVE.items() if event_type in approve]
        written += f" auto-approve={quoteattr(' '.join(words))}"
    tags = "".join(f"<tag{_named(name, value)}/>" for name, value in traits.tags)
    return f"<vm{written}>{tags}</vm>" if tags else f"<vm{written}/>"


def _named(name: str, value: str) -> str:
    return f" name={quoteattr(name)} value={quoteattr(value)}"


def _given(value: object) -> str:
    return "" if value is None else str(value)


# Whether it runs, its interfaces, and what a guest's power button does.

_RUNNING = re.compile(r"<domain\b[^>]*\sid=[\"']")


def is_live(domain_xml: str) -> bool:
    """Whether this is the XML of a running domain: only those have an id."""
    return _RUNNING.match(domain_xml.lstrip()) is not None


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface as XML has it; `network` is to be asked for its bridge."""

    nic: Nic
    network: str | None = None


def interfaces(domain_xml: str) -> tuple[Interface, ...]:
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
            Interface(
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
