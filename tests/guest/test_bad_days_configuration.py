"""What is wrong with the configuration or the journal is refused at start, with the place."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from forewarn.testing import Cloud
from forewarn_guest.facts import FactKind
from support.guest_agent_world import AGENT, PATIENCE_S, Guest, guest_of, play

MEND = 2


def refused(guest: Guest) -> str:
    """What an agent says that does not start."""
    tried = subprocess.run(
        [str(AGENT), "run", "--config", str(guest.config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=guest.environment,
        cwd="/",
    )
    assert tried.returncode == MEND, tried
    assert not guest.data.exists() or not guest.facts(FactKind.BEGIN)
    return tried.stderr


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param("[[rule]\n", 1, "", id="no TOML"),
        pytest.param('[agent]\nvm = "vm0"\nfoldr = "/x"\n', 3, "foldr", id="unknown key"),
        pytest.param('[[rule]]\n[[rule.prepare]]\nrun = ["/no/such"]\n', 3, "/no/such", id="hook"),
        pytest.param(
            '[[rule]]\n[[rule.prepare]]\nrun = ["{plain}"]\n',
            3,
            "not executable",
            id="no program",
        ),
        pytest.param('[[rule]]\ntypes = ["Reboots"]\n', 2, "SpotRebalance", id="unknown type"),
        pytest.param('[[rule]]\napprove = "at-once"\n', 2, "User", id="at-once for all"),
        pytest.param(
            '[[rule]]\n[[rule.prepare]]\nsystemd = {{ action = "halt", units = "a.service" }}\n',
            3,
            "stop, start, restart",
            id="unknown action",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_at_start_with_its_line(
    cloud: Cloud, tmp_path: Path, text: str, line: int, says: str
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        plain = guest.folder / "plain"
        plain.write_text("#!/bin/sh\n", encoding="ascii")
        guest.config.write_text(text.format(plain=plain), encoding="utf-8")
        said = refused(guest)
        assert f"{guest.config}:{line}: " in said
        assert says in said
        assert "Traceback" not in said


def test_every_mistake_is_said_at_once(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.config.write_text('[agent]\nlog = "xml"\n\n[[rule]]\nmargin = "soon"\n', "utf-8")
        said = refused(guest)
        assert f"{guest.config}:2: " in said
        assert f"{guest.config}:5: " in said


def test_a_configuration_that_everybody_may_change_is_refused(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.configure(guest.rule())
        guest.config.chmod(0o666)
        assert f"chmod o-w {guest.config}" in refused(guest)


def test_a_damaged_journal_is_refused_with_what_to_do_and_left_as_it_is(
    cloud: Cloud, tmp_path: Path
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        event = cloud.restart("vm0")
        guest.live()
        play(cloud, guest, event)
        guest.stop()
        journal = guest.data / "journal"
        whole = journal.read_bytes()
        damaged = whole.replace(b'"attempt":1', b'"attempt":7', 1)
        journal.write_bytes(damaged)
        guest.start()
        assert guest.exit_code() == MEND
        said = guest.said()
        assert "Line 3 of the journal" in said
        assert f"mv {journal} {journal}.damaged" in said
        assert journal.read_bytes() == damaged
        journal.write_bytes(whole)
        assert len(guest.ran()) == 5  # nothing was run again


def test_a_second_agent_is_refused_while_the_first_runs(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.live()
        guest.wait_begun()
        tried = subprocess.run(
            [str(AGENT), "run", "--config", str(guest.config)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env=guest.environment,
        )
        assert tried.returncode != 0
        assert f"Another agent (pid {guest.pid}) uses the journal" in tried.stderr
        guest.stop()
