"""What a document says about this VM that was not known yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forewarn_guest.configuration import Part
from forewarn_guest.document import Document
from forewarn_guest.facts import FactKind, Gone
from forewarn_guest.observing import SIGHTINGS_MAX, gone_how
from forewarn_guest.tracked_event import TrackedEvent
from scene import VM, Scene, at, event, rule, started


def kinds(scene: Scene, from_fact: int = 0) -> list[FactKind]:
    about_events = (FactKind.APPEARED, FactKind.STARTED, FactKind.CHANGED, FactKind.GONE)
    return [fact.kind for fact in scene.facts[from_fact:] if fact.kind in about_events]


def test_an_event_appears_starts_and_is_gone_once_each() -> None:
    scene = Scene(rule())
    for shown in ((event(),), (event(),), (started(event()),), (started(event()),), (), ()):
        scene.show(*shown)
    assert kinds(scene) == [FactKind.APPEARED, FactKind.STARTED, FactKind.GONE]


def test_events_of_other_vms_are_no_business_of_this_one() -> None:
    assert Scene(rule()).show(event(resources=("web_1",))).facts == []


def test_the_name_of_the_vm_and_ids_have_no_case() -> None:
    # C10 for names, A8 for ids.
    scene = Scene(rule(), vm="WEB_0").show(event("e1")).show(event("E1"))
    assert kinds(scene) == [FactKind.APPEARED]


def test_an_event_that_is_in_the_document_twice_is_one_event() -> None:
    assert list(Scene(rule()).show(event(), event()).tracked_events) == ["E1#1"]


def test_an_event_first_seen_as_started_is_known_to_be_that() -> None:
    tracked = Scene(rule()).show(started(event())).tracked_events["E1#1"]
    assert tracked.started
    assert tracked.first_seen_started


def test_an_event_that_no_longer_names_this_vm_is_gone() -> None:
    scene = Scene(rule()).show(event()).show(event(resources=("web_1",)))
    assert scene.tracked_events["E1#1"].gone is Gone.CANCELED


def test_a_sighting_is_never_taken_for_another_though_earlier_ones_are_forgotten() -> None:
    scene = Scene(rule())
    for _ in range(2):
        scene.show(started(event("A"))).show().end("return")
    scene.show(started(event("A"))).show()
    assert list(scene.running) == ["A#3 return"]
    for forgotten in ("A#1", "A#2"):
        del scene.tracked_events[forgotten]  # as a journal does that has begun anew
    scene.show(event("A")).show().show(event("A"))
    assert list(scene.tracked_events) == ["A#3", "A#4", "A#5"]
    assert scene.tracked_events["A#3"].run(Part.RECOVER, "return") is not None


def test_an_id_that_comes_and_goes_without_end_has_no_steps_run_without_end() -> None:
    scene = Scene(rule())
    for _ in range(3 * SIGHTINGS_MAX):
        scene.show(started(event("A"))).show()
        if scene.running:
            scene.end("return")
    runs = [line for line in scene.lines if "step-intended recover return" in line]
    assert len(runs) == SIGHTINGS_MAX
    assert all(tracked.closed for tracked in scene.tracked_events.values())
    assert scene.show(event("B")).running  # others are taken care of as ever


def test_an_id_that_comes_back_is_a_new_sighting() -> None:
    scene = Scene(rule()).show(event()).show().show(event())
    assert list(scene.tracked_events) == ["E1#1", "E1#2"]
    sightings = [f.detail["sighting"] for f in scene.facts if f.kind is FactKind.APPEARED]
    assert sightings == [1, 2]


def test_what_changes_in_an_event_is_kept_with_it() -> None:
    scene = Scene(rule()).show(event()).show(event(not_before_s=950.0))
    assert kinds(scene) == [FactKind.APPEARED, FactKind.CHANGED]
    assert scene.tracked_events["E1#1"].event.not_before == at(950.0)
    scene.show(event(not_before_s=950.0, resources=(VM, "web_1")))
    assert scene.tracked_events["E1#1"].event.resources == (VM, "web_1")


def test_starting_is_no_change_although_not_before_is_empty_then() -> None:
    scene = Scene(rule()).show(event()).show(started(event()))
    assert kinds(scene) == [FactKind.APPEARED, FactKind.STARTED]


def test_the_event_of_a_tracked_event_is_started_once_it_was_seen_started() -> None:
    scene = Scene(rule()).show(event()).show(started(event()))
    assert scene.tracked_events["E1#1"].event.status == "Started"
    assert scene.restart().tracked_events["E1#1"].event.status == "Started"


def test_an_event_without_a_rule_is_noted_and_nothing_is_done_about_it() -> None:
    scene = Scene(rule(event_types=("Freeze",))).show(event()).show()
    assert scene.lines == ["E1#1 appeared", "E1#1 gone canceled", "E1#1 closed"]


def test_an_ignored_event_is_noted_and_nothing_is_done_about_it() -> None:
    scene = Scene(rule(ignore=True)).show(event()).show(started(event())).show()
    assert [line.split()[1] for line in scene.lines] == ["appeared", "started", "gone", "closed"]
    assert scene.approved == []


# How an event ended, as far as a guest can know.


def gone(tracked: TrackedEvent, *, date_s: float | None, boot_id: str = "boot-1") -> Gone:
    date = None if date_s is None else at(date_s)
    return gone_how(tracked, Document("1", (), date=date), boot_id=boot_id)


TRACKED = TrackedEvent("E1#1", event(not_before_s=900.0), "all", "boot-1")


def test_gone_before_its_time_and_not_approved_is_canceled() -> None:
    assert gone(TRACKED, date_s=899.0) is Gone.CANCELED


@pytest.mark.parametrize(
    ("tracked", "date_s", "boot_id"),
    [
        pytest.param(replace(TRACKED, started=True), 1.0, "boot-1", id="it was seen started"),
        pytest.param(replace(TRACKED, approved=True), 1.0, "boot-1", id="it was approved"),
        pytest.param(replace(TRACKED, approving=True), 1.0, "boot-1", id="perhaps it was approved"),
        pytest.param(TRACKED, 900.0, "boot-1", id="its time had come by the date of the answer"),
        pytest.param(TRACKED, 1.0, "boot-2", id="the VM has booted since"),
        pytest.param(TRACKED, None, "boot-1", id="the answer has no date"),
        pytest.param(
            replace(TRACKED, event=event(not_before_s=None)), 1.0, "boot-1", id="no NotBefore known"
        ),
    ],
)
def test_gone_counts_as_ended_if_it_may_have_happened(
    tracked: TrackedEvent, date_s: float | None, boot_id: str
) -> None:
    # G10: documents can be a minute late, and that an event was Started may never be seen.
    assert gone(tracked, date_s=date_s, boot_id=boot_id) is Gone.ENDED


def test_the_time_of_an_event_that_was_moved_is_the_new_one() -> None:
    scene = Scene(rule()).show(event(not_before_s=100.0))
    scene.show(event(not_before_s=200.0), at_s=50.0).show(at_s=150.0)
    assert scene.tracked_events["E1#1"].gone is Gone.CANCELED
