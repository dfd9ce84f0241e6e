"""docs/testing.md and the README: what they show is run as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn.emulator.scenarios.file import parse
from forewarn.testing import Cloud
from support.cli_runner import forewarn
from support.shipping_world import ROOT, RUN_LIMIT_S, Place, empty_place, why_no_namespace

GUIDE = ROOT / "docs" / "testing.md"
README = ROOT / "README.md"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)

# The app that the pages speak of: it polls, drains, approves, and goes on.
MY_APP = """
import json, threading, urllib.request

class Worker:
    def __init__(self, url, vm="vm0"):
        self.url = url + "/metadata/scheduledevents?api-version=2020-07-01"
        self.vm = vm
        self.drained = False
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()

    def ask(self, body=None):
        request = urllib.request.Request(self.url, body, {"Metadata": "true"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def run(self):
        while not self.stopped.wait(0.02):
            try:
                self.look()
            except OSError:
                continue

    def look(self):
        for event in json.loads(self.ask())["Events"]:
            if event["EventStatus"] == "Scheduled" and self.vm in event["Resources"]:
                self.drained = True
                wanted = {"StartRequests": [{"EventId": event["EventId"]}]}
                self.ask(json.dumps(wanted).encode())

if __name__ == "__main__":
    import sys
    Worker(sys.argv[1]).run()
"""


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language, without the indentation of a list around them."""
    found = FENCE.findall(page.read_text("utf-8"))
    return [
        re.sub(f"^{indent}", "", text, flags=re.MULTILINE)
        for indent, name, text in found
        if name == language
    ]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return empty_place(tmp_path, PATH=path)


@pytest.fixture
def alone(place: Place) -> Place:
    """A place for commands that use the ports of everyday."""
    if why_no_namespace():
        pytest.skip(f"needs curl and a network namespace: {why_no_namespace()}")
    return place


def run_by_pytest(
    place: Place, app: str, pages: tuple[Path, ...]
) -> subprocess.CompletedProcess[str]:
    """All Python on the pages, run by pytest with an app."""
    (place.folder / "my_app.py").write_text(app, "utf-8")
    for page in pages:
        for number, block in enumerate(blocks(page, "python")):
            (place.folder / f"test_{page.stem.lower()}_{number}.py").write_text(block, "utf-8")
    plain = ["-p", "no:cacheprovider", "--strict-markers", "-W", "error"]
    return place.run([sys.executable, "-m", "pytest", "-q", *plain])


def test_the_tests_that_the_pages_show_pass_for_a_good_app(place: Place) -> None:
    ran = run_by_pytest(place, MY_APP, (GUIDE, README))
    assert ran.returncode == 0, ran.stdout
    assert "7 passed" in ran.stdout


def test_the_test_that_the_readme_shows_fails_for_an_app_that_does_nothing(place: Place) -> None:
    (shown,) = blocks(README, "python")
    assert "within=5" in shown
    (place.folder / "test_impatient.py").write_text(shown.replace("within=5", "within=0.2"))
    ran = run_by_pytest(place, MY_APP.replace('"Scheduled"', '"Nothing"'), ())
    assert ran.returncode == 1
    assert "1 failed" in ran.stdout


def test_the_readme_shows_the_fixture_in_ten_lines() -> None:
    (shown,) = blocks(README, "python")
    lines = [line for line in shown.splitlines() if line]
    assert len(lines) <= 10
    assert "(cloud)" in shown


def test_the_session_with_curl_runs_as_shown(alone: Place) -> None:
    session, *_ = blocks(GUIDE, "sh")
    ran = alone.run(
        ["unshare", "--map-root-user", "--net", "sh", "-e", "-c", f"ip link set lo up\n{session}"]
    )
    assert ran.returncode == 0, ran.stderr
    documents = re.findall(r'\{"Doc[^\n]*?\]\}', ran.stdout)
    found = ['"Events":[]', '"EventStatus":"Scheduled"', '"EventStatus":"Started"', '"Events":[]']
    assert len(documents) == len(found)
    assert all(one in document for one, document in zip(found, documents, strict=True))


def test_an_agent_in_a_namespace_of_its_own_asks_at_the_link_local_address(alone: Place) -> None:
    _, namespace = blocks(GUIDE, "sh")
    ran = alone.run(["sh", "-e", "-c", namespace])
    assert ran.returncode == 0, ran.stderr
    assert '"EventType":"Reboot"' in ran.stdout


def test_the_script_that_the_guide_shows_is_a_scenario() -> None:
    (script,) = blocks(GUIDE, "toml")
    assert len(parse(script, name="guide").steps) == 2


def test_the_commands_that_the_guide_names_are_understood(tmp_path: Path) -> None:
    """All of `forewarn ...` in the text, against an emulator with the fleet it speaks of."""
    text = GUIDE.read_text("utf-8").replace("\n", " ")
    commands = re.findall(r"`forewarn ((?:clock|fault|scenario) [^`]+)`", text)
    script = tmp_path / "own.toml"
    script.write_text(blocks(GUIDE, "toml")[0], "utf-8")
    assert len(commands) > 8
    with Cloud(scopes=["web:3"]) as cloud:
        for command in commands:
            if command == "clock next":
                cloud.restart("web_2")
            words = shlex.split(command.replace("FILE", str(script)))
            ran = forewarn(*words, environment=cloud.environment)
            assert (ran.code, ran.err) == (0, ""), command


def verify_commands() -> list[list[str]]:
    found = [one for one in blocks(GUIDE, "") if one.startswith("forewarn verify")]
    return [shlex.split(one.replace("\\\n", " ")) for one in found]


def test_the_lifecycle_is_verified_as_the_guide_says(place: Place) -> None:
    words, _ = verify_commands()
    simulate = ["forewarn", "simulate", "--json"]
    with place.running([*simulate, "--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0"]) as found:
        words[2] = found.vm_urls["vm0"]
        ran = place.run([*words, "--only", "get-200,life", "--pace", "0"])
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_type_is_verified_as_the_guide_says(place: Place) -> None:
    """The whole run: a Redeploy moves the VM, and every Freeze still finds it on its host."""
    _, words = verify_commands()
    simulate = ["forewarn", "simulate", "--json", "--spot", "vm0", "--guest", "127.0.0.1:0"]
    with place.running([*simulate, "--operator", "127.0.0.1:0"]) as found:
        words[2] = found.vm_urls["vm0"]
        ran = replace(place, limit_s=10 * RUN_LIMIT_S).run(words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = set(re.findall(r"pass +(starts-\w+)", ran.stdout))
    assert passed >= {"starts-Freeze", "starts-Redeploy"}, ran.stdout


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "guest/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
FRONT_PAGE = ROOT / "docs" / "README.md"


def anchors(page: Path) -> set[str]:
    """What can be linked to on a page, as GitHub names its headings."""
    headings = re.findall(r"^#+ +(.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def test_the_front_page_leads_to_every_page_but_single_decisions() -> None:
    linked = {
        (FRONT_PAGE.parent / target.partition("#")[0]).resolve()
        for target in LINK.findall(FRONT_PAGE.read_text("utf-8"))
    }
    pages = {page for page in (ROOT / "docs").rglob("*.md") if not page.name[0].isdigit()}
    assert pages - linked - {FRONT_PAGE} == set()


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text("utf-8"))
    }
    assert set((ROOT / "docs" / "pictures").glob("*.svg")) <= shown


# A module as pages name it: with the package that all are in, or without.
MODULE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")


def is_there(module: str) -> bool:
    folders = ("", "src", "src/forewarn", "guest/src", "guest/src/forewarn_guest")
    return any((ROOT / folder / module).is_file() for folder in folders)


# Changes and decisions speak of what was, under the names that it had.
OF_TODAY = [page for page in PAGES if page.parent.name != "decisions" and "CHANGE" not in page.name]


@pytest.mark.parametrize("page", OF_TODAY, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    assert [name for name in MODULE.findall(page.read_text("utf-8")) if not is_there(name)] == []


def test_a_module_that_is_not_there_is_found() -> None:
    assert is_there("forewarn/core/polls_and_approvals.py")
    assert is_there("core/polls_and_approvals.py")
    assert not is_there("core/no_such.py")
