"""What this host shows: pages, guests that come and go, and how little of it there is."""

from __future__ import annotations

import tracemalloc

from msgspec.structs import replace

from forewarn.core.model import EventType, Scope, ScopeKind
from forewarn.endpoint.registry import Document, Guest, Page
from forewarn.host.identity import Identity
from forewarn.host.served_documents import Documents
from forewarn.wire.api_versions import API_VERSIONS
from support.endpoint_world import DB, EVENT_ID, NOW_MS, OTHER_ID, WEB, a_vm, an_event
from support.profiles import described
from support.shown_scopes import as_shown


class FakeLink:
    def __init__(self) -> None:
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


def shown(*scopes: Scope) -> tuple[Documents, Identity]:
    identity = Identity()
    documents = Documents(identity)
    for scope in scopes:
        documents.show(as_shown(scope))
    return documents, identity


def guest_of(documents: Documents, vm: str) -> Guest:
    guest = documents.guest(vm)
    assert guest is not None
    return guest


def page_of(documents: Documents, scope: str) -> Page:
    page = documents.page(scope)
    assert page is not None
    return page


def document_of(documents: Documents, scope: str, version: str) -> Document:
    return page_of(documents, scope).documents[version]


def linked(guest: Guest) -> FakeLink:
    link = FakeLink()
    guest.connections.add(link)
    return link


def test_other_events_under_the_same_incarnation_are_rendered_all_the_same() -> None:
    """Another control, which the operator told the host to accept, may have come as far."""
    documents, _ = shown(WEB)
    before = document_of(documents, "web", "2020-07-01")
    documents.show(as_shown(replace(WEB, events=())))

    after = document_of(documents, "web", "2020-07-01")
    assert EVENT_ID.encode() in before.body
    assert EVENT_ID.encode() not in after.body
    assert after.incarnation == before.incarnation


def test_every_api_version_is_rendered_when_a_scope_is_shown() -> None:
    documents, _ = shown(WEB)
    page = page_of(documents, "web")
    assert set(page.documents) == set(API_VERSIONS)
    assert all(document.incarnation == 2 for document in page.documents.values())
    assert documents.incarnation_shown("web") == 2
    assert documents.incarnation_shown("nowhere") is None


def test_versions_with_equal_content_share_one_document() -> None:
    documents, _ = shown(replace(WEB, events=()))
    assert len({id(d) for d in page_of(documents, "web").documents.values()}) == 1


def test_versions_that_hide_an_event_have_their_own_document() -> None:
    preempt = an_event(OTHER_ID, event_type=EventType.PREEMPT)
    documents, _ = shown(replace(WEB, events=(an_event(), preempt)))
    assert document_of(documents, "web", "2017-08-01").event_ids == {EVENT_ID}
    assert document_of(documents, "web", "2017-11-01").event_ids == {EVENT_ID, OTHER_ID}


def test_what_has_not_changed_keeps_its_document() -> None:
    documents, _ = shown(WEB)
    before = document_of(documents, "web", "2020-07-01")
    documents.show(as_shown(replace(WEB, revision=5)))
    assert document_of(documents, "web", "2020-07-01") is before
    documents.show(as_shown(replace(WEB, incarnation=3)))
    assert document_of(documents, "web", "2020-07-01").serial > before.serial


def test_disabling_a_scope_makes_every_guest_look_again() -> None:
    documents, _ = shown(WEB)
    before = document_of(documents, "web", "2020-07-01")
    documents.show(as_shown(replace(WEB, enabled=False)))
    assert document_of(documents, "web", "2020-07-01").serial != before.serial
    assert not page_of(documents, "web").enabled


def test_vms_are_known_while_their_scope_has_them() -> None:
    documents, identity = shown(WEB)
    guest = guest_of(documents, "web_0")
    link = linked(guest)
    documents.show(as_shown(replace(WEB, vms=(*WEB.vms, a_vm("web_2", "127.0.0.9")))))
    assert guest_of(documents, "web_0") is guest
    assert identity.by_address("127.0.0.9") is guest_of(documents, "web_2")
    assert not link.is_cut
    documents.show(as_shown(replace(WEB, vms=WEB.vms[1:])))
    assert documents.guest("web_0") is None
    assert identity.by_address("127.0.0.1") is None
    assert guest.gone
    assert link.is_cut


def test_a_vm_whose_other_details_change_stays_connected() -> None:
    documents, _ = shown(WEB)
    guest = guest_of(documents, "web_0")
    link = linked(guest)
    documents.show(as_shown(replace(WEB, vms=(replace(WEB.vms[0], host="h2"), WEB.vms[1]))))
    assert guest.vm.host == "h2"
    assert not link.is_cut


def test_a_vm_with_a_new_address_is_cut_off_and_found_there() -> None:
    documents, identity = shown(WEB)
    guest = guest_of(documents, "web_0")
    link = linked(guest)
    documents.show(
        as_shown(replace(WEB, vms=(described(WEB.vms[0], address="127.0.0.7"), WEB.vms[1])))
    )
    assert link.is_cut
    assert identity.by_address("127.0.0.1") is None
    assert identity.by_address("127.0.0.7") is guest


