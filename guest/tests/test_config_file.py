"""A configuration is read whole, or refused with every mistake, its line and what would help."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest

from forewarn_guest import config_file
from forewarn_guest.config_file import RULES_MAX, STEPS_MAX, parse
from forewarn_guest.config_keys import AGENT, RULE, STEP
from forewarn_guest.configuration import Approve, Configuration, OnUnknown, Part, Rule
from forewarn_guest.errors import ConfigError
from forewarn_guest.steps import KINDS

HERE = "forewarn.toml"
FUZZ_TEXTS = 1_500
FUZZ_SEED = 4
ODD_VALUES = ["0", "-1", "1e400", "nan", "true", "[]", "{}", '""', '"\\u0000"', "[[]]", "[{}]"]
ODD_VALUES += ['"' + "9" * 100 + 's"', "{ url = [] }", '{ action = "stop", units = [1] }', "[nan]"]

COMMON_CASE = """\
[[rule]]
types = ["Reboot", "Redeploy", "Freeze"]

[[rule.prepare]]
systemd = { action = "stop", units = ["app.service"] }

[[rule.recover]]
systemd = { action = "start", units = ["app.service"] }
"""

EVERYTHING = """\
[agent]
endpoint = "http://10.0.0.4:8080/"
vm = "web_0"
folder = "/srv/agent"
api_version = "2024-07-09"
status_file = "/run/agent.json"
metrics_file = "/var/lib/metrics/agent.prom"
log = "json"

[[rule]]
name = "short"
types = "Freeze"
source = "Platform"
min_duration = "10s"
resources = ["web_*", "db_?"]
approve = "first-named"
take_over = "1m30s"
margin = "20s"

[[rule.prepare]]
name = "drain"
run = ["/opt/drain", "--wait", ""]
limit = "2m"
on_unknown = "repeat"
optional = true

[[rule.started]]
shell = "touch /run/frozen"

[[rule.recover]]
webhook = { url = "https://example.org/back", headers = { X-From = "me" } }
limit = "30s"

[[rule.canceled]]
run = ["undrain"]

