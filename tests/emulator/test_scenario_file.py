"""Scripts: what they may say, and that every mistake is named with its line and its remedy."""

from __future__ import annotations

import random

import pytest

from forewarn.core.model import MINUTE_MS, EventType
from forewarn.emulator.faults.kinds import FaultKind
from forewarn.emulator.scenarios import library
from forewarn.emulator.scenarios.file import (
    ABOUT_CHARS_MAX,
    SCENARIO_BYTES_MAX,
    STEPS_MAX,
    BadScenario,
    parse,
)
from forewarn.emulator.scenarios.keys import KEYS, KEYS_OF
from forewarn.emulator.scenarios.values import Needs, StepPlace, Verb, Whom

HEAD = 'title = "t"\n'
STEP = '[[step]]\nat = "0s"\n'


def refusal(text: str) -> str:
    with pytest.raises(BadScenario) as refused:
        parse(text, name="mine")
    assert refused.value.accepted in (
        "Write it in UTF-8.",
        "Nothing of it was run.",
        f"Up to {SCENARIO_BYTES_MAX} are accepted.",
    )
    return refused.value.refused


def place(on: str, verb: str = "restart") -> StepPlace | None:
    return parse(f'{HEAD}{STEP}do = "{verb}"\non = "{on}"\n', name="mine").steps[0].on


def test_a_script_says_what_happens_when_to_whom_and_for_how_long() -> None:
    scenario = parse(
        'title = "A user restarts the VM"\n'
        'about = """\nWhy.\n"""\n'
        "needs = { hosts = 2, spot = true }\n"
        '[[step]]\nat = "0s"\ndo = "restart"\nas = "reboot"\nstarted_for = "10m"\n'
        '[[step]]\nat = 90\ndo = "maintain"\ntype = "Freeze"\nduration = "30s"\n'
        'description = "New firmware."\nnot_before = "1h"\nbreak_domains = true\n'
        '[[step]]\nat = "5m"\ndo = "cancel"\nof = "reboot"\n'
        '[[step]]\nat = "5m"\ndo = "fault"\nfault = { kind = "gone", for = "30s" }\n',
        name="mine",
    )
    restart, freeze, cancel, fault = scenario.steps
    assert (scenario.name, scenario.title, scenario.about) == (
        "mine",
        "A user restarts the VM",
        "Why.",
    )
    assert scenario.needs == Needs(hosts=2, spot=True)
    assert (restart.at_ms, restart.verb, restart.label) == (0, Verb.RESTART, "reboot")
    assert (restart.on, restart.started_for_ms) == (StepPlace(whom=Whom.VM), 10 * MINUTE_MS)
    assert (freeze.at_ms, freeze.event_type, freeze.duration_s) == (90_000, EventType.FREEZE, 30)
    assert (freeze.description, freeze.not_before_ms) == ("New firmware.", 60 * MINUTE_MS)
    assert (freeze.on, freeze.break_domains) == (StepPlace(whom=Whom.VM, of_host=True), True)
    assert (cancel.of, cancel.on) == ("reboot", None)
    assert fault.fault is not None
    assert fault.fault.kind is FaultKind.GONE


@pytest.mark.parametrize(
    ("on", "verb", "meant"),
    [
        ("vm", "restart", StepPlace(whom=Whom.VM)),
        ("vm 2", "restart", StepPlace(whom=Whom.VM, number=2)),
        ("domain 3", "restart", StepPlace(whom=Whom.DOMAIN, number=3)),
        ("scope", "restart", StepPlace(whom=Whom.SCOPE)),
        ("web_0", "restart", StepPlace(whom=Whom.NAME, name="web_0")),
        ("host", "fail", StepPlace(whom=Whom.VM, of_host=True)),
        ("host of vm 2", "fail", StepPlace(whom=Whom.VM, number=2, of_host=True)),
        ("host of domain", "fail", StepPlace(whom=Whom.DOMAIN, of_host=True)),
        ("host of scope", "fail", StepPlace(whom=Whom.SCOPE, of_host=True)),
        ("h1", "fail", StepPlace(whom=Whom.NAME, name="h1")),
    ],
)
def test_on_names_vms_and_hosts_from_where_the_scenario_runs(
    on: str, verb: str, meant: StepPlace
) -> None:
    assert place(on, verb) == meant


