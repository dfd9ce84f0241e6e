"""Bugs on purpose: for each invariant a change to the sources that breaks it.

Those of the rules are here, those of postponing in `planted_postponing`, those between control and
its guests in `planted_link`.
"""

from __future__ import annotations

from simulation.planted_link import PLANTED_IN_LINK
from simulation.planted_postponing import PLANTED_IN_POSTPONING
from simulation.planting import SILENCED_CHECK, Planted

PLANTED = (
    Planted(
        "I1",
        "NotBefore is forgotten once the minimum notice has been given",
        (
            SILENCED_CHECK,
            (
                "core/notice.py",
                (
                    "    return max(event.not_before_ms, event.shown_ms + event.unreadable_ms"
                    " + event.minimum_notice_ms)\n"
                ),
                "    return event.shown_ms + event.unreadable_ms + event.minimum_notice_ms\n",
            ),
        ),
        first=5,
    ),
    Planted(
        "I14",
        "what is approved does not wait for its window",
        (
            SILENCED_CHECK,
            (
                "core/windows.py",
                "    return window is None or window.start_ms <= now_ms < window.end_ms\n",
                "    return window is None or now_ms < window.end_ms\n",
            ),
        ),
        first=9,
    ),
    Planted(
        "I14",
        "the window of an operation is not that of its events",
        (
            SILENCED_CHECK,
            (
                "core/scheduling.py",
                "        window=operation.window,\n        duration_s=operation.duration_s,\n",
                "        duration_s=operation.duration_s,\n",
            ),
        ),
        first=14,
    ),
    Planted(
        "I2",
        "a start does not look at other update domains",
        (
            SILENCED_CHECK,
            (
                "core/starting.py",
                "    for other in started_elsewhere(scope, event):\n",
                "    for other in ():\n",
            ),
        ),
        first=17,
    ),
    Planted(
        "I3",
        "an event changes its EventId when it starts",
        (
            (
                "wire/documents.py",
                '        "EventId": event.event_id.upper(),\n',
                '        "EventId": ("F" if started else "0") + event.event_id.upper()[1:],\n',
            ),
        ),
    ),
    Planted(
        "I4",
        "the incarnation does not move when an event appears",
        (
            SILENCED_CHECK,
            (
                "core/scope_edits.py",
                "    incarnation = before.incarnation + 1 if changed else before.incarnation\n",
                "    incarnation = before.incarnation\n",
            ),
        ),
    ),
    Planted(
        "I5",
        "an approval is answered and not written",
        (
            (
                "control/guest_commands.py",
                "    tx.apply(\n        polls_and_approvals.approve(scope,",
                "    (\n        polls_and_approvals.approve(scope,",
            ),
        ),
        first=3,
    ),
    Planted(
        "I6",
        "the silence of a host counts as notice",
        (
            SILENCED_CHECK,
            (
                "core/lost_time.py",
                (
                    "    if events == scope.events:\n        return Decision()\n"
                    "    return Decision(scopes=(replace(scope, events=events),))\n"
                ),
                "    return Decision()\n",
            ),
        ),
        first=8,
    ),
    Planted(
        "I7",
        "a started event without a report never expires",
        (
            (
                "control/ticker.py",
                "    return fleet.now_ms >= event.deadline_ms and not of_host",
                "    return False",
            ),
            (
                "core/hosts.py",
                "        return _at(action, vm, home.name)\n    if not home.fenced:\n",
                "        return None\n    if not home.fenced:\n",
            ),
        ),
        first=15,
    ),
    Planted(
        "a VM runs twice",
        "VMs of a failed host start elsewhere though nobody said that it is off",
        (
            (
                "core/hosts.py",
                "    if not home.fenced:\n        return None\n",
                "",
            ),
        ),
        first=114,
    ),
    Planted(
        "a VM runs twice",
        "what nobody looked at happens on a host that is off by then",
        (
            (
                "adapters/simulated/hypervisor.py",
                "        self._settle()\n        self._dead.add(host)\n",
                "        self._dead.add(host)\n",
            ),
            (
                "adapters/simulated/hypervisor.py",
                "            if begun.action.target_host == host:\n",
                "            if begun.action.target_host is host is None:\n",
            ),
        ),
        first=9_001_013,
    ),
    Planted(
        "a VM runs twice",
        "the target of a move starts the VM though nobody said that its source is off",
        (
            (
                "core/hosts.py",
                "    if not home.fenced:\n        return None\n",
                "    if not home.fenced and other is None:\n        return None\n",
            ),
        ),
        first=9_000_308,
    ),
    Planted(
        "a VM runs twice",
        "a source that returns starts what its target may run",
        (
            (
                "core/hosts.py",
                "        if other is not None and not vm.off:\n",
                "        if other == home:\n",
            ),
            (
                "control/hosts/vm_power.py",
                "            if vm.may_run_on == host and powers",
                "            if vm.may_run_on is host is None and powers",
            ),
        ),
        first=9_000_178,
    ),
    Planted(
        "a VM is lost",
        "a VM that arrives on a host that has failed meanwhile is not declared",
        (
            (
                "control/hosts/action_claims.py",
                "    if held.action.kind is ActionKind.MOVE_VM:\n",
                "    if held.action.kind is ActionKind.FIND_VM:\n",
            ),
        ),
        first=9_001_106,
    ),
    Planted(
        "power",
        "a VM that its owner switched off is started when its host fails",
        (
            (
                "core/hosts.py",
                "    kind = ActionKind.DEFINE_VM if vm.off else ActionKind.START_VM\n",
                "    kind = ActionKind.START_VM\n",
            ),
        ),
        first=9_000_142,
    ),
    Planted(
        "I6",
        "a daemon that was down for a moment counts as if it had shown its documents",
        (
            SILENCED_CHECK,
            (
                "control/hosts/action_claims.py",
                "    elif silent_ms > notice.HEARTBEAT_LATE_MS:\n",
                "    elif silent_ms < 0:\n",
            ),
            (
                "core/starting.py",
                "    if late_ms > notice.HEARTBEAT_LATE_MS:\n",
                "    if late_ms < 0:\n",
            ),
        ),
        first=8_000_003,
    ),
    Planted(
        "I6",
        "what was decided because a VM is off is done to it when it runs",
        (
            (
                "core/starting.py",
                "            only_off=only_off,\n",
                "            only_off=not only_off and only_off,\n",
            ),
        ),
        first=9_000_142,
    ),
    Planted(
        "I6",
        "the notice that an owner asked for before a deletion is forgotten",
        (
            SILENCED_CHECK,
            (
                "core/notice.py",
                "        return scope.terminate_notice_ms\n",
                "        return TERMINATE_NOTICE_MS[0]\n",
            ),
        ),
        first=3,
    ),
    Planted(
        "I8",
        "an approval does not mind whose event it names",
        (
            (
                "core/polls_and_approvals.py",
                "    if unknown:\n",
                "    if unknown and not event_ids:\n",
            ),
        ),
        first=7,
    ),
    *PLANTED_IN_POSTPONING,
    *PLANTED_IN_LINK,
)