def test_two_vms_may_swap_their_addresses() -> None:
    documents, identity = shown(WEB)
    first, second = WEB.vms
    swapped = (
        replace(first, profile=second.profile),
        replace(second, profile=first.profile),
    )
    documents.show(as_shown(replace(WEB, vms=swapped)))
    assert identity.by_address("127.0.0.1") is guest_of(documents, "web_1")
    assert identity.by_address("127.0.0.2") is guest_of(documents, "web_0")


def test_a_vm_that_moves_to_another_scope_is_cut_off_and_reads_there() -> None:
    documents, identity = shown(WEB, DB)
    guest = guest_of(documents, "web_0")
    link = linked(guest)
    documents.show(as_shown(replace(DB, vms=(*DB.vms, WEB.vms[0]))))
    documents.show(as_shown(replace(WEB, vms=WEB.vms[1:])))
    assert link.is_cut
    assert guest_of(documents, "web_0") is guest
    assert guest.page is page_of(documents, "db")
    assert identity.by_address("127.0.0.1") is guest


def test_a_dropped_scope_is_gone_with_its_vms() -> None:
    documents, identity = shown(WEB, DB)
    link = linked(guest_of(documents, "web_0"))
    documents.drop("web")
    documents.drop("web")
    assert link.is_cut
    assert documents.guest("web_1") is None
    assert identity.by_name("web_1") is None
    assert documents.incarnation_shown("web") is None
    assert documents.incarnation_shown("db") == 7


def test_what_a_guest_has_read_carries_over_and_ended_events_leave_it() -> None:
    documents, _ = shown(WEB)
    guest = guest_of(documents, "web_0")
    assert guest.read(document_of(documents, "web", "2020-07-01")) == {EVENT_ID}
    both = replace(WEB, incarnation=3, events=(an_event(), an_event(OTHER_ID)))
    documents.show(as_shown(both))
    assert guest.read(document_of(documents, "web", "2020-07-01")) == {OTHER_ID}
    documents.show(as_shown(replace(WEB, incarnation=4, events=(an_event(OTHER_ID),))))
    assert guest.read(document_of(documents, "web", "2020-07-01")) == frozenset()
    assert guest.read_ids == {OTHER_ID}


def test_expecting_a_vm_makes_it_look_again_and_an_unknown_one_is_ignored() -> None:
    documents, _ = shown(WEB)
    guest = guest_of(documents, "web_0")
    guest.read_serial = guest.polled_serial = 99
    documents.expect("web_0")
    documents.expect("nobody")
    assert guest.expected
    assert (guest.read_serial, guest.polled_serial) == (-1, -1)


def test_the_harvest_holds_each_poll_once() -> None:
    documents, _ = shown(WEB, DB)
    guest_of(documents, "web_0").polled_ms = NOW_MS
    assert documents.polled() == {"web": NOW_MS}
    assert documents.polled() == {}
    guest_of(documents, "web_0").polled_ms = NOW_MS - 5
    assert documents.polled() == {"web": NOW_MS - 5}, "also after the clock was set back"


def test_the_last_poll_of_any_guest_counts_for_the_scope() -> None:
    documents, _ = shown(WEB)
    guest_of(documents, "web_0").polled_ms = NOW_MS
    guest_of(documents, "web_1").polled_ms = NOW_MS - 5
    assert documents.polled() == {"web": NOW_MS}


def test_the_poll_of_a_vm_that_has_left_still_counts() -> None:
    documents, _ = shown(WEB)
    guest_of(documents, "web_0").polled_ms = NOW_MS
    documents.show(as_shown(replace(WEB, vms=WEB.vms[1:])))
    assert documents.polled() == {"web": NOW_MS}


def test_what_a_guest_repeats_is_looked_up_again_after_every_visible_change() -> None:
    documents, _ = shown(WEB)
    guest = guest_of(documents, "web_0")
    guest.document = kept = document_of(documents, "web", "2020-07-01")
    documents.show(as_shown(replace(WEB, revision=WEB.revision + 1)))
    assert guest.document is kept, "nothing that a guest can see has changed"
    documents.show(as_shown(replace(WEB, incarnation=3, events=())))
    assert guest.document is None
    guest.document = document_of(documents, "web", "2020-07-01")
    documents.expect("web_0")
    assert guest.document is None, "its next poll has to be noticed"


def test_ten_thousand_vms_in_a_thousand_scopes_stay_small() -> None:
    scopes = [
        Scope(
            name=f"s{number}",
            kind=ScopeKind.AVAILABILITY_SET,
            enabled=True,
            vms=tuple(
                a_vm(f"s{number}_{vm}", f"10.{number // 250}.{number % 250}.{vm}")
                for vm in range(10)
            ),
            events=(an_event(f"{number:036d}"),),
        )
        for number in range(1_000)
    ]
    tracemalloc.start()
    try:
        documents, _ = shown(*scopes)
        used_bytes = tracemalloc.get_traced_memory()[0]
        assert documents.guest("s999_9") is not None
    finally:
        tracemalloc.stop()
    assert used_bytes < 16 * 1_024 * 1_024
