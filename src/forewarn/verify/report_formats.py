"""A report as text for people, JSON for programs, and JUnit XML for build servers."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from forewarn.verify.check import Check
from forewarn.verify.report import Outcome, Report, Verdict
from forewarn.verify.table import CHECKS, TITLES

WIDTH = 100
_ID_WIDTH = max(len(check.id) for check in CHECKS)
_WORDS = {Verdict.PASS: "pass", Verdict.FAIL: "FAIL", Verdict.SKIPPED: "skip"}
_INDENT = " " * 7


class TextLines:
    """The lines of a report as its outcomes come: a heading for each topic, one line a check.

    `quiet` leaves everything out but what failed.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._topic = ""
        self._why = ""

    def lines(self, outcome: Outcome) -> Iterator[str]:
        """What to print for one outcome."""
        check = outcome.check
        if self._quiet and outcome.verdict is not Verdict.FAIL:
            return
        if check.topic != self._topic:
            if self._topic:
                yield ""
            self._topic = check.topic
            self._why = ""
            yield TITLES[check.topic]
        if outcome.verdict is Verdict.SKIPPED and outcome.why != self._why:
            # Said once for all that follow and share it.
            yield from _labelled("skipped", outcome.why)
        self._why = outcome.why
        yield f"  {_WORDS[outcome.verdict]} {check.id:<{_ID_WIDTH}}  {check.sentence}"
        if outcome.verdict is Verdict.FAIL:
            yield from _labelled("seen", outcome.seen)
            yield from _labelled("expected", outcome.expected)
            yield from _labelled("source", _source(check))


def _labelled(label: str, text: str) -> Iterator[str]:
    first = f"{_INDENT}{label + ':':<10}"
    yield from textwrap.wrap(
        text or "nothing",
        width=WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    ) or [first]


def _source(check: Check) -> str:
    return f"{check.source}; a choice of Forewarn" if check.choice else check.source


def summary(report: Report) -> str:
    """The last line: what all of it adds up to."""
    counts = report.counts
    numbers = (
        f"{counts[Verdict.PASS]} passed, {counts[Verdict.FAIL]} failed, "
        f"{counts[Verdict.SKIPPED]} skipped in {report.took_s:.1f} s"
    )
    failed = report.with_verdict(Verdict.FAIL)
    broken = ", ".join(outcome.check.id for outcome in failed if not outcome.check.choice)
    chosen = ", ".join(outcome.check.id for outcome in failed if outcome.check.choice)
    said = f"{report.url}: {numbers}."
    if broken:
        said += f" Failed: {broken}."
    if chosen:
        said += f" Other than Forewarn's choice, which --profile azure leaves out: {chosen}."
    return said


def as_json(report: Report) -> str:
    """One JSON document."""
    content = {
        "url": report.url,
        "profile": report.profile,
        "good": report.good,
        "seconds": round(report.took_s, 3),
        "counts": {verdict.value: count for verdict, count in report.counts.items()},
        "checks": [
            {
                **described(outcome.check),
                "verdict": outcome.verdict.value,
                "seen": outcome.seen,
                "expected": outcome.expected,
                "why": outcome.why,
                "seconds": round(outcome.took_s, 3),
            }
            for outcome in report.outcomes
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_junit(report: Report) -> str:
    """JUnit XML: a test suite for each topic, a test case for each check."""
    root = ET.Element("testsuites", name=f"forewarn verify {report.url}")
    _count(root, report.outcomes, report.took_s)
    for topic in dict.fromkeys(outcome.check.topic for outcome in report.outcomes):
        outcomes = [outcome for outcome in report.outcomes if outcome.check.topic == topic]
        suite = ET.SubElement(root, "testsuite", name=TITLES[topic])
        _count(suite, outcomes, sum(outcome.took_s for outcome in outcomes))
        for outcome in outcomes:
            _case(suite, topic, outcome)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _count(element: ET.Element, outcomes: tuple[Outcome, ...] | list[Outcome], s: float) -> None:
    element.set("tests", str(len(outcomes)))
    for name, verdict in (("failures", Verdict.FAIL), ("skipped", Verdict.SKIPPED)):
        element.set(name, str(sum(outcome.verdict is verdict for outcome in outcomes)))
    element.set("errors", "0")
    element.set("time", f"{s:.3f}")


def _case(suite: ET.Element, topic: str, outcome: Outcome) -> None:
    check = outcome.check
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"verify.{topic}",
        name=f"{check.id}: {check.sentence}",
        time=f"{outcome.took_s:.3f}",
    )
    if outcome.verdict is Verdict.FAIL:
        failure = ET.SubElement(case, "failure", message=_xml(f"expected {outcome.expected}"))
        failure.text = _xml(
            f"seen: {outcome.seen}\nexpected: {outcome.expected}\nsource: {_source(check)}"
        )
    elif outcome.verdict is Verdict.SKIPPED:
        ET.SubElement(case, "skipped", message=_xml(outcome.why))


def _xml(text: str) -> str:
    """The text without characters that no XML document may hold."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def described(check: Check) -> dict[str, object]:
    """What there is to know of a check before it runs."""
    return {
        "id": check.id,
        "topic": check.topic,
        "sentence": check.sentence,
        "source": check.source,
        "not_checked": check.not_checked,
        "level": check.level.value,
        "choice": check.choice,
        "needs": list(check.needs),
        "after": list(check.after),
    }


def listed(*, long: bool = False) -> str:
    """Every check with its sentence and source, for people; `long` adds what it cannot see."""
    lines: list[str] = []
    topic = ""
    for check in CHECKS:
        if check.topic != topic:
            topic = check.topic
            lines += ["", f"{TITLES[topic]} ({topic})"] if lines else [f"{TITLES[topic]} ({topic})"]
        lines.append(f"  {check.id:<{_ID_WIDTH}}  {check.sentence}")
        lines.append(f"  {'':<{_ID_WIDTH}}  [{check.level.value}] {_source(check)}")
        if long:
            lines.append(f"  {'':<{_ID_WIDTH}}  not checked: {check.not_checked}")
    return "\n".join([*lines, "", f"{len(CHECKS)} checks."]) + "\n"


def listed_json() -> str:
    """Every check, for programs."""
    content = [described(check) for check in CHECKS]
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
