"""The keys of a configuration file: what each is for, what it takes, and its reader. Tables only.

`config_file` reads with them and the reference page lists them. A reader returns the value that
the agent works with, or raises ValueError with words that follow the key: "must be ...".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable
from urllib.parse import urlsplit

from forewarn_guest.configuration import Approve, OnUnknown
from forewarn_guest.durations import ACCEPTS, in_words, read_seconds
from forewarn_guest.steps.options import absolute_path, list_of, matching, text, yes_or_no

Reader = Callable[[object], Any]

PREEMPT = "Preempt"
# The least notice of each type that is documented (3.3); Terminate is set by its owner, from 5 m.
NOTICE_S = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, PREEMPT: 30, "Terminate": 300}
RECOMMENDATION = "SpotRebalanceRecommendation"  # Q3
EVENT_TYPES = (*NOTICE_S, RECOMMENDATION)
SOURCES = ("Platform", "User")
API_VERSIONS = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
    "2024-07-09",
)
# The first version that tells it (1.5, 1.6); what is not here, all of them do.
TELLS_SINCE = {
    PREEMPT: "2017-11-01",
    "Terminate": "2019-01-01",
    "source": "2019-08-01",
    "min_duration": "2020-07-01",
    RECOMMENDATION: "2024-07-09",
}

NAME_CHARS_MAX = 64
PATTERN_CHARS_MAX = 255
ARGUMENTS_MAX = 100
COMMAND_CHARS_MAX = 16_384
LIMIT_S_MAX = 86_400.0
MARGIN_S_MAX = 3_600.0
TAKE_OVER_S_MAX = 3_600.0


@dataclass(frozen=True)
class Key:
    """One key. `default` is what stands for it when it is left out, as the file would have it."""

    what: str
    accepts: str
    read: Reader
    default: object = None


def did_you_mean(word: str, words: tuple[str, ...]) -> str:
    """The nearest of some words as a question, or nothing if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it, seldom

    by_small = {known.lower(): known for known in words}
    near = get_close_matches(word.lower(), by_small, n=1)
    return f' Did you mean "{by_small[near[0]]}"?' if near else ""


def one_of(*words: str) -> Reader:
    """One of some words, as they are written."""
    accepts = ", ".join(f'"{word}"' for word in words)

    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        near = did_you_mean(value, words) if isinstance(value, str) else ""
        raise ValueError(f"must be one of {accepts}.{near}")

    return read


def between(least_s: float, most_s: float) -> Reader:
    """A length of time, both ends included."""

    def read(value: object) -> float:
        seconds = read_seconds(value)
        if not least_s <= seconds <= most_s:
            raise ValueError(f"must be from {in_words(least_s)} to {in_words(most_s)}")
        return seconds

    return read


def _whole_seconds(value: object) -> int:
    seconds = read_seconds(value)
    if seconds != int(seconds) or seconds < 1:
        raise ValueError("must be whole seconds, one or more: events say no less")
    return int(seconds)


def _endpoint(value: object) -> str:
    accepts = 'must be like "http://169.254.169.254" or "http://10.0.0.1:8080"'
    try:
        parts = urlsplit(text(value))
        port = parts.port
    except ValueError:
        raise ValueError(accepts) from None
    if parts.scheme != "http" or not parts.hostname or parts.username is not None or port == 0:
        raise ValueError(accepts)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f'must have nothing behind the host: "http://{parts.netloc}"')
    return f"http://{parts.netloc}"


def _path(value: object) -> Path:
    return Path(absolute_path(value))


def _metrics_path(value: object) -> Path:
    path = _path(value)
    if path.suffix != ".prom":
        raise ValueError("must end with .prom: a textfile collector reads nothing else")
    return path


