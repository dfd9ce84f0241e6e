"""Every command of an operator: what it does, and what a person or a script sees."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from forewarn.cli.main import app, mount
from forewarn.cli.serve import say_where
from forewarn.core.model import MINUTE_MS
from forewarn.wiring.serve import Where
from support.cli_runner import ask, forewarn
from support.operator_world import FLEET, OperatorWorld, running

ROOT = Path(__file__).parent.parent.parent
LONG = "a-virtual-machine-with-a-name-that-somebody-thought-about"


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def fits(text: str, columns: int = 80) -> bool:
    return all(len(line.rstrip()) <= columns for line in text.splitlines())


def column(table: str, name: str) -> str:
    """What is in a column of the last table of an output, put together from its lines."""
    lines = table.splitlines()
    head = max(n for n, line in enumerate(lines) if name in line.split() and line.isupper())
    begin = f"{lines[head]} ".index(f"{name} ")
    rest = lines[head][begin + len(name) :]
    end = begin + len(name) + len(rest) - len(rest.lstrip()) if rest.strip() else None
    return "".join(line[begin:end].strip() for line in lines[head + 1 :])


def restarted(world: OperatorWorld) -> str:
    world.polls("web", "web-0")
    event_id: str = ask(world, "vm", "restart", "web-0", "--json").json["event_id"]
    world.hosts_beat()
    return event_id


# JSON.


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from leaves(child, (*path, name))


def test_every_command_takes_json() -> None:
    mount([])
    without = [
        path
        for path, command in leaves(typer.main.get_command(app))
        if path != ("serve",)
        and not any("--json" in parameter.opts for parameter in command.params)
    ]

    assert without == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("vm", "list", "--json"),
        ("vm", "--json", "list"),
        ("--json", "vm", "list"),
    ],
)
def test_json_may_stand_anywhere(world: OperatorWorld, arguments: tuple[str, ...]) -> None:
    assert ask(world, *arguments).json == world.get("/v1/vms")


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("vm", "show", "web-0"), "/v1/vms/web-0"),
        (("host", "list"), "/v1/hosts"),
        (("host", "show", "h1"), "/v1/hosts/h1"),
        (("scope", "list"), "/v1/scopes"),
        (("scope", "show", "web"), "/v1/scopes/web"),
        (("event", "list"), "/v1/events"),
        (("event", "list", "--all"), "/v1/events?all=true"),
        (("operation", "list"), "/v1/operations"),
        (("journal",), "/v1/journal"),
    ],
)
def test_json_is_the_json_of_the_api(
    world: OperatorWorld, arguments: tuple[str, ...], path: str
) -> None:
    restarted(world)

    assert ask(world, *arguments, "--json").json == world.get(path)


def test_lists_are_read_to_their_end(world: OperatorWorld) -> None:
    many = FLEET + "".join(
        f'[[vm]]\nname = "m{n:04}"\nhost = "h3"\naddress = "10.1.{n // 200}.{n % 200}"\n'
        for n in range(1_200)
    )
    assert world.call("POST", "/v1/inventory", many).status == 200

    listed = ask(world, "vm", "list", "--json").json

    assert len(listed["items"]) == 1_204
    assert listed["more"] is False


def crowded(world: OperatorWorld) -> None:
    """1,101 events, with one order."""
    many = FLEET + "".join(
        f'[[vm]]\nname = "m{n:04}"\nhost = "h3"\naddress = "10.1.{n // 200}.{n % 200}"\n'
        for n in range(1_100)
    )
    assert world.call("POST", "/v1/inventory", many).status == 200
    world.order("/v1/hosts/h3/maintain", {"event_type": "Reboot"})


def test_events_are_listed_to_their_end_or_as_many_as_are_wanted(world: OperatorWorld) -> None:
    crowded(world)

    everything = ask(world, "event", "list", "--json").json
    some = ask(world, "event", "list", "--limit", "1050", "--json").json
    shown = ask(world, "event", "list", "--limit", "2").out

    assert (len(everything["items"]), everything["more"]) == (1_101, False)
    assert (len(some["items"]), some["more"]) == (1_050, True)
    assert some["items"] == everything["items"][:1_050]
    assert "There are more than 2; --limit shows more." in shown


def test_lists_are_cut_down_by_what_they_are_about(world: OperatorWorld) -> None:
    event_id = restarted(world)
    world.order("/v1/hosts/h2/maintain", {"event_type": "Freeze"})

    def found(*options: str) -> list[str]:
        return [one["event_id"] for one in ask(world, *options, "--json").json["items"]]

    assert found("event", "list", "--vm", "web-0", "--since", "-1h") == [event_id]
    assert found("event", "list", "--type", "Reboot", "--by", "operator") == [event_id]
    assert found("event", "list", "--phase", "canceled") == []
    assert set(found("journal", "--vm", "web-0", "--cause", "order")) == {event_id}
    assert len(ask(world, "operation", "list", "--host", "h2", "--json").json["items"]) == 1
    assert ask(world, "operation", "list", "--host", "h1").out == (
        "There are no such open operations. --all looks among the ended ones too.\n"
    )
    assert ask(world, "event", "list", "--host", "h9", "--all").out == (
        "There are no such events.\n"
    )


# What people see.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("vm", "list"), "There are no VMs."),
        (("host", "list"), "There are no hosts."),
        (("scope", "list"), "There are no scopes."),
        (("event", "list"), "There are no open events."),
        (("operation", "list"), "There are no open operations."),
        (("journal",), "The journal has no line like that."),
    ],
)
def test_an_empty_list_says_so_in_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    with running(fleet="") as empty:
        ran = ask(empty, *arguments)

    assert ran.code == 0
    assert ran.out.startswith(sentence)


def test_tables_fit_80_columns_and_cut_no_name_off() -> None:
    fleet = FLEET.replace("web-1", LONG).replace("lonely", f"x{LONG}")
    with running(fleet=fleet) as wide:
        wide.polls("web", "web-0")
        for vm in ("web-0", LONG, f"x{LONG}"):
            ask(wide, "vm", "redeploy", vm)
        tables = [
            ask(wide, *arguments).out
            for arguments in (("vm", "list"), ("event", "list"), ("host", "show", "h2"))
        ]

    for table in tables:
        assert fits(table), table
    assert LONG in column(tables[0], "VM")
    assert LONG in column(tables[1], "VMS")
    assert LONG in column(tables[2], "VM")


def test_a_list_of_events_counts_down(world: OperatorWorld) -> None:
    event_id = restarted(world)
    world.clock.pass_ms(28_000)

    ran = ask(world, "event", "list")

    assert event_id[:8] in ran.out
    assert "10:15:00" in ran.out
    assert "in 14m 32s" in ran.out


def test_names_are_printed_as_they_are_and_not_as_markup(world: OperatorWorld) -> None:
    ran = ask(world, "vm", "show", "[bold]x")

    assert "There is no VM [bold]x." in ran.err


def test_event_show_prints_the_receipt(world: OperatorWorld) -> None:
    event_id = restarted(world)
    world.pass_minutes(1)
    world.reads("web", event_id, "web-0")
    world.pass_minutes(14)
    world.hosts_work()

    ran = ask(world, "event", "show", event_id[:8].lower())

    lines = {line.split("  ")[0].strip(): line for line in ran.out.splitlines()}
    assert "10:00:00, 15m ago" in lines["scheduled"]
    assert "web-0: 10:01:00, 14m before the start" in lines["read by"]
    assert "10:15:00" in lines["started"]
    assert "15m of notice" in lines["promised"]
    assert "for 15m" in lines["readable"]
    assert "by 1 of 1 VM, the last one 14m before the start" in lines["read"]
    assert "kept" in lines["promise"]
    assert fits(ran.out)


def test_a_start_that_moved_is_seen_in_the_list_and_in_the_event(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event_id = ask(world, "vm", "restart", "web-0", "--json").json["event_id"]
    world.clock.pass_ms(5 * MINUTE_MS)
    world.hosts_beat()

    listed, shown = ask(world, "event", "list").out, ask(world, "event", "show", event_id).out

    assert "moved to" in listed
    assert "10:20:00" in listed
    assert "in 15m" in listed
    assert "10:20:00, in 15m" in shown
    assert fits(listed)


def test_event_explain_says_who_holds_it_until_when_and_what_frees_it(world: OperatorWorld) -> None:
    event_id = restarted(world)

    ran = ask(world, "event", "explain", event_id)

    assert "scope web has not approved it" in ran.out
    assert "10:15:00, in 15m" in ran.out
    assert "forewarn event approve" in ran.out


def test_operation_explain_says_what_the_host_waits_for(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    operation = ask(world, "host", "maintain", "h1", "--type", "Reboot", "--json").json
    world.hosts_beat()

    ran = ask(world, "operation", "explain", operation["operation_id"][:8])

    assert "is waiting" in ran.out
    assert "scope web has not approved it" in ran.out


# Orders.


@pytest.mark.parametrize(
    ("verb", "vm", "event_type"),
    [
        ("restart", "web-0", "Reboot"),
        ("redeploy", "web-0", "Redeploy"),
        ("delete", "web-0", "Terminate"),
        ("evict", "spotty", "Preempt"),
    ],
)
def test_an_order_for_a_vm_prints_the_id_of_its_event(
    world: OperatorWorld, verb: str, vm: str, event_type: str
) -> None:
    ran = ask(world, "vm", verb, vm)

    (event,) = world.get("/v1/events")["items"]
    assert ran.code == 0
    assert event["event_type"] == event_type
    assert event["event_id"] in ran.out


def test_an_operator_is_told_which_scopes_are_silent(world: OperatorWorld) -> None:
    world.polls("web", "web-0")

    ran = ask(world, "host", "maintain", "h1", "--type", "Freeze")

    assert "No guest is told in lonely" in ran.out
    assert "web/0" in ran.out


def test_maintain_passes_time_and_consent_to_break_domains(world: OperatorWorld) -> None:
    order = ("host", "maintain", "h1", "--type", "Reboot")

    ran = ask(world, *order, "--not-before", "+2h", "--break-domains", "--reason", "no", "--json")

    assert ran.json["ordered_not_before"] == "2026-03-03T12:00:00.000Z"
    assert ran.json["events"][0]["event_type"] == "Reboot"


def test_a_vm_without_a_host_is_started_on_one_that_is_named(world: OperatorWorld) -> None:
    ask(world, "host", "fail", "h1", "--fenced", "--force", "--reason", "no")
    world.order("/v1/hosts/h3/close")
    refused = ask(world, "vm", "start", "web-0", "--on", "h3")
    assert (refused.code, "Host h3 cannot take web-0: closed" in joined(refused.err)) == (1, True)
    ran = ask(world, "vm", "start", "web-0", "--on", "h2", "--break-domains", "--reason", "now")
    assert (ran.code, "web-0 starts on h2." in ran.out) == (0, True)


def test_operations_are_canceled_and_the_list_says_how_they_ended(world: OperatorWorld) -> None:
    operation = ask(world, "host", "maintain", "h2", "--type", "Reboot", "--json").json
    identity = operation["operation_id"][:30]
    ran = ask(world, "operation", "cancel", identity)
    assert (ran.code, "canceled" in ran.out) == (0, True)
    again = ask(world, "operation", "cancel", operation["operation_id"])
    assert (again.code, "has ended: canceled." in joined(again.err)) == (1, True)
    shown = world.get(f"/v1/operations/{operation['operation_id']}")
    assert (shown["phase"], shown["ended_as"]) == ("ended", "canceled")
    assert "canceled" in ask(world, "operation", "list", "--all").out


def test_every_order_passes_its_window(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    window = {"start": "2026-03-03T11:00:00.000Z", "end": "2026-03-03T14:00:00.000Z"}
    said = ("--window", "+1h/2026-03-03T15:00:00+01:00")
    for order in (
        ("vm", "restart", "web-0"),
        ("vm", "redeploy", "web-0"),
        ("vm", "delete", "web-0"),
        ("vm", "evict", "spotty"),
        ("host", "maintain", "h1", "--type", "Reboot"),
        ("host", "degrade", "h1"),
    ):
        assert ask(world, *order, *said, "--json").json["window"] == window


def test_a_redeploy_that_loses_the_local_disk_is_ordered_and_shown_as_one(
    world: OperatorWorld,
) -> None:
    event = ask(world, "vm", "redeploy", "web-0", "--lose-disk", "--json").json
    assert event["lose_disk"] is True
    shown = ask(world, "event", "show", event["event_id"])
    assert "local disks lost" in joined(shown.out)
    order = ("host", "maintain", "h1", "--lose-disk", "--json", "--type")
    operation = ask(world, *order, "Redeploy").json
    assert operation["lose_disk"] is True
    shown = ask(world, "operation", "show", operation["operation_id"])
    assert "local disks lost" in joined(shown.out)
    refused = ask(world, *order, "Freeze")
    assert refused.code != 0
    assert "--lose-disk is accepted for a Redeploy only" in joined(refused.err)
    assert ask(world, "vm", "restart", "web-0", "--lose-disk").code == 2


@pytest.mark.parametrize("window", ["+1h", "+1h/", "/+1h", "+1h/+2h/+3h"])
def test_a_window_that_is_no_window_is_refused_with_an_example(
    world: OperatorWorld, window: str
) -> None:
    ran = ask(world, "vm", "restart", "web-0", "--window", window)
    assert ran.code == 2
    assert "START/END" in ran.err
    assert world.get("/v1/events")["items"] == []


def test_an_approval_in_front_of_the_window_says_when_it_opens(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    ordered = ask(world, "vm", "restart", "web-0", "--window", "+1h/+2h")
    assert "but only in its window, 11:00:00 to 12:00:00, opens in 1h" in joined(ordered.out)
    (event,) = world.get("/v1/events")["items"]
    approved = ask(world, "event", "approve", event["event_id"], "--reason", "It is urgent.")
    assert "It starts when its window opens (11:00:00 to 12:00:00, opens in 1h" in joined(
        approved.out
    )
    shown = ask(world, "event", "show", event["event_id"])
    assert "11:00:00 to 12:00:00, opens in 1h" in joined(shown.out)


def joined(text: str) -> str:
    """The words of a text, without the line breaks of a terminal."""
    return " ".join(text.split())


def test_a_time_that_is_raised_to_the_minimum_notice_is_said(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    order = ("host", "maintain", "h1", "--type", "Reboot", "--not-before")
    ran = ask(world, *order, "+5m")
    said = "raised from 10:05:00 to 10:15:00: the minimum notice is 15m"
    assert said in joined(ran.out)
    event = next(e for e in world.get("/v1/events")["items"] if e["scope"] == "web")
    assert said in joined(ask(world, "event", "show", event["event_id"]).out)
    ask(world, "event", "cancel", event["event_id"])
    assert "raised" not in ask(world, *order, "+20m").out


def test_an_operation_shows_the_time_that_holds_first(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    order = ("host", "maintain", "h1", "--type", "Reboot", "--not-before", "+5m", "--json")
    operation_id = ask(world, *order).json["operation_id"]
    shown = joined(ask(world, "operation", "show", operation_id).out)
    assert "not before 10:15:00" in shown
    assert "(raised from 10:05:00 to 10:15:00: the minimum notice is 15m)" in shown


def test_an_event_that_ended_says_no_where_one_that_goes_on_says_not_yet(
    world: OperatorWorld,
) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    shown = joined(ask(world, "event", "show", event_id).out)
    assert "web-0: not yet" in shown
    assert "started not yet" in shown
    ask(world, "event", "cancel", event_id)
    shown = joined(ask(world, "event", "show", event_id).out)
    assert "web-0: no " in shown
    assert "started no " in shown
    assert "not yet" not in shown


def test_what_has_started_and_waits_for_a_host_is_said_to_be_given_up(
    world: OperatorWorld,
) -> None:
    world.order("/v1/hosts/h1/fail", {"force": True, "reason": "a test"})
    event_id = next(e["event_id"] for e in world.get("/v1/events")["items"])
    said = joined(ask(world, "event", "explain", event_id).out)
    assert "It is given up at" in said
    assert "None of these holds it" not in said


def test_a_vm_shows_its_os(world: OperatorWorld) -> None:
    assert "os Linux" in joined(ask(world, "vm", "show", "web-0").out)


def test_a_second_operation_of_a_type_names_the_order_that_cancels_the_first(
    world: OperatorWorld,
) -> None:
    order = ("host", "maintain", "h1", "--type", "Freeze", "--json")
    first = ask(world, *order).json["operation_id"]
    assert f"`forewarn operation cancel {first}`" in joined(ask(world, *order).err)


def test_the_earliest_start_that_has_moved_stands_in_the_list_and_in_show(
    world: OperatorWorld,
) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.clock.pass_ms(60_000)  # nobody showed it meanwhile
    world.hosts_beat()
    (until,) = {h["until"] for h in world.get(f"/v1/events/{event_id}/explain")["holds"]}
    assert until == "2026-03-03T10:16:00.000Z"
    assert "moved to 10:16:00" in joined(ask(world, "event", "list").out)
    assert "starts from 10:16:00, in 15m" in joined(ask(world, "event", "show", event_id).out)


def test_maintain_passes_the_length_and_the_description_of_a_freeze(world: OperatorWorld) -> None:
    order = ("host", "maintain", "h1", "--type", "Freeze")

    ran = ask(world, *order, "--duration", "30", "--description", "New firmware.", "--json")

    event = ran.json["events"][0]
    assert (event["duration_seconds"], event["description"]) == (30, "New firmware.")


def test_hosts_are_closed_opened_degraded_failed_and_repaired(world: OperatorWorld) -> None:
    assert ask(world, "host", "close", "h1", "--json").json["closed"] is True
    assert ask(world, "host", "open", "h1", "--json").json["closed"] is False
    degraded = ask(world, "host", "degrade", "h1", "--not-before", "+1d", "--json").json
    assert degraded["ordered_not_before"] == "2026-03-04T10:00:00.000Z"
    heard = ask(world, "host", "fail", "h1")
    assert (heard.code, "Host h1 has not failed: it was heard" in heard.err) == (1, True)
    assert (
        ask(world, "host", "fail", "h1", "--force", "--reason", "no", "--json").json["fenced"]
        is False
    )
    heard = ask(world, "host", "fail", "h1", "--fenced")
    assert (heard.code, "Host h1 is not off" in heard.err) == (1, True)
    assert "--force" in heard.err
    forced = ask(
        world, "host", "fail", "h1", "--fenced", "--force", "--reason", "no", "--json"
    ).json
    assert forced["fenced"] is True
    assert ask(world, "host", "repair", "h1", "--json").json["health"] == "ok"


def test_events_are_approved_and_canceled_by_a_beginning_of_their_id(world: OperatorWorld) -> None:
    event_id = restarted(world)

    approved = ask(world, "event", "approve", event_id[:6].lower(), "--reason", "a test")
    canceled = ask(world, "event", "cancel", event_id.lower(), "--json")

    assert "overridden by operator" in approved.out
    assert canceled.json["phase"] == "canceled"


def test_an_approval_by_an_operator_needs_a_reason_and_is_an_override(
    world: OperatorWorld,
) -> None:
    event_id = restarted(world)

    without = ask(world, "event", "approve", event_id)
    ask(world, "event", "approve", event_id, "--reason", "a kernel CVE")
    world.tick()
    shown = ask(world, "event", "show", event_id).out

    assert without.code == 1
    assert "--reason" in without.err
    assert "by operator: a kernel CVE" in shown
    assert "overridden by operator: a kernel CVE" in shown
    assert "kept" not in shown


def test_an_inventory_file_is_applied(world: OperatorWorld, tmp_path: Any) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(f'{FLEET}\n[[host]]\nname = "h4"\n')

    assert "hosts added: h4" in ask(world, "inventory", "apply", str(file)).out
    assert "Nothing changed" in ask(world, "inventory", "apply", str(file)).out


def test_a_bad_inventory_file_is_refused_with_its_line(world: OperatorWorld, tmp_path: Any) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[[host]]\nname = "h1"\nplaces = 3\n')

    ran = ask(world, "inventory", "apply", str(file))

    assert ran.code == 1
    assert "line 3" in ran.err


def test_the_journal_can_be_cut_to_its_newest_lines(world: OperatorWorld) -> None:
    restarted(world)
    whole = ask(world, "journal", "--json").json["items"]

    assert ask(world, "journal", "--last", "2", "--json").json["items"] == whole[-2:]
    assert len(ask(world, "journal", "--last", "2").out.splitlines()) == 2
    web = ask(world, "journal", "--scope", "web", "--json").json["items"]
    assert web == [line for line in whole if line["scope"] == "web"]


def test_version_is_printed() -> None:
    assert forewarn("--version").out.startswith("forewarn ")
    assert forewarn("--version", "--json").json.keys() == {"version"}


def test_the_service_says_where_its_state_is_and_that_it_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = Where(
        guest=("127.0.0.1", 1),
        operator_url="http://127.0.0.1:2",
        operator_socket=Path("/state/run/operator.sock"),
        operator_authority=None,
        console_link="http://127.0.0.1:2/console/enter?code=x",
        listeners={},
        example="",
        data=Path("/state"),
    )
    say_where(where)
    assert "data folder     /state   (all is kept there; the next start" in capsys.readouterr().out
    recipe = subprocess.run(
        ["make", "--dry-run", "run", "DATA=/elsewhere"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert "The state is kept in the data folder" in recipe
    assert 'forewarn serve --data "/elsewhere"' in recipe


# Postponing.


def upkeep(world: OperatorWorld) -> str:
    """The event of web in the maintenance of h1."""
    world.polls("web", "web-0")
    events = ask(world, "host", "maintain", "h1", "--type", "Reboot", "--json").json["events"]
    world.hosts_beat()
    (event_id,) = (one["event_id"] for one in events if one["scope"] == "web")
    found: str = event_id
    return found


def words(text: str) -> str:
    return " ".join(text.split())


def test_an_event_is_postponed_and_the_answer_says_to_when_and_with_what(
    world: OperatorWorld,
) -> None:
    old = upkeep(world)
    ran = ask(world, "event", "postpone", old[:8], "--until", "+2h", "--reason", "a sale")
    assert ran.code == 0, ran.err
    events = world.get("/v1/events")["items"]
    (new,) = (one for one in events if one["scope"] == "web")
    (other,) = (one["event_id"] for one in events if one["scope"] == "lonely")
    said = words(ran.out)
    assert f"Reboot of web-0 is scheduled: event {new['event_id']}" in said
    assert f"in place of event {old}, postponed once, by 1h 45m in all." in said
    assert f"Its operation is postponed whole, with event {other}." in said
    assert fits(ran.out)
    answered = ask(world, "event", "postpone", new["event_id"], "--until", "+3h", "--json").json
    assert answered["postponed_from"] == new["event_id"]


def test_show_and_explain_tell_of_an_event_that_was_postponed(world: OperatorWorld) -> None:
    old = upkeep(world)
    new = ask(world, "event", "postpone", old, "--until", "+2h", "--json").json["event_id"]
    shown = words(ask(world, "event", "show", new).out)
    assert "postponed once, by 1h 45m in all" in shown
    assert f"in place of {old}" in shown
    assert f"chain {old}, for 10:15:00" in shown
    assert "chain this event, for 12:00:00" in shown
    gone = words(ask(world, "event", "show", old).out)
    assert "outcome postponed by operator" in gone
    assert f"replaced by {new}" in gone
    explained = words(ask(world, "event", "explain", new).out)
    assert "It was postponed once, by 1h 45m in all. Its owner may postpone it 2 more times" in (
        explained
    )
    assert f"forewarn event postpone {new} --until TIME" in explained
    over = words(ask(world, "event", "explain", old).out)
    assert f"Event {new} was announced in its place." in over
    restart = restarted(world)
    assert "cannot be postponed" in words(ask(world, "event", "explain", restart).out)


def test_a_time_that_was_raised_to_the_notice_is_said(world: OperatorWorld) -> None:
    old = upkeep(world)
    world.pass_minutes(14)
    said = words(ask(world, "event", "postpone", old, "--until", "+2m").out)
    assert "raised from" in said
    assert "the minimum notice is 15m" in said


def test_a_refusal_to_postpone_says_what_would_be_accepted(world: OperatorWorld) -> None:
    ran = ask(world, "event", "postpone", restarted(world), "--until", "+2h")
    assert ran.code == 1
    assert "Cancel it (`forewarn event cancel" in words(ran.err)
    assert ask(world, "event", "postpone", upkeep(world)).code == 2  # --until is missing
