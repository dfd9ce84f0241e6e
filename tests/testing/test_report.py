"""The page of a failed test: what the cloud saw, in one file."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from forewarn.testing import Cloud
from support.cloud_guest import approve, ask, read

pytest_plugins = ["pytester"]
VOID = {"meta", "line", "br"}


class Page(HTMLParser):
    """The text of a page, and whether its elements close in order."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - as called
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def test_a_report_tells_requests_facts_documents_and_faults_in_their_order(
    cloud: Cloud, tmp_path: Path
) -> None:
    vm = cloud.vm("vm0")
    for _ in range(3):
        read(vm)
    event = cloud.restart("vm0")
    read(vm)
    approve(vm, event.event_id)
    cloud.faults.add("gone", count=1)
    assert ask(vm)[0] == 410
    target = cloud.report(
        tmp_path / "new" / "story.html", title="a <b> title", failure="it <failed>"
    )
    text = Page(target).text
    assert "a <b> title" in text
    assert "it <failed>" in text
    assert "<b>" not in target.read_text(encoding="utf-8")
    in_order = [
        "→ 200, 3 times until",
        "incarnation 1: no event",
        f"scheduled of event {event.event_id[:8]}",
        "incarnation 2: Reboot Scheduled",
        "POST /metadata/scheduledevents",
        '"StartRequests"',
        "→ 410 (fault gone)",
        "Documents at the end",
        "incarnation 3: Reboot Started",
        "Journal",
        "approved",
        "Faults",
        "gone",
    ]
    at = 0
    for words in in_order:
        found = text.find(words, at)
        assert found >= 0, (words, text[at : at + 2000])
        at = found
    assert text.index("approved of event") > text.index("incarnation 2: Reboot Scheduled")
    assert f"seed {cloud.seed}" in text


def test_a_report_tells_what_an_app_has_felt(cloud: Cloud, tmp_path: Path) -> None:
    app = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        cloud.vm("vm0").attach(app)
        cloud.approve(cloud.restart("vm0"))
        app.wait(60)
        assert "kill of what runs in it" in Page(cloud.report(tmp_path / "x.html")).text
    finally:
        app.kill()
        app.wait()


FAILING = """
import pytest

def test_good(cloud):
    cloud.restart("vm0")

def test_bad(cloud):
    event = cloud.restart("vm0")
    cloud.expect_approved(event, within=0)

@pytest.mark.parametrize("word", ["a/b <c>"])
def test_two(make_cloud, word):
    make_cloud(), make_cloud(vms=["second"])
    assert False, "planted"

def test_without_a_cloud():
    assert False

def test_of_the_session(reset_cloud):
    assert False
"""


@pytest.mark.parametrize("by_setting", [False, True])
def test_each_failed_test_leaves_a_page_and_no_other_does(
    pytester: pytest.Pytester, *, by_setting: bool
) -> None:
    pytester.makepyfile(test_it=FAILING)
    if by_setting:
        pytester.makeini("[pytest]\nforewarn_html = pages\n")
    options = () if by_setting else ("--forewarn-html", "pages")
    ran = pytester.runpytest("-p", "no:cacheprovider", *options)
    ran.assert_outcomes(passed=1, failed=4)
    pages = sorted((pytester.path / "pages").iterdir())
    names = [re.sub(r"-[0-9a-f]{8}", "", page.name) for page in pages]
    assert names == [
        "test_it.py_test_bad.html",
        "test_it.py_test_of_the_session.html",
        "test_it.py_test_two_a_b_c-2.html",
        "test_it.py_test_two_a_b_c.html",
    ]
    ran.stdout.fnmatch_lines([f"What the cloud saw is in {pages[0]}"])
    assert "was not approved" in Page(pages[0]).text
    assert "second: incarnation" in Page(pages[2]).text


def test_without_the_option_nothing_is_written(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=FAILING)
    before = {path.name for path in pytester.path.iterdir()}
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=1, failed=4)
    after = {path.name for path in pytester.path.iterdir()}
    assert after - before <= {"__pycache__"}
