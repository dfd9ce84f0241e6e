"""How far guests have come: what is below a mark, what raises one, and what is forgotten."""

from __future__ import annotations

from msgspec.structs import replace

from forewarn.core.incarnation_marks import Above, Marks, key_of
from forewarn.core.model import Scope
from support.core_fleet import WEB, scope, vm

ALONE = scope("solo", {"solo": (0, "h1")})


def web(incarnation: int) -> Scope:
    return replace(scope("web", WEB), incarnation=incarnation)


def test_a_document_below_what_one_of_its_vms_was_shown_is_below_the_mark() -> None:
    marks = Marks().raised([web(5)])

    assert marks.above(web(5)) is None
    assert marks.above(web(6)) is None
    found = marks.above(web(4))
    assert found is not None
    assert (found.scope, found.marked, found.sent) == ("web", 5, 4)
    assert "from incarnation 5 to 4" in str(found)


def test_a_mark_stays_when_the_vm_is_found_in_another_scope() -> None:
    marks = Marks().raised([web(57)])
    alone = replace(ALONE, incarnation=1, vms=(web(1).vms[0],))

    assert marks.above(alone) == Above(scope="solo", vm="web_0", marked=57, sent=1)


def test_another_vm_of_the_name_begins_anew() -> None:
    marks = Marks().raised([web(5)])
    others = tuple(replace(one, vm_id=f"other-{one.vm_id}") for one in web(1).vms)
    renamed = tuple(replace(one, name=f"new-{one.name}") for one in web(1).vms)

    assert marks.above(replace(web(1), vms=others)) is None
    assert marks.above(replace(web(1), vms=renamed)) is None
    assert marks.above(replace(web(1), vms=(*others, web(1).vms[0]))) is not None


def test_the_spelling_of_an_id_makes_no_other_vm_of_it() -> None:
    small = vm("a", 0, "h1")
    assert key_of(replace(small, vm_id="ABC")) == key_of(replace(small, vm_id="abc"))


def test_a_mark_is_only_ever_raised_and_the_first_incarnation_needs_none() -> None:
    first = Marks().raised([web(1)])
    assert first.of_vm == {}

    marks = Marks().raised([web(5)])
    assert marks.raised([web(4)]) is marks
    assert marks.raised([web(5)]) is marks
    assert set(marks.raised([web(6)]).of_vm.values()) == {6}


def test_of_too_many_marks_those_raised_longest_ago_go_but_none_that_is_on_show() -> None:
    scopes = [replace(scope(f"s{n}", {f"vm{n}": (0, "h1")}), incarnation=2 + n) for n in range(5)]
    marks = Marks()
    for one in scopes:
        marks = marks.raised([one])
    marks = marks.raised([replace(scopes[1], incarnation=99)])

    left = marks.at_most(3, on_show=lambda: {key_of(scopes[0].vms[0])})
    assert [name for name, _ in left.of_vm] == ["vm0", "vm4", "vm1"]
    assert marks.at_most(5, on_show=set) is marks


def test_what_was_lost_stays_said_when_marks_are_raised() -> None:
    assert Marks(lost="damaged").raised([web(5)]).lost == "damaged"
