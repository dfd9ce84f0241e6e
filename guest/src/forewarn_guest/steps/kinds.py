"""The kinds of built-in steps and their options, as tables. What does them is in other modules.

The agent reads these tables at start and must stay small, so nothing here imports what does the
work: each kind names its module, and only the step's own process imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from forewarn_guest.durations import ACCEPTS
from forewarn_guest.steps.options import (
    Mistake,
    Option,
    SocketAddress,
    StepKind,
    absolute_path,
    host_and_port,
    list_of,
    matching,
    one_of,
    seconds,
    socket_address,
    text,
    whole_seconds,
    yes_or_no,
)

HEADERS_MAX = 50
_FACILITIES = "kern user mail daemon auth syslog lpr news uucp cron authpriv ftp ntp security"
_LOCAL = "local0 local1 local2 local3 local4 local5 local6 local7"
# In the order of their numbers on the wire, as the priorities are (RFC 5424, 6.2.1).
FACILITIES = tuple(f"{_FACILITIES} console solaris-cron {_LOCAL}".split())
PRIORITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")

_UNIT_SUFFIXES = "service|socket|target|timer|mount|automount|swap|path|slice|scope|device"
_unit = matching(
    r"(?!-)[A-Za-z0-9:_.@\\-]{1,240}\.(?:" + _UNIT_SUFFIXES + ")",
    "the name of a unit with its suffix, like web.service",
)
_NAME = r"[A-Za-z0-9_.:-]+"  # what haproxy accepts in names; nothing that ends a command of its own
_server = matching(_NAME + "/" + _NAME, "backend/server")
_kubernetes_name = matching(
    r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
    "the name of a Kubernetes node: small letters, digits, - and .",
)
_not_a_flag = matching(r"(?!-)[ -~]{1,1024}", "text that does not begin with -")
_header_name = matching(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", "the name of a header")
_mailbox = matching(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?",
    "a mail address, like ops@example.org",
)
_identifier = matching(r"[A-Za-z0-9_.-]{1,48}", "letters, digits, -, _ and ., at most 48")


def _headers(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or len(value) > HEADERS_MAX:
        raise ValueError(f"must be a table of at most {HEADERS_MAX} headers, each with its text")
    read = {}
    for name, content in value.items():
        read[_header_name(name)] = text(content)
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise ValueError(f"must leave {name} to the step")
        if not content.isascii():
            raise ValueError(f"must have nothing but ASCII in {name}")
    return read


def _url(value: object) -> str:
    url = text(value)
    if not url.isascii() or " " in url:
        raise ValueError("must be an URL without spaces, and other letters as %XX")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must hold no user and no password; a secret_file keeps them")
    if parts.port == 0:  # a port that is no port raises ValueError by itself
        raise ValueError("must name a port above 0")
    return url


def _log_target(value: object) -> SocketAddress | str:
    """`journald`, `syslog`, or the address behind `udp:`."""
    target = text(value)
    if target in ("journald", "syslog"):
        return target
    if not target.startswith("udp:"):
        raise ValueError("must be journald, syslog or udp:host:port")
    return host_and_port(target[len("udp:") :])


LIMIT = Option(
    what="How long the step may take. The time left before the event binds it too.",
    accepts="a number of seconds",
    read=seconds,
)

_SYSTEMD = {
    "action": Option(
        "What to do with the units.",
        "stop, start or restart",
        one_of("stop", "start", "restart"),
        required=True,
    ),
    "units": Option(
        "The units, with their suffix.",
        "a name like web.service, or a list of them",
        list_of(_unit),
        required=True,
    ),
    "user": Option(
        "Ask the systemd of the agent's user, not the system's.",
        "true or false",
        yes_or_no,
        default=False,
    ),
    "limit": LIMIT,
}

_HAPROXY = {
    "action": Option(
        "What to set the servers to.",
        "drain, ready or maint",
        one_of("drain", "ready", "maint"),
        required=True,
    ),
    "servers": Option(
        "The servers as haproxy names them.",
        "backend/server, or a list of them",
        list_of(_server),
        required=True,
    ),
    "sockets": Option(
        "The runtime sockets, with level admin; each of them is told.",
        "a path, host:port, or a list of them",
        list_of(socket_address),
        default=(SocketAddress(path="/run/haproxy/admin.sock"),),
    ),
    "wait": Option(
        "Wait until the servers have no session left; not with ready.",
        "true or false",
        yes_or_no,
        default=False,
    ),
    "limit": LIMIT,
}


def _haproxy_agreement(values: Mapping[str, Any]) -> tuple[Mistake, ...]:
    if values["wait"] and values["action"] == "ready":
        return (Mistake("wait", "goes with drain and maint, not with ready."),)
    return ()


_KUBERNETES = {
    "action": Option(
        "What to do with the node.",
        "cordon, drain or uncordon",
        one_of("cordon", "drain", "uncordon"),
        required=True,
    ),
    "node": Option(
        "The node's name in Kubernetes; without it, as node_from says.",
        "a name",
        _kubernetes_name,
    ),
    "node_from": Option(
        # C9: the name in an event of a scale set is not the machine's, which the node has.
        "What the node is called after: the VM's name in events, or the machine's host name.",
        "vm or hostname",
        one_of("vm", "hostname"),
        default="vm",
    ),
    "ignore_daemonsets": Option(
        "With drain: leave pods of daemon sets.", "true or false", yes_or_no, default=True
    ),
    "delete_emptydir_data": Option(
        "With drain: also evict pods that lose an emptyDir.",
        "true or false",
        yes_or_no,
        default=False,
    ),
    "force": Option(
        "With drain: also evict pods that nothing starts again.",
        "true or false",
        yes_or_no,
        default=False,
    ),
    "grace_period": Option(
        "With drain: the time each pod gets; without it, what the pod asks for.",
        ACCEPTS,
        whole_seconds,
    ),
    "pod_selector": Option("With drain: only these pods.", "a label selector", _not_a_flag),
    "kubeconfig": Option("The file with the credentials.", "an absolute path", absolute_path),
    "context": Option("The context in that file.", "a name", _not_a_flag),
    "program": Option(
        "The kubectl to run; without it, the one on PATH.", "an absolute path", absolute_path
    ),
    "limit": LIMIT,
}

_WITH_DRAIN = ("delete_emptydir_data", "force", "grace_period", "pod_selector", "ignore_daemonsets")


def _kubernetes_agreement(values: Mapping[str, Any]) -> tuple[Mistake, ...]:
    if values["action"] == "drain":
        return ()
    return tuple(
        Mistake(name, f"goes with drain, not with {values['action']}.")
        for name in _WITH_DRAIN
        if values[name] != _KUBERNETES[name].default
    )


_WEBHOOK = {
    "url": Option("Where to post to.", "an http:// or https:// URL", _url, required=True),
    "headers": Option(
        "Headers to send with it.", "a table of names and texts", _headers, default={}
    ),
    "secret_file": Option(
        "A file whose content is sent as the header secret_header.",
        "an absolute path",
        absolute_path,
    ),
    "secret_header": Option(
        "The header for the secret.", "a name", _header_name, default="Authorization"
    ),
    "ca_file": Option(
        "Certificates to trust in place of the system's.", "an absolute path", absolute_path
    ),
    "limit": LIMIT,
}

_EMAIL = {
    "from": Option("The sender.", "a mail address", _mailbox, required=True),
    "to": Option(
        "The receivers.", "a mail address, or a list of them", list_of(_mailbox), required=True
    ),
    "server": Option(
        "The mail server.",
        "host:port",
        host_and_port,
        default=SocketAddress(host="localhost", port=25),
    ),
    "tls": Option(
        "How the connection is kept secret: not at all, by STARTTLS, or from its beginning.",
        "none, starttls or implicit",
        one_of("none", "starttls", "implicit"),
        default="none",
    ),
    "login_file": Option(
        "A file with the user in its first line and the password in its second.",
        "an absolute path",
        absolute_path,
    ),
    "ca_file": Option(
        "Certificates to trust in place of the system's.", "an absolute path", absolute_path
    ),
    "subject": Option("The subject, in place of one about the event.", "text", text),
    "limit": LIMIT,
}


def _email_agreement(values: Mapping[str, Any]) -> tuple[Mistake, ...]:
    if values["login_file"] and values["tls"] == "none":
        return (Mistake("login_file", "goes with tls: a password is never sent in the clear."),)
    if values["ca_file"] and values["tls"] == "none":
        return (Mistake("ca_file", "goes with tls, but tls is 'none'."),)
    return ()


_LOG = {
    "to": Option(
        "Which log.", "journald, syslog or udp:host:port", _log_target, default="journald"
    ),
    "socket": Option(
        "The socket, where it is not in its usual place.", "an absolute path", absolute_path
    ),
    "priority": Option(
        "How grave it is.", ", ".join(PRIORITIES), one_of(*PRIORITIES), default="notice"
    ),
    "facility": Option(
        "The syslog facility.", "a name like daemon", one_of(*FACILITIES), default="daemon"
    ),
    "identifier": Option(
        "The name it is logged under.", "a name", _identifier, default="forewarn-guest"
    ),
    "limit": LIMIT,
}


def _log_agreement(values: Mapping[str, Any]) -> tuple[Mistake, ...]:
    if values["socket"] and isinstance(values["to"], SocketAddress):
        return (Mistake("socket", "goes with journald and syslog, not with udp."),)
    return ()


def _webhook_agreement(values: Mapping[str, Any]) -> tuple[Mistake, ...]:
    if values["ca_file"] and not values["url"].startswith("https://"):
        return (Mistake("ca_file", "goes with https."),)
    return ()


KINDS: Mapping[str, StepKind] = {
    kind.name: kind
    for kind in (
        StepKind("systemd", "Stops, starts or restarts units.", "systemd_units", _SYSTEMD),
        StepKind(
            "haproxy",
            "Drains servers, or makes them ready, through the runtime socket.",
            "haproxy",
            _HAPROXY,
            _haproxy_agreement,
        ),
        StepKind(
            "kubernetes",
            "Cordons, drains or uncordons a node through kubectl.",
            "kubernetes",
            _KUBERNETES,
            _kubernetes_agreement,
        ),
        StepKind(
            "webhook", "Posts the event as JSON to an URL.", "webhook", _WEBHOOK, _webhook_agreement
        ),
        StepKind(
            "email", "Sends the facts of the event by mail.", "mail", _EMAIL, _email_agreement
        ),
        StepKind(
            "log", "Writes the event to journald or syslog.", "system_log", _LOG, _log_agreement
        ),
    )
}
