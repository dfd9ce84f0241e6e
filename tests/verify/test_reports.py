"""What a report looks like to people, to programs and to build servers."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from forewarn.verify import Outcome, Report, Verdict
from forewarn.verify.report_formats import (
    TextLines,
    as_json,
    as_junit,
    listed,
    listed_json,
    summary,
)
from forewarn.verify.table import BY_ID, CHECKS

PASSED = Outcome(check=BY_ID["get-200"], verdict=Verdict.PASS, took_s=0.25)
FAILED = Outcome(
    check=BY_ID["etag-quoted"], verdict=Verdict.FAIL, seen="ETag: <2> & \x00", expected="quotes"
)
SKIPPED = Outcome(check=BY_ID["rate-429"], verdict=Verdict.SKIPPED, why="give --burst")


def report(*outcomes: Outcome) -> Report:
    return Report(url="http://127.0.0.1:1", profile="forewarn", outcomes=outcomes, took_s=1.25)


def text_of(*outcomes: Outcome) -> list[str]:
    text = TextLines()
    return [line for outcome in outcomes for line in text.lines(outcome)]


def test_text_has_a_heading_for_each_topic_and_a_line_for_each_check() -> None:
    lines = text_of(PASSED, FAILED, SKIPPED)
    assert lines[0] == "The answer to a GET"
    assert lines[1].split()[:2] == ["pass", "get-200"]
    assert lines[1].endswith("A GET of the document is answered 200 with a document.")
    assert lines[2:4] == ["", "ETag and If-None-Match"]
    assert lines[4].split()[:2] == ["FAIL", "etag-quoted"]
    assert [line.split()[0] for line in lines[5:8]] == ["seen:", "expected:", "source:"]
    assert lines[-2].split() == ["skipped:", "give", "--burst"]
    assert lines[-1].split()[:2] == ["skip", "rate-429"]


def test_a_reason_that_several_skipped_checks_share_is_said_once() -> None:
    other = Outcome(check=BY_ID["rate-recovers"], verdict=Verdict.SKIPPED, why="needs rate-429")
    twice = Outcome(check=BY_ID["rate-retry-after"], verdict=Verdict.SKIPPED, why="give --burst")
    lines = [line.split()[0] for line in text_of(SKIPPED, twice, other)[1:]]
    assert lines == ["skipped:", "skip", "skip", "skipped:", "skip"]


def test_long_words_of_an_endpoint_are_wrapped_below_their_label() -> None:
    failed = Outcome(check=FAILED.check, verdict=Verdict.FAIL, seen="word " * 60, expected="less")
    lines = [line for line in text_of(failed) if "word" in line]
    assert len(lines) > 2
    assert all(len(line) <= 100 for line in lines)
    assert {len(line) - len(line.lstrip()) for line in lines[1:]} == {17}


def test_the_last_line_counts_and_names_what_failed() -> None:
    assert summary(report(PASSED, FAILED, SKIPPED)) == (
        "http://127.0.0.1:1: 1 passed, 1 failed, 1 skipped in 1.2 s. "
        "Other than Forewarn's choice, which --profile azure leaves out: etag-quoted."
    )
    broken = Outcome(check=BY_ID["get-fast"], verdict=Verdict.FAIL, seen="3 s", expected="2 s")
    assert " Failed: get-fast. Other than " in summary(report(broken, FAILED))
    assert summary(report(PASSED)).endswith("1 passed, 0 failed, 0 skipped in 1.2 s.")


def test_json_holds_everything() -> None:
    content = json.loads(as_json(report(PASSED, FAILED, SKIPPED)))
    assert content["good"] is False
    assert content["counts"] == {"pass": 1, "fail": 1, "skipped": 1}
    passed, failed, skipped = content["checks"]
    assert passed["id"] == "get-200"
    assert passed["source"] == "G1"
    assert passed["not_checked"] == PASSED.check.not_checked
    assert (failed["verdict"], failed["expected"]) == ("fail", "quotes")
    assert failed["choice"] is True
    assert skipped["why"] == "give --burst"
    assert json.loads(as_json(report(PASSED, SKIPPED)))["good"] is True


def test_junit_is_xml_with_a_suite_for_each_topic() -> None:
    root = ET.fromstring(as_junit(report(PASSED, FAILED, SKIPPED)))
    assert root.tag == "testsuites"
    assert [root.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    assert len(root.findall("testsuite")) == 3
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.text is not None
    assert "seen: ETag: <2> & \n" in failure.text
    skipped = root.find(".//skipped")
    assert skipped is not None
    assert skipped.get("message") == "give --burst"
    case = root.find(".//testcase")
    assert case is not None
    assert case.get("classname") == "verify.answer"


def test_the_list_names_every_check_with_its_sentence_and_source() -> None:
    text = listed()
    for check in CHECKS:
        assert check.sentence in text
        assert check.source in text
        assert check.not_checked not in text
    assert text.endswith(f"{len(CHECKS)} checks.\n")
    assert [check["id"] for check in json.loads(listed_json())] == [check.id for check in CHECKS]


def test_the_long_list_says_too_what_each_check_cannot_see() -> None:
    lines = listed(long=True).splitlines()
    said = [line.split("not checked: ")[1] for line in lines if "not checked: " in line]
    assert said == [check.not_checked for check in CHECKS]
    assert [check["not_checked"] for check in json.loads(listed_json())] == said
