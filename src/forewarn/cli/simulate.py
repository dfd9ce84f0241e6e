"""`forewarn simulate`: the emulator. No files needed, nothing kept."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.client import EXIT_REFUSED, EXIT_USAGE, Stop
from forewarn.cli.logs import log_to_stderr
from forewarn.cli.serve import (
    LINK_IS_GOOD,
    LISTENERS_PRINTED_MAX,
    authority_line,
    program,
    run_to_end,
    said_authority,
)
from forewarn.cli.session import AsJson, Session, flag, session_of
from forewarn.core.errors import Invalid, Refusal
from forewarn.emulator.clock import parse_speed
from forewarn.emulator.fleet import inventory_text, read_computer_names
from forewarn.emulator.impact_command import read_command
from forewarn.emulator.instance_values import read_option
from forewarn.settings import (
    OPERATOR_TOKEN_FILE,
    SIMULATE_DEFAULTS,
    BadSettings,
    Settings,
    emulator_folder,
    load,
    need_given_token,
    read_inventory,
)
from forewarn.wire.api_versions import NEWEST
from forewarn.wire.instants import parse_time, time_text
from forewarn.wiring.process import CannotStart
from forewarn.wiring.simulate import LINK_LOCAL, EmulationPlan, Running, run_emulator

_DEFAULT = Settings(data=Path())

Vms = Annotated[list[str] | None, typer.Option(metavar="NAME", help="A standalone VM. Repeatable.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME:SIZE", help="VMs in as many update domains. Repeatable."),
]
Spot = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A VM, or all of a scope, can be evicted. Repeatable."),
]
File = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A fleet of your own, as for `serve`.")
]
ClockWord = Annotated[
    str, typer.Option(metavar="virtual|real|xN", help="Stands until turned, runs, or runs faster.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Same seed, same commands: the same run.")
]
Start = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="What the clock shows first: now, or with a seed 2026."),
]
GuestListen = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR:PORT",
        help=f"Where the first VM asks ({_DEFAULT.guest}); others take free ports.",
    ),
]
LinkLocal = Annotated[bool, flag("--listen-link-local", help=f"The first VM asks at {LINK_LOCAL}.")]
OperatorListen = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR:PORT",
        help=f"Where the operator API listens ({_DEFAULT.operator}).",
    ),
]
EnablementWord = Annotated[
    str | None,
    typer.Option(
        metavar="always|first-poll",
        help="Tell every scope of its events (the default), or those that have polled.",
    ),
]
ComputerNames = Annotated[
    str,
    typer.Option(
        metavar="vm|vmss",
        help="Computer names: those of the VMs, or as in a scale set (web_18 is web00000i).",
    ),
]
InstanceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--instance",
        metavar="[VM:]PATH=VALUE",
        help="A value of /metadata/instance, like compute/vmSize=Standard_D2s_v3. Repeatable.",
    ),
]
OnImpact = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Run CMD freeze|thaw|kill|start VM TYPE EVENTID when that happens to a VM.",
    ),
]
Folder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the URL and token are left.")
]
SettingsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A TOML file with settings.")
]


def simulate(
    context: typer.Context,
    *,
    vm: Vms = None,
    scope: Scopes = None,
    spot: Spot = None,
    inventory: File = None,
    clock: ClockWord = "virtual",
    seed: Seed = None,
    start: Start = None,
    guest: GuestListen = None,
    listen_link_local: LinkLocal = False,
    operator: OperatorListen = None,
    enablement: EnablementWord = None,
    computer_names: ComputerNames = "vm",
    instance: InstanceOption = None,
    on_impact: OnImpact = None,
    data: Folder = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Run the emulator: test maintenance handling without a cloud. Everything is in memory.

    Without options there is one VM, vm0. With --json one line says where
    everything is, once it listens. `forewarn clock`, `scenario` and `fault`
    drive it; every operator command works too.
    """
    session = session_of(context)
    options = {
        "data": _text(data or session.data),
        "inventory": _text(inventory),
        "guest": guest,
        "operator": operator,
        "enablement": enablement,
    }
    token = os.environ.get("FOREWARN_TOKEN")
    chosen = _settings(settings or session.settings, options, token)
    log_to_stderr()
    try:
        plan = EmulationPlan(
            settings=chosen,
            inventory=_inventory(chosen, vm or (), scope or (), spot or (), computer_names),
            seed=seed,
            start_ms=None if start is None else parse_time(start, now_ms=0),
            speed=parse_speed(clock),
            listen=LINK_LOCAL if listen_link_local else chosen.guest,
            instance=tuple(read_option(one) for one in instance or ()),
            on_impact=() if on_impact is None else read_command(on_impact),
        )
    except Refusal as refusal:
        raise Stop(EXIT_USAGE, str(refusal)) from None
    said = _say_in_json if as_json else _say
    try:
        run_to_end(run_emulator(plan, token=token, started=said))
    except CannotStart as why:
        raise Stop(EXIT_REFUSED, f"cannot start. {why}") from None