@pytest.mark.parametrize("on", ["vm 2", "domain 3", "scope", "host", "host of vm 2", "web_0"])
def test_the_words_of_a_place_are_those_that_were_written(on: str) -> None:
    found = place(on, "fail" if on.startswith("host") else "restart")
    assert found is not None
    assert found.words == on


def test_a_domain_is_shown_with_its_number_though_the_first_needs_none() -> None:
    for on, verb, words in (
        ("host of domain", "fail", "host of domain 1"),
        ("domain", "restart", "domain 1"),
        ("vm 1", "restart", "vm"),
    ):
        found = place(on, verb)
        assert found is not None
        assert found.words == words


def test_a_scenario_needs_what_its_steps_speak_of_though_it_does_not_say_so() -> None:
    text = f'{HEAD}{STEP}do = "delete"\non = "vm 3"\n{STEP}do = "fail"\non = "host of domain 2"\n'
    assert parse(text, name="mine").needs == Needs(vms=3, domains=2)


STEPS = {
    "no-order": ('do = "restrat"', 4, 'step 1: there is no order "restrat". Did you mean restart?'),
    "order-missing": ("", 2, "step 1: do is missing. There are: restart, redeploy,"),
    "unknown-key": (
        'do = "restart"\nforr = "5m"',
        5,
        'step 1 (restart): there is no key "forr". There are: at, on, as, started_for, window.',
    ),
    "key-of-another-order": (
        'do = "restart"\ntype = "Freeze"',
        5,
        "step 1 (restart): it takes no type. There are: at, on, as, started_for, window.",
    ),
    "type-missing": (
        'do = "maintain"',
        2,
        "step 1 (maintain): type is missing. Write type = ..., Freeze, Reboot or Redeploy.",
    ),
    "type-of-vms": (
        'do = "maintain"\ntype = "Preempt"',
        5,
        'type = "Preempt" is refused. Accepted: Freeze, Reboot or Redeploy.',
    ),
    "no-length-of-time": (
        'do = "restart"\nstarted_for = "soon"',
        5,
        'The duration "soon" was not understood. Accepted: a length of time like "90s"',
    ),
    "length-of-wrong-kind": ('do = "restart"\nstarted_for = true', 5, "started_for = true is"),
    "started-for-too-long": (
        'do = "restart"\nstarted_for = "30m"',
        5,
        "such an event fails when Started for 30m. Write less.",
    ),
    "freeze-held-too-long": (
        'do = "maintain"\ntype = "Freeze"\nstarted_for = "15m"',
        6,
        "such an event fails when Started for 15m. Write less.",
    ),
    "length-of-a-reboot": (
        'do = "maintain"\ntype = "Reboot"\nduration = "5s"',
        6,
        "only a Freeze has a length that is known beforehand. Leave it out.",
    ),
    "freeze-too-long": (
        'do = "maintain"\ntype = "Freeze"\nduration = "601s"',
        6,
        'duration = "601s" is refused. Accepted: how long a Freeze lasts, in whole seconds',
    ),
    "freeze-of-half-a-second": ('do = "maintain"\ntype = "Freeze"\nduration = "0.5s"', 6, "0.5s"),
    "description-too-long": (
        f'do = "maintain"\ntype = "Freeze"\ndescription = "{"x" * 201}"',
        6,
        "Accepted: what guests read: up to 200 printable characters.",
    ),
    "description-of-two-lines": (
        'do = "maintain"\ntype = "Freeze"\ndescription = "a\\nb"',
        6,
        "up to 200 printable characters",
    ),
    "host-restarted": (
        'do = "restart"\non = "host of vm 2"',
        5,
        'restart is done to VMs. Write on = "vm 2".',
    ),
    "vm-failed": ('do = "fail"\non = "vm"', 5, 'fail is done to a host. Write on = "host".'),
    "place-of-many-words": ('do = "restart"\non = "the vm"', 5, 'on = "the vm" is refused.'),
    "vm-zero": ('do = "restart"\non = "vm 0"', 5, 'Accepted: "vm" (what the scenario runs on)'),
    "label-with-blanks": ('do = "restart"\nas = "a b"', 5, "Accepted: a name of up to 40 letters"),
    "fenced-in-words": ('do = "fail"\nfenced = "yes"', 5, "Accepted: true or false"),
    "of-nothing": (
        'do = "cancel"\nof = "reboot"',
        5,
        'no step above has as = "reboot". There are none.',
    ),
    "of-missing": ('do = "approve"', 2, "of is missing. Write of = ..., the name that a step"),
    "repair-of-nothing": ('do = "repair"', 2, 'say what is repaired once: on = "host", or of ='),
    "fault-of-no-kind": (
        'do = "fault"\nfault = { kind = "boom" }',
        5,
        'fault: there is no kind of fault "boom". Accepted: slow-first,',
    ),
    "fault-in-words": ('do = "fault"\nfault = "gone"', 5, 'a table like { kind = "gone"'),
    "fault-of-two-vms": (
        'do = "fault"\non = "vm"\nfault = { kind = "gone", vm = "a" }',
        5,
        "on and the vm of the fault both say which VM. Write one of them.",
    ),
}


