"""The body of a POST to `/metadata/scheduledevents`: which events a guest approves.

Parsing only. Whether the ids exist is a rule of the core; headers, Content-Type included, are the
endpoint's business (H5).
"""

from __future__ import annotations

import msgspec

from forewarn.wire import problems

# No limit of the real service is known (A2); this one is far above any scope we have seen.
START_REQUESTS_MAX = 1_000


class _StartRequest(msgspec.Struct):
    event_id: str = msgspec.field(name="EventId")


class _Approval(msgspec.Struct):
    # DocumentIncarnation and any other field is skipped unread (A3).
    start_requests: list[_StartRequest] = msgspec.field(name="StartRequests")


_decode = msgspec.json.Decoder(_Approval).decode


def parse(body: bytes) -> tuple[str, ...]:
    """The ids a guest approves, in upper case, in its order, each once; never empty.

    Raises GuestProblem, and nothing else, for everything that is not such a request.
    """
    try:
        # Decoded whole and first, so that bytes in skipped fields are checked as well.
        approval = _decode(body.decode("utf-8-sig"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise problems.malformed_body(str(error)) from None
    except RecursionError:
        raise problems.malformed_body("the JSON is nested too deeply") from None
    if not approval.start_requests:
        raise problems.malformed_body("StartRequests is empty")
    if len(approval.start_requests) > START_REQUESTS_MAX:
        raise problems.too_many_start_requests(len(approval.start_requests), START_REQUESTS_MAX)
    # Guests send ids in either case; ours are in upper case (A8).
    return tuple(dict.fromkeys(request.event_id.upper() for request in approval.start_requests))
