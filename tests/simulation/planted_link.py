"""Bugs on purpose between control and its guests: feed, follower, marks, link, proxy, reports.

They are made and found like those of `planted`.
"""

from __future__ import annotations

from simulation.planting import Planted

PLANTED_IN_LINK = (
    Planted(
        "documents or I7",
        "the feed forgets to look again at a scope that a host knows already",
        (
            (
                "control/hosts/host_feed.py",
                "            if before.looked == scope.commit:\n",
                "            if before is not None:\n",
            ),
        ),
        first=3,
    ),
    Planted(
        "documents or I7",
        "the store does not keep when what hosts are shown of a scope has changed",
        (
            (
                "tables/folding.py",
                "shown = before is None or scope.name in self._change.shown\n",
                "shown = before is None\n",
            ),
        ),
        first=25,
    ),
    Planted(
        "I7",
        "a host whose word does not count any more is not told to give it again",
        (
            (
                "control/hosts/feed_positions.py",
                "    if new.shown_ms is None and old.shown_ms is not None:\n",
                "    if new.shown_ms is None and old.silent:\n",
            ),
        ),
        first=36,
    ),
    Planted(
        "documents",
        "a follower goes on showing what control does not name any more",
        (
            (
                "host/feed_reader.py",
                "        gone = self._names - names\n",
                "        gone = self._names - names - self._names\n",
            ),
        ),
        first=3,
    ),
    Planted(
        "documents or I7",
        "a follower counts an answer that it has not taken over",
        (
            (
                "host/feed_reader.py",
                "            await self._take_over(await question())\n",
                (
                    "            changes = await question()\n"
                    "            self._since = Since(changes.epoch, changes.position)\n"
                    "            if changes.scopes and self.answers % 7 == 3:\n"
                    "                raise Unavailable('put off')\n"
                    "            await self._take_over(changes)\n"
                ),
            ),
        ),
        first=11,
    ),
    Planted(
        "I4",
        "a daemon shows what it kept last, whatever its guests have read since",
        (
            (
                "host/feed_reader.py",
                (
                    "        newest = [scope for scope in scopes"
                    " if self._marks.above(scope) is None]\n"
                ),
                "        newest = list(scopes)\n",
            ),
        ),
        first=5,
    ),
    Planted(
        "I4",
        "guests are shown what is new before it is marked, and the marks are not kept",
        (
            (
                "host/feed_reader.py",
                "        await self._keep(raised)\n        self._marks = raised\n",
                "        self._marks = raised\n",
            ),
        ),
        first=5,
    ),
    Planted(
        "a lie",
        "a host confirms an incarnation that never was",
        (
            (
                "control/guest_commands.py",
                "    if incarnation > scope.incarnation:\n",
                "    if incarnation < 0:\n",
            ),
        ),
    ),
    Planted(
        "a lie",
        "a host may approve for VMs of others",
        (
            (
                "control/guest_commands.py",
                "need_own_vm(tx, command.host, command.vm), command.event_ids\n",
                "tx.need_scope_of_vm(command.vm), command.event_ids\n",
            ),
        ),
        first=3,
    ),
    Planted(
        "a lie",
        "a report of another claim than the present one is taken",
        (
            (
                "core/ending.py",
                "    if action.phase is not ActionPhase.CLAIMED or action.epoch != epoch:\n",
                "    if action.phase is not ActionPhase.CLAIMED:\n",
            ),
        ),
        first=10,
    ),
    Planted(
        "a lie",
        "a host that shows a VM has it, though its own host shows it too",
        (
            (
                "core/inventory/location.py",
                "            if claim > rank:\n",
                "            if claim >= rank:\n",
            ),
        ),
        first=10,
    ),
    Planted(
        "claims or a lie",
        "hosts are given what others have to do",
        (
            (
                "control/hosts/action_claims.py",
                "                if action.host == host:\n                    yield",
                "                if action.host:\n                    yield",
            ),
        ),
        first=17,
    ),
    Planted(
        "I5 or I8",
        "the guest proxy answers an approval that control did not keep",
        (
            (
                "host/guest_proxy.py",
                (
                    "        except NotYours as why:  # another tool brought it here; control does"
                    " not know yet\n            raise Unavailable(str(why)) from why\n"
                ),
                "        except (NotYours, Unavailable):\n            return\n",
            ),
        ),
        first=1,
    ),
    Planted(
        "membership",
        "a host that was shut out is answered all the same",
        (
            (
                "core/membership.py",
                "    if member is None:\n        raise NotMember(\n",
                (
                    "    if member is None:\n"
                    "        return Member(name=name, key=key, since_ms=0)\n"
                    "        raise NotMember(\n"
                ),
            ),
        ),
    ),
)
