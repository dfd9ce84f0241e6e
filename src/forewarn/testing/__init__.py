"""For tests: a cloud in the background, with time that can be turned.

`Cloud` is for any test framework; the fixtures of pytest are in `forewarn.pytest_plugin`. What is
imported from here is what users can rely on.
"""

from forewarn.core.errors import (
    AlreadyStarted,
    BadInventory,
    Conflict,
    Invalid,
    NotFound,
    Refusal,
)
from forewarn.core.model import Phase
from forewarn.emulator.faults import Fault
from forewarn.testing.background import EmulatorBroke
from forewarn.testing.cloud import Cloud
from forewarn.testing.scenarios import ScenarioRun
from forewarn.testing.values import Approval, Due, Event, Fact, Operation, Read, Vm
from forewarn.testing.words import CloudWords

__all__ = [
    "Cloud",
    "CloudWords",
    "Vm",
    "Event",
    "Operation",
    "Phase",
    "Approval",
    "Read",
    "Fact",
    "Due",
    "Fault",
    "ScenarioRun",
    "Refusal",
    "NotFound",
    "Invalid",
    "BadInventory",
    "Conflict",
    "AlreadyStarted",
    "EmulatorBroke",
]