def _argv(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= ARGUMENTS_MAX:
        raise ValueError(
            f"must be a list of a program and its arguments, up to {ARGUMENTS_MAX} texts,"
            ' like ["/usr/local/bin/drain", "--wait"]'
        )
    if not all(isinstance(argument, str) for argument in value):
        raise ValueError("must have nothing but texts: numbers in quotes")
    if not value[0]:
        raise ValueError("must begin with the name of a program")
    return tuple(_command_text(argument) for argument in value)


def _command_text(value: str) -> str:
    if len(value) > COMMAND_CHARS_MAX or "\0" in value:
        raise ValueError(f"must have at most {COMMAND_CHARS_MAX:,} characters, and no zero byte")
    return value


def _shell_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text for /bin/sh")
    return _command_text(value)


def _enum(kind: Any, **renamed: str) -> Reader:
    """A word of an enum. An older spelling is refused with the one that took its place."""
    read_word = one_of(*(member.value for member in kind))

    def read(value: object) -> Any:
        if isinstance(value, str) and value in renamed:
            raise ValueError(f'must not be "{value}" any longer: write "{renamed[value]}"')
        return kind(read_word(value))

    return read


name = matching(
    r"(?=[A-Za-z0-9])[A-Za-z0-9_.-]{1," + str(NAME_CHARS_MAX) + "}",
    f"a name of letters, digits, _, . and -, at most {NAME_CHARS_MAX}",
)

AGENT: Mapping[str, Key] = {
    "endpoint": Key(
        "Where the endpoint is; without it, the agent looks for it.",
        'like "http://169.254.169.254"',
        _endpoint,
    ),
    "vm": Key("The name of this VM in events; without it, the endpoint is asked.", "a name", text),
    "folder": Key(
        "Where the journal is kept.",
        "an absolute path",
        _path,
        "/var/lib/forewarn-guest",
    ),
    "api_version": Key(
        "The version of the protocol.",
        ", ".join(API_VERSIONS),
        one_of(*API_VERSIONS),
        "2020-07-01",
    ),
    "status_file": Key(
        "A file that always says, as JSON, what the agent is doing.", "an absolute path", _path
    ),
    "metrics_file": Key(
        "A file of metrics for Prometheus' textfile collector.",
        "an absolute path that ends with .prom",
        _metrics_path,
    ),
    "log": Key("How log lines are written.", '"text" or "json"', one_of("text", "json"), "text"),
}

RULE: Mapping[str, Key] = {
    "name": Key(
        "What the journal and the log call it, without it rule-1 by its number; do not rename it"
        " while an event stands.",
        f"letters, digits, _, . and -, at most {NAME_CHARS_MAX}; no two alike",
        name,
    ),
    "types": Key(
        "The types of events that it is about; without it, all but Preempt, which has thirty"
        " seconds of notice and wants a rule of its own.",
        "one of " + ", ".join(EVENT_TYPES) + ", or a list",
        list_of(one_of(*EVENT_TYPES)),
    ),
    "source": Key("Only events of this source.", '"Platform" or "User"', one_of(*SOURCES), ""),
    "min_duration": Key(
        "Leaves out events that say they are shorter; an event that does not say is taken.",
        "whole seconds, like " + '"10s"',
        _whole_seconds,
    ),
    "resources": Key(
        "Only events that name a VM like this; * and ? stand for anything.",
        'a pattern like "web_*", or a list',
        list_of(matching(r".{1," + str(PATTERN_CHARS_MAX) + "}", "a pattern like web_*")),
    ),
    "ignore": Key(
        "Note such events, and leave them alone.", "true or false", yes_or_no, default=False
    ),
    "approve": Key(
        "Who says go ahead, and when; at-once only with source = User.",
        '"after-prepare", "first-named", "at-once" or "never"',
        _enum(Approve, leader="first-named"),
        "after-prepare",
    ),
    "take_over": Key(
        "With first-named: how long the next VM waits for the one before it.",
        ACCEPTS,
        between(1.0, TAKE_OVER_S_MAX),
        "60s",
    ),
    "margin": Key(
        "Prepare steps are stopped this long before the event may start; for Preempt 1s, if it is"
        " left out.",
        ACCEPTS,
        between(0.0, MARGIN_S_MAX),
        "10s",
    ),
}

STEP: Mapping[str, Key] = {
    "name": Key(
        "What the journal and the log call it; without it, the name of its program or of its kind.",
        f"letters, digits, _, . and -, at most {NAME_CHARS_MAX}; no two alike in one list",
        name,
    ),
    "run": Key(
        "A program and its arguments, without a shell: an absolute path, or a name that is looked"
        " up on the PATH of the agent.",
        'a list, like ["/usr/local/bin/drain", "--wait"]',
        _argv,
    ),
    "shell": Key("A text for /bin/sh.", 'a text, like "touch /run/draining"', _shell_text),
    "limit": Key(
        "How long it may take; then it is stopped and has failed (prepare steps are also bound by"
        " the time that is left).",
        ACCEPTS,
        between(0.1, LIMIT_S_MAX),
        "5m",
    ),
    "on_unknown": Key(
        "What to make of it if its end was not recorded, because the agent or the VM was killed.",
        '"repeat", "treat-as-done" or "treat-as-failed"',
        _enum(OnUnknown),
        "treat-as-failed",
    ),
    "optional": Key(
        "It may fail: the steps after it run and the event is approved all the same.",
        "true or false",
        yes_or_no,
        default=False,
    ),
}
COMMANDS = ("run", "shell")
