"""The tables of options: what a configuration may say of a built-in step."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from forewarn_guest.steps import KINDS, read_options
from forewarn_guest.steps.options import SocketAddress
from steps_world import HOSTILE, environment

LEAST: dict[str, dict[str, Any]] = {
    "systemd": {"action": "stop", "units": ["web.service", "worker@1.service"]},
    "haproxy": {"action": "drain", "servers": ["web/web_0"]},
    "kubernetes": {"action": "drain"},
    "webhook": {"url": "https://example.org/hook?x=1"},
    "email": {"from": "vm@example.org", "to": "ops@example.org"},
    "log": {},
}


def test_every_kind_of_the_promise_is_there_and_needs_no_more_than_it_must() -> None:
    assert set(KINDS) == set(LEAST)
    for name, given in LEAST.items():
        values, mistakes = read_options(KINDS[name], given)
        assert mistakes == ()
        assert set(values) == set(KINDS[name].options)


def test_every_option_says_what_it_is_for_and_what_it_accepts() -> None:
    for kind in KINDS.values():
        assert kind.what.endswith(".")
        assert "limit" in kind.options
        for option in kind.options.values():
            assert option.what.endswith(".")
            assert option.accepts


def test_a_mistake_names_the_option_and_what_would_be_accepted() -> None:
    _values, mistakes = read_options(
        KINDS["haproxy"], {"action": "explode", "severs": ["a/b"], "limit": "soon"}
    )
    assert {mistake.option for mistake in mistakes} == {"action", "severs", "servers", "limit"}
    said = {mistake.option: mistake.says for mistake in mistakes}
    assert "drain, ready, maint" in said["action"]
    assert "servers" in said["severs"]
    assert "missing" in said["servers"]
    assert "seconds" in said["limit"]


@pytest.mark.parametrize("kind", sorted(LEAST))
@pytest.mark.parametrize(
    "value", [HOSTILE, "", None, 1.5, -1, [], [[]], {}, "-x", "a b\n", float("nan")], ids=repr
)
def test_no_option_reads_a_hostile_value_or_raises_anything_but_a_mistake(
    kind: str, value: object
) -> None:
    for name in KINDS[kind].options:
        values, mistakes = read_options(KINDS[kind], {**LEAST[kind], name: value})
        if not mistakes:  # then it is harmless: one line, no flag
            shown = str(values[name])
            assert "\n" not in shown
            assert shown == "-x" or not shown.startswith("-")
            assert value != HOSTILE


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("systemd", "units", "web"),
        ("systemd", "units", "--force.service"),
        ("systemd", "units", "a b.service"),
        ("systemd", "user", "yes"),
        ("haproxy", "servers", "web/a;shutdown"),
        ("haproxy", "servers", "web/a/b"),
        ("haproxy", "sockets", "host"),
        ("haproxy", "sockets", "host:0"),
        ("haproxy", "sockets", "host:99999"),
        ("kubernetes", "node", "Web_0"),
        ("kubernetes", "node", "--all"),
        ("kubernetes", "pod_selector", "--all"),
        ("kubernetes", "grace_period", "1.5s"),
        ("kubernetes", "grace_period", 30),
        ("kubernetes", "program", "kubectl"),
        ("webhook", "url", "ftp://example.org/"),
        ("webhook", "url", "https://user:secret@example.org/"),
        ("webhook", "url", "https:///nothing"),
        ("webhook", "url", "http://example.org:99999/"),
        ("webhook", "url", "http://example.org/a b"),
        ("webhook", "headers", {"X-A": "a\r\nX-B: b"}),
        ("webhook", "headers", {"X A": "a"}),
        ("webhook", "headers", {"Content-Length": "1"}),
        ("webhook", "secret_file", "secret"),
        ("email", "to", "ops@example.org, evil@example.org"),
        ("email", "to", ["ops@example.org", "ops"]),
        ("email", "from", "a@b>\r\nX: y"),
        ("email", "server", "mail"),
        ("log", "to", "tcp:host:514"),
        ("log", "priority", "loud"),
        ("log", "identifier", "a b"),
        ("log", "limit", 0),
        ("log", "limit", True),
    ],
)
def test_what_is_not_accepted_is_a_mistake(kind: str, name: str, value: object) -> None:
    _values, mistakes = read_options(KINDS[kind], {**LEAST[kind], name: value})
    assert [mistake.option for mistake in mistakes] == [name]


@pytest.mark.parametrize(
    ("kind", "more", "wrong"),
    [
        ("haproxy", {"action": "ready", "wait": True}, "wait"),
        ("kubernetes", {"action": "cordon", "force": True}, "force"),
        ("email", {"login_file": "/etc/login"}, "login_file"),
        ("email", {"ca_file": "/etc/ca.pem"}, "ca_file"),
        ("webhook", {"url": "http://example.org/", "ca_file": "/etc/ca.pem"}, "ca_file"),
        ("log", {"to": "udp:127.0.0.1:514", "socket": "/dev/log"}, "socket"),
    ],
)
def test_options_that_do_not_go_together_are_a_mistake(
    kind: str, more: dict[str, Any], wrong: str
) -> None:
    _values, mistakes = read_options(KINDS[kind], {**LEAST[kind], **more})
    assert [mistake.option for mistake in mistakes] == [wrong]


def test_addresses_are_paths_or_hosts_with_ports() -> None:
    given = ["/run/a.sock", "lb-1.example.org:9999", "[::1]:9999"]
    values, mistakes = read_options(KINDS["haproxy"], {**LEAST["haproxy"], "sockets": given})
    assert mistakes == ()
    assert values["sockets"] == (
        SocketAddress(path="/run/a.sock"),
        SocketAddress(host="lb-1.example.org", port=9999),
        SocketAddress(host="::1", port=9999),
    )
    assert [str(address) for address in values["sockets"]] == given


def test_the_tables_cost_the_agent_no_module_that_does_the_work() -> None:
    code = (
        "import sys, forewarn_guest.steps\n"
        "print(sorted({'ssl', 'smtplib', 'http.client', 'socket', 'subprocess', 'csv'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
