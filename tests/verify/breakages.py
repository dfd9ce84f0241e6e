"""Every breakage there is, by the check that must find it."""

from __future__ import annotations

from verify import breaking_events, breaking_requests

_APPROVALS = (
    "approve-again",
    "approve-any-case",
    "approve-other-version",
    "approve-oldest",
    "approve-more-fields",
    "approve-content-type",
    "approve-with-tag",
    "approve-twice-in-one",
    "approve-ended",
)
_STARTS = (
    "starts-Reboot",
    "starts-Redeploy",
    "start-2017-03-01",
    "start-2017-08-01",
    "start-2017-11-01",
    "start-2019-01-01",
    "start-2019-04-01",
    "start-2019-08-01",
    "start-other-version",
    "approve-several",
)

# Checks stand alone, so that some things that are broken are seen by several. Those that are not
# named here fail their own check and no other.
ALSO: dict[str, set[str]] = {
    "get-incarnation-stands": {"version-same-incarnation", "etag-value"},
    "post-no-body": {"post-malformed-standing"},
    "post-not-json": {"post-malformed-standing"},
    "post-wrong-shape": {"post-malformed-standing"},
    "life-appears": {
        "cancel-removes",
        "notice-Redeploy",
        "starts-Redeploy",
        "notice-Freeze",
        "starts-Freeze",
    },
    "life-type": {"same-type"},
    "life-every-version": {"same-events"},
    "life-old-tag": {"start-old-tag", "end-old-tag"},
    "approve-200": {*_APPROVALS, *_STARTS, "starts-Freeze", "approve-one"},
    "approve-starts": {*_STARTS, "start-any-case"},
    "life-id-stable": {*_APPROVALS},
    "life-ends": {*_STARTS, "alone-starts", "starts-Freeze", "start-any-case", "same-events"},
    "approve-other-version": {"start-2019-01-01"},
    "approve-oldest": {"start-2017-03-01"},
    "approve-more-fields": {"start-2019-01-01", "start-2019-04-01"},
    "approve-content-type": {"start-2017-11-01"},
    "approve-with-tag": {"start-2019-08-01"},
    "start-2017-08-01": {"start-other-version"},
    "start-other-version": {"start-2017-08-01"},
    "cancel-removes": {"same-events"},
    "alone-starts": {"same-events"},
    "shown-Preempt": {"same-events"},
    "shown-Terminate": {"same-events"},
    "approve-one": {"approve-several"},
    "event-id-form": {"life-every-version", "shown-Preempt", "shown-Terminate", "same-events"},
    "event-id-kept": {"event-id-upper"},
    "event-status": {"same-status"},
    "event-type": {"same-type"},
    "event-resources": {"same-names"},
    "same-status": {"not-before-kept"},
    "same-not-before": {"not-before-kept"},
    # The emulator takes no order for a VM whose event has started, and this one hides that.
    "started-shown": {
        "cancel-removes",
        "notice-Reboot",
        "start-2017-11-01",
        "start-2019-04-01",
        "approve-one",
    },
    "phases-forward": {"same-status"},
}

BREAKAGES = {**breaking_requests.BREAKAGES, **breaking_events.BREAKAGES}
