"""Checks of how a refusal looks."""

from __future__ import annotations

from forewarn.verify.answers import expect_error_object
from forewarn.verify.check import Topic, expect
from forewarn.verify.connection import Answer
from forewarn.verify.documents import NEWEST
from forewarn.verify.probe import Probe, path_of

TOPIC = Topic("refusal", "What is refused", needs=("get-200",))


@TOPIC.check(
    "error-object",
    'Refusals carry a JSON object with "error", a text.',
    "contract 2.1 (not known for each of these, E8 to E12)",
    not_checked="Four refusals, and only that the text is not empty; others may look otherwise.",
    needs=("forwarded", "query-repeated", "path-unknown", "verb-405"),
    choice=True,
)
def error_object(probe: Probe) -> None:
    for answer in _refusals(probe):
        expect_error_object(answer)


@TOPIC.check(
    "error-content-type",
    "Refusals are application/json.",
    "contract 2.1 (not known for each of these, E8 to E12)",
    not_checked="The same four refusals; neither the charset nor the type of other refusals is "
    "read.",
    needs=("error-object",),
    choice=True,
)
def error_content_type(probe: Probe) -> None:
    for answer in _refusals(probe):
        kind = answer.header("Content-Type") or ""
        good = kind.partition(";")[0].strip().lower() == "application/json"
        expect(good, f"Content-Type: {kind}", "application/json; charset=utf-8")


def _refusals(probe: Probe) -> list[Answer]:
    return [
        probe.poll("X-Forwarded-For: 10.0.0.1"),
        probe.get(f"{path_of(NEWEST)}&api-version={NEWEST}"),
        probe.get(f"/metadata/nothing?api-version={NEWEST}"),
        probe.ask(probe.request("PUT", path_of(NEWEST), body=b"")),
    ]
