"""The version is written in one place, and the changelog says what is in it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import forewarn_guest
from test_tidy import ROOT, files, shown, text_of

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
RELEASE = re.compile(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
SOURCE = "guest/src/forewarn_guest/__init__.py"
# What speaks of a version that was: changes, decisions, and what older programs have written.
HISTORY = ("CHANGELOG.md", "docs/decisions/", "tests/fixtures/")
GROUP_ENTRIES_MAX = 18
SUMMARY_LINES_MAX = 15


def test_both_distributions_have_the_version_of_the_newest_release() -> None:
    newest = RELEASE.findall(CHANGELOG)[0][0]
    assert (version("forewarn"), version("forewarn-guest")) == (newest, newest), (
        "If the version was just changed: `make install`."
    )


def test_the_version_is_written_in_one_place() -> None:
    written = re.compile(rf"(?<![\w.]){re.escape(forewarn_guest.__version__)}(?![\w.])")
    said = {
        shown(path)
        for path in files()
        if not shown(path).startswith(HISTORY)
        and path.name != "constraints.txt"
        and path.suffix not in {".png", ".gz"}
        and any(
            written.search(line) and re.search("forewarn|version", line, re.IGNORECASE)
            for line in text_of(path).splitlines()
        )
    }
    assert said == {SOURCE}


def test_both_projects_read_it_there() -> None:
    for project in (ROOT, ROOT / "guest"):
        table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
        assert table["project"]["dynamic"] == ["version"]
        path = Path(table["tool"]["hatch"]["version"]["path"])
        assert (project / path).resolve() == (ROOT / SOURCE).resolve()


def sections() -> dict[str, str]:
    """What the changelog says of each release, by its heading."""
    parts = re.split(r"^## (.+)$", CHANGELOG, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_changelog_begins_with_what_is_not_released_and_then_goes_back_in_time() -> None:
    headings = list(sections())
    assert headings[0] == "Unreleased"
    assert [RELEASE.match(f"## {one}") is not None for one in headings[1:]] == [True] * (
        len(headings) - 1
    )
    dates = [day for _, day in RELEASE.findall(CHANGELOG)]
    assert dates == sorted(dates, reverse=True)


def test_a_release_begins_with_a_summary_and_its_entries_are_in_groups() -> None:
    for heading, text in sections().items():
        if heading == "Unreleased":
            continue
        summary = text.partition("\n### ")[0].strip()
        assert summary, heading
        assert len(summary.splitlines()) <= SUMMARY_LINES_MAX
        groups = re.split(r"^#{3,4} .+$", text, flags=re.MULTILINE)[1:]
        too_long = [
            count
            for count in (len(re.findall(r"^- ", group, re.MULTILINE)) for group in groups)
            if count > GROUP_ENTRIES_MAX
        ]
        assert too_long == [], heading
