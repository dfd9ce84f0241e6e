"""Writes docs/emulator-reference.md and docs/verify-checks.md from the tables of the code.

`python tests/emulator_reference.py` (with the project's interpreter) rewrites both pages;
tests/test_emulator_reference.py fails while one of them is stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from forewarn.api.route_table import RouteSpec
from forewarn.cli.scenarios import needs_words
from forewarn.emulator.clock_routes import clock_routes
from forewarn.emulator.faults.kinds import BY_STATUS, COUNT_MAX, KINDS, KindOfFault
from forewarn.emulator.faults.orders import SELECTORS
from forewarn.emulator.faults.routes import fault_routes
from forewarn.emulator.scenarios import library
from forewarn.emulator.scenarios.file import (
    ABOUT_CHARS_MAX,
    NEEDED_MAX,
    SCENARIO_BYTES_MAX,
    STEPS_MAX,
    TITLE_CHARS_MAX,
)
from forewarn.emulator.scenarios.keys import KEYS, KEYS_OF
from forewarn.emulator.scenarios.routes import scenario_routes
from forewarn.emulator.scenarios.values import Scenario, Verb
from forewarn.text.durations import duration_text
from forewarn.verify.check import Check, Level
from forewarn.verify.table import CHECKS, TITLES

DOCS = Path(__file__).parent.parent / "docs"
REGENERATE = "python tests/emulator_reference.py"
MADE = f"<!-- Made from the code by `{REGENERATE}`; change the code, not this page. -->"

ORDERS: dict[Verb, str] = {
    Verb.RESTART: "its owner restarts a VM: Reboot",
    Verb.REDEPLOY: "its owner moves a VM: Redeploy",
    Verb.DELETE: "its owner deletes a VM: Terminate",
    Verb.EVICT: "a spot VM loses its place: Preempt",
    Verb.MAINTAIN: "a host is frozen, rebooted, or emptied (Redeploy)",
    Verb.DEGRADE: "the hardware of a host is expected to fail: Redeploy",
    Verb.FAIL: "a host loses its power: a Reboot that has started already",
    Verb.REPAIR: "a degraded or failed host is well again, and has power",
    Verb.CANCEL: "what has not started is taken back",
    Verb.POSTPONE: "maintenance that has not started is withdrawn and announced anew, later",
    Verb.APPROVE: "the operator approves in the name of the scope",
    Verb.FAULT: "the endpoint begins to misbehave",
    Verb.CLEAR_FAULTS: "the endpoint behaves again",
}
NARROWS: dict[str, str] = {
    "vm": "only this VM; without it every VM",
    "method": "only `GET` or only `POST`",
    "count": f"over after so many hits, at most {COUNT_MAX:,}",
    "share": "hits this share of what it looks at, above 0 and up to 1, chosen by the seed",
    "for": "over after so much of the emulator's time, like `70s`",
}
LEVELS: dict[Level, str] = {
    Level.READ: "GETs and requests that every endpoint refuses; always run",
    Level.APPROVE: "POSTs, which may approve an event of this VM alone, or the one that is named; "
    "`--approve`, `--approve-event ID`",
    Level.OPERATOR: "has events scheduled; `--operator CMD`",
    Level.BURST: "goes beyond the rate limit; `--burst`",
}


def emulator_page() -> str:
    """The whole page of scenarios, faults and routes."""
    parts = (*_scenarios(), *_script(), *_faults(), *_routes())
    return "\n".join(["# Scenarios and faults of the emulator", "", MADE, *parts, ""])


def _scenarios() -> Iterator[str]:
    yield """
How to use them is in [testing.md](testing.md). `forewarn scenario show NAME --toml` prints a
shipped script, to begin one's own with.

## Shipped scenarios

| name | what happens | needs | last step |
|---|---|---|---|"""
    found = [library.load(name) for name in library.names()]
    for one in found:
        last = duration_text(one.steps[-1].at_ms)
        yield f"| [`{one.name}`](#{one.name}) | {one.title} | {needs_words(one.needs)} | {last} |"
    for one in found:
        yield from _scenario(one)


def _scenario(scenario: Scenario) -> Iterator[str]:
    yield f"\n### {scenario.name}\n\n{scenario.about}\n"
    for step in scenario.steps:
        yield f"- at {duration_text(step.at_ms)}: {step.words}"


def _script() -> Iterator[str]:
    yield f"""
## The script of a scenario

