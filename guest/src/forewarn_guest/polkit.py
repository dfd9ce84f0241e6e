"""The polkit rule that lets the agent's user do to units what its configuration says, no more.

polkit asks a JavaScript function. Only names and verbs from the configuration are in its text, as
JSON strings, which are JavaScript strings too. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from forewarn_guest.configuration import Configuration
from forewarn_guest.deciding import steps_of

_RULES = """\
// Lets the agent's user do exactly this to exactly these units, without a password.
polkit.addRule(function(action, subject) {
    if (action.id != "org.freedesktop.systemd1.manage-units" || subject.user != "forewarn-guest") {
        return polkit.Result.NOT_HANDLED;
    }
    var allowed = [
%s
    ];
    for (var i = 0; i < allowed.length; i++) {
        if (action.lookup("unit") === allowed[i][0] && action.lookup("verb") === allowed[i][1]) {
            return polkit.Result.YES;
        }
    }
    return polkit.Result.NOT_HANDLED;
});
"""


def units_of(configuration: Configuration) -> Mapping[str, tuple[str, ...]]:
    """The units of the system that `systemd` steps name, and what each is to be done to it.

    Units of the user's own systemd need no rule.
    """
    found: dict[str, set[str]] = {}
    for rule in configuration.rules:
        for _, step in steps_of(rule):
            if step.kind != "systemd" or step.options.get("user"):
                continue
            units = step.options["units"]
            for unit in [units] if isinstance(units, str) else units:
                found.setdefault(unit, set()).add(step.options["action"])
    return {unit: tuple(sorted(verbs)) for unit, verbs in sorted(found.items())}


def rules(units: Mapping[str, tuple[str, ...]]) -> str:
    """The rules file for these units and verbs."""
    pairs = [
        f"        [{json.dumps(unit)}, {json.dumps(verb)}]"
        for unit, verbs in units.items()
        for verb in verbs
    ]
    return _RULES % ",\n".join(pairs)
