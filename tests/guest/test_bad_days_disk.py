"""A disk without room: the VM is prepared all the same, and approval waits until there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn_guest.facts import FactKind
from programs import program
from scripted_endpoint import ScriptedEndpoint, event
from support.guest_agent_world import WHOLE_LIFE, Guest
from support.guest_endpoint_world import Told, guest_at

DISK = "256k"
# More than a page: what is left of the last page of the journal does not hold it.
NAMES = ["vm0", *(f"another_vm_{number:05}" for number in range(500))]
SAYS = "the journal cannot be written; approval waits"


def give_a_small_disk(guest: Guest, *, full: bool) -> None:
    """The agent has its folder on a disk of its own, which nobody else sees."""
    program("unshare")
    guest.data.mkdir()
    fill = "dd if=/dev/zero of=fill bs=4k 2>/dev/null || true" if full else "true"
    script = f'mount -t tmpfs -o mode=0700,size={DISK} small "$0"; cd "$0"; {fill}; cd /; exec "$@"'
    under = ["unshare", "--map-root-user", "--mount", "sh", "-e", "-c", script, str(guest.data)]
    tried = subprocess.run([*under, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no disk may be mounted here: {tried.stderr.strip()}")
    guest.under = under


def fill(folder: Path) -> None:
    """Take all the room that there is."""
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={folder / 'fill'}", "bs=4k"], capture_output=True, check=False
    )


@contextmanager
def on_a_small_disk(folder: Path, *, full: bool) -> Iterator[tuple[Told, Guest]]:
    """An agent that runs, with its folder on a small disk; `guest.data` is where it is seen."""
    told = Told()
    with ScriptedEndpoint(told.answer) as endpoint, guest_at(endpoint.url, folder) as guest:
        guest.configure(guest.rule())
        give_a_small_disk(guest, full=full)
        guest.start()
        guest.wait_begun()
        guest.data = Path(f"/proc/{guest.pid}/root{guest.data}")
        yield told, guest


def prepare_without_room(told: Told, guest: Guest) -> None:
    told.show(event("A1", Resources=NAMES))
    guest.wait_ran("prepare", "stop", what="ended")
    guest.wait_for(lambda: SAYS in guest.said(), "it says why")
    asked = told.asked
    guest.wait_for(lambda: told.asked >= asked + 2, "it goes on asking")
    assert told.approved == []
    assert guest.said().count(SAYS) == 1


@pytest.mark.parametrize("from_the_start", [False, True], ids=["it fills", "it is full"])
def test_prepare_runs_and_approval_waits_until_there_is_room(
    tmp_path: Path, *, from_the_start: bool
) -> None:
    with on_a_small_disk(tmp_path / "vm0", full=from_the_start) as (told, guest):
        if not from_the_start:
            guest.wait_for(lambda: guest.facts(FactKind.BEGIN), "it has begun")
            fill(guest.data)
        prepare_without_room(told, guest)
        (guest.data / "fill").unlink()
        guest.wait_for(lambda: told.approved, "it is approved when there is room")
        guest.wait_for(lambda: guest.facts(FactKind.APPROVED), "that is kept")
        assert "the journal is written again" in guest.said()
        told.show(event("A1", "Started", Resources=NAMES))
        guest.wait_ran("started", "note", what="ended")
        told.show()
        guest.wait_closed()
        facts = guest.facts()
        prepared = [at for at, fact in enumerate(facts) if fact.detail.get("part") == "prepare"]
        approving = [at for at, fact in enumerate(facts) if fact.kind is FactKind.APPROVING]
        assert len(prepared) == 6  # of each step: intended, begun, ended
        assert max(prepared) < approving[0]
        guest.stop()
        assert guest.order("ended") == WHOLE_LIFE


def test_an_event_that_goes_while_there_is_no_room_is_recovered_from(tmp_path: Path) -> None:
    with on_a_small_disk(tmp_path / "vm0", full=True) as (told, guest):
        prepare_without_room(told, guest)
        told.show(event("A1", "Started", Resources=NAMES))
        guest.wait_ran("started", "note", what="ended")
        told.show()
        guest.wait_ran("recover", "fill", what="ended")
        assert told.approved == []
        (guest.data / "fill").unlink()
        guest.wait_closed()  # everything is kept at last
        guest.stop()
        assert len(guest.ran()) == 5
