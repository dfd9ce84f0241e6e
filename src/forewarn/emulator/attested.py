"""`/metadata/attested/document` for tests: what an app parses, plainly marked, proving nothing.

The real service signs who a VM is. The emulator cannot and does not pretend to: the encoding is
`forewarn-test` instead of `pkcs7`, and what stands in the place of the signature says so.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import msgspec

from forewarn.endpoint import routes
from forewarn.endpoint.http_parser import Head
from forewarn.endpoint.registry import Guest
from forewarn.endpoint.routes import RequestRules
from forewarn.wire.api_versions import INSTANCE_VERSIONS
from forewarn.wire.instance import ResourceLocation

PATH = ("metadata", "attested", "document")
ENCODING = "forewarn-test"
MARK = "Made by the Forewarn emulator for a test. It is not signed and proves nothing."
VALID_FOR = timedelta(hours=6)
SINCE = "2018-10-01"  # the first api-version that has it
VERSIONS = tuple(version for version in INSTANCE_VERSIONS if version >= SINCE)
_TIMES = "%m/%d/%y %H:%M:%S -0000"


def is_asked(head: Head) -> bool:
    """Whether a request is for the attested document. Never raises."""
    return routes.route_path(head) == PATH


def answer(
    head: Head, rules: RequestRules, guest: Guest, place: ResourceLocation, now_ms: int
) -> bytes:
    """The document of a VM at an instant. Raises GuestProblem for what is asked wrongly."""
    query = routes.metadata_query(head, rules, VERSIONS)
    now = datetime.fromtimestamp(now_ms // 1_000, tz=UTC)
    content = {
        "forewarnTest": MARK,
        "licenseType": "",
        "nonce": query.get("nonce") or now.strftime("%Y%m%d-%H%M%S"),
        "plan": {"name": "", "product": "", "publisher": ""},
        "sku": "",
        "subscriptionId": place.subscription_id,
        "timeStamp": {
            "createdOn": now.strftime(_TIMES),
            "expiresOn": (now + VALID_FOR).strftime(_TIMES),
        },
        "vmId": guest.vm.vm_id,
    }
    signature = base64.b64encode(msgspec.json.encode(content)).decode()
    return msgspec.json.encode({"encoding": ENCODING, "signature": signature})
