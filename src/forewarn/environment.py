"""The environment variables that programs of ours read, and which program reads each.

Names alone: what their values mean is said where they are read. It imports nothing, so that each
command of the command line can ask it.
"""

from __future__ import annotations

PREFIX = "FOREWARN_"
# Ours, and read elsewhere: the command line's way to the service, and what tests are told.
OTHER_VARIABLES = frozenset(
    {
        "FOREWARN_URL",
        "FOREWARN_TOKEN",
        "FOREWARN_CA_FILE",
        "FOREWARN_TEST_DRAW",
        "FOREWARN_TEST_SEEDS",
        "FOREWARN_WRITE_GOLDEN",
    }
)
# The guest's: where its endpoint is, and what its steps are told. A step may call this program.
GUEST_VARIABLES = frozenset({"FOREWARN_ENDPOINT", "FOREWARN_VM", "FOREWARN_PART", "FOREWARN_STEP"})
GUEST_PREFIX = "FOREWARN_EVENT_"
# The host daemon's, read by `host_settings`.
HOST_PREFIX = "FOREWARN_HOST_"
DATA = "FOREWARN_DATA"
SOCKET = "FOREWARN_SOCKET"


def is_another_setting(name: str) -> bool:
    """True for a variable with a setting of the service beside the places of its folder and socket.

    A variable of ours that no program knows counts too: `settings` refuses it.
    """
    if not name.startswith(PREFIX) or name in (DATA, SOCKET):
        return False
    elsewhere = name in OTHER_VARIABLES or name in GUEST_VARIABLES
    return not elsewhere and not name.startswith((GUEST_PREFIX, HOST_PREFIX))