@pytest.mark.parametrize(("body", "line", "words"), STEPS.values(), ids=STEPS)
def test_a_mistake_in_a_step_is_named_with_its_line_and_remedy(
    body: str, line: int, words: str
) -> None:
    said = refusal(f"{HEAD}{STEP}{body}\n")
    assert f"line {line}: " in said
    assert words in said


WHOLE = {
    "no-title": (
        f'{STEP}do = "restart"\n',
        "line 1: title is missing. Write title = ..., one line of",
    ),
    "title-of-two-lines": (
        f'title = "a\\nb"\n{STEP}do = "restart"\n',
        'line 1: title = "a\\nb" is refused. Accepted: one line of text, up to 100',
    ),
    "about-too-long": (
        f'{HEAD}about = "{"x" * (ABOUT_CHARS_MAX + 1)}"\n{STEP}do = "restart"\n',
        f'line 2: about = "{"x" * 63}... is refused. Accepted: printable text of up to 4000',
    ),
    "no-step": (HEAD, "the scenario has no step. Write at least one [[step]] with at and do."),
    "step-in-words": (
        f'{HEAD}step = "restart"\n',
        'line 2: step = "restart" is refused. Accepted: a list of tables. Write each as [[step]].',
    ),
    "one-step-table": (
        f'{HEAD}[step]\nat = "0s"\n',
        "line 2: step = {'at': '0s'} is refused. Accepted: a list of tables. Write each as",
    ),
    "unknown-word": (
        f'{HEAD}need = 1\n{STEP}do = "restart"\n',
        'line 2: a scenario has no "need". Did you mean needs?',
    ),
    "needs-in-words": (
        f'{HEAD}needs = "3"\n{STEP}do = "restart"\n',
        'line 2: needs = "3" is refused. Accepted: a table like',
    ),
    "needs-nonsense": (
        f'{HEAD}needs = {{ vm = 3 }}\n{STEP}do = "restart"\n',
        'line 2: needs: there is no key "vm". Did you mean vms?',
    ),
    "needs-no-number": (
        f'{HEAD}needs = {{ vms = "3" }}\n{STEP}do = "restart"\n',
        'line 2: needs: vms = "3" is refused. Accepted: a whole number from 1 to 9999, without',
    ),
    "needs-a-number-of-spots": (
        f'{HEAD}needs = {{ spot = 1 }}\n{STEP}do = "restart"\n',
        "line 2: needs: spot = 1 is refused. Accepted: true or false.",
    ),
    "out-of-order": (
        f'{HEAD}[[step]]\nat = "5m"\ndo = "restart"\n{STEP}do = "restart"\n',
        'line 6: step 2 (restart): at = "0s" is before the step above. Write the steps in the',
    ),
    "one-name-twice": (
        f'{HEAD}{STEP}do = "restart"\nas = "a"\n{STEP}do = "restart"\nas = "a"\n',
        "line 9: step 2 (restart): step 1 has the name a already. Give another one.",
    ),
    "name-of-a-later-step": (
        f'{HEAD}{STEP}do = "cancel"\nof = "a"\n{STEP}do = "restart"\nas = "a"\n',
        'line 5: step 1 (cancel): no step above has as = "a". There are none.',
    ),
    "name-misspelt": (
        f'{HEAD}{STEP}do = "restart"\nas = "reboot"\n{STEP}do = "cancel"\nof = "rebot"\n',
        'line 9: step 2 (cancel): no step above has as = "rebot". Did you mean reboot?',
    ),
    "too-many-steps": (
        HEAD + f'{STEP}do = "restart"\n' * (STEPS_MAX + 1),
        f"{STEPS_MAX + 1} steps are too many. Up to {STEPS_MAX} are taken.",
    ),
    "about-for-terminals": (
        f'{HEAD}about = "red \\u001b[31m"\n{STEP}do = "restart"\n',
        r'line 2: about = "red \u001b[31m" is refused. Accepted: printable text of up to 4000',
    ),
    "half-a-character": (f'{HEAD}about = "\ud800"\n', "line 2: a character is half of a"),
    "not-toml": (f"{HEAD}[[step]\n", "line 2: this is not TOML:"),
    "too-long": (f"{HEAD}# {'x' * SCENARIO_BYTES_MAX}\n", "bytes."),
}


