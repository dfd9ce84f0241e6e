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
    NotPostponable,
    NotSpot,
    Refusal,
)
from forewarn.core.model import Phase
from forewarn.emulator.faults.book import Fault
from forewarn.testing.arguments import CloudArguments
from forewarn.testing.attached import AttachedProcess
from forewarn.testing.background import EmulatorBroke
from forewarn.testing.cloud import Cloud
from forewarn.testing.literals import (
    ApiVersion,
    EventSourceName,
    EventTypeName,
    FaultName,
    FaultStatus,
    HostEventType,
    MethodName,
)
from forewarn.testing.scenarios import ScenarioRun
from forewarn.testing.values import (
    Approval,
    CloudOperation,
    CloudVm,
    Due,
    Event,
    ImpactFelt,
    JournalFact,
    Read,
)

__all__ = [
    "Cloud",
    "CloudArguments",
    "CloudVm",
    "Event",
    "CloudOperation",
    "Phase",
    "Approval",
    "Read",
    "JournalFact",
    "Due",
    "AttachedProcess",
    "ImpactFelt",
    "Fault",
    "EventTypeName",
    "EventSourceName",
    "HostEventType",
    "FaultName",
    "FaultStatus",
    "MethodName",
    "ApiVersion",
    "ScenarioRun",
    "Refusal",
    "NotFound",
    "Invalid",
    "BadInventory",
    "Conflict",
    "AlreadyStarted",
    "NotSpot",
    "NotPostponable",
    "EmulatorBroke",
]
