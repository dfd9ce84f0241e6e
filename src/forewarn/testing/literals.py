"""The words that the arguments and values of a cloud are made of, for type checkers and editors."""

from __future__ import annotations

from typing import Literal

EventTypeName = Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
EventSourceName = Literal["Platform", "User"]
HostEventType = Literal["Freeze", "Reboot", "Redeploy"]  # what a host can be maintained by
MethodName = Literal["GET", "POST"]
ApiVersion = Literal[
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
]
FaultName = Literal[
    "slow-first",
    "gone",
    "throttled",
    "error",
    "unavailable",
    "empty",
    "cut",
    "reset",
    "stall",
    "skip",
    "unquoted-etag",
    "shuffle",
    "rate-limit",
    "latency",
    "late",
    "error-after",
    "html",
    "malformed",
    "replay",
    "never-started",
    "start-over",
    "late-document",
    "no-listener",
    "action-fails",
    "action-hangs",
    "action-slow",
]
FaultStatus = Literal[410, 429, 500, 503, "410", "429", "500", "503"]
