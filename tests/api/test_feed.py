"""The feed over HTTP: pages, streams, filters, limits, and where a reader may go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from forewarn.adapters.sqlite.backup import restore
from forewarn.api.access import ACCESS_KEY, HOLDS_KEY
from forewarn.api.feed_routes import FeedRoutes
from forewarn.control.commands import Prune
from forewarn.control.feed import FEED_READERS_MAX, WOKEN_AT_ONCE
from forewarn.core.access import Access, Role
from forewarn.core.errors import Forbidden
from forewarn.core.facts import VmGoneDetail
from forewarn.core.model import DAY_MS, Fact, FactKind
from forewarn.core.principal import CLOCK, Principal, PrincipalKind
from support.feed_streams import Frame, streaming
from support.operator_world import OperatorWorld, running
from support.waiting import wait_until

ANN = Principal(kind=PrincipalKind.OWNER, id="token:1", name="ann")


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as made:
        yield made


def page(world: OperatorWorld, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = world.get(f"/v1/feed{query}")
    return found


def everything(world: OperatorWorld, query: str = "") -> list[dict[str, Any]]:
    """All pages, each asked for with what the one before has said."""
    items: list[dict[str, Any]] = []
    after = ""
    while True:
        joined = "&".join(part for part in (query, f"after={after}" if after else "") if part)
        found = page(world, f"?{joined}")
        items += found["items"]
        after = found["next"]
        if not found["more"]:
            return items


def journal(world: OperatorWorld) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = world.get("/v1/journal?limit=1000")["items"]
    return lines


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["data"]["number"] for event in events]


def end(world: OperatorWorld) -> int:
    return world.control.fleet.journal.end


def note(world: OperatorWorld, count: int = 1, *, scope: str = "web", words: str = "no") -> None:
    """Write so many lines in one commit."""
    detail = VmGoneDetail(because=words, vm_id="1")
    fact = Fact(kind=FactKind.VM_GONE, at_ms=1, scope=scope, vm="a", detail=detail)
    world.submit(lambda tx: tx.note(*[fact] * count))


def completed(world: OperatorWorld, vm: str = "lonely") -> str:
    """A VM was restarted, from the order to the end."""
    event_id: str = world.order(f"/v1/vms/{vm}/restart")["event_id"]
    world.hosts_beat()
    world.approves(vm, event_id)
    world.tick()
    world.hosts_work()
    return event_id


# Pages.


def test_every_line_of_the_journal_is_in_the_feed_as_a_cloud_event(world: OperatorWorld) -> None:
    world.polls("lonely", "lonely")
    done = completed(world)
    gone = world.order("/v1/vms/lonely/restart")["event_id"]
    world.order(f"/v1/events/{gone}/cancel")

    events = everything(world)

    assert numbers(events) == [line["number"] for line in journal(world)]
    assert [event["data"]["detail"] for event in events] == [
        line["detail"] for line in journal(world)
    ]
    ended = {event.get("subject"): event for event in events if event["type"].endswith("ed.v1")}
    of_done, of_gone = (ended[f"scopes/lonely/events/{one}"] for one in (done, gone))
    assert of_done["type"] == "io.forewarn.event.completed.v1"
    assert of_gone["type"] == "io.forewarn.event.canceled.v1"
    assert of_gone["data"]["by"]["name"] == "operator"
    for event in (of_done, of_gone):
        assert event["data"]["detail"]["event_type"] == "Reboot"
        assert event["data"]["detail"]["resources"] == ["lonely"]
    assert len({event["id"] for event in events}) == len(events)
    assert {event["source"] for event in events} == {"/forewarn/in-memory"}
    assert sorted(events, key=lambda event: str(event["sequence"])) == events


def test_a_page_has_as_many_lines_as_are_asked_for_and_says_where_to_go_on(
    world: OperatorWorld,
) -> None:
    note(world, 9)
    first = page(world, "?limit=4")
    assert (numbers(first["items"]), first["next"], first["more"]) == ([1, 2, 3, 4], "1-4", True)
    assert first["filtered"] is False
    assert numbers(everything(world, "limit=4")) == list(range(1, end(world) + 1))
    last = page(world, f"?after={end(world)}")
    assert (last["items"], last["next"], last["more"]) == ([], f"1-{end(world)}", False)
    assert numbers(page(world, "?after=1-3&limit=1")["items"]) == [4]
    assert page(world, "?after=end")["items"] == []


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/cloudevents-batch+json", "application/cloudevents-batch+json"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("text/plain, application/jsonl;q=0.5", "application/x-ndjson"),
        ("*/*", "application/json"),
        ("text/html", "application/json"),
    ],
)
def test_a_page_comes_in_the_form_that_is_accepted(
    world: OperatorWorld, accept: str, content_type: str
) -> None:
    note(world, 3)
    answer = world.call("GET", "/v1/feed?limit=3", headers={"Accept": accept})
    assert answer.headers["content-type"] == content_type
    assert (answer.headers["forewarn-next"], answer.headers["forewarn-more"]) == ("1-3", "true")
    assert "forewarn-filtered" not in answer.headers
    if content_type == "application/x-ndjson":
        found = [json.loads(line) for line in answer.body.splitlines()]
    else:
        found = answer.json["items"] if content_type == "application/json" else answer.json
    assert numbers(found) == [1, 2, 3]


def test_a_page_ends_where_it_has_become_long(world: OperatorWorld) -> None:
    note(world, 200, words="x" * 15_000)
    found = page(world, "?limit=1000")
    assert 50 < len(found["items"]) < 80  # 1 MiB
    assert found["more"]
    assert numbers(everything(world, "limit=1000")) == list(range(1, end(world) + 1))


def test_who_waits_is_answered_with_the_next_line(world: OperatorWorld) -> None:
    async def work() -> list[int]:
        loop = world.loop
        asked = loop.run_in_executor(None, page, world, f"?after={end(world)}&wait=30")
        while not world.feed.readers:
            await loop.run_in_executor(None, lambda: None)
        await loop.run_in_executor(None, note, world)
        return numbers((await asked)["items"])

    assert world.run(work()) == [end(world)]
    assert world.feed.readers == 0


def test_who_waits_for_nothing_is_answered_when_the_time_is_up(world: OperatorWorld) -> None:
    found = page(world, f"?after={end(world)}&wait=1")
    assert (found["items"], found["next"]) == ([], f"1-{end(world)}")


def test_a_place_beyond_the_end_waits_for_the_lines_after_it(world: OperatorWorld) -> None:
    beyond = end(world) + 2
    assert page(world, f"?after={beyond}")["items"] == []
    note(world, 4)
    assert numbers(page(world, f"?after={beyond}")["items"]) == [beyond + 1, beyond + 2]


@pytest.mark.parametrize(
    "query",
    ["?after=x", "?after=-1", "?after=1-2-3", "?wait=31", "?limit=0", "?limit=1001", "?from=1"],
)
def test_what_makes_no_sense_is_refused(world: OperatorWorld, query: str) -> None:
    answer = world.call("GET", f"/v1/feed{query}")
    assert answer.status == 400
    assert answer.json["remedy"]


# Filters.


def test_lines_are_filtered_by_scopes_and_kinds(world: OperatorWorld) -> None:
    world.polls("lonely", "lonely")
    completed(world)
    note(world, 2, scope="web")
    note(world, 3, scope="spotty")

    def kinds(query: str) -> list[tuple[str | None, str]]:
        return [(e["data"].get("scope"), e["data"]["kind"]) for e in everything(world, query)]

    assert kinds("kind=vm-gone") == [("web", "vm-gone")] * 2 + [("spotty", "vm-gone")] * 3
    assert kinds("kind=vm-gone&scope=web") == [("web", "vm-gone")] * 2
    assert kinds("kind=completed,vm-gone&scope=web,lonely") == [
        ("lonely", "completed"),
        ("web", "vm-gone"),
        ("web", "vm-gone"),
    ]
    assert {scope for scope, _ in kinds("scope=lonely")} == {"lonely"}
    assert kinds("scope=nowhere") == []


def test_an_unknown_kind_and_an_empty_name_are_refused_with_what_there_is(
    world: OperatorWorld,
) -> None:
    unknown = world.call("GET", "/v1/feed?kind=started,sung").json
    assert "'sung'" in unknown["detail"]
    assert "started" in unknown["remedy"]
    for query in ("scope=a,,b", "scope=,", "kind=", f"scope={','.join('a' * 101)}"):
        assert world.call("GET", f"/v1/feed?{query}").status == (200 if query == "kind=" else 400)


def asked_by(world: OperatorWorld, access: Access, query: str, **headers: str) -> Any:
    """What the feed answers to this access."""
    request = Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/v1/feed",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            ACCESS_KEY: access,
            HOLDS_KEY: lambda: None,
        }
    )
    return world.run(FeedRoutes(world.feed).feed(request))


def test_an_owner_is_sent_the_lines_of_his_scopes_and_told_that_there_are_others(
    world: OperatorWorld,
) -> None:
    note(world, 2, scope="web")
    note(world, 3, scope="spotty")
    world.order("/v1/hosts/h1/close")
    owner = Access(principal=ANN, role=Role.OWNER, scopes=("web", "lonely"))

    answer = asked_by(world, owner, "limit=1000")

    found = json.loads(answer.body)
    assert {event["data"]["scope"] for event in found["items"]} == {"web"}
    assert len(found["items"]) == 2
    assert (found["filtered"], answer.headers["forewarn-filtered"]) == (True, "true")
    assert found["next"] == f"1-{end(world)}"  # past what is hidden
    viewer = Access(principal=ANN, role=Role.VIEWER)
    assert json.loads(asked_by(world, viewer, "limit=1000").body)["filtered"] is False
    with pytest.raises(Forbidden, match="spotty"):
        asked_by(world, owner, "scope=web,spotty")


def test_a_stream_of_an_owner_says_that_it_is_filtered() -> None:
    with running(heartbeat_s=0.01) as world:
        owner = Access(principal=ANN, role=Role.OWNER, scopes=("web",))
        answer = asked_by(world, owner, "", accept="text/event-stream")
        assert answer.headers["forewarn-filtered"] == "true"
        note(world, 1, scope="web")
        note(world, 5, scope="spotty")

        async def frames() -> list[bytes]:
            found = []
            async for frame in answer.body_iterator:
                found.append(frame)
                if f"id: 1-{end(world)}\n".encode() in frame:  # a heartbeat has moved it on
                    break
            return found

        told = b"".join(world.run(frames())).decode()
    assert ": filtered" in told
    assert told.count("data: ") == 1
    assert "spotty" not in told


# Streams.


def test_a_stream_has_each_line_as_it_is_written_under_its_id(world: OperatorWorld) -> None:
    with streaming(world, f"/v1/feed?after={end(world)}") as stream:
        first = stream.frame()
        assert first is not None
        assert first.retry == "3000"
        for _ in range(3):
            note(world)
            (frame,) = stream.take(1)
            assert frame.event["data"]["number"] == end(world)
            assert frame.id == frame.event["id"] == f"1-{end(world)}"
        assert stream.answer.headers["cache-control"] == "no-store"


def test_a_stream_begins_with_the_oldest_line_and_goes_on_with_new_ones(
    world: OperatorWorld,
) -> None:
    note(world, 700)
    with streaming(world) as stream:
        before = stream.take(end(world))
        note(world, 2)
        frames = [*before, *stream.take(2)]
    assert [frame.event["data"]["number"] for frame in frames] == list(range(1, end(world) + 1))


def test_a_stream_says_now_and_then_that_it_is_there_and_how_far_it_has_come() -> None:
    with (
        running(heartbeat_s=0.01) as world,
        streaming(world, "/v1/feed?after=end&scope=spotty") as stream,
    ):
        note(world, 3, scope="web")
        beats = (frame for frame in stream.frames() if frame.comment == "here")
        assert next(beat for beat in beats if beat.id == f"1-{end(world)}").data == ""


def test_the_id_that_a_browser_had_last_counts_for_more_than_its_address(
    world: OperatorWorld,
) -> None:
    note(world, 5)
    with streaming(world, "/v1/feed?after=1", last_id="1-3") as stream:
        (frame,) = stream.take(1)
    assert frame.id == "1-4"


def cut_and_resumed(world: OperatorWorld, cuts: list[int], last_id: str) -> list[Frame]:
    """Streams that are cut after so many lines, each going on from the last id."""
    found: list[Frame] = []
    for count in cuts:
        with streaming(world, last_id=last_id) as stream:
            found += stream.take(count)
        last_id = found[-1].id
    return found


@pytest.mark.parametrize("lines_kept", [4, 10_000])
def test_a_stream_that_is_cut_and_resumed_misses_nothing_and_repeats_nothing(
    tmp_path: Path, lines_kept: int
) -> None:
    with running(tmp_path, lines_kept=lines_kept) as world:
        note(world, 30)
        frames = cut_and_resumed(world, [1, 7, 2, 11], "")
    # The service is started again in between.
    with running(tmp_path, lines_kept=lines_kept) as world:
        note(world, 20)
        frames += cut_and_resumed(world, [3, 1, 9], frames[-1].id)
        left = end(world) - len(frames)
        frames += cut_and_resumed(world, [left], frames[-1].id)
        told = [frame.event for frame in frames]
        assert told == everything(world)
    assert numbers(told) == list(range(1, len(told) + 1))
    assert len({event["source"] for event in told}) == 1


def test_streams_end_when_the_service_stops() -> None:
    with ExitStack() as opened:
        world = opened.enter_context(running())
        stream = opened.enter_context(streaming(world))
        stream.take(1)
        world.loop.call_soon_threadsafe(world.doorbell.close)
        assert [frame.data for frame in stream.frames() if not frame.data] == []


def test_a_reader_that_is_too_slow_is_cut_and_goes_on_where_it_was() -> None:
    with running(lines_kept=100) as world:
        with streaming(world, "/v1/feed?after=end", receive_bytes=16_384) as stream:
            begun = end(world)
            wait_until(lambda: world.feed.readers == 1, "it streams")
            for _ in range(30):  # 9 MB: more than sockets have room for
                ring = world.feed.next_ring()
                note(world, 20, words="x" * 15_000)
                wait_until(ring.is_set, "readers are told")
            frames = list(stream.frames())
        assert world.feed.cut == 1
        assert "too slowly" in frames[-1].comment
        had = [frame for frame in frames if frame.data]
        missed = end(world) - begun - len(had)
        assert missed > 0
        with streaming(world, last_id=had[-1].id) as stream:
            had += stream.take(missed)
    assert [frame.event["data"]["number"] for frame in had] == list(
        range(begun + 1, begun + 1 + len(had))
    )


def test_a_line_is_encoded_once_for_all_readers_and_all_forms(world: OperatorWorld) -> None:
    before, begun = world.feed.encodings, end(world)
    with ExitStack() as opened:
        streams = [
            opened.enter_context(streaming(world, f"/v1/feed?after={begun}{more}"))
            for more in ("", "", "", "&kind=vm-gone", "&scope=web")
        ]
        wait_until(lambda: world.feed.readers == len(streams), "all stream")
        for _ in range(10):
            note(world, 5)
        for stream in streams:
            assert len(stream.take(50)) == 50
        for accept in ("*/*", "application/x-ndjson"):
            world.call("GET", f"/v1/feed?after={begun}", headers={"Accept": accept})
    assert world.feed.encodings - before == 50


def test_more_readers_than_there_may_be_are_told_to_come_later(world: OperatorWorld) -> None:
    with ExitStack() as readers:
        for _ in range(FEED_READERS_MAX - 1):
            readers.enter_context(world.feed.counting())
        with streaming(world) as stream:
            stream.take(1)
            for query, accept in (("", "text/event-stream"), ("?wait=1", "*/*")):
                answer = world.call("GET", f"/v1/feed{query}", headers={"Accept": accept})
                assert answer.status == 503
                assert int(answer.headers["retry-after"]) > 0
                assert str(FEED_READERS_MAX) in answer.json["detail"]
            assert page(world)["items"]  # who does not wait is answered
        wait_until(
            lambda: world.feed.readers < FEED_READERS_MAX, "the reader that went is not counted"
        )
        with streaming(world) as stream:
            stream.take(1)


# What is gone.


def test_a_place_that_was_pruned_is_gone_with_the_oldest_number() -> None:
    with running() as world:
        note(world, 5)
        world.clock.pass_ms(401 * DAY_MS)
        world.hosts_beat()
        note(world, 2)
        assert world.submit(Prune(by=CLOCK, retention_days=400))
        kept = world.control.fleet.journal.pruned_through
        oldest = journal(world)[0]["number"]
        assert oldest == kept + 1

        for after in ("0", "1", "1-3", str(kept - 1)):
            answer = world.call("GET", f"/v1/feed?after={after}")
            assert (answer.status, answer.json["code"]) == (410, "lines-pruned")
            assert (answer.json["oldest"], answer.json["begin"]) == (oldest, f"1-{kept}")
            assert f"after=1-{kept}" in answer.json["remedy"]
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "1-2"}
        assert world.call("GET", "/v1/feed", headers=headers).status == 410

        everything_kept = list(range(oldest, end(world) + 1))
        assert numbers(page(world, f"?after={answer.json['begin']}")["items"]) == everything_kept
        assert numbers(page(world)["items"]) == everything_kept  # who names no place


def test_ids_stay_unique_over_a_restore_and_readers_are_told_where_to_begin(
    tmp_path: Path,
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup.db"
    with running(data) as world:
        note(world, 3, words="in the backup")
        world.control.store.backup(backup)
        kept = end(world)
        note(world, 5, words="lost")
        before = everything(world)
    restored = restore(backup, data, force=True)
    assert restored.kept_aside
    with running(data) as world:
        note(world, 9, words="anew")
        after = everything(world)
        assert end(world) > len(before)

        # Every id means one thing, over both lives.
        known = {event["id"]: event for event in before}
        assert [event for event in after if known.get(event["id"], event) != event] == []
        assert numbers([e for e in after if e["id"] in known]) == list(range(1, kept + 1))
        assert {event["source"] for event in before} == {event["source"] for event in after}

        # A reader that has read what is lost is told so; one that has not goes on.
        for lost in before[kept:]:
            answer = world.call("GET", f"/v1/feed?after={lost['id']}")
            assert (answer.status, answer.json["code"]) == (410, "journal-restored")
            assert answer.json["begin"] == f"1-{kept}"
        begun = page(world, f"?after={answer.json['begin']}")["items"]
        assert begun[0]["type"] == "io.forewarn.service.restored.v1"
        assert begun == after[kept:]
        assert page(world, f"?after={before[1]['id']}")["items"] == after[2:]
        foreign = world.call("GET", "/v1/feed?after=77-3").json
        assert foreign["begin"] == f"1-{kept}"


# Schemas.


def test_the_schema_of_each_type_is_served(world: OperatorWorld) -> None:
    world.polls("lonely", "lonely")
    completed(world)
    names = world.get("/v1/feed/schemas")["items"]
    used = {event["dataschema"].removeprefix("urn:forewarn:feed:") for event in everything(world)}
    assert used <= set(names)
    assert len(used) > 5
    for name in used:
        answer = world.call("GET", f"/v1/feed/schemas/{name}")
        assert answer.headers["content-type"] == "application/schema+json"
        assert answer.json["title"] == f"io.forewarn.{name}"
    unknown = world.call("GET", "/v1/feed/schemas/event.sung.v1")
    assert (unknown.status, "/v1/feed/schemas" in unknown.json["remedy"]) == (404, True)


def test_each_of_many_readers_is_woken_though_they_are_woken_a_few_at_a_time(
    world: OperatorWorld,
) -> None:
    readers = 3 * WOKEN_AT_ONCE + 1
    with ExitStack() as opened:
        streams = [
            opened.enter_context(streaming(world, "/v1/feed?after=end")) for _ in range(readers)
        ]
        wait_until(lambda: world.feed.readers == readers, "they stream")
        before = world.feed.encodings
        for _ in range(3):
            note(world, 5)
        told = [[frame.data for frame in stream.take(15)] for stream in streams]
        assert all(one == told[0] for one in told)
        assert world.feed.encodings - before == 15
    wait_until(lambda: world.feed.readers == 0, "they are gone")
    with streaming(world, "/v1/feed?after=end") as again:
        wait_until(lambda: world.feed.readers == 1, "one is back")
        note(world)
        assert len(again.take(1)) == 1
