"""The rules that every check of the kit keeps, and that it stands apart from the server."""

from __future__ import annotations

import re
import subprocess
import sys

from forewarn.verify.documents import FIELDS, SHOWN_SINCE, VERSIONS
from forewarn.verify.table import BY_ID, CHECKS, TITLES
from forewarn.wire.api_versions import API_VERSIONS

CHECKS_MIN = 60
NOT_CHECKED_CHARS_MAX = 110
LOADED = """
import sys
import forewarn.verify, forewarn.verify.commands, forewarn.verify.report_formats
print("\\n".join(sorted(sys.modules)))
"""


def test_there_are_at_least_60_checks_with_ids_of_their_own() -> None:
    assert len(CHECKS) >= CHECKS_MIN
    assert len(BY_ID) == len(CHECKS)
    assert not set(BY_ID) & set(TITLES)


def test_each_check_has_a_sentence_a_source_and_an_id_that_can_be_typed() -> None:
    for check in CHECKS:
        assert re.fullmatch(r"[a-z0-9]+(-[A-Za-z0-9]+)*", check.id), check.id
        assert re.match(r"[A-Z`/2]|api-version|compute|network", check.sentence), check.id
        assert check.sentence.endswith("."), check.id
        assert re.search(r"[A-Z]\d|contract \d|choice|RFC \d", check.source), check.id


def test_each_check_says_in_a_sentence_of_its_own_what_it_cannot_see() -> None:
    for check in CHECKS:
        assert re.match(r"[A-Z`6]|api-version|compute|macAddress", check.not_checked), check.id
        assert re.search(r"\w\.$", check.not_checked), check.id
        assert "  " not in check.not_checked, check.id
        assert len(check.not_checked) <= NOT_CHECKED_CHARS_MAX, check.id
    assert len({check.not_checked for check in CHECKS}) == len(CHECKS)
    assert not {check.not_checked for check in CHECKS} & {check.sentence for check in CHECKS}


def test_a_check_that_sends_one_on_to_another_names_one_that_there_is() -> None:
    named = {
        (check.id, word)
        for check in CHECKS
        for word in re.findall(r"(?:for|;) ([a-z]+(?:-[a-z0-9]+)+)", check.not_checked)
        if word != "api-version"
    }
    assert {"life-old-tag", "approve-starts", "not-before-kept"} <= {word for _, word in named}
    assert [pair for pair in sorted(named) if pair[1] not in BY_ID] == []


def test_what_a_check_needs_comes_before_it() -> None:
    seen: set[str] = set()
    for check in CHECKS:
        assert seen.issuperset((*check.needs, *check.after)), check.id
        seen.add(check.id)


def test_a_choice_says_that_it_is_forewarns_or_the_standards() -> None:
    for check in CHECKS:
        if check.choice:
            assert re.search(r"Forewarn's choice|RFC|known|inferred", check.source), check.id


def test_no_check_needs_one_that_a_profile_leaves_out_unless_it_is_left_out_too() -> None:
    wrong = [
        (check.id, needed)
        for check in CHECKS
        for needed in check.needs
        if BY_ID[needed].choice and not check.choice
    ]
    assert wrong == []


def test_the_kit_imports_nothing_of_the_server() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = ran.stdout.split()
    ours = {name for name in loaded if name.startswith("forewarn.")}
    assert {name for name in ours if not name.startswith("forewarn.verify")} == set()
    assert not {"httptools", "msgspec", "starlette", "uvicorn", "asyncio"} & set(loaded)


def test_the_kit_and_the_server_know_the_same_versions_from_tables_of_their_own() -> None:
    assert tuple(API_VERSIONS) == VERSIONS
    for name, version in API_VERSIONS.items():
        extras = (version.shows_description, version.shows_event_source, version.shows_duration)
        assert len(FIELDS[name]) == 6 + sum(extras)
        for event_type, since in SHOWN_SINCE.items():
            shown = event_type in {known.value for known in version.event_types}
            assert shown == (name >= since)
