"""What has ended: commands ask memory, and the store is asked outside of them."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.control import archive
from forewarn.control.commands import Prune
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Wanted
from forewarn.core.errors import AlreadyEnded, NotFound
from forewarn.core.model import EventType
from forewarn.core.principal import CLOCK
from forewarn.core.retention import Prunable
from forewarn.ports import RememberedAnswer, StoreFailed, Unstorable
from support import ordered
from support.core_fleet import WEB, Cloud, scope
from support.watched_store import WatchedStore, disk_full


class Restarted(Cloud):
    """A cloud whose control knows nothing but what its store holds, and whose store is watched."""

    def __init__(self) -> None:
        self.watched = WatchedStore()
        super().__init__(scope("web", WEB), store=self.watched)

    def forget(self) -> None:
        """As after a restart."""
        self.writer = self.parts.writer(self._committed)
        self.watched.calls.clear()


@pytest.fixture
def cloud() -> Restarted:
    return Restarted()


def ended(cloud: Restarted, vm: str = "web_0") -> str:
    event = cloud.order(vm, EventType.REBOOT)
    cloud.run(ordered.cancel_event(event.event_id, by="op"))
    return event.event_id


def kept(event_id: str) -> Any:
    def look(tx: Transaction) -> str | None:
        event = tx.kept_event(event_id)
        return None if event is None else event.phase.value

    return ordered.wanted(look)


def test_what_ended_lately_is_known_without_the_store(cloud: Restarted) -> None:
    event_id = ended(cloud)
    cloud.watched.calls.clear()
    assert cloud.run(kept(event_id)) == "canceled"
    assert cloud.watched.calls == []


def test_what_is_not_in_memory_is_asked_once_and_the_command_is_decided_anew(
    cloud: Restarted,
) -> None:
    event_id = ended(cloud)
    cloud.forget()
    tries: list[str] = []

    def ask(tx: Transaction) -> tuple[str, str]:
        made = tx.new_id()
        tries.append(made)
        tx.beat()
        event = tx.kept_event(event_id)
        assert event is not None
        return made, event.phase.value

    [done, other] = cloud.writer.run([ordered.wanted(ask), kept(event_id)])
    assert cloud.watched.calls == ["recall", "commit"]
    assert (done.value, other.value) == ((tries[0], "canceled"), "canceled")
    assert tries == [tries[0]] * 2, "what was made for the first try is made for the second"


def test_what_never_was_is_asked_once_in_a_batch_and_again_in_the_next(cloud: Restarted) -> None:
    cloud.forget()
    cloud.writer.run([kept("NEVER"), kept("NEVER")])
    assert cloud.watched.calls == ["recall"]
    cloud.writer.run([kept("NEVER")])
    assert cloud.watched.calls == ["recall", "recall"]


def test_approvals_of_ended_events_are_asked_for_together_before_any_is_decided(
    cloud: Restarted,
) -> None:
    first, second = ended(cloud), ended(cloud, "web_1")
    cloud.forget()
    approvals = [
        ordered.approve("h1", "web_0", (first,)),
        ordered.approve("h1", "web_0", (second, "NEVER")),
        ordered.approve("h1", "web_0", (second,)),
    ]
    results = [done.error for done in cloud.writer.run(approvals)]
    assert [type(error) for error in results][::2] == [type(None)] * 2
    assert results[1] is not None
    assert cloud.watched.calls == ["recall"]


def test_a_later_command_of_the_batch_knows_what_an_earlier_one_ended(cloud: Restarted) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cancel = ordered.cancel_event(event.event_id, by="op")
    first, second = cloud.writer.run([cancel, cancel])
    assert first.error is None
    assert isinstance(second.error, AlreadyEnded)


def test_an_answer_of_this_batch_is_remembered_by_the_next_command(cloud: Restarted) -> None:
    answer = RememberedAnswer(key="k", fingerprint="f", answer="{}", at_ms=1)

    def keep_it(tx: Transaction) -> bool:
        found = tx.remembered("k")
        if found is None:
            tx.remember(answer)
        return found == answer

    twice = [ordered.wanted(keep_it), ordered.wanted(keep_it)]
    assert [done.value for done in cloud.writer.run(twice)] == [False, True]
    assert [done.value for done in cloud.writer.run(twice)] == [True, True]


def test_a_beginning_finds_what_came_in_the_batch_and_what_has_ended(cloud: Restarted) -> None:
    event_id = ended(cloud)

    def begun(tx: Transaction) -> list[str]:
        return list(tx.kept_event_ids(event_id[:6]))

    order = ordered.order_vm("web_1", EventType.REBOOT, by="op")
    made, found = cloud.writer.run([order, ordered.wanted(begun)])
    assert event_id in found.value
    assert (made.value.event_id in found.value) == made.value.event_id.startswith(event_id[:6])


def test_a_second_slice_is_not_pruned_in_the_batch_of_the_first(cloud: Restarted) -> None:
    ended(cloud)
    cloud.clock.pass_ms(10 * 86_400_000)
    cloud.tick()
    first, second = cloud.writer.run([Prune(by=CLOCK, retention_days=1)] * 2)
    assert first.value
    assert second.value == Prunable()


def test_a_store_that_cannot_be_asked_fails_the_batch_and_changes_nothing(
    cloud: Restarted,
) -> None:
    event_id = ended(cloud)
    cloud.forget()
    before = cloud.everything()
    cloud.watched.fails["recall"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.writer.run([ordered.close_host("h1", by="op"), kept(event_id)])
    assert cloud.everything() == before


def test_of_what_ended_only_so_much_is_in_memory() -> None:
    known: dict[str, int] = {}
    for number in range(archive.ENDED_KEPT_MAX + 5):
        archive.keep_the_last(known, {str(number): number})
    assert len(known) == archive.ENDED_KEPT_MAX
    assert next(iter(known.values())) == 5


def test_what_the_store_cannot_hold_costs_no_other_command_its_commit(cloud: Restarted) -> None:
    """It is committed in halves until the one that it is of has failed alone."""

    def no_row_can_hold_this(tx: Transaction) -> None:
        tx.remember(RememberedAnswer(key="\ud800", fingerprint="", answer="", at_ms=1))

    hosts: list[Wanted[Any]] = [ordered.close_host(h, by="op") for h in ("h1", "h2", "h3")]
    hosts.insert(1, ordered.wanted(no_row_can_hold_this))
    results = cloud.writer.run(hosts)
    assert [type(done.error) for done in results] == [type(None), Unstorable] + [type(None)] * 2
    assert {one.name for one in cloud.store.load().hosts if one.closed} == {"h1", "h2", "h3"}
    with pytest.raises(NotFound):
        cloud.run(ordered.close_host("never", by="op"))