def _settings(file: Path | None, options: dict[str, str | None], token: str | None) -> Settings:
    defaults = {**SIMULATE_DEFAULTS, "data": emulator_folder(os.environ)}
    try:
        chosen = load(file=file, environment=os.environ, options=options, defaults=defaults)
        need_given_token(chosen, token)
    except BadSettings as bad:
        raise Stop(EXIT_USAGE, f"the settings are wrong.\n{bad}") from None
    return chosen


def _inventory(
    chosen: Settings,
    vms: Sequence[str],
    scopes: Sequence[str],
    spot: Sequence[str],
    computer_names: str,
) -> str:
    names = read_computer_names(computer_names)
    if chosen.inventory is None:
        return inventory_text(vms=vms, scopes=scopes, spot=spot, computer_names=names)
    if vms or scopes or spot or names != "vm":
        raise Invalid(
            "--inventory says the whole fleet.",
            "Leave out --vm, --scope, --spot and --computer-names, or the inventory.",
        )
    return read_inventory(chosen.inventory)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _say_in_json(running: Running) -> None:
    """Where the emulator listens, for a program: one JSON document on one line."""
    Session.show_json_line(
        {
            "operator_url": running.operator_url,
            "operator_token_file": str(running.data / OPERATOR_TOKEN_FILE),
            "operator_socket": str(running.operator_socket),
            **said_authority(running.operator_authority),
            "vm_urls": running.vm_urls,
            "now": time_text(running.now_ms),
            "data": str(running.data),
            "seed": running.seed,
            "console_link": running.console_link,
        }
    )


def _say(running: Running) -> None:
    """Tell a person where to go on, with lines that work when pasted."""
    sys.stdout.write("\n".join(_lines(running)) + "\n")
    sys.stdout.flush()


def _lines(running: Running) -> Iterator[str]:
    yield "The emulator is running; Ctrl-C stops it, and nothing of it is kept."
    yield f"  time            {time_text(running.now_ms)}, {_pace(running.speed)}"
    yield f"  seed            {running.seed}: with --seed and --start the same run comes again"
    token = running.data / OPERATOR_TOKEN_FILE
    yield f"  console         {running.console_link}"
    yield f"                  {LINK_IS_GOOD}"
    yield f"  operator API    {running.operator_url}   (token in {token})"
    yield from authority_line(running.operator_authority)
    yield "  VMs:"
    width = max(map(len, running.vm_urls), default=0)
    for vm, url in list(running.vm_urls.items())[:LISTENERS_PRINTED_MAX]:
        yield f"    {vm:<{width}}  {url}"
    more = len(running.vm_urls) - LISTENERS_PRINTED_MAX
    if more > 0:
        yield f"    ... and {more} more: --json prints them all"
    if not running.vm_urls:
        return
    vm, url = next(iter(running.vm_urls.items()))
    this = program()
    if running.data != emulator_folder(os.environ):
        this += f" --data {shlex.quote(str(running.data))}"
    yield ""
    yield f"Be {vm} and read its document:"
    yield f"  curl -H Metadata:true '{url}/metadata/scheduledevents?api-version={NEWEST.name}'"
    yield "Be the cloud: announce a restart, then let its notice pass:"
    yield f"  {this} vm restart {vm}"
    yield f"  {this} clock next"


def _pace(speed: int) -> str:
    if speed == 0:
        return "standing still until `forewarn clock` turns it"
    return "running in real time" if speed == 1 else f"running {speed} times as fast"
