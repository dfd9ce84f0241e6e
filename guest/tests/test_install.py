"""Installing into an empty tree: what is written, that it can be undone, and that others' files
are left alone. What the files mean is asked of the programs that read them, where they are there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn_guest import install, polkit
from forewarn_guest.cli import main
from forewarn_guest.config_file import parse
from forewarn_guest.configuration import Configuration, Rule, Step
from programs import program

UNIT = "etc/systemd/system/forewarn-guest.service"
SYSUSERS = "etc/sysusers.d/forewarn-guest.conf"
CONFIG = "etc/forewarn-guest/agent.toml"
RULES = "etc/polkit-1/rules.d/50-forewarn-guest.rules"
EXPOSURE_MAX = 2.5  # systemd calls this OK; ten is a service without any wall

STOPS_UNITS = """
[[rule]]
name = "stop"
[[rule.prepare]]
systemd = { action = "stop", units = ["app.service", "app-worker@1.service"] }
[[rule.recover]]
systemd = { action = "start", units = "app.service" }
[[rule.canceled]]
systemd = { action = "start", units = ["own.service"], user = true }
"""


def files(root: Path) -> dict[str, str]:
    """Every file of the tree, with its content."""
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def installed(root: Path, *more: str) -> int:
    return main(["install", "--root", str(root), *more])


def test_an_empty_tree_gets_the_unit_the_user_and_an_example_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed(tmp_path) == 0
    assert set(files(tmp_path)) == {UNIT, SYSUSERS, CONFIG}
    said = capsys.readouterr().out
    assert all(name in said for name in (UNIT, SYSUSERS, CONFIG))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()} == {
        0o644
    }


def test_installing_twice_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    capsys.readouterr()
    assert installed(tmp_path) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert "written" not in capsys.readouterr().out


def test_a_dry_run_says_what_it_would_do_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed(tmp_path, "--dry-run") == 0
    assert files(tmp_path) == {}
    assert capsys.readouterr().out.count("would write") == 3
    installed(tmp_path)
    before = files(tmp_path)
    assert main(["uninstall", "--root", str(tmp_path), "--dry-run"]) == 0
    assert files(tmp_path) == before


def test_a_dry_run_on_this_machine_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    if (Path("/") / UNIT).exists():
        pytest.skip("the agent is installed on this machine")
    assert main(["install", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"would write /{UNIT}" in said
    assert "systemctl enable --now forewarn-guest" in said
    assert not (Path("/") / UNIT).exists()


def test_uninstalling_leaves_a_tree_as_empty_as_it_was(tmp_path: Path) -> None:
    installed(tmp_path)
    assert main(["uninstall", "--root", str(tmp_path)]) == 0
    assert files(tmp_path) == {}
    assert main(["uninstall", "--root", str(tmp_path)]) == 0


def test_a_configuration_and_a_journal_are_never_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path)
    (tmp_path / CONFIG).write_text(STOPS_UNITS)
    journal = tmp_path / "var/lib/forewarn-guest/journal"
    journal.parent.mkdir(parents=True)
    journal.write_text("kept")
    assert installed(tmp_path) == 0
    assert RULES in files(tmp_path)
    main(["uninstall", "--root", str(tmp_path)])
    assert files(tmp_path) == {CONFIG: STOPS_UNITS, "var/lib/forewarn-guest/journal": "kept"}
    assert "it is yours" in capsys.readouterr().out


def test_a_unit_that_somebody_else_wrote_is_neither_replaced_nor_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = tmp_path / UNIT
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\n")
    assert installed(tmp_path) == 1
    assert "was not written by install" in capsys.readouterr().err
    main(["uninstall", "--root", str(tmp_path)])
    assert files(tmp_path) == {UNIT: "[Unit]\n"}


def test_a_rule_that_the_configuration_no_longer_needs_is_removed(tmp_path: Path) -> None:
    (tmp_path / CONFIG).parent.mkdir(parents=True)
    (tmp_path / CONFIG).write_text(STOPS_UNITS)
    installed(tmp_path)
    assert RULES in files(tmp_path)
    (tmp_path / CONFIG).write_text('[[rule]]\nname = "note"\nignore = true\n')
    installed(tmp_path)
    assert RULES not in files(tmp_path)


def test_a_wrong_configuration_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / CONFIG).parent.mkdir(parents=True)
    (tmp_path / CONFIG).write_text("[[rule]]\nnaem = 1\n")
    assert installed(tmp_path) == 2
    assert set(files(tmp_path)) == {CONFIG}
    assert f"{CONFIG}:2:" in capsys.readouterr().err


def test_a_configuration_elsewhere_is_what_the_service_is_told(tmp_path: Path) -> None:
    own = tmp_path / "srv/my app/50% $HOME.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[agent]\nfolder = "/srv/journal"\n[[rule]]\nname = "n"\nignore = true\n')
    assert installed(tmp_path, "--config", "/srv/my app/50% $HOME.toml") == 0
    text = files(tmp_path)[UNIT]
    assert '--config "/srv/my app/50%% $$HOME.toml"' in text
    assert "\nReadWritePaths=-/srv/journal\n" in text
    assert CONFIG not in files(tmp_path)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--config", "/none.toml"], "There is no configuration"),
        (["--config", "relative.toml"], "no absolute path"),
    ],
)
def test_a_configuration_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    assert installed(tmp_path, *more) == 1
    assert says in capsys.readouterr().err
    assert files(tmp_path) == {}


def test_a_root_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed(tmp_path / "none") == 1
    assert "is no folder" in capsys.readouterr().err


def test_nothing_is_called_written_that_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etc").write_text("no folder")
    assert installed(tmp_path) == 1
    said = capsys.readouterr()
    assert "written " not in said.out
    assert "cannot be written: Not a directory." in said.err


def test_the_unit_runs_this_python_as_a_user_of_its_own_and_lets_steps_live(tmp_path: Path) -> None:
    installed(tmp_path)
    lines = files(tmp_path)[UNIT].splitlines()
    assert f"ExecStart={sys.executable} -I -m forewarn_guest run --config /{CONFIG}" in lines
    for line in ("User=forewarn-guest", "KillMode=process", "Type=notify", "WatchdogSec=60"):
        assert line in lines
    assert "@" not in "".join(line for line in lines if line.startswith("ExecStart"))


def test_systemd_accepts_the_unit_and_calls_its_exposure_ok(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    installed(tmp_path)
    unit = str(tmp_path / UNIT)
    verified = subprocess.run(
        [analyze, "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = [line for line in verified.stderr.splitlines() if "forewarn-guest" in line]
    assert (verified.returncode, ours) == (0, [])
    security = subprocess.run(
        [analyze, "security", "--offline=true", unit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SYSTEMD_COLORS": "0", "LC_ALL": "C.UTF-8"},
    )
    if "unrecognized option" in security.stderr:
        pytest.skip("this systemd-analyze judges only units of a running systemd")
    level = re.search(r"Overall exposure level for [^:]+: ([0-9.]+)", security.stdout)
    assert level, security.stdout + security.stderr
    assert float(level[1]) <= EXPOSURE_MAX


def test_systemd_sysusers_makes_the_user_in_the_tree(tmp_path: Path) -> None:
    sysusers = program("systemd-sysusers")
    if os.geteuid() != 0:
        pytest.skip("systemd-sysusers wants root")
    installed(tmp_path)
    made = subprocess.run(
        [sysusers, f"--root={tmp_path}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert made.returncode == 0, made.stderr
    assert "forewarn-guest:" in (tmp_path / "etc/passwd").read_text()


# The polkit rule.


def test_only_units_of_the_system_are_in_the_rule_with_what_is_done_to_each() -> None:
    configuration = parse(STOPS_UNITS, "a.toml")
    assert polkit.units_of(configuration) == {
        "app-worker@1.service": ("stop",),
        "app.service": ("start", "stop"),
    }


def answers(tmp_path: Path, text: str, questions: list[dict[str, str]]) -> list[str]:
    """What polkit's JavaScript would be answered, by another engine for it."""
    engine = program("node")
    script = tmp_path / "ask.js"
    script.write_text(
        "var rule; var polkit = {Result: {YES: 'yes', NOT_HANDLED: 'no'},"
        " addRule: function(given) { rule = given; }};\n"
        + text
        + f"\nvar questions = {json.dumps(questions)};\n"
        "console.log(JSON.stringify(questions.map(function(q) { return rule("
        "{id: q.id, lookup: function(name) { return q[name]; }}, {user: q.user}); })));\n"
    )
    ran = subprocess.run(
        [engine, str(script)], capture_output=True, text=True, timeout=60, check=True
    )
    found: list[str] = json.loads(ran.stdout)
    return found


