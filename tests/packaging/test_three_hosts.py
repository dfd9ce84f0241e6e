"""What of the example and the operations page can be run here: settings, XML, commands, words."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest

from forewarn import host_settings, settings
from forewarn.adapters.libvirt.domain_xml import read_traits
from forewarn.control.transaction import Transaction
from forewarn.core import placement
from forewarn.core.inventory.host_report import WhenHostGoesDown
from programs import program
from support import profiles
from support.cli_runner import forewarn
from support.core_fleet import Cloud, scope

ROOT = Path(__file__).parent.parent.parent
HERE = ROOT / "examples" / "three-hosts"
OPERATIONS = ROOT / "docs" / "operations.md"
HOST_GUIDE = ROOT / "docs" / "host" / "guide.md"
PAGES = [HERE / "README.md", OPERATIONS, HOST_GUIDE]
LIMIT_S = 60


def test_the_settings_are_accepted() -> None:
    control = settings.load(file=HERE / "control.toml", environment={"HOME": "/nowhere"})
    host = host_settings.load(file=HERE / "host.toml", environment={"HOME": "/nowhere"})
    assert control.hosts_url == "https://ctl.example:8256"
    assert host.bridges == ("virbr-guests",)
    assert host.place() == control.place()


def test_the_domain_says_what_the_readme_says_of_it() -> None:
    traits = read_traits((HERE / "web-0.xml").read_text(encoding="utf-8"))
    assert traits == profiles.traits(
        scope="web",
        update_domain=0,
        tags=(("owner", "shop"),),
        freeze_by_move=True,
        when_host_goes_down=WhenHostGoesDown.MOVE,
    )


def test_each_web_server_of_the_picture_has_a_host_to_move_to() -> None:
    picture = (HERE / "README.md").read_text(encoding="utf-8").split("```")[1]
    hosts_line, vms_line = (
        next(line for line in picture.splitlines() if word in line) for word in ("h1 ", "web-0")
    )
    columns = [(hosts_line.index(name), name) for name in ("h1", "h2", "h3")]
    web = {
        found.group(): (int(found.group()[-1]), _nearest(columns, found.start()))
        for found in re.finditer(r"web-[0-9]", vms_line)
    }
    assert web == {"web-0": (0, "h1"), "web-1": (1, "h2")}
    cloud = Cloud(scope("web", web))

    def targets(tx: Transaction) -> set[str | None]:
        owner = tx.scopes["web"]
        return {placement.choose_target(owner, vm, tx, {}) for vm in owner.vms}

    assert cloud.run(targets) == {"h3"}


def _nearest(columns: list[tuple[int, str]], at: int) -> str:
    return min(columns, key=lambda column: abs(column[0] - at))[1]


def test_the_network_has_the_bridge_that_guests_are_served_on_and_tells_them_the_way() -> None:
    network = ET.parse(HERE / "network.xml").getroot()
    bridge = network.find("bridge")
    assert bridge is not None
    host = host_settings.load(file=HERE / "host.toml", environment={"HOME": "/nowhere"})
    assert bridge.get("name") in host.bridges
    text = (HERE / "network.xml").read_text(encoding="utf-8")
    assert "dhcp-option-force=245,169.254.169.254" in text
    domain = ET.parse(HERE / "web-0.xml").getroot()
    source = domain.find("devices/interface/source")
    assert source is not None
    assert source.get("network") == network.findtext("name")


@pytest.mark.parametrize(("verb", "name"), [("net-define", "network.xml"), ("define", "web-0.xml")])
def test_libvirt_takes_the_xml_and_finds_nothing_wrong(
    verb: str, name: str, tmp_path: Path
) -> None:
    virsh = program("virsh")
    # Its own driver for tests runs no other kind of domain.
    text = (HERE / name).read_text(encoding="utf-8").replace("type='kvm'", "type='test'")
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [virsh, "-c", "test:///default", verb, "--validate", str(tmp_path / name)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def commands(page: Path) -> list[str]:
    """Every command of ours on a page, without what is asked of the machine around it."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.removeprefix("# ").strip() for line in text.splitlines()]
    said = [line for line in lines if line.startswith(("forewarn ", "runuser "))]
    said += re.findall(r"`(forewarn [a-z][^`]*)`", text)
    said = [one.partition(" -- ")[2] if one.startswith("runuser ") else one for one in said]
    return sorted({one[one.index("forewarn ") :] for one in said if "forewarn " in one})


