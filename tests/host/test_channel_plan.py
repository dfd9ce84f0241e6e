"""Which VM is at which interface: decided from values, without a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from forewarn.core.inventory.host_report import Nic, Power, SeenVm
from forewarn.host.channels.plan import (
    CHANNELS_MAX,
    EVERYWHERE,
    Channel,
    ChannelPlan,
    ChannelProblem,
    Mode,
    cut_off,
    make_plan,
)
from forewarn.ports import Interface
from support import profiles

MAC = "52:54:00:00:00:01"
BR0 = Interface(name="br0", ifindex=2, mac="52:54:00:aa:00:01", kind="bridge")
BR1 = Interface(name="br1", ifindex=3, mac="52:54:00:aa:00:02", kind="bridge")


def tap(name: str, ifindex: int, master: str | None = "br0", mac: str = "") -> Interface:
    made = mac or f"fe:54:00:00:00:{ifindex:02x}"
    return Interface(name=name, ifindex=ifindex, mac=made, kind="tun", master=master)


def vm(name: str, *nics: Nic, power: Power = Power.RUNNING, address: str | None = None) -> SeenVm:
    traits = profiles.traits(address=address)
    return SeenVm(name=name, vm_id=name, power=power, traits=traits, nics=nics)


def nic(ifindex: int, name: str | None = None) -> Nic:
    return Nic(mac=f"52:54:00:00:00:{ifindex:02X}", tap=name or f"vnet{ifindex}", bridge="br0")


def plan(
    seen: Sequence[SeenVm],
    interfaces: Sequence[Interface],
    *,
    mode: Mode = Mode.BRIDGE,
    only: Sequence[str] = (),
    ours: Sequence[str] = (),
    before: Sequence[Channel] = (),
    first: int = 1,
) -> ChannelPlan:
    marks = count(first)
    return make_plan(
        mode,
        seen,
        interfaces,
        only=only,
        ours=ours,
        before=before,
        next_mark=lambda: next(marks),
    )


def only_problem(made: ChannelPlan) -> str:
    assert len(made.problems) == 1
    return str(made.problems[0])


def test_a_vm_has_a_channel_for_each_of_its_nics() -> None:
    made = plan([vm("a", nic(5), nic(6))], [BR0, tap("vnet5", 5), tap("vnet6", 6)])
    assert [(c.vm, c.ifindex, c.mac, c.listener, c.mark) for c in made.channels] == [
        ("a", 5, "52:54:00:00:00:05", "br0", 1),
        ("a", 6, "52:54:00:00:00:06", "br0", 2),
    ]
    assert made.problems == ()


def test_a_channel_keeps_its_mark_and_a_new_one_never_gets_one_of_before() -> None:
    interfaces = [BR0, tap("vnet5", 5), tap("vnet6", 6)]
    first = plan([vm("a", nic(5)), vm("b", nic(6))], interfaces)
    again = plan([vm("b", nic(6)), vm("c", nic(5))], interfaces, before=first.channels, first=10)
    assert {c.vm: c.mark for c in again.channels} == {"b": 2, "c": 10}


def test_a_tap_that_was_made_anew_is_another_channel() -> None:
    first = plan([vm("a", nic(5))], [BR0, tap("vnet5", 5)])
    anew = tap("vnet5", 9, mac="fe:54:00:00:00:05")
    again = plan([vm("a", nic(5))], [BR0, anew], before=first.channels, first=10)
    assert [(c.ifindex, c.mark) for c in again.channels] == [(9, 10)]


def test_a_tap_that_libvirt_made_for_another_nic_is_not_taken_for_this_ones() -> None:
    made = plan([vm("a", nic(5))], [BR0, tap("vnet5", 5, mac="fe:54:00:00:00:77")])
    assert made.channels == ()
    assert "was made for another NIC (fe:54:00:00:00:77)" in only_problem(made)


def test_the_kernel_says_in_which_bridge_a_tap_is() -> None:
    made = plan([vm("a", nic(5))], [BR0, BR1, tap("vnet5", 5, "br1")])
    assert [c.listener for c in made.channels] == ["br1"]


def test_vms_that_are_off_have_no_channel_and_no_problem() -> None:
    made = plan([vm("a", power=Power.OFF), vm("b", nic(5), power=Power.CRASHED)], [BR0])
    assert (made.channels, made.problems) == ((), ())


def test_what_cannot_be_served_is_named_with_its_remedy() -> None:
    alone, ovs = (
        tap("vnet5", 5, None),
        Interface(name="ovs", ifindex=4, mac=MAC, kind="openvswitch"),
    )
    macvtap = Interface(name="vnet5", ifindex=5, mac=MAC, kind="macvtap")
    for nics, interfaces, words in (
        ((), [BR0], "a: It has no network interface"),
        ((Nic(mac=MAC),), [BR0], "has no interface on this host"),
        ((nic(5),), [BR0], "Its interface vnet5 is not there. It may just have come or gone"),
        ((nic(5),), [BR0, alone], 'Plug it into a bridge, or set listen = "tap".'),
        ((nic(5),), [ovs, tap("vnet5", 5, "ovs")], "Only Linux bridges"),
        ((nic(5),), [BR0, macvtap], "Plug the VM into a bridge (<interface type='bridge'>)."),
        ((nic(5, 'x"; flush ruleset; "'),), [BR0], "cannot be written into a rule"),
        ((Nic(mac="52:54 } drop", tap="vnet5"),), [BR0], "cannot be written into a rule"),
    ):
        made = plan([vm("a", *nics)], interfaces)
        assert made.channels == ()
        assert words in only_problem(made)


def test_taps_in_bridges_are_not_listened_on_one_by_one() -> None:
    made = plan([vm("a", nic(5))], [BR0, tap("vnet5", 5)], mode=Mode.TAP)
    assert 'Set listen = "bridge".' in only_problem(made)
    made = plan([vm("a", nic(5))], [BR0, tap("vnet5", 5, None)], mode=Mode.TAP)
    assert [c.listener for c in made.channels] == ["vnet5"]


def test_one_tap_of_two_vms_is_nobodys() -> None:
    made = plan([vm("a", nic(5)), vm("b", nic(5))], [BR0, tap("vnet5", 5)])
    assert made.channels == ()
    assert [problem.where for problem in made.problems] == ["a", "b"]
    assert "is named by a and b; none is served" in str(made.problems[0])


def test_only_the_named_bridges_are_listened_on_with_and_without_vms() -> None:
    interfaces = [BR0, BR1, tap("vnet5", 5)]
    made = plan([vm("a", nic(5))], interfaces, only=("br1", "br9"))
    assert (list(made.listeners), made.channels) == (["br1"], ())
    assert made.elsewhere == (5,)
    assert "br9: There is no interface br9." in str(made.problems[0])


def test_a_vm_on_no_bridge_that_is_listened_on_is_named_with_its_bridge() -> None:
    interfaces = [BR0, BR1, tap("vnet5", 5), tap("vnet6", 6, "br1"), tap("vnet7", 7)]
    seen = [vm("a", nic(5)), vm("b", nic(6), nic(7))]
    made = plan(seen, interfaces, only=("br1",))
    assert [c.vm for c in made.channels] == ["b"]
    assert "a: It is on br0, and only br1 is listened on. Add br0" in only_problem(made)


def test_an_interface_that_is_no_bridge_is_not_listened_on_and_named() -> None:
    made = plan([], [BR0, tap("vnet5", 5)], only=("br0", "vnet5"))
    assert list(made.listeners) == ["br0"]
    assert "vnet5: vnet5 is no bridge." in only_problem(made)


def test_a_bridge_whose_address_is_somebody_elses_is_left_alone() -> None:
    taken = Interface(
        name="br1", ifindex=3, mac=MAC, kind="bridge", addresses=("169.254.169.254/16",)
    )
    interfaces = [BR0, taken, tap("vnet5", 5), tap("vnet6", 6, "br1")]
    seen = [vm("a", nic(5)), vm("b", nic(6))]
    made = plan(seen, interfaces, only=("br0", "br1"))
    assert [c.vm for c in made.channels] == ["a"]
    assert (list(made.listeners), made.foreign) == (["br0"], (3,))
    assert "br1 has the address 169.254.169.254 already" in only_problem(made)
    assert plan(seen, interfaces, ours=("br1",)).problems == ()


def test_there_is_a_limit_to_what_is_served_and_it_is_said() -> None:
    many = range(10, 10 + CHANNELS_MAX + 1)
    macs = {n: f"52:54:00:00:{n >> 8:02x}:{n & 255:02x}" for n in many}
    interfaces = [BR0, *(tap(f"t{n}", n, mac="fe" + macs[n][2:]) for n in many)]
    seen = [vm(f"vm{n}", Nic(mac=macs[n], tap=f"t{n}")) for n in many]
    made = plan(seen, interfaces)
    assert len(made.channels) == CHANNELS_MAX
    assert "Move VMs to another host." in only_problem(made)


def test_an_address_in_the_metadata_that_is_none_costs_nothing() -> None:
    interfaces = [BR0, tap("vnet5", 5), tap("vnet6", 6)]
    seen = [vm("a", nic(5), address="192.0.2.5"), vm("b", nic(6), address="nonsense")]
    made = plan(seen, interfaces)
    assert [c.address for c in made.channels] == ["192.0.2.5", None]


def test_who_is_cut_off_is_who_runs_and_has_no_way_left_through_its_host() -> None:
    def at(*where: str) -> frozenset[str]:
        problems = [ChannelProblem(where=name, words="", remedy="") for name in where]
        return cut_off(seen, problems)

    other = Nic(mac=MAC, tap="vnet9", bridge="br1")
    lone = Nic(mac=MAC, tap="tap0")
    seen = [
        vm("one", nic(5)),
        vm("two", nic(6), other),
        vm("off", power=Power.OFF),
        vm("bare"),
        vm("lone", lone, power=Power.PAUSED),
    ]
    assert at() == frozenset()
    assert at("one", "bare") == frozenset()  # of the VM itself; the message says what follows
    assert at("br0") == {"one"}
    assert at("br0", "br1") == {"one", "two"}
    assert at("tap0") == {"lone"}
    assert at(EVERYWHERE) == {"one", "two", "lone"}
