"""The step `kubernetes`: what kubectl is told, and what is made of what it says."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from typing import Any

import pytest

from steps_world import HOSTILE, is_one_line, run, told


def kubectl(folder: Path, body: str = "echo done") -> Path:
    """A program that writes down its arguments, a line each."""
    path = folder / "kubectl"
    heard = shlex.quote(str(folder / "heard"))
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {heard}\n{body}\n')
    path.chmod(0o755)
    return path


def heard(folder: Path) -> list[str]:
    return (folder / "heard").read_text().splitlines()


def step(folder: Path, action: str, vm: str = "web-0", **more: Any) -> Any:
    options = {"action": action, "program": str(folder / "kubectl"), **more}
    return run("kubernetes", told(options, vm=vm))


@pytest.mark.parametrize("action", ["cordon", "uncordon"])
def test_kubectl_is_told_to_cordon_and_uncordon_the_vm(tmp_path: Path, action: str) -> None:
    kubectl(tmp_path)
    code, out, problems = step(tmp_path, action, kubeconfig="/etc/k", context="blue")
    assert (code, problems) == (0, "")
    assert "done" in out
    flags = heard(tmp_path)
    assert flags[-3:] == [action, "--", "web-0"]
    assert "--kubeconfig=/etc/k" in flags
    assert "--context=blue" in flags
    assert any(flag.startswith("--request-timeout=") for flag in flags)


def test_a_drain_has_its_options_and_less_time_than_the_step(tmp_path: Path) -> None:
    kubectl(tmp_path)
    code, _out, _problems = step(
        tmp_path,
        "drain",
        delete_emptydir_data=True,
        grace_period="0s",
        pod_selector="app=web",
        limit=9,
    )
    assert code == 0
    flags = heard(tmp_path)
    assert "--ignore-daemonsets=true" in flags
    assert "--delete-emptydir-data=true" in flags
    assert "--force=false" in flags
    assert "--grace-period=0" in flags
    assert "--pod-selector=app=web" in flags
    assert "--timeout=7s" in flags
    assert flags[-2:] == ["--", "web-0"]


def test_the_name_is_as_given_or_the_vms_or_the_machines(tmp_path: Path) -> None:
    kubectl(tmp_path)
    assert step(tmp_path, "cordon", vm="WEB-0")[0] == 0
    assert heard(tmp_path)[-1] == "web-0"
    assert step(tmp_path, "cordon", node="aks-1")[0] == 0
    assert heard(tmp_path)[-1] == "aks-1"
    assert step(tmp_path, "cordon", vm="web_0", node_from="hostname")[0] == 0
    assert heard(tmp_path)[-1] == socket.gethostname().lower()


@pytest.mark.parametrize("vm", ["web_0", "", "--all", HOSTILE])
def test_a_vm_whose_name_no_node_can_have_fails_with_the_remedy(tmp_path: Path, vm: str) -> None:
    kubectl(tmp_path)
    code, _out, problems = step(tmp_path, "cordon", vm=vm)
    assert code == 1
    assert is_one_line(problems)
    assert "node_from" in problems
    assert not (tmp_path / "heard").exists()


def test_where_there_is_no_kubectl_the_step_says_so(tmp_path: Path) -> None:
    code, _out, problems = step(tmp_path, "drain")
    assert code == 1
    assert is_one_line(problems)
    assert "There is no kubectl at" in problems
    code, _out, problems = run(
        "kubernetes", told({"action": "drain", "node": "a"}), PATH=str(tmp_path)
    )
    assert code == 1
    assert "There is no kubectl on PATH. Install it" in problems


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Error from server (NotFound): nodes \\'web-0\\' not found", "kubectl get nodes"),
        ("Error from server (Forbidden): no", "rights"),
        ("error: unable to drain", "unable to drain"),
    ],
)
def test_a_kubectl_that_fails_fails_the_step_with_its_words(
    tmp_path: Path, said: str, remedy: str
) -> None:
    kubectl(tmp_path, f"echo {said} | cat >&2; exit 1".replace("(", "\\(").replace(")", "\\)"))
    code, _out, problems = step(tmp_path, "drain")
    assert code == 1
    assert is_one_line(problems)
    assert remedy in problems
