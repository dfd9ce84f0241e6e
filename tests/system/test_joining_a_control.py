"""A host daemon becomes a member of a control, stays one, and is shut out, over the real link."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.adapters.system import SystemClock
from forewarn.core.errors import Conflict, Invalid, Refusal, Unavailable
from forewarn.core.model import HOUR_MS
from forewarn.wiring.host import membership
from support.clock import ManualClock
from support.host_world import WEB, cloud, run, scheduled
from support.waiting import until


def test_a_token_joins_once_and_the_same_command_starts_the_host_ever_after(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, {}) as there:
            token = await there.token("h1")
            first = await membership(there.host_settings("h1"), token)
            assert await membership(there.host_settings("h1"), token) == first
            assert await membership(there.host_settings("h1"), None) == first

            (tmp_path / "elsewhere").mkdir()
            stolen = there.host_settings("elsewhere")
            with pytest.raises(Refusal) as used:
                await membership(stolen, token)
            assert "invite" in str(used.value)

    run(test())


def test_without_certificate_and_token_the_way_to_join_is_said(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, {}) as there:
            with pytest.raises(Invalid) as refused:
                await membership(there.host_settings("h1"), None)
            assert "forewarn host invite" in str(refused.value)

            await membership(there.host_settings("h1"), await there.token("h1"))
            named = there.host_settings("h1")
            other = type(named)(data=named.data, name="h7", control=named.control)
            with pytest.raises(Conflict) as differs:
                await membership(other, None)
            assert "--name h1" in str(differs.value)

    run(test())


def test_a_join_that_was_cut_off_is_done_by_the_same_command(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, {}) as there:
            token = await there.token("h1")
            settings = there.host_settings("h1")
            joined = await membership(settings, token)
            # As if it was killed after control had answered and before the answer was kept.
            (settings.data / "joining.pem").write_text(joined.key_pem)
            (settings.data / "host.pem").unlink()

            again = await membership(settings, token)
            assert (again.name, again.key_pem) == ("h1", joined.key_pem)
            assert not (settings.data / "joining.pem").exists()

    run(test())


def test_whoever_is_not_the_control_of_the_token_is_told_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, {}) as there:
            kind, secret, fingerprint = (await there.token("h1")).split(".")
            forged = ".".join((kind, secret, fingerprint[::-1]))

            with pytest.raises(Conflict) as other:
                await membership(there.host_settings("h1"), forged)
            assert "not the control that made this token" in str(other.value)
            there.proxy.drop()
            with pytest.raises(Unavailable):
                await membership(there.host_settings("h1"), ".".join((kind, secret, fingerprint)))

    run(test())


def test_a_certificate_is_renewed_when_two_thirds_of_its_life_have_passed(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        clock.wall = SystemClock().now_ms()
        async with cloud(tmp_path, WEB) as there:
            host = there.hosts["h1"]
            assert not await host.renew_if_due()
            before = (tmp_path / "h1" / "host.pem").read_text()
            far_ms = SystemClock().monotonic_ms()
            host.time.heard(
                clock.wall + 300 * 24 * HOUR_MS,
                asked_monotonic_ms=far_ms,
                heard_monotonic_ms=far_ms,
            )
            assert await host.renew_if_due()

            assert (tmp_path / "h1" / "host.pem").read_text() != before
            answers = host.feed_reader.answers
            await scheduled(there, "web_0")
            await until(lambda: host.feed_reader.answers > answers, "it is followed on")

    run(test())


def test_a_revoked_host_is_not_heard_and_its_guests_keep_their_document(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            await there.operator("POST", "hosts/h1/revoke", {})
            await until(lambda: not there.hosts["h1"].feed_reader.up, "h1 is shut out")

            assert (await there.approve("web_0", event_id)).status_code == 503
            assert [e["EventId"] for e in await there.events("web_0")] == [event_id]

    run(test())
