"""Bugs on purpose in postponing: what is withdrawn, what is announced anew, and the limits.

They are made and found like those of `planted`.
"""

from __future__ import annotations

from simulation.planting import SILENCED_CHECK, Planted

PLANTED_IN_POSTPONING = (
    Planted(
        "postponing",
        "the event that was postponed stays, and starts when it would have",
        (
            (
                "core/postponing.py",
                (
                    "        scope = scope_edits.with_event(scope,"
                    " replace(ended, postponed_to=new.event_id))\n"
                ),
                "",
            ),
        ),
        first=6,
    ),
    Planted(
        "I1 or I6",
        "what is announced anew keeps the approval of what was withdrawn",
        (
            SILENCED_CHECK,
            (
                "core/postponing.py",
                "            postponed_from=old.event_id,\n",
                (
                    "            postponed_from=old.event_id,\n"
                    "            approved_ms=old.approved_ms,\n"
                    "            approved_by=old.approved_by,\n"
                ),
            ),
        ),
        first=27,
    ),
    Planted(
        "I6",
        "the notice of what was withdrawn counts for what is announced anew",
        (
            SILENCED_CHECK,
            (
                "core/postponing.py",
                "            not_before_ms=anew.not_before_ms,\n            postponed_from",
                (
                    "            not_before_ms=scope_edits.whole_second_ms(anew.until_ms),\n"
                    "            shown_ms=old.shown_ms,\n"
                    "            unreadable_ms=old.unreadable_ms,\n"
                    "            postponed_from"
                ),
            ),
        ),
        first=132,
    ),
    Planted(
        "postponing",
        "one scope moves, and the others on the host do not",
        (
            (
                "core/postponing.py",
                "    for scope_name, event_id in operation.members if operation else ():\n",
                "    for scope_name, event_id in ():\n",
            ),
        ),
        first=27,
    ),
    Planted(
        "postponing",
        "how often something was postponed is not counted",
        (
            (
                "core/postponing.py",
                "        postponements=left.postponements + 1,\n",
                "        postponements=left.postponements,\n",
            ),
        ),
        first=125,
    ),
    Planted(
        "I14",
        "what is postponed may go beyond the window of its order",
        (
            SILENCED_CHECK,
            (
                "core/postponing.py",
                "    if event.window is not None:\n        ends",
                "    if event.window is None and False:\n        ends",
            ),
        ),
        first=34,
    ),
)