def test_the_rule_says_yes_to_exactly_the_configured_units_verbs_and_user(tmp_path: Path) -> None:
    asked = {
        "id": "org.freedesktop.systemd1.manage-units",
        "user": "forewarn-guest",
        "unit": "app.service",
        "verb": "stop",
    }
    questions = [
        asked,
        {**asked, "unit": "app-worker@1.service"},
        {**asked, "verb": "start"},
        {**asked, "unit": "app-worker@1.service", "verb": "start"},
        {**asked, "verb": "restart"},
        {**asked, "unit": "sshd.service"},
        {**asked, "unit": "app.service.evil"},
        {**asked, "unit": "toString"},
        {**asked, "user": "somebody"},
        {**asked, "id": "org.freedesktop.systemd1.manage-unit-files"},
    ]
    text = polkit.rules(polkit.units_of(parse(STOPS_UNITS, "a.toml")))
    expected = ["yes", "yes", "yes", *["no"] * 7]
    assert answers(tmp_path, text, questions) == expected


def test_a_name_cannot_end_its_quotes(tmp_path: Path) -> None:
    evil = '"]]; return polkit.Result.YES; //\u2028\\'
    options = {"action": "stop", "units": [evil]}
    step = Step("x", "systemd", ("/bin/true",), 1.0, options=options)
    text = polkit.rules(polkit.units_of(Configuration(rules=(Rule("r", prepare=(step,)),))))
    asked = {
        "id": "org.freedesktop.systemd1.manage-units",
        "user": "forewarn-guest",
        "verb": "stop",
    }
    questions = [{**asked, "unit": "sshd.service"}, {**asked, "unit": evil}]
    assert answers(tmp_path, text, questions) == ["no", "yes"]


def test_the_example_is_a_configuration_without_mistakes_or_warnings() -> None:
    text = (install.TEMPLATES / "agent.toml").read_text()
    assert parse(text, "agent.toml").warnings == ()