A TOML file of at most {SCENARIO_BYTES_MAX // 1_024} KiB with up to {STEPS_MAX} steps, in the order
of their times. A mistake is refused with its line and what would be accepted, and nothing is run.
Lengths of time are texts with d, h, m, s or ms, like `1h30m`.

| key | what it takes |
|---|---|
| `title` | required: one line, up to {TITLE_CHARS_MAX} characters |
| `about` | what it shows, up to {ABOUT_CHARS_MAX:,} characters |
| `needs` | the fleet: a table of `vms`, `domains` (both in one scope) and `hosts`, 1 to \
{NEEDED_MAX:,} each, and `spot`, true or false |
| `[[step]]` | each step: `do`, `at`, and what the order takes |

| `do` | what happens | takes; **required** |
|---|---|---|"""
    for verb in Verb:
        accepted, required = KEYS_OF[verb]
        keys = ", ".join(f"**`{key}`**" if key in required else f"`{key}`" for key in accepted)
        yield f"| `{verb}` | {ORDERS[verb]} | {keys} |"
    yield """
| key of a step | what it takes |
|---|---|"""
    for name, key in KEYS.items():
        yield f"| `{name}` | {_cell(key.accepted)} |"


def _faults() -> Iterator[str]:
    yield """
## Faults

A fault hits every request that it selects, from when it was added until it is over. Of several, the
oldest that hits a request decides it; `unquoted-etag` and all that hit no single requests hold
beside others.
There are none in `forewarn serve`.

| kind | or | what it does | takes | hits |
|---|---|---|---|---|"""
    by_kind = {kind: status for status, kind in BY_STATUS.items()}
    for row in KINDS.values():
        status = by_kind.get(row.kind, "")
        takes = ", ".join(f"`{word}`" for word in row.takes)
        yield f"| `{row.kind}` | {status} | {_cell(row.sentence)} | {takes} | {_hits(row)} |"
    yield """
Every kind can be narrowed:

| word | what it does |
|---|---|"""
    for word in SELECTORS:
        yield f"| `{word}` | {NARROWS[word]} |"
    yield """
The words are the same everywhere: `forewarn fault add gone --vm web_0 --count 2`, in JSON
`{"kind": "gone", "vm": "web_0", "count": 2}`, in a scenario
`fault = { kind = "gone", vm = "web_0", count = 2 }`, in Python
`cloud.faults.add("gone", vm="web_0", count=2)` (where `for` is `for_s`). `for` is time of the
emulator's clock; `seconds` and `retry_after` are real time, since clients count them on clocks of
their own, unless the kind says otherwise. `document` is the text of a document, in Python and JSON
also the document itself, on the command line a file."""


def _hits(row: KindOfFault) -> str:
    return " and ".join(row.methods) if row.methods else "not single requests"


def emulator_routes() -> list[RouteSpec]:
    """What the operator API of an emulator has beside that of a service. Nobody calls them here."""
    nobody = cast("Any", None)
    return [*clock_routes(nobody, nobody), *fault_routes(nobody), *scenario_routes(nobody)]


def _routes() -> Iterator[str]:
    yield """
## Paths of the operator API

The emulator has every path of [operator-api.md](operator-api.md), and these; `serve` has none of
them. `GET /v1/openapi.json` of an emulator describes them in full.

| | path | what it does |
|---|---|---|"""
    for route in emulator_routes():
        yield f"| {route.method} | `{route.path}` | {route.summary} |"


def checks_page() -> str:
    """The whole page of the conformance kit's checks."""
    lines = ["# What `forewarn verify` checks", "", MADE, *_checks()]
    return "\n".join([*lines, ""])


def _checks() -> Iterator[str]:
    yield f"""
{len(CHECKS)} checks, in the order in which they run. A source is a fact id or a section of the
protocol's description (as in [compatibility.md](compatibility.md)), or an RFC. A check marked
*choice* is something that Forewarn decided where the real service is not known to do so, or does
otherwise; `--profile azure` leaves those out. A check is skipped if something that it needs did not
pass. What judges an event needs no other verdict on that event: one failure hides no other.

For each check the page says what it does not see: what an endpoint can still get wrong while the
check passes. What no check sees: anything but the wire, so neither the impact on a VM nor its
absence; how other VMs of the scope are answered, and whose approval counts; load, and runs of days;
restarts of the endpoint; how scheduled events are turned on by a first GET and off by silence.

| level | what it may do to the endpoint, and what asks for it |
|---|---|"""
    for level in Level:
        yield f"| {level} | {LEVELS[level]} |"
    for topic, title in TITLES.items():
        yield f"\n## {title}\n\n`--only {topic}` runs these, and what they need.\n"
        yield "| id | sentence | what it does not see | level | source |\n|---|---|---|---|---|"
        for check in CHECKS:
            if check.topic == topic:
                yield _check(check)


def _check(check: Check) -> str:
    source = f"{check.source}; *choice*" if check.choice else check.source
    cells = (f"`{check.id}`", check.sentence, check.not_checked, check.level, source)
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """A text inside a table of Markdown."""
    return text.replace("|", "\\|")


PAGES = {
    DOCS / "emulator-reference.md": emulator_page,
    DOCS / "verify-checks.md": checks_page,
}

if __name__ == "__main__":
    for page, made in PAGES.items():
        page.write_text(made(), encoding="utf-8")
