"""Refusals on the wire: the right status, a body a client can read, a label that stays."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import pytest

from forewarn.core import errors
from forewarn.wire import problems
from forewarn.wire.api_versions import INSTANCE_NEWEST_THREE, NEWEST_THREE
from forewarn.wire.problems import GuestProblem

ANSWER_BYTES_MAX = 1_024

# Every refusal a guest can meet: how it is made, its status, its label.
GUEST_SIDE: list[tuple[Callable[[], GuestProblem], int, str]] = [
    (problems.missing_api_version, 400, "no-api-version"),
    (problems.unknown_api_version, 404, "unknown-api-version"),
    (lambda: problems.repeated_parameter("api-version"), 400, "repeated-parameter"),
    (problems.missing_metadata_header, 400, "no-metadata-header"),
    (lambda: problems.forwarded("Via"), 400, "forwarded"),
    (lambda: problems.web_page("Origin"), 400, "web-page"),
    (lambda: problems.not_one_host(2), 400, "not-one-host"),
    (lambda: problems.unknown_host("x" * 10_000), 400, "unknown-host"),
    (problems.unknown_path, 404, "unknown-path"),
    (lambda: problems.wrong_verb("GET, POST"), 405, "wrong-verb"),
    (lambda: problems.malformed_body("it is empty"), 400, "malformed-body"),
    (lambda: problems.too_many_start_requests(2_000, 1_000), 400, "too-many-start-requests"),
    (lambda: problems.body_too_large(65_536), 413, "body-too-large"),
    (lambda: problems.too_many_chunks(1_024), 413, "too-many-chunks"),
    (lambda: problems.head_too_large(8_192), 431, "head-too-large"),
    (lambda: problems.blank_lines(256), 400, "blank-lines"),
    (problems.broken_http, 400, "broken-http"),
    (problems.unsupported_expectation, 417, "unsupported-expectation"),
    (problems.unknown_caller, 403, "unknown-caller"),
    (lambda: problems.too_many_requests(1), 429, "rate-limit"),
    (lambda: problems.unavailable(5), 503, "unavailable"),
    (problems.request_timeout, 408, "request-timeout"),
    (problems.leaf_without_text, 400, "leaf-without-text"),
    (problems.tree_as_text, 400, "tree-as-text"),
    (lambda: problems.unknown_element("color"), 404, "unknown-element"),
]


@pytest.mark.parametrize(
    ("make", "status", "reason"), GUEST_SIDE, ids=[row[2] for row in GUEST_SIDE]
)
def test_a_guest_refusal_has_its_status_its_label_and_an_error_object(
    make: Callable[[], GuestProblem], status: int, reason: str
) -> None:
    problem = make()
    assert (problem.status, problem.reason) == (status, reason)
    content = json.loads(problem.body)
    assert content.keys() <= {"error", "newest-versions"}
    assert content["error"]
    assert len(problem.body) < ANSWER_BYTES_MAX


def test_every_guest_refusal_is_in_the_list_above_under_a_label_of_its_own() -> None:
    makers = [
        name
        for name, function in inspect.getmembers(problems, inspect.isfunction)
        if inspect.signature(function, eval_str=True).return_annotation is GuestProblem
    ]
    labels = [reason for _, _, reason in GUEST_SIDE]
    assert len(makers) == len(GUEST_SIDE)
    assert len(set(labels)) == len(labels)


def test_the_documented_texts_are_reproduced() -> None:
    assert problems.missing_metadata_header().body == (
        b'{"error":"Bad request: . Required metadata header not specified"}'
    )
    assert problems.missing_api_version().body == (
        b'{"error":"Bad request. api-version is invalid or was not specified in the request.'
        b' For more information refer to aka.ms/azureimds",'
        b'"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
    )


@pytest.mark.parametrize("make", [problems.missing_api_version, problems.unknown_api_version])
def test_version_refusals_name_the_three_newest_of_the_path_that_was_asked(
    make: Callable[..., GuestProblem],
) -> None:
    assert json.loads(make().body)["newest-versions"] == list(NEWEST_THREE)
    instance = make(INSTANCE_NEWEST_THREE)
    assert json.loads(instance.body)["newest-versions"] == list(INSTANCE_NEWEST_THREE)


def test_only_version_refusals_name_versions() -> None:
    naming = {reason for make, _, reason in GUEST_SIDE if b"newest-versions" in make().body}
    assert naming == {"no-api-version", "unknown-api-version"}


def test_headers_say_what_is_allowed_and_when_to_ask_again() -> None:
    assert problems.wrong_verb("GET, POST").headers == (("Allow", "GET, POST"),)
    assert problems.too_many_requests(1).headers == (("Retry-After", "1"),)
    assert problems.unavailable(5).headers == (("Retry-After", "5"),)
    assert problems.unknown_caller().headers == ()


def test_nobody_learns_nothing() -> None:
    assert problems.unknown_caller().body == b'{"error":"Forbidden"}'


def test_a_leaf_without_text_is_told_the_missing_parameter() -> None:
    assert b"format=text" in problems.leaf_without_text().body


@pytest.mark.parametrize("text", ["\ud800", "\x00\r\n", "雪" * 100, "X" * 10_000], ids=range(4))
def test_whatever_is_quoted_of_a_request_has_a_short_form_in_json(text: str) -> None:
    for problem in (
        problems.repeated_parameter(text),
        problems.unknown_element(text),
    ):
        assert len(problem.body) < ANSWER_BYTES_MAX
        assert json.loads(problem.body)["error"]


def every_refusal(kind: type[errors.Refusal]) -> list[type[errors.Refusal]]:
    return [kind, *(each for child in kind.__subclasses__() for each in every_refusal(child))]


@pytest.mark.parametrize("kind", every_refusal(errors.Refusal))
def test_every_refusal_of_the_core_has_a_status_and_a_problem(kind: type[errors.Refusal]) -> None:
    refusal = kind("Host 'h1' is closed.", "An open host would be accepted.")
    status = problems.status_of(refusal)
    assert 400 <= status < 500
    more = {"begin": "", "oldest": 0} if isinstance(refusal, errors.FeedGone) else {}
    assert problems.problem_json(refusal, status) == more | {
        "type": f"urn:forewarn:problem:{refusal.code}",
        "title": refusal.code.replace("-", " ").capitalize(),
        "status": status,
        "detail": "Host 'h1' is closed.",
        "code": refusal.code,
        "remedy": "An open host would be accepted.",
    }


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (errors.NotFound("x"), 404),
        (errors.Invalid("x"), 400),
        (errors.BadInventory("x"), 400),
        (errors.UnknownEventIds("x"), 400),
        (errors.Conflict("x"), 409),
        (errors.NotSpot("x"), 409),
        (errors.TwoDomainsOnHost("x"), 409),
        (errors.IdempotencyMismatch("x"), 422),
        (errors.NameTaken("x"), 409),
        (errors.NotInvited("x"), 403),
        (errors.NotMember("x"), 403),
        (errors.NotYours("x"), 403),
        (errors.Unavailable("The disk is full."), 503),
    ],
    ids=lambda v: type(v).__name__,
)
def test_the_most_specific_class_decides_the_status(
    refusal: errors.Refusal | errors.Unavailable, status: int
) -> None:
    assert problems.status_of(refusal) == status


def test_unavailable_is_a_problem_too() -> None:
    problem = problems.problem_json(errors.Unavailable("The disk is full."), 503)
    assert problem["code"] == "unavailable"
    assert problem["detail"] == "The disk is full."
    assert problem["remedy"]
