"""Joining over real TLS: tokens, names and certificates, and what each refusal says."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from forewarn.adapters.certificate_authority import HOST_FOR, Authority
from forewarn.adapters.members_file import MembersFile
from forewarn.adapters.sqlite.data_folder import DatabaseRefused
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.membership import Members
from forewarn.core.model import FactKind
from forewarn.host.listeners import ListenFailed
from forewarn.wire import link as wire
from support.link_world import VERSION, ControlWorld, Machine, control_running, run
from support.shown_scopes import sighting
from support.waiting import until


async def token_for(world: ControlWorld, name: str, **more: object) -> str:
    answer = await world.order(f"/v1/hosts/{name}/invite", more)
    token = answer["token"]
    assert isinstance(token, str)
    assert answer["command"] == (
        f"forewarn host --control {world.where.hosts_url} --name {name} --token-file -"
    )
    return token


async def hosts_of(world: ControlWorld) -> list[str]:
    return [host["name"] for host in (await world.operator("GET", "/v1/hosts")).json()["items"]]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_the_token_tells_a_machine_whom_to_trust_before_it_says_anything(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = world.machine("h1")
            pem = await machine.learn_authority()
            der = x509.load_pem_x509_certificate(pem.encode()).public_bytes(
                serialization.Encoding.DER
            )
            digest = base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")
            form, secret, fingerprint = (await world.token("h1")).split(".")
            assert (form, fingerprint) == ("fw1", digest)
            assert len(secret) >= 32

    run(story)


def test_a_token_lets_one_host_in_and_then_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            token = await world.token("alpha")
            first = await world.machine("alpha").join(token)
            await first.ask("turn", wire.Turn(), wire.TurnTaken)
            hosts = (await world.operator("GET", "/v1/hosts")).json()["items"]
            assert [(host["name"], host["alive"]) for host in hosts] == [("alpha", True)]
            facts = (await world.operator("GET", "/v1/journal")).json()["items"]
            assert FactKind.HOST_JOINED in {fact["kind"] for fact in facts}

            answer = await world.machine("beta").ask_to_join(token)
            assert code_of(answer) == (403, "not-invited")
            assert "used already, by host alpha" in answer.json()["detail"]
            assert "forewarn host invite beta" in answer.json()["remedy"]

    run(story)


def test_a_host_whose_answer_was_lost_joins_again_with_the_same_key(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = world.machine("h1")
            token = await world.token("h1")
            assert (await machine.ask_to_join(token)).status_code == 200
            await machine.join(token)
            await machine.ask("turn", wire.Turn(), wire.TurnTaken)

    run(story)


def test_a_name_is_taken_by_who_has_it_until_another_is_invited_to_replace_it(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            old = await world.joined("h1")
            refused = await world.operator("POST", "/v1/hosts/h1/invite", {})
            assert code_of(refused) == (409, "name-taken")
            assert "host invite h1 --replace" in refused.json()["remedy"]
            new = world.machine("h1", "the other machine")
            await new.join(await token_for(world, "h1", replace=True))

            await new.ask("turn", wire.Turn(), wire.TurnTaken)
            answer = await old.say("turn", wire.Turn())
            assert code_of(answer) == (403, "not-member")
            assert "Another machine has taken the place" in answer.json()["detail"]

    run(story)


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("", "invalid"),
        ("fw1", "invalid"),
        ("fw2.a.b", "invalid"),
        ("fw1..b", "invalid"),
        ("fw1.guessed.b", "not-invited"),
        ("fw1.gue\u00dfed.\u00fc", "not-invited"),
    ],
)
def test_what_is_no_token_of_ours_lets_nobody_in(tmp_path: Path, token: str, code: str) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            answer = await world.machine("h1").ask_to_join(token)
            assert answer.json()["code"] == code
            assert answer.json()["remedy"]
            assert (await world.operator("GET", "/v1/hosts")).json()["items"] == []

    run(story)


def test_a_token_for_one_host_is_worth_nothing_to_another(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            token = await token_for(world, "h1")
            answer = await world.machine("h2").ask_to_join(token)
            assert code_of(answer) == (403, "not-invited")
            # What the request is for counts as much as what the question says.
            machine = world.machine("h1")
            swapped = await machine.ask_to_join(token, request=machine.request("h2"))
            assert code_of(swapped) == (400, "invalid")
            await machine.join(token)

    run(story)


@pytest.mark.parametrize("name", ["", "-h1", "h 1", "h1/../h2", "\u00fc", "x" * 65, "h1\n"])
def test_a_bad_name_is_refused_with_what_would_be_accepted(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = world.machine("h1")
            answer = await machine.ask_to_join(await world.token("h1"), name=name)
            assert code_of(answer) == (400, "invalid")
            assert "letters, digits" in answer.json()["remedy"]

    run(story)


def test_names_that_differ_in_case_only_are_one_name(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            await world.joined("h1")
            answer = await world.machine("H1").ask_to_join(await world.token("H1"))
            assert code_of(answer) == (409, "conflict")

    run(story)


def test_a_revoked_host_is_out_at_once_also_where_it_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = await world.joined("h1")
            known = await machine.changes()
            asked = wire.AskChanges(wire.Since(known.epoch, known.position), 25)
            waiting = asyncio.ensure_future(machine.say("changes", asked))
            view = world.service.host_feed._reader("h1")
            await until(lambda: len(view.waiting), "the host waits")

            assert (await world.operator("POST", "/v1/hosts/h1/revoke")).status_code == 200

            assert code_of(await waiting) == (403, "not-member")
            assert "h1" not in world.service.host_feed._by_host, "nothing is kept of it"
            for name, body in (
                ("turn", wire.Turn()),
                ("changes", wire.AskChanges(None, 0)),
                ("renew", wire.Renew(machine.request())),
            ):
                assert await machine.refused(name, body) == (403, "not-member")
            assert (await world.operator("GET", "/v1/members")).json()["items"] == []
            gone = await world.operator("POST", "/v1/hosts/h1/revoke")
            assert code_of(gone) == (404, "not-found")

    run(story)


def test_a_revoked_host_keeps_its_place_if_a_file_lists_it(tmp_path: Path) -> None:
    async def story() -> None:
        fleet = '[[host]]\nname = "h1"\n[[vm]]\nname = "vm0"\nhost = "h1"\n'
        async with control_running(tmp_path, fleet=fleet) as world:
            for name in ("h1", "h2"):
                await world.joined(name)
                await world.order(f"/v1/hosts/{name}/revoke")
            hosts = (await world.operator("GET", "/v1/hosts")).json()["items"]
            assert [(host["name"], host["joined"], host["listed"]) for host in hosts] == [
                ("h1", False, True)
            ]

    run(story)


def test_a_host_is_revoked_at_once_while_a_large_file_is_read_and_nobody_waits_for_that(
    tmp_path: Path,
) -> None:
    """Its place depends on the file; were the writer to read it, orders would wait for long."""

    async def story() -> None:
        fleet = '[[host]]\nname = "h1"\n[[vm]]\nname = "vm0"\nhost = "h1"\n'
        async with control_running(tmp_path, fleet=fleet) as world:
            machine = await world.joined("h1")
            files = world.service.parts.files
            assert files is not None
            files.reading = True
            revoking = asyncio.ensure_future(world.order("/v1/hosts/h1/revoke"))
            await until(lambda: not world.service.membership.members(), "it is out")
            assert await machine.refused("turn", wire.Turn()) == (403, "not-member")
            await world.order("/v1/hosts/h1/close")
            assert not revoking.done()
            files.reading = False
            assert (await revoking)["stays"] is True

    run(story)


def test_a_revoked_host_with_vms_leaves_when_that_is_said_again_without_them(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            vm_id = "6695eb01-f6a4-8304-79aa-97f2502e193f"
            there = sighting((SeenVm(name="vm0", vm_id=vm_id, power=Power.RUNNING),))
            await (await world.joined("h1")).ask("sight", there, wire.Sighted)
            assert (await world.order("/v1/hosts/h1/revoke"))["stays"] is True
            assert (await world.order("/v1/hosts/h1/revoke"))["stays"] is True
            assert await hosts_of(world) == ["h1"]  # its VM is there
            await (await world.joined("h2")).ask("sight", there, wire.Sighted)
            assert (await world.order("/v1/hosts/h1/revoke"))["stays"] is False
            assert await hosts_of(world) == ["h2"]
            gone = await world.operator("POST", "/v1/hosts/h1/revoke")
            assert code_of(gone) == (404, "not-found")

    run(story)


def test_a_certificate_is_renewed_for_the_same_name_and_key_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = await world.joined("h1")
            other = await world.joined("h2")
            renewed = await machine.ask("renew", wire.Renew(machine.request()), wire.Joined)
            assert renewed.authority == machine.authority
            for wrong in (machine.request("h2"), other.request("h1"), "nothing"):
                assert await machine.refused("renew", wire.Renew(wrong)) == (400, "invalid")
            machine.keep(renewed.certificate)
            await machine.ask("turn", wire.Turn(), wire.TurnTaken)

    run(story)


def test_an_expired_certificate_is_refused_in_words(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = await world.joined("h1")
            authority = Authority(tmp_path / "control" / "link")
            long_ago = datetime.now(UTC) - HOST_FOR - timedelta(seconds=1)
            machine.keep(authority.sign(machine.request(), name="h1", now=long_ago))
            answer = await machine.say("turn", wire.Turn())
            assert code_of(answer) == (403, "not-member")
            assert "has expired" in answer.json()["detail"]
            assert "host invite h1 --replace" in answer.json()["remedy"]
            assert await machine.refused("renew", wire.Renew(machine.request())) == (
                403,
                "not-member",
            )

    run(story)


def test_without_a_certificate_there_is_nothing_but_the_way_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            stranger = world.machine("h1")
            await stranger.learn_authority()
            for name in ("changes", "turn", "claim", "approve", "sight", "definition"):
                answer = await stranger.say(name, {})
                assert code_of(answer) == (403, "not-member"), name
                assert "forewarn host invite" in answer.json()["remedy"]

    run(story)


def test_a_certificate_of_another_authority_does_not_get_through_tls(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            control_running(tmp_path / "ours") as ours,
            control_running(tmp_path / "theirs") as theirs,
        ):
            foreign = await theirs.joined("h1")
            await ours.joined("h1")
            caught = Machine(ours.where.hosts_url, foreign.folder, "h1")
            caught.key = foreign.key
            await caught.learn_authority()
            with pytest.raises((httpx.HTTPError, ssl.SSLError)):
                await caught.say("turn", wire.Turn())

    run(story)


def test_control_does_not_pass_for_another_control(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            control_running(tmp_path / "ours") as ours,
            control_running(tmp_path / "theirs") as theirs,
        ):
            machine = await ours.joined("h1")
            machine.url = theirs.where.hosts_url
            with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                await machine.say("turn", wire.Turn())

    run(story)


def test_a_hosts_certificate_cannot_pass_for_controls(tmp_path: Path) -> None:
    """A host that was broken into cannot stand in for control towards the others."""

    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = await world.joined("localhost")
            serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            serving.load_cert_chain(machine.folder / "host.pem")
            trusting = machine.trusting()
            trusting.check_hostname = False
            assert not _shakes_hands(serving, trusting)

    run(story)


def _shakes_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Whether a client accepts a server, without any network."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = server.wrap_bio(to_server, to_client, server_side=True)
    other = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(10):
        done = 0
        for side in (other, one):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
        if done == 2:
            return True
    return False


def test_old_versions_of_tls_are_not_spoken(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = world.machine("h1")
            await machine.learn_authority()
            old = machine.trusting()
            old.set_ciphers("DEFAULT:@SECLEVEL=0")
            old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            with pytest.warns(DeprecationWarning, match="TLSv1_1"):
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            async with httpx.AsyncClient(verify=old, trust_env=False) as client:
                with pytest.raises(httpx.ConnectError):
                    await client.get(f"{machine.url}/link/authority")

    run(story)


def test_after_a_restart_members_are_members_and_used_tokens_stay_used(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            used = await world.token("h1")
            machine = await world.machine("h1").join(used)
            before = (await machine.changes()).epoch
        async with control_running(tmp_path) as world:
            assert world.where.members == 1
            machine.url = world.where.hosts_url
            assert (await machine.changes()).epoch != before
            answer = await world.machine("h2").ask_to_join(used)
            assert code_of(answer) == (403, "not-invited")

    run(story)


def test_a_place_and_a_membership_agree_after_a_restart_whatever_was_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            await world.joined("h1")
            await world.joined("h2")
        members = tmp_path / "control" / "link" / "members.json"
        kept = members.read_text()
        MembersFile(members.parent).keep(Members())
        async with control_running(tmp_path) as world:
            assert (await world.operator("GET", "/v1/hosts")).json()["items"] == []
        members.write_text(kept)
        async with control_running(tmp_path) as world:
            hosts = (await world.operator("GET", "/v1/hosts")).json()["items"]
            assert [host["name"] for host in hosts] == ["h1", "h2"]

    run(story)


def test_a_join_that_could_not_be_kept_uses_no_token_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine, token = world.machine("h1"), await world.token("h1")
            link, away = tmp_path / "control" / "link", tmp_path / "away"
            link.rename(away)
            answer = await machine.ask_to_join(token)
            assert code_of(answer) == (503, "unavailable")
            assert answer.headers["retry-after"]
            refused = await world.operator("POST", "/v1/hosts/h2/invite", {})
            assert code_of(refused) == (503, "unavailable")
            away.rename(link)
            await machine.join(token)

    run(story)


def test_a_damaged_members_file_stops_the_start_and_is_left_as_it_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            await world.joined("h1")
        members = tmp_path / "control" / "link" / "members.json"
        members.write_text(members.read_text()[:-20])
        for _ in range(2):
            with pytest.raises(DatabaseRefused, match=r"members.json is damaged"):
                async with control_running(tmp_path):
                    pass

    run(story)


def test_a_members_file_that_is_gone_stops_the_start_if_hosts_have_joined(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            await world.joined("h1")
        link = tmp_path / "control" / "link"
        (link / "members.json").rename(tmp_path / "kept")
        with pytest.raises(DatabaseRefused, match=r"is not there, and host h1 has joined.*copy"):
            async with control_running(tmp_path):
                pass
        # Without the whole folder it is a new authority, and every host joins again.
        link.rename(tmp_path / "away")
        async with control_running(tmp_path) as world:
            assert (await world.operator("GET", "/v1/hosts")).json()["items"] == []

    run(story)


def test_an_address_in_use_is_named_with_the_option_that_changes_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path / "one") as one:
            with pytest.raises(ListenFailed, match=r"link for hosts on 127\.0\.0\.1.*--hosts"):
                async with control_running(tmp_path / "two", hosts=one.where.hosts_listen):
                    pass

    run(story)


def test_the_url_that_hosts_are_told_is_in_the_certificate(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path, hosts_url="https://ctl.example:8256/") as world:
            assert world.where.hosts_url == "https://ctl.example:8256"
            invited = await world.order("/v1/hosts/h1/invite", {})
            assert "--control https://ctl.example:8256 --name h1" in invited["command"]
            crt = (tmp_path / "control" / "link" / "server.crt").read_bytes()
            names = x509.load_pem_x509_certificate(crt).extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            )
            assert "ctl.example" in {str(name.value) for name in names.value}

    run(story)


def test_the_way_in_has_limits_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = world.machine("h1")
            await machine.learn_authority()
            for body, status in (
                (b"x" * 70_000, 413),
                (b"null", 400),
                (b"", 400),
                (b"[[[[", 400),
                (b'{"name": "h1"}', 400),
                (b"[" * 50_000, 400),
            ):
                answer = await machine.say("join", body, headers=VERSION)
                assert answer.status_code == status, body[:20]
            assert (await machine.ask_to_join(await world.token("h1"))).status_code == 200

    run(story)