[[rule]]
name = "rest"
ignore = true
"""


def as_it_is(name: str) -> str:
    """A program that is always there."""
    return name


def read(text: str) -> Configuration:
    return parse(text, HERE, as_it_is)


def mistakes(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refusal:
        read(text)
    return refusal.value.mistakes


def only_rule(text: str) -> Rule:
    (rule,) = read(text).rules
    return rule


def test_less_than_ten_lines_are_enough_for_the_common_case() -> None:
    assert len(COMMON_CASE.splitlines()) < 10
    configuration = read(COMMON_CASE)
    assert configuration.warnings == ()
    rule = only_rule(COMMON_CASE)
    assert (rule.event_types, rule.approve) == (
        ("Reboot", "Redeploy", "Freeze"),
        Approve.AFTER_PREPARE,
    )
    (stop,) = rule.prepare
    (start,) = rule.recover
    assert (stop.name, stop.kind, stop.line) == ("systemd", "systemd", 4)
    assert stop.argv == (sys.executable, "-m", "forewarn_guest.steps", "systemd")
    assert stop.options == {"action": "stop", "units": ["app.service"], "limit": 300.0}
    assert start.options["action"] == "start"
    assert rule.steps(Part.CANCELED) == rule.recover


def test_every_key_is_read() -> None:
    configuration = read(EVERYTHING)
    short, rest = configuration.rules
    assert configuration.endpoint == "http://10.0.0.4:8080"
    assert (configuration.vm, configuration.api_version) == ("web_0", "2024-07-09")
    assert configuration.folder == Path("/srv/agent")
    assert configuration.status_file == Path("/run/agent.json")
    assert configuration.metrics_file == Path("/var/lib/metrics/agent.prom")
    assert configuration.log_format == "json"
    assert (short.name, short.event_types, short.source) == ("short", ("Freeze",), "Platform")
    assert (short.min_duration_s, short.resources) == (10, ("web_*", "db_?"))
    assert (short.approve, short.take_over_s, short.margin_s) == (Approve.FIRST_NAMED, 90.0, 20.0)
    (drain,) = short.prepare
    assert drain.argv == ("/opt/drain", "--wait", "")
    assert (drain.limit_s, drain.on_unknown, drain.optional) == (120.0, OnUnknown.REPEAT, True)
    assert short.started[0].argv == ("/bin/sh", "-c", "touch /run/frozen")
    assert short.recover[0].options == {
        "url": "https://example.org/back",
        "headers": {"X-From": "me"},
        "limit": 30.0,
    }
    assert short.canceled is not None
    assert (short.canceled[0].name, short.canceled[0].argv) == ("undrain", ("undrain",))
    assert rest.ignore
    assert rest.line == 37


def test_what_is_left_out_is_as_the_values_have_it() -> None:
    rule = only_rule('[[rule]]\n[[rule.prepare]]\nrun = ["x"]')
    (step,) = rule.prepare
    assert rule == Rule(name="rule-1", prepare=(step,), line=1)
    assert (step.on_unknown, step.optional, step.options) == (OnUnknown.TREAT_AS_FAILED, False, {})
    configuration = read('[[rule]]\n[[rule.prepare]]\nrun = ["x"]')
    assert configuration == Configuration(rules=(rule,))


def test_an_empty_list_of_what_undoes_is_not_what_recovers() -> None:
    rule = only_rule('[[rule]]\ncanceled = []\n[[rule.recover]]\nrun = ["x"]')
    assert rule.canceled == ()
    assert rule.steps(Part.CANCELED) == ()


def test_preempt_has_a_margin_that_leaves_nearly_all_of_its_time() -> None:
    text = '[[rule]]\ntypes = "Preempt"\n{}[[rule.prepare]]\nrun = ["x"]\nlimit = "20s"'
    assert only_rule(text.format("")).margin_s == 1.0
    assert only_rule(text.format('margin = "5s"\n')).margin_s == 5.0


@pytest.mark.parametrize(
    ("argv0", "name"),
    [("/opt/drain.sh", "drain.sh"), ("/opt/a b", "a-b"), ("/opt/._x", "x"), ("/opt/é", "run")],
)
def test_a_step_without_a_name_has_that_of_its_program(argv0: str, name: str) -> None:
    assert only_rule(f'[[rule]]\n[[rule.prepare]]\nrun = ["{argv0}"]').prepare[0].name == name


def test_all_mistakes_are_said_at_once_in_the_order_of_their_lines() -> None:
    found = mistakes(
        "[agent]\n"
        'endpiont = "http://10.0.0.1"\n'
        'log = "jsn"\n'
        "[[rule]]\n"
        'types = ["Rebot"]\n'
        "[[rule.prepare]]\n"
        'run = "drain"\n'
        "limit = 5\n"
        "[[rule.prepare]]\n"
        'systemd = { acton = "stop", units = "app.service", action = "halt" }\n'
        "[rules]\n"
    )
    assert [text.split(": ")[0] for text in found] == [
        f"{HERE}:{line}" for line in (2, 3, 5, 7, 8, 10, 10, 11)
    ]
    said = "\n".join(found)
    for word in ("endpoint", "json", "Reboot", "action", "rule"):
        assert f'Did you mean "{word}"?' in said


RULE_HAS = "[[rule]]\n{}\n"
STEP_HAS = "[[rule]]\n[[rule.prepare]]\n{}\n"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "There is no [[rule]]"),
        ("rule = 1", 1, "[[rule]]"),
        ("[rule]\nname = 'x'", 1, "[[rule]]"),
        ("agent = 1\n[[rule]]", 1, "[agent]"),
        ("rule = [1]", 1, "[[rule]]"),
        ("[[rule]]\n[rule.recover]", 2, "[[rule.recover]]"),
        ("[[rule]]\nname = ", 2, "A value is expected"),
        ("x = 1\n[[rule]]", 1, "There are agent, rule."),
        ('[agent]\nendpoint = "https://x"\n[[rule]]', 2, "http://169.254.169.254"),
        ('[agent]\nendpoint = "http://x/metadata"\n[[rule]]', 2, '"http://x"'),
        ('[agent]\nendpoint = "http://x:99999"\n[[rule]]', 2, "endpoint"),
        ('[agent]\nendpoint = "http://[::1"\n[[rule]]', 2, "endpoint"),
        ('[agent]\nfolder = "var"\n[[rule]]', 2, "begins with /"),
        ('[agent]\nmetrics_file = "/var/x.txt"\n[[rule]]', 2, ".prom"),
        ('[agent]\napi_version = "2020-07-02"\n[[rule]]', 2, 'Did you mean "2020-07-01"?'),
        ("[agent]\nvm = 7\n[[rule]]", 2, "vm must be text"),
        (RULE_HAS.format('name = "a b"'), 2, "name must be"),
        (RULE_HAS.format("types = []"), 2, "types must have"),
        (RULE_HAS.format('types = ["Preempt", "Reboot"]'), 2, "a rule of its own"),
        (RULE_HAS.format('source = "user"'), 2, 'Did you mean "User"?'),
        (RULE_HAS.format('min_duration = "1.5s"'), 2, "whole seconds"),
        (RULE_HAS.format('min_duration = "0s"'), 2, "whole seconds"),
        (RULE_HAS.format("ignore = 1"), 2, "true or false"),
        (RULE_HAS.format('approve = "always"'), 2, '"never"'),
        (RULE_HAS.format('approve = "leader"'), 2, '"leader" any longer: write "first-named"'),
        (RULE_HAS.format('approve = "at-once"'), 2, 'source = "User"'),
        (RULE_HAS.format('source = "Platform"\napprove = "at-once"'), 3, 'source = "User"'),
        (RULE_HAS.format('take_over = "10s"'), 2, 'approve = "first-named"'),
        (RULE_HAS.format('approve = "first-named"\ntake_over = "0s"'), 3, "from 1s to 1h"),
        (RULE_HAS.format('margin = "2h"'), 2, "from 0s to 1h"),
        (RULE_HAS.format('ignore = true\napprove = "never"'), 3, "ignore = true"),
        (RULE_HAS.format('ignore = true\n[[rule.prepare]]\nrun = ["x"]'), 3, "ignore = true"),
        (STEP_HAS.format(""), 2, "says nothing to do"),
        (STEP_HAS.format('run = ["x"]\nshell = "x"'), 2, "has run and shell"),
        (STEP_HAS.format("run = []"), 3, "run must be a list"),
        (STEP_HAS.format('run = [""]'), 3, "name of a program"),
        (STEP_HAS.format('run = ["x", 1]'), 3, "numbers in quotes"),
        (STEP_HAS.format('run = ["x", "\\u0000"]'), 3, "zero byte"),
        (STEP_HAS.format('shell = " "'), 3, "/bin/sh"),
        (STEP_HAS.format('shell = ["ls"]'), 3, "/bin/sh"),
        (STEP_HAS.format('run = ["x"]\nlimit = "5 minutes"'), 4, '"5m"'),
        (STEP_HAS.format('run = ["x"]\nlimit = 300'), 4, "wants its unit"),
        (STEP_HAS.format('run = ["x"]\nlimit = "0s"'), 4, "from 0.1s"),
        (STEP_HAS.format('run = ["x"]\nlimit = "2d"'), 4, "to 1d"),
        (STEP_HAS.format('run = ["x"]\non_unknown = "retry"'), 4, '"repeat"'),
        (STEP_HAS.format('run = ["x"]\noptional = "yes"'), 4, "true or false"),
        (STEP_HAS.format('systemd = "stop"'), 3, "systemd must be a table"),
        (STEP_HAS.format('systemd = { action = "stop" }'), 3, "units of systemd is missing"),
        (STEP_HAS.format("log = { limit = 5 }"), 3, "limit stands beside log"),
        (
            STEP_HAS.format(
                '[rule.prepare.haproxy]\naction = "ready"\nservers = "a/b"\nwait = true'
            ),
            6,
            "wait of haproxy goes with drain",
        ),
    ],
)
def test_a_mistake_has_its_line_and_what_would_be_accepted(text: str, line: int, says: str) -> None:
    found = mistakes(text)
    assert [one for one in found if one.startswith(f"{HERE}:{line}: ") and says in one], found
    assert all(one.endswith((".", "?")) for one in found)


def test_two_rules_or_steps_of_one_name_are_refused() -> None:
    (rules,) = mistakes('[[rule]]\nname = "a"\n[[rule]]\nname = "a"')
    (steps,) = mistakes('[[rule]]\n[[rule.prepare]]\nrun = ["x"]\n[[rule.prepare]]\nrun = ["/y/x"]')
    assert rules.startswith(f'{HERE}:3: Two rules are called "a", the other one on line 1')
    assert steps.startswith(f'{HERE}:4: Two steps of prepare are called "x"')
    assert only_rule(
        '[[rule]]\n[[rule.prepare]]\nrun = ["x"]\n[[rule.recover]]\nrun = ["x"]'
    ).recover


def test_a_rule_that_takes_the_number_of_another_is_refused() -> None:
    (found,) = mistakes('[[rule]]\nname = "rule-2"\n[[rule]]\ntypes = "Preempt"')
    assert 'called "rule-2"' in found


def test_rules_and_steps_are_bounded() -> None:
    (rules,) = mistakes("[[rule]]\n" * (RULES_MAX + 1))
    step = '[[rule.prepare]]\nname = "s{}"\nrun = ["x"]\n'
    text = "[[rule]]\n" + "".join(step.format(number) for number in range(STEPS_MAX + 1))
    (steps,) = mistakes(text)
    assert f"at most {RULES_MAX}" in rules
    assert f"at most {STEPS_MAX}" in steps


TWENTY_S = '[[rule.prepare]]\nrun = ["{}"]\nlimit = "20s"\n'


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('[[rule]]\ntypes = "Preempt"\n[[rule.prepare]]\nrun = ["x"]\nlimit = "31s"', 3, "30s"),
        ('[[rule]]\n[[rule.prepare]]\nrun = ["x"]\nlimit = "6m"', 2, "Terminate"),
        (
            '[[rule]]\ntypes = ["Reboot", "Redeploy"]\n[[rule.prepare]]\nshell = "x"\nlimit = "2h"',
            3,
            "Redeploy can come with 10m",
        ),
        (
            f'[[rule]]\ntypes = "Preempt"\n{TWENTY_S.format("x")}{TWENTY_S.format("y")}',
            1,
            "may take 40s one after the other, but Preempt can come with 30s of notice",
        ),
        ("[[rule]]", 1, "approves at once"),
        (
            '[[rule]]\napprove = "never"\n[[rule]]\ntypes = "Reboot"\napprove = "never"',
            3,
            "Rule rule-2 matches nothing that rule rule-1 before it leaves.",
        ),
        (
            '[agent]\napi_version = "2017-08-01"\n[[rule]]\ntypes = "Terminate"\napprove = "never"',
            3,
            "2019-01-01 or later for Terminate",
        ),
        (
            '[agent]\napi_version = "2019-04-01"\n[[rule]]\nsource = "User"\napprove = "never"',
            3,
            "matches none",
        ),
        (
            '[agent]\napi_version = "2019-08-01"\n[[rule]]\nmin_duration = "9s"\napprove = "never"',
            3,
            "takes short ones too",
        ),
    ],
)
def test_what_is_probably_not_meant_is_warned_about(text: str, line: int, says: str) -> None:
    (warning,) = read(text).warnings
    assert warning.startswith(f"{HERE}:{line}: ")
    assert says in warning


@pytest.mark.parametrize(
    "later",
    [
        'types = "Preempt"',
        'types = ["Reboot", "Freeze"]',
        'source = "Platform"',
        'resources = "b*"',
    ],
)
def test_a_rule_that_can_match_is_not_warned_about(later: str) -> None:
    earlier = 'types = "Freeze"\nsource = "User"\nresources = "a*"'
    if later == 'types = "Preempt"':
        earlier = ""
    text = f'[[rule]]\napprove = "never"\n{earlier}\n[[rule]]\napprove = "never"\n{later}'
    assert read(text).warnings == ()


def test_any_values_are_read_or_refused_and_nothing_else_happens() -> None:
    dice = random.Random(FUZZ_SEED)
    pairs = re.compile(r"^([\w.]+) = (.*)$", re.MULTILINE)
    keys = [match.group(1) for match in pairs.finditer(EVERYTHING)] + [*KINDS, *STEP, *RULE]
    values = [match.group(2) for match in pairs.finditer(EVERYTHING)] + ODD_VALUES
    refused = 0
    for _ in range(FUZZ_TEXTS):
        lines = EVERYTHING.splitlines()
        for _ in range(dice.randrange(1, 6)):
            line = f"{dice.choice(keys)} = {dice.choice(values)}"
            lines[dice.randrange(len(lines))] = line if dice.random() < 0.8 else "[[rule.prepare]]"
        try:
            assert read("\n".join(lines)).rules
        except ConfigError:
            refused += 1
    assert 0 < refused < FUZZ_TEXTS


def test_every_default_of_the_tables_is_one_that_its_key_takes() -> None:
    for keys in (AGENT, RULE, STEP):
        for key in keys.values():
            if key.default not in (None, ""):
                key.read(key.default)


def test_no_kind_of_step_has_the_name_of_a_key() -> None:
    assert set(KINDS) & set(STEP) == set()


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.toml"
    path.write_text('[[rule]]\nname = "é"\n[[rule.prepare]]\nrun = ["no-such"]', encoding="utf-8")
    with pytest.raises(ConfigError) as refusal:
        config_file.read(path)
    assert [one.split(": ")[0] for one in refusal.value.mistakes] == [f"{path}:2", f"{path}:4"]
    path.write_text(COMMON_CASE, encoding="utf-8")
    assert len(config_file.read(path).rules) == 1
