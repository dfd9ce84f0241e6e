"""Refusals: every "no" a rule can say, by name.

A refusal says what was refused and what would be accepted. It knows nothing of HTTP; the status
codes are in `wire.problems`, in one place.

    Refusal
    +-- NotFound            there is no such VM, host, scope, event
    |   +-- UnknownQuestion   a host asks in words of a later version
    +-- Invalid             the words of the order or file make no sense
    |   +-- UnknownEventIds   an approval names ids this scope never had
    |   +-- BadInventory      an inventory file is wrong, with its line
    +-- Conflict            the words are fine, the state does not allow it
    |   +-- NotSpot, TooManyUserEvents, AlreadyStarted (AlreadyEnded), TwoDomainsOnHost,
    |   +-- HostUnfit, HostHeard, HostSilent, OperationExists, WindowTooShort, OtherWindow,
    |   +-- NotPostponable, PostponedTooOften, PostponedTooFar, EffectMoved,
    |   +-- StaleReport, InventoryConflict, IdempotencyMismatch, NameTaken, VmHasHost, TokenExists,
    |   +-- WebhookExists
    +-- Forbidden           who asks may not ask that
    |   +-- NotInvited, NotMember, NotYours, SocketOnly, TokenEnded, NoRole
    +-- BadToken            the token of an issuer does not say who asks
    +-- FeedGone            the feed has no longer what a reader wants to go on from
        +-- LinesPruned, JournalRestored
    Unavailable             nothing wrong with the request; it could not be made durable
"""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error
    """Nothing was changed. `refused` says what was refused, `accepted` what would be accepted."""

    def __init__(self, refused: str, accepted: str = "") -> None:
        super().__init__(f"{refused} {accepted}".strip())
        self.refused = refused
        self.accepted = accepted

    @property
    def code(self) -> str:
        """A stable name for machines: the class, in kebab case."""
        name = type(self).__name__
        return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


class NotFound(Refusal):
    """There is nothing of that name."""


class UnknownQuestion(NotFound):
    """A host asks what only a later version of control knows."""


class Invalid(Refusal):
    """The order cannot be understood."""


class UnknownEventIds(Invalid):
    """An approval names event ids that this scope never had; nothing of it was applied."""


class BadInventory(Invalid):
    """The inventory file is wrong. Nothing of it was applied."""


class Conflict(Refusal):
    """The order is understood, but the present state does not allow it."""


class NotSpot(Conflict):
    """Only spot VMs can be evicted."""


class TooManyUserEvents(Conflict):
    """The scope has as many open user events as it may have."""


class AlreadyStarted(Conflict):
    """The event has started; it cannot be canceled any more."""


class AlreadyEnded(AlreadyStarted):
    """It has ended; nothing can be done about it any more."""


class TwoDomainsOnHost(Conflict):
    """The host carries two update domains of one scope, and the order would hit both."""


class HostUnfit(Conflict):
    """The host's health does not allow the order."""


class VmHasHost(Conflict):
    """A host is named for a VM that does not wait for one."""


class HostHeard(Conflict):
    """A host is said to have failed or to be off, and it speaks."""


class HostSilent(Conflict):
    """A host is said to be well, and it is not heard."""


class OperationExists(Conflict):
    """The host already has an operation of that type."""


class WindowTooShort(Conflict):
    """The window of the order closes before the notice that is promised has been given."""


class OtherWindow(Conflict):
    """The same is already ordered, with another window or without one."""


class NotPostponable(Conflict):
    """Nothing of that kind is postponed, or no owner may postpone here."""


class PostponedTooOften(Conflict):
    """The event was postponed as often as it may be."""


class PostponedTooFar(Conflict):
    """The event would be postponed by more than it may be, or beyond the window of its order."""


class OtherDisk(Conflict):
    """The same is already ordered, with the other fate of the local disks."""


class LocalDiskKept(Conflict):
    """The hosts of this fleet cannot move a VM without its local disks."""


class StaleReport(Conflict):
    """The report is for a claim that is no longer held."""


class InventoryConflict(Conflict):
    """The inventory file would change something that a visible event depends on."""


class IdempotencyMismatch(Conflict):
    """The idempotency key was used before, for another order."""


class EffectMoved(Conflict):
    """The order would do something else by now than its author was shown."""


class NameTaken(Conflict):
    """Another host has joined under that name."""


class TokenExists(Conflict):
    """A token of that name still lets in."""


class WebhookExists(Conflict):
    """A webhook of that name is there already."""


class Forbidden(Refusal):
    """Who asks may not ask that, whatever the words are."""


class NotInvited(Forbidden):
    """The token lets no host in: it is not ours, was used, has expired, or is for another name."""


class NotMember(Forbidden):
    """Who asks is no host that has joined, or is one no longer."""


class NotYours(Forbidden):
    """A host speaks for its own VMs only."""


class SocketOnly(Forbidden):
    """Only who comes by the Unix socket is given that: it holds secrets."""


class TokenEnded(Forbidden):
    """The token of the caller was revoked or has expired."""


class NoRole(Forbidden):
    """The issuer says who asks, and the settings give them no role."""


class BadToken(Refusal):
    """The token lets no caller in: it is not by an issuer of ours, not for us, or not for now."""


class FeedGone(Refusal):
    """A reader of the feed cannot go on without missing something. `begin` is where it can begin.

    `oldest` is the number of the oldest line from which on none is missing.
    """

    def __init__(
        self, refused: str, accepted: str = "", *, begin: str = "", oldest: int = 0
    ) -> None:
        super().__init__(refused, accepted)
        self.begin = begin
        self.oldest = oldest


class LinesPruned(FeedGone):
    """Lines that the reader has not read were pruned."""


class JournalRestored(FeedGone):
    """The reader has read lines that a restore has undone."""


class Unavailable(Exception):  # noqa: N818 - says what is the case
    """The service cannot make anything durable now; try again later."""
