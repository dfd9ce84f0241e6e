"""What is read from the XML of domains, and written into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.adapters.libvirt import domain_xml as libvirt_xml
from forewarn.adapters.libvirt.domain_xml import BadTraits, DomainMark
from forewarn.control.inventory import file_reader
from forewarn.core.errors import BadInventory
from forewarn.core.inventory.host_report import Nic, Power, Traits, WhenHostGoesDown
from forewarn.core.model import ActionKind, EventType, ScopeKind
from forewarn.core.vm_profile import Priority
from support import profiles
from support.libvirt_world import LibvirtWorld, domain_xml

VM = '<forewarn:vm xmlns:forewarn="urn:forewarn:vm:1"{}>{}</forewarn:vm>'
EVERYTHING = profiles.traits(
    scope="web",
    update_domain=3,
    scope_kind=ScopeKind.PLACEMENT_GROUP,
    terminate_notice_ms=10 * 60_000,
    auto_approve=frozenset({EventType.REBOOT, EventType.REDEPLOY}),
    priority=Priority.SPOT,
    address="192.0.2.7",
    tags=(("owner", "sh<>op"), ("quote", "\"'&")),
    fault_domain=2,
    zone="1",
    os_type="Windows",
    freeze_by_move=True,
    when_host_goes_down=WhenHostGoesDown.MOVE,
)


def with_traits(attributes: str = "", children: str = "") -> str:
    return domain_xml("vm", metadata=VM.format(attributes, children))


@pytest.mark.parametrize(
    "traits",
    [
        EVERYTHING,
        Traits(),
        Traits(auto_approve=frozenset()),
        profiles.traits(scope="a", update_domain=0, fault_domain=0),
    ],
)
def test_traits_that_are_written_are_read_again(world: LibvirtWorld, traits: Traits) -> None:
    """Through libvirt itself, which puts the namespace on the outer element alone."""
    world.define("h1", domain_xml("vm"), start=True)
    element = libvirt_xml.traits_element(traits)
    world.on("h1", lambda s: s.set_traits("vm", element, live=True, config=True))
    view = world.seen("h1")
    assert libvirt_xml.read_traits(view.live_xml) == traits
    assert libvirt_xml.read_traits(view.config_xml) == traits


def test_a_domain_without_our_element_has_no_traits() -> None:
    assert libvirt_xml.read_traits(domain_xml("vm")) == Traits()


def test_tags_may_be_written_with_or_without_the_namespace() -> None:
    children = '<tag name="a" value="1"/><forewarn:tag name="b" value="2"/>'
    traits = libvirt_xml.read_traits(with_traits("", children))
    assert traits.profile.tags == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (' scop="web"', 'there is no attribute "scop". Did you mean scope?'),
        (' scope=""', "1 to 64 letters"),
        (' scope="-web"', "beginning with a letter or digit"),
        (' update-domain="two"', "a whole number from 0 to 9999"),
        (' update-domain="-1"', "a whole number from 0 to 9999"),
        (' update-domain="٣"', "a whole number from 0 to 9999"),
        (' update-domain="99999999999999999999"', "a whole number from 0 to 9999"),
        (' scope-kind="pod"', '"standalone" or "cloud-service" or "availability-set"'),
        (' terminate-notice-minutes="1"', "a whole number from 5 to 15"),
        (' auto-approve="reboot freeze"', '"reboot", "redeploy", both'),
        (' priority="low"', '"regular" or "spot"'),
        (' address="0.0.0.0"', "the IP address that requests of one VM come from"),
        (' zone="' + "z" * 65 + '"', "up to 64 printable characters"),
        (' freeze="maybe"', '"pause" or "move"'),
        (' when-host-goes-down="stay"', '"move" or "restart"'),
    ],
)
def test_an_attribute_that_cannot_be_used_is_named_with_what_would_be_accepted(
    attributes: str, words: str
) -> None:
    with pytest.raises(BadTraits) as refused:
        libvirt_xml.read_traits(with_traits(attributes))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "children",
    [
        '<tag name="" value="1"/>',
        '<tag value="1"/>',
        '<tag name="a:b" value="1"/>',
        '<tag name="a" value="1;2"/>',
        '<label name="a" value="1"/>',
        "".join(f'<tag name="a{n}" value=""/>' for n in range(51)),
    ],
)
def test_a_tag_that_cannot_be_used_is_refused(children: str) -> None:
    with pytest.raises(BadTraits, match="Accepted:"):
        libvirt_xml.read_traits(with_traits("", children))


def test_every_mistake_is_said_at_once() -> None:
    with pytest.raises(BadTraits, match=r"zone.*freeze"):
        libvirt_xml.read_traits(with_traits(' zone="&#9;" freeze="x"'))


INVENTORY = '[[host]]\nname = "h1"\n[[vm]]\nname = "a"\nhost = "h1"\nlisten = "127.0.0.1:0"\n'


@pytest.mark.parametrize(
    ("key", "attributes", "children"),
    [
        ('scope = "-web"', ' scope="-web"', ""),
        ("update_domain = 10000", ' update-domain="10000"', ""),
        ('address = "0.0.0.0"', ' address="0.0.0.0"', ""),
        ('priority = "low"', ' priority="low"', ""),
        ("fault_domain = 10000", ' fault-domain="10000"', ""),
        ('zone = "\\t"', ' zone="&#9;"', ""),
        ('tags = { a = "1;2" }', "", '<tag name="a" value="1;2"/>'),
        ('tags = { "a:b" = "1" }', "", '<tag name="a:b" value="1"/>'),
    ],
)
def test_a_domain_and_an_inventory_file_accept_the_same(
    key: str, attributes: str, children: str
) -> None:
    with pytest.raises(BadInventory) as of_file:
        file_reader.parse(f"{INVENTORY}{key}\n")
    with pytest.raises(BadTraits) as of_domain:
        libvirt_xml.read_traits(with_traits(attributes, children))
    in_file, in_domain = (
        text.partition("Accepted: ")[2] for text in (of_file.value.refused, str(of_domain.value))
    )
    assert in_file == in_domain != ""


# Marks.

MARK = DomainMark(
    action_id="E1/vm",
    kind=ActionKind.MOVE_VM,
    before=True,
    step="there",
    found=Power.RUNNING,
    since_ms=12,
    until_ms=34,
    boot_id="b",
    target_host="h2",
    ended="failed",
    detail="it said \"no\" > 'yes' & <left>",
)


@pytest.mark.parametrize("mark", [MARK, DomainMark(action_id="E2", kind=ActionKind.FREEZE_HOST)])
def test_a_mark_that_is_written_is_read_again_and_leaves_no_trace(
    world: LibvirtWorld, mark: DomainMark
) -> None:
    world.define("h1", with_traits(' scope="web"'), start=True)
    clean = world.seen("h1")
    world.on("h1", lambda s: s.set_mark("vm", mark, live=True, config=True))
    view = world.seen("h1")
    assert libvirt_xml.read_mark(view.live_xml) == mark
    assert libvirt_xml.read_mark(view.config_xml) == mark
    assert libvirt_xml.without_mark(view.config_xml) == clean.config_xml
    assert libvirt_xml.without_mark(view.live_xml) == clean.live_xml


def test_a_detail_that_xml_cannot_hold_is_still_written(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    mark = DomainMark(
        action_id="E", kind=ActionKind.REBOOT_VM, detail="a\x00\x1b[31m\nb" + "c" * 5_000
    )
    world.on("h1", lambda s: s.set_mark("vm", mark, live=True, config=True))
    read = libvirt_xml.read_mark(world.seen("h1").live_xml)
    assert read is not None
    assert read.detail.startswith("a  [31m b")
    assert len(read.detail) == libvirt_xml.DETAIL_CHARS_MAX


def test_a_domain_that_is_started_has_the_mark_of_its_configuration(world: LibvirtWorld) -> None:
    """What every repeat is made safe by: `before` is lost with a restart, and with it alone."""
    world.define("h1", domain_xml("vm"), start=True)
    mark = DomainMark(action_id="E", kind=ActionKind.REBOOT_VM)
    before = DomainMark(action_id="E", kind=ActionKind.REBOOT_VM, before=True)
    world.on("h1", lambda s: s.set_mark("vm", mark, live=False, config=True))
    world.on("h1", lambda s: s.set_mark("vm", before, live=True, config=False))
    world.on("h1", lambda s: s.suspend("vm"))
    world.on("h1", lambda s: s.resume("vm"))
    assert libvirt_xml.read_mark(world.seen("h1").live_xml) == before
    world.on("h1", lambda s: s.destroy("vm"))
    world.on("h1", lambda s: s.create("vm"))
    assert libvirt_xml.read_mark(world.seen("h1").live_xml) == mark


@pytest.mark.parametrize(
    "element",
    [
        "<x:action xmlns:x='urn:forewarn:action:1'/>",
        "<x:action xmlns:x='urn:forewarn:action:1' id='E' kind='dance'/>",
        "<x:action xmlns:x='urn:forewarn:action:1' id='E' kind='reboot-vm' since='soon'/>",
        "<x:other xmlns:x='urn:forewarn:action:1' id='E' kind='reboot-vm'/>",
    ],
)
def test_a_mark_that_is_not_understood_is_none(element: str) -> None:
    assert libvirt_xml.read_mark(domain_xml("vm", metadata=element)) is None


# Interfaces and the rest.


def test_interfaces_are_read_with_their_tap_and_where_it_is_plugged_in() -> None:
    devices = (
        "<interface type='bridge'><mac address='52:54:00:AA:00:01'/><source bridge='br0'/>"
        "<target dev='vnet0'/></interface>"
        "<interface type='network'><mac address='52:54:00:aa:00:02'/>"
        "<source network='default'/></interface>"
        "<interface type='ethernet'><mac address='52:54:00:aa:00:03'/><target dev='t3'/>"
        "</interface>"
        "<interface type='user'/>"
    )
    found = libvirt_xml.interfaces(domain_xml("vm", devices=devices))
    assert [interface.nic for interface in found] == [
        Nic(mac="52:54:00:aa:00:01", tap="vnet0", bridge="br0"),
        Nic(mac="52:54:00:aa:00:02"),
        Nic(mac="52:54:00:aa:00:03", tap="t3"),
    ]
    assert [interface.network for interface in found] == [None, "default", None]


@pytest.mark.parametrize(
    ("rest", "off"),
    [("", True), ("<on_poweroff>destroy</on_poweroff>", True)]
    + [(f"<on_poweroff>{word}</on_poweroff>", False) for word in ("restart", "preserve")],
)
def test_whether_a_guest_that_shuts_down_goes_off(rest: str, *, off: bool) -> None:
    assert libvirt_xml.powers_off(domain_xml("vm", rest=rest)) is off


def test_the_page_on_libvirt_describes_every_attribute() -> None:
    page = (Path(__file__).parents[2] / "docs" / "host" / "reference.md").read_text("utf-8")
    assert [name for name in libvirt_xml.ATTRIBUTES if f"| `{name}` |" not in page] == []
    assert libvirt_xml.TRAITS_NAMESPACE in page
    assert libvirt_xml.MARK_NAMESPACE in page
