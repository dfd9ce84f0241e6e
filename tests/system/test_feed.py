"""The feed of a real service: who follows it misses nothing, whatever is killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.system_world import EXIT_LIMIT_S, FOREWARN, Service, running
from support.waiting import wait_until


@contextmanager
def following(service: Service, *options: str) -> Iterator[Path]:
    """`forewarn feed --follow --json` until the block ends; yields the file that it prints to."""
    out, err = service.folder / "feed-out", service.folder / "feed-err"
    command = [str(FOREWARN), "--data", str(service.data), "feed", "--follow", "--json", *options]
    with out.open("ab") as to, err.open("ab") as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=to,
            stderr=complaints,
            env=service.environment,
            start_new_session=True,
        )
    try:
        yield out
    finally:
        process.kill()
        process.wait(EXIT_LIMIT_S)


def told(out: Path) -> list[dict[str, Any]]:
    """The lines that were printed whole."""
    whole = out.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def ids(out: Path) -> list[str]:
    return [event["id"] for event in told(out)]


def work(service: Service, times: int = 5) -> None:
    for _ in range(times):
        for verb in ("close", "open"):
            service.order(f"hosts/h3/{verb}")


def has_all(service: Service, out: Path) -> None:
    """Wait until everything that the journal has was printed."""
    last = service.journal()[-1]["number"]
    wait_until(lambda: f"1-{last}" in ids(out), "the feed has all of it")


def test_who_follows_the_feed_misses_nothing_over_kills_of_the_service(tmp_path: Path) -> None:
    with running(tmp_path) as service, following(service) as out:
        for _ in range(3):
            work(service)
            has_all(service, out)
            service.kill()
            service.start()
        work(service)
        has_all(service, out)
        found = ids(out)
        assert found == [f"1-{line['number']}" for line in service.journal()]
        said = (service.folder / "feed-err").read_text()
    assert "Trying again" in said
    assert "It answers again" in said
    assert "Traceback" not in said


def test_who_keeps_its_place_in_a_file_misses_nothing_over_kills_of_itself(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as service:
        for _ in range(4):
            with following(service, "--cursor", str(tmp_path / "place")) as out:
                work(service)
                has_all(service, out)
            work(service, 1)
        with following(service, "--cursor", str(tmp_path / "place")) as out:
            has_all(service, out)
        # A kill between the print and the note of it has lines told again: never less than once.
        found = ids(out)
        assert list(dict.fromkeys(found)) == [f"1-{line['number']}" for line in service.journal()]


def test_a_restore_ends_who_follows_with_where_to_begin_and_no_id_comes_again(
    tmp_path: Path,
) -> None:
    backup, place = tmp_path / "saved.db", tmp_path / "place"
    with running(tmp_path) as service:
        work(service)
        assert service.cli("backup", str(backup)).returncode == 0
        work(service)
        before = {event["id"]: event for event in feed(service, "--cursor", str(place))}
        service.kill()
        restored = service.cli("restore", str(backup), "--force")
        assert restored.returncode == 0, restored.stderr
        service.start()
        work(service, 20)
        refused = service.cli("feed", "--follow", "--json", "--cursor", str(place))
        assert refused.returncode == 1
        problem = json.loads(refused.stdout)
        assert (problem["status"], problem["code"]) == (410, "journal-restored")
        place.write_text(problem["begin"])
        after = feed(service, "--cursor", str(place))
    assert after[0]["type"] == "io.forewarn.service.restored.v1"
    assert not before.keys() & {event["id"] for event in after}
    lost = {event["data"]["number"] for event in before.values()}
    assert {event["data"]["number"] for event in after} & lost  # the numbers alone do come again


def feed(service: Service, *options: str) -> list[dict[str, Any]]:
    done = service.cli("feed", "--json", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
