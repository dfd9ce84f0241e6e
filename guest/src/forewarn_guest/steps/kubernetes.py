"""The step `kubernetes`: cordons, drains or uncordons a node, through kubectl.

Who evicts pods well does more than a few requests (disruption budgets, daemon sets, mirror pods);
kubectl does, and knows how to log in to every cloud.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import socket
from collections.abc import Mapping
from typing import Any

from forewarn_guest.errors import StepError
from forewarn_guest.steps import children
from forewarn_guest.steps.step_context import Deadline, StepContext

REQUEST_S = 30.0  # what one request to the API server may take
WRAP_UP_S = 1.0  # of the time left, kept for kubectl to say which pods are left
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def run(occasion: StepContext) -> str:
    """Do it. Returns what kubectl said last; raises StepError with what it said against it."""
    options, action = occasion.options, occasion.options["action"]
    program = options["program"] or shutil.which("kubectl")
    if program is None or not os.access(program, os.X_OK):
        raise StepError(
            f"There is no kubectl {'on PATH' if program is None else 'at ' + program}.",
            "Install it, or say where it is with the option program.",
        )
    name = node_name(occasion)
    occasion.deadline.doing = f"kubectl had not done {action} {name}"
    argv = [program, *connection(options, occasion.deadline), action]
    if action == "drain":
        argv += drain_flags(options, occasion.deadline)
    try:
        out = children.run([*argv, "--", name], occasion.deadline, {"LC_ALL": "C"})
    except children.ProgramFailed as error:
        raise StepError(
            f"kubectl {action} {name} ended with {error.code}: {error.said}.", _remedy(error.said)
        ) from error
    return f"{action} {name}: {children.last_words(out)}."


def node_name(occasion: StepContext) -> str:
    """The node's name in Kubernetes: as given, or made from the VM's or the machine's name."""
    given = occasion.options["node"]
    if given is not None:
        return str(given)
    by_host = occasion.options["node_from"] == "hostname"
    name = (socket.gethostname() if by_host else occasion.vm).lower()
    if not _NAME.fullmatch(name):
        raise StepError(
            f"{name or 'An empty name'!r} is no name of a node.",
            "Set the option node, or node_from to hostname.",
        )
    return name


def connection(options: Mapping[str, Any], deadline: Deadline) -> list[str]:
    """The flags that say which API server, and how long one request to it may take."""
    flags = [f"--request-timeout={max(1, math.floor(deadline.left(REQUEST_S)))}s"]
    if options["kubeconfig"]:
        flags.append(f"--kubeconfig={options['kubeconfig']}")
    if options["context"]:
        flags.append(f"--context={options['context']}")
    return flags


def drain_flags(options: Mapping[str, Any], deadline: Deadline) -> list[str]:
    """The flags of drain. kubectl gets a little less than the time left, to say what is left."""
    left = deadline.left()
    flags = [f"--timeout={max(1, math.floor(left - min(WRAP_UP_S, left / 4)))}s"]
    flags += [f"--ignore-daemonsets={_flag(options['ignore_daemonsets'])}"]
    flags += [f"--delete-emptydir-data={_flag(options['delete_emptydir_data'])}"]
    flags += [f"--force={_flag(options['force'])}"]
    if options["grace_period"] is not None:
        flags.append(f"--grace-period={options['grace_period']}")
    if options["pod_selector"]:
        flags.append(f"--pod-selector={options['pod_selector']}")
    return flags


def _flag(value: object) -> str:
    return "true" if value else "false"


def _remedy(said: str) -> str:
    if "NotFound" in said or "not found" in said:
        return "Set the option node to a name that `kubectl get nodes` lists."
    if "Forbidden" in said or "forbidden" in said:
        return "Give this account the rights of kubectl drain: nodes and pods/eviction."
    return ""
