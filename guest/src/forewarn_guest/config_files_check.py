"""What the built-in steps of a configuration need on this machine and would not find now.

A warning each and no mistake: a file may be mounted later, and a socket is there when its program
runs. The programs of commands are looked at by `hook_files`, and refused.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from forewarn_guest.configuration import Configuration, Part, Step
from forewarn_guest.steps import KINDS, read_options
from forewarn_guest.steps.systemd_units import BOOTED

FILES = ("kubeconfig", "secret_file", "login_file", "ca_file")


def missing_places(configuration: Configuration, where: str) -> tuple[str, ...]:
    """A sentence for each, with the line of its step, in the order of the lines."""
    found = {
        (step.line, says)
        for rule in configuration.rules
        for part in Part
        for step in rule.steps(part)
        for says in _of_step(step)
    }
    lines = tuple(f"{where}:{line}: {says}" for line, says in sorted(found))
    if configuration.metrics_file is None:
        return lines
    folder = configuration.metrics_file.parent
    why = _why_not(str(folder), os.F_OK)
    says = f"{where}: The folder of metrics_file, {folder}, cannot be used: {why}."
    return (*lines, says) if why else lines


def _of_step(step: Step) -> list[str]:
    found = []
    program = {"systemd": "systemctl", "kubernetes": "kubectl"}.get(step.kind, "")
    if program and not step.options.get("program") and shutil.which(program) is None:
        path = os.environ.get("PATH", os.defpath)
        found.append(f"Step {step.name} needs {program}, which is not on PATH, {path}.")
    elif program == "systemctl" and not BOOTED.is_dir():
        found.append(f"Step {step.name} needs systemd, which does not run on this machine.")
    for option in FILES:
        value = step.options.get(option)
        why = _why_not(str(value), os.R_OK) if value else ""
        if why:
            found.append(f"Step {step.name} cannot read its {option} {value}: {why}.")
    for socket in _sockets(step):
        why = _why_not(socket, os.W_OK)
        if why:
            found.append(f"Step {step.name} cannot use the socket {socket} now: {why}.")
    return found


def _sockets(step: Step) -> list[str]:
    """The local sockets of haproxy; one behind a host and port is not looked for."""
    if step.kind != "haproxy":
        return []
    values, _ = read_options(KINDS["haproxy"], step.options)
    return [address.path for address in values["sockets"] if address.path]


def _why_not(path: str, right: int) -> str:
    """Why the agent, as this user, would not get at it; empty if it would."""
    try:
        Path(path).stat()
    except OSError as error:
        return (error.strerror or type(error).__name__).lower()
    return "" if os.access(path, right) else f"permission denied for uid {os.geteuid()}"
