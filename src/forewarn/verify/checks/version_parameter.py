"""Checks of the query of a request: an api-version is needed, and must be known."""

from __future__ import annotations

from forewarn.verify.answers import expect_newest, expect_refused, expect_status
from forewarn.verify.check import Topic
from forewarn.verify.documents import NEWEST
from forewarn.verify.probe import PATH, Probe, path_of

TOPIC = Topic("refusal", "What is refused", needs=("get-200",))


@TOPIC.check(
    "version-missing",
    "A GET without api-version is refused with 400.",
    "Q1, E2",
    not_checked="No query at all; a query of other parameters alone is not tried.",
)
def version_missing(probe: Probe) -> None:
    expect_status(probe.get(PATH), 400)


@TOPIC.check(
    "version-empty",
    "An empty api-version is refused with 400.",
    "Q1, E2",
    not_checked="`api-version=` alone; the bare name, without an equals sign, is not tried.",
)
def version_empty(probe: Probe) -> None:
    expect_status(probe.get(f"{PATH}?api-version="), 400)


@TOPIC.check(
    "version-missing-newest",
    "The refusal of a missing api-version names the three newest.",
    "E2",
    not_checked="Three texts in falling order pass; whether they are api-versions that work is "
    "not tried.",
    needs=("version-missing",),
)
def version_missing_newest(probe: Probe) -> None:
    expect_newest(probe.get(PATH))


@TOPIC.check(
    "version-unknown",
    "An unknown api-version is refused with 404.",
    "Forewarn's choice, E3 (one host answered 400, E5)",
    not_checked="One date long past; other dates, odd texts and long ones may be answered "
    "otherwise.",
    choice=True,
)
def version_unknown(probe: Probe) -> None:
    expect_status(probe.get(path_of("1999-12-31")), 404)


@TOPIC.check(
    "version-unknown-newest",
    "The refusal of an unknown api-version names the three newest.",
    "Forewarn's choice (the real body is not known, E3)",
    not_checked="The three are not compared with those that the refusal of a missing one names.",
    needs=("version-unknown",),
    choice=True,
)
def version_unknown_newest(probe: Probe) -> None:
    expect_newest(probe.get(path_of("1999-12-31")))


@TOPIC.check(
    "version-latest",
    "`latest` is no api-version.",
    "P5, Forewarn's choice",
    not_checked="One spelling on the document's path; others, and /metadata/instance, are not "
    "tried.",
)
def version_latest(probe: Probe) -> None:
    expect_status(probe.get(path_of("latest")), 400, 404)


@TOPIC.check(
    "version-probe",
    "2024-07-09, which clients probe for, is answered 200 or 404 and nothing else.",
    "Q3, contract 10",
    not_checked="The status alone; where it is 200, the document is not read.",
)
def version_probe(probe: Probe) -> None:
    expect_status(probe.get(path_of("2024-07-09")), 200, 404)


@TOPIC.check(
    "query-repeated",
    "A query parameter that is given twice is refused.",
    "Q5, E9",
    not_checked="api-version twice with one value; two values, and other parameters, are not "
    "tried.",
)
def query_repeated(probe: Probe) -> None:
    expect_refused(probe.get(f"{path_of(NEWEST)}&api-version={NEWEST}"))
