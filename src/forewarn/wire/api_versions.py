"""Every api-version we answer and what a document of it shows. The only place that knows versions.

One table for `/metadata/scheduledevents` and one list for `/metadata/instance`; they are different
lists (contract Q4). No rendering lives here: `documents` and `instance` ask these values.
"""

from __future__ import annotations

from msgspec import Struct

from forewarn.core.model import EventType


class ApiVersion(Struct, frozen=True, kw_only=True):
    """What one api-version of `/metadata/scheduledevents` shows and asks for (contract 1.6).

    `header_required` says whether the service enforces `Metadata: true` (H1, H2). `underscore`
    says whether names of VMs carry a leading underscore (S4). `iso_not_before` says whether
    NotBefore is ISO 8601; otherwise it is RFC 1123 (N1, N2).
    """

    name: str
    event_types: frozenset[EventType]
    shows_description: bool = False
    shows_event_source: bool = False
    shows_duration: bool = False
    header_required: bool = True
    underscore: bool = False
    iso_not_before: bool = False


_HOST_TYPES = frozenset({EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY})
_WITH_PREEMPT = _HOST_TYPES | {EventType.PREEMPT}
_WITH_TERMINATE = _WITH_PREEMPT | {EventType.TERMINATE}

# Oldest first. 2024-07-09 is absent on purpose: it is not generally available, and clients that
# probe for it expect 404 (Q3).
API_VERSIONS: dict[str, ApiVersion] = {
    version.name: version
    for version in (
        ApiVersion(
            name="2017-03-01",
            event_types=_HOST_TYPES,
            header_required=False,
            underscore=True,
            iso_not_before=True,
        ),
        ApiVersion(name="2017-08-01", event_types=_HOST_TYPES),
        ApiVersion(name="2017-11-01", event_types=_WITH_PREEMPT),
        ApiVersion(name="2019-01-01", event_types=_WITH_TERMINATE),
        ApiVersion(name="2019-04-01", event_types=_WITH_TERMINATE, shows_description=True),
        ApiVersion(
            name="2019-08-01",
            event_types=_WITH_TERMINATE,
            shows_description=True,
            shows_event_source=True,
        ),
        ApiVersion(
            name="2020-07-01",
            event_types=_WITH_TERMINATE,
            shows_description=True,
            shows_event_source=True,
            shows_duration=True,
        ),
    )
}

NEWEST: ApiVersion = API_VERSIONS[max(API_VERSIONS)]

# Newest first, as the error bodies list them (E2).
NEWEST_THREE: tuple[str, ...] = tuple(sorted(API_VERSIONS, reverse=True)[:3])

# I2, ascending: what `/metadata/instance` answers and `/metadata/versions` lists.
INSTANCE_VERSIONS: tuple[str, ...] = (
    "2017-03-01",
    "2017-04-02",
    "2017-08-01",
    "2017-10-01",
    "2017-12-01",
    "2018-02-01",
    "2018-04-02",
    "2018-10-01",
    "2019-02-01",
    "2019-03-11",
    "2019-04-30",
    "2019-06-01",
    "2019-06-04",
    "2019-08-01",
    "2019-08-15",
    "2019-11-01",
    "2020-06-01",
    "2020-07-15",
    "2020-09-01",
    "2020-10-01",
    "2020-12-01",
    "2021-01-01",
    "2021-02-01",
    "2021-03-01",
    "2021-05-01",
    "2021-08-01",
    "2021-10-01",
    "2021-11-01",
    "2021-11-15",
    "2021-12-13",
    "2023-07-01",
    "2023-11-15",
    "2024-03-15",
    "2024-07-17",
    "2025-04-07",
)

INSTANCE_NEWEST_THREE: tuple[str, ...] = INSTANCE_VERSIONS[:-4:-1]
