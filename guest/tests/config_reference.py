"""Writes docs/guest-configuration.md from the tables of the code.

`PYTHONPATH=guest/src python guest/tests/config_reference.py` rewrites the page;
test_config_reference.py fails while it is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from forewarn_guest.config_file import CONFIG_BYTES_MAX, RULES_MAX, STEPS_MAX
from forewarn_guest.config_keys import AGENT, NOTICE_S, RULE, STEP, Key
from forewarn_guest.durations import in_words
from forewarn_guest.steps import KINDS, Option, StepKind

PAGE = Path(__file__).parent.parent.parent / "docs" / "guest-configuration.md"
REGENERATE = "PYTHONPATH=guest/src python guest/tests/config_reference.py"


def page() -> str:
    """The whole page."""
    return "\n".join([*_beginning(), *_rules(), *_steps(), *_kinds(), ""])


def _beginning() -> Iterator[str]:
    yield f"""# The configuration of the guest agent

<!-- Made from the code by `{REGENERATE}`; change the code, not this page. -->

One TOML file of at most {CONFIG_BYTES_MAX // 1_024} KiB. How to use it, with worked examples, is in
[guest.md](guest.md). Every mistake is refused at start, all of them at once, each with its line and
what would be accepted; `forewarn-guest check --config FILE` says the same and starts nothing.
Lengths of time are texts with d, h, m and s, like `"1h30m"`. Dates are not taken.

## [agent]

All of it can be left out.
"""
    yield from _keys(AGENT)


def _rules() -> Iterator[str]:
    yield f"""
## [[rule]]

The first rule that matches an event decides about it; an event that none matches is left alone. Up
to {RULES_MAX} rules. Each has lists of steps, all of which can be left out: `[[rule.prepare]]` runs
when the event is scheduled, `[[rule.started]]` when it has started, `[[rule.recover]]` when it is
gone after it has happened, and `[[rule.canceled]]` when it is gone without having happened; without
`[[rule.canceled]]`, what recovers also undoes (`canceled = []` undoes nothing).
"""
    yield from _keys(RULE)
    yield """
`approve` says who goes ahead: with `"after-prepare"` this VM, when every prepare step is done; with
`"first-named"` the same, but the VM that the event names first, the others only in its stead; with
`"at-once"` this VM, before anything is prepared; with `"never"` no VM, and the event starts at its
time. The journal knows rules by their names: a rule that is renamed while an event stands leaves it
alone.

The least notice of each type, as far as it is documented; a prepare step that may take longer is
warned about:

| type | notice |
|---|---|"""
    for event_type, notice_s in NOTICE_S.items():
        yield f"| {event_type} | {in_words(notice_s)} |"


def _steps() -> Iterator[str]:
    yield f"""
## Steps

A list has up to {STEPS_MAX} steps, which run one after the other. A step has one of `run`, `shell`
and the built-in kinds below, and these keys. Files that run must exist and be executable. They,
the folders above them and the configuration itself must not be writable for every user.
"""
    yield from _keys(STEP)


def _kinds() -> Iterator[str]:
    yield """
## Built-in kinds

A table with the name of the kind stands in the step, like
`systemd = { action = "stop", units = ["app.service"] }`. Seconds are numbers here, and what is
**required** is bold."""
    for kind in KINDS.values():
        yield from _kind(kind)


def _kind(kind: StepKind) -> Iterator[str]:
    yield f"\n### {kind.name}\n\n{kind.what}\n"
    yield "| option | what it is for | takes | without it |\n|---|---|---|---|"
    for name, option in kind.options.items():
        if name == "limit":
            continue  # stands beside the kind, as for every step
        shown = f"**`{name}`**" if option.required else f"`{name}`"
        cells = (shown, option.what, option.accepts, _default_of(option))
        yield "| " + " | ".join(map(_cell, cells)) + " |"


def _keys(keys: Mapping[str, Key]) -> Iterator[str]:
    yield "| key | what it is for | takes | without it |\n|---|---|---|---|"
    for name, key in keys.items():
        default = "" if key.default in (None, "") else f"`{_as_toml(key.default)}`"
        yield "| " + " | ".join(map(_cell, (f"`{name}`", key.what, key.accepts, default))) + " |"


def _default_of(option: Option) -> str:
    if option.required or option.default in (None, "") or option.default == {}:
        return ""
    one = option.default
    if isinstance(one, tuple):
        return ", ".join(f"`{_as_toml(str(member))}`" for member in one)
    return f"`{_as_toml(one if isinstance(one, (bool, int)) else str(one))}`"


def _as_toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _cell(text: str) -> str:
    """A text inside a table of Markdown."""
    return text.replace("|", "\\|").replace("*", "\\*") if "**`" not in text else text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