@pytest.mark.parametrize(("text", "words"), WHOLE.values(), ids=WHOLE)
def test_a_mistake_of_the_whole_script_is_named_with_its_remedy(text: str, words: str) -> None:
    assert words in refusal(text)


def test_all_mistakes_of_a_script_are_named_at_once_in_the_order_of_their_lines() -> None:
    said = refusal(
        'titel = "t"\n[[step]]\nat = "x"\ndo = "restart"\n[[step]]\nat = "0s"\ndo = "cancl"\n'
    )
    assert said.splitlines()[0] == "Scenario mine was refused:"
    starts = [line.partition(":")[0] for line in said.splitlines()[1:]]
    assert starts == ["line 1", "line 1", "line 3", "line 7"]


def test_every_mistake_of_a_fault_is_named_with_the_line_of_its_key() -> None:
    fault = '[step.fault]\nkind = "gone"\nfor = "71s"\ncount = 0\ncuont = 1\n'
    _, *said = refusal(f'{HEAD}{STEP}do = "fault"\n{fault}').splitlines()
    assert [line.partition(" is ")[0] for line in said] == [
        'line 7: step 1 (fault): fault: for = "71s"',
        "line 8: step 1 (fault): fault: count = 0",
        "line 9: step 1 (fault): fault: there",
    ]


def test_the_keys_of_a_step_that_is_not_understood_are_judged_too() -> None:
    _, *said = refusal(f'{HEAD}{STEP}oder = "restart"\nas = "a b"\n').splitlines()
    assert [line.partition(".")[0] for line in said] == [
        "line 2: step 1: do is missing",
        'line 4: step 1: there is no key "oder"',
        'line 5: step 1: as = "a b" is refused',
    ]


def test_one_mistake_is_not_reported_twice() -> None:
    """A step that was not understood still has its name, so that a cancel of it is no mistake."""
    said = refusal(f'{HEAD}{STEP}do = "restrat"\nas = "a"\n{STEP}do = "cancel"\nof = "a"\n')
    assert "no step above" not in said


def test_every_order_takes_keys_that_exist_and_must_have_only_keys_that_it_takes() -> None:
    assert set(KEYS_OF) == set(Verb)
    for accepted, required in KEYS_OF.values():
        assert set(accepted) <= set(KEYS)
        assert set(required) <= set(accepted)
    assert {key for accepted, _ in KEYS_OF.values() for key in accepted} == set(KEYS)


def test_text_that_was_spoilt_anywhere_is_a_script_or_refused_and_never_anything_else() -> None:
    rng = random.Random(3)
    texts = [library.load(name).text for name in library.names()]
    spoilers = ["", '"', "[", "]]", "=", "\n", "-1", "true", "{}", "1e999", "2026-01-01", "host"]
    refused = 0
    for _ in range(600):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(spoilers) + text[at + rng.randint(0, 12) :]
        try:
            parse(text, name="spoilt")
        except BadScenario:
            refused += 1
    assert 100 < refused < 600
