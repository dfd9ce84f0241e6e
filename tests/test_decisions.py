"""Every decision has a status and a date, and one that is superseded says by which."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "decisions"
PAGES = {int(page.name[:4]): page for page in sorted(FOLDER.glob("[0-9]*.md"))}
STATUS = re.compile(
    r"Status: (?P<status>accepted, superseded in part by|superseded by|accepted)(?P<by>.*?)\. "
    r"Date: (?P<date>\d{4}-\d{2}-\d{2})\."
)
BY = re.compile(r"\[decision (\d+)\]\((\d{4})-[\w-]+\.md\)")


def status_of(text: str) -> re.Match[str]:
    """The second paragraph of a page, which is its status. AssertionError if it is not."""
    paragraphs = text.split("\n\n")
    found = STATUS.fullmatch(" ".join(paragraphs[1].split())) if len(paragraphs) > 1 else None
    assert found is not None, "The second paragraph is `Status: ... Date: YYYY-MM-DD.`"
    return found


def superseding(text: str) -> list[int]:
    """The numbers of the decisions that supersede this one."""
    found = status_of(text)
    by = BY.findall(found["by"])
    assert bool(by) == ("superseded" in found["status"]), "It is superseded by no decision."
    assert all(int(number) == int(file) for number, file in by)
    return [int(number) for number, _ in by]


@pytest.mark.parametrize("number", PAGES)
def test_a_decision_has_a_number_a_status_and_a_date(number: int) -> None:
    text = PAGES[number].read_text(encoding="utf-8")

    assert text.startswith(f"# {number}. ")
    date.fromisoformat(status_of(text)["date"])
    for later in superseding(text):
        assert later > number
        other = PAGES[later].read_text(encoding="utf-8")
        assert re.search(rf"Supersedes[^#]*{PAGES[number].name}", other), (
            f"Decision {later} does not say that it supersedes decision {number}."
        )


def test_a_decision_that_another_supersedes_says_so() -> None:
    for number, page in PAGES.items():
        said = re.search(r"^Supersedes.*", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        for earlier, _ in BY.findall(said[0]) if said else ():
            text = PAGES[int(earlier)].read_text(encoding="utf-8")
            assert number in superseding(text), f"decision {earlier}, by {number}"


def test_numbers_have_no_gap_and_the_list_has_every_decision_under_its_title() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")

    assert list(PAGES) == list(range(1, len(PAGES) + 1))
    for number, page in PAGES.items():
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix(f"# {number}. ")
        assert f"| {number} | [{title}]({page.name}) |" in listed


@pytest.mark.parametrize(
    "text",
    [
        "# 1. No status\n\n**Decided.** So.\n",
        "# 1. No date\n\nStatus: accepted.\n",
        "# 1. By none\n\nStatus: superseded by. Date: 2026-11-15.\n",
        "# 1. By a word\n\nStatus: superseded by something newer. Date: 2026-11-15.\n",
        "# 1. Why\n\nStatus: accepted by [decision 2](0002-x.md). Date: 2026-11-15.\n",
    ],
)
def test_a_status_that_says_too_little_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        superseding(text)