@pytest.mark.parametrize("page", [HERE / "README.md", OPERATIONS], ids=lambda page: page.name)
def test_a_host_is_closed_before_it_is_emptied(page: Path) -> None:
    """Else VMs are placed there again while others leave."""
    words = page.read_text(encoding="utf-8")
    emptied = list(re.finditer(r"forewarn host maintain (\w+) --type Redeploy", words))
    assert emptied
    for found in emptied:
        before = words[: found.start()]
        assert f"forewarn host close {found.group(1)}" in before[-250:], found.group()


def test_what_may_start_at_night_only_has_a_window() -> None:
    """`--not-before` does not bind: an approval starts sooner."""
    words = (HERE / "README.md").read_text(encoding="utf-8")
    (order,) = re.findall(r"^forewarn host maintain h1 .*$", words, re.MULTILINE)
    assert "tomorrow night" in words
    assert "--window " in order
    assert "--not-before" not in words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_is_one_that_the_program_has(page: Path) -> None:
    found = commands(page)
    assert len(found) > 10
    for command in found:
        words = shlex.split(command)[1:]
        if words[:2] == ["--data", "/var/lib/forewarn"]:
            words = words[2:]
        names: list[str] = []
        for word in words:
            if not re.fullmatch(r"[a-z-]+", word) or word.startswith("-") or len(names) == 2:
                break
            names.append(word)
        helped = _help_of(tuple(names)) or _help_of(tuple(names[:1]))
        assert helped, command
        options = {word.split("=")[0] for word in words if word.startswith("--")}
        unknown = options - set(re.findall(r"--[a-z-]+", helped)) - {"--data", "--settings"}
        assert not unknown, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_to_be_installed_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.])((?:packaging|examples)/[\w./-]+)", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@cache
def _help_of(names: tuple[str, ...]) -> str:
    helped = forewarn(*names, "--help", environment={"COLUMNS": "200"})
    return helped.out if names and helped.code == 0 else ""


# What the program says, as the table of the operations page quotes it.

QUOTED = re.compile(r"`([^`]+)`")
FILLED_IN = re.compile(r"\b(?:h[0-9]|NAME)\b|\.\.\.|[0-9]+")


def everything_said() -> str:
    """All texts in the sources; what is filled in when they are said is an asterisk."""
    said = []
    for file in (ROOT / "src").rglob("*.py"):
        for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(part, ast.JoinedStr):
                pieces = (p.value if isinstance(p, ast.Constant) else "*" for p in part.values)
                said.append("".join(str(piece) for piece in pieces))
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                said.append(part.value)
    return "\n".join(said)


def test_what_the_page_quotes_at_3_am_are_words_of_the_program() -> None:
    table = OPERATIONS.read_text(encoding="utf-8").partition("\n## At 3 a.m.\n")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    quoted = [words for row in rows for words in QUOTED.findall(row.split(" | ")[0])]
    said = everything_said()
    unknown = [
        words
        for words in quoted
        if words != "host list"
        and not all(piece.strip() in said for piece in FILLED_IN.split(words.rstrip("s")))
    ]
    assert len(quoted) > 20
    assert unknown == []


def test_every_number_that_the_page_has_people_woken_by_is_one_that_the_program_tells() -> None:
    section = OPERATIONS.read_text(encoding="utf-8").partition("\n## Watching it\n")[2]
    named = set(re.findall(r"forewarn_[a-z_]+", section.partition("\n## ")[0]))
    told = set(re.findall(r"forewarn_[a-z_]+", everything_said()))
    assert len(named) > 8
    # As Prometheus names what is counted, and the parts of a histogram.
    suffix = re.compile("_(?:total|bucket)$")
    assert {name for name in named if suffix.sub("", name) not in told} == set()
