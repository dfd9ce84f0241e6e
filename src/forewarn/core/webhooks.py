"""Where lines of the journal are sent: what a webhook is, how it is made, changed and given up.

Rules only. When it is tried again is `webhook_retries`; which places may be sent to at all is
`webhook_targets`, and is asked before an order comes here. The API makes the secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.errors import Conflict, Invalid, NotFound, WebhookExists
from forewarn.core.facts import (
    AboutWebhook,
    WebhookChangedDetail,
    WebhookDisabledDetail,
    WebhookEnabledDetail,
    WebhookMadeDetail,
    WebhookRemovedDetail,
    WebhookReplayedDetail,
    WebhookRotatedDetail,
    WebhookSkippedDetail,
    by_whom,
)
from forewarn.core.model import (
    HOUR_MS,
    AnyProgress,
    AnyWebhookOrder,
    Fact,
    FactKind,
    Failing,
    NewSecret,
    NewTerms,
    NewWebhook,
    Removal,
    Replay,
    SwitchOff,
    SwitchOn,
    Webhook,
    WebhookCondition,
    WebhookTerms,
)
from forewarn.core.principal import Principal, refuse_name
from forewarn.core.suggestions import meant

WEBHOOKS_MAX = 64  # each has a request under way, and lines of at most 256 KiB in memory
SCOPES_MAX = 100  # that one names
BATCH_MAX = 100  # lines of one request
OVERLAP_MS_MAX = 7 * 24 * HOUR_MS
OVERLAP_MS_DEFAULT = 24 * HOUR_MS
WHY_CHARS_MAX = 200  # of what is kept of a failure
_TERMS = WebhookTerms.__struct_fields__

Webhooks = Mapping[str, Webhook]  # by id


class Surroundings(Struct, frozen=True, kw_only=True):
    """What an order is decided by beside the webhooks: which scopes and lines there are."""

    scopes: Collection[str]
    end: int  # of the journal
    oldest: int  # its first line that is there, without a gap from there on
    generation_of: Callable[[int], int]
    now_ms: int


class WebhookChange(Struct, frozen=True):
    """The webhook as it is now, None if it is gone, what it was or is, and what the journal says.

    `gone`: it is forgotten.
    """

    webhook: Webhook
    facts: tuple[Fact, ...] = ()
    gone: bool = False


def place_of(url: str) -> str:
    """The scheme, name and port of a URL: its path and query may be a secret of the receiver."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def find(webhooks: Webhooks, given: str) -> Webhook:
    """The webhook of that name or id. Raises NotFound."""
    if given in webhooks:
        return webhooks[given]
    for one in webhooks.values():
        if one.name == given:
            return one
    raise NotFound(
        f"There is no webhook {given}.{_space(meant(given, [w.name for w in webhooks.values()]))}",
        "`forewarn webhook list` shows them.",
    )


def _space(sentence: str) -> str:
    return f" {sentence}" if sentence else ""


def in_order(webhooks: Iterable[Webhook]) -> Sequence[Webhook]:
    """As lists show them: by name."""
    return sorted(webhooks, key=lambda one: one.name)


# What admins order.


class OrderOnWebhook(Struct, frozen=True, kw_only=True):
    """An order for the webhook of that id, by whom, and the webhooks that there are."""

    webhook_id: str
    do: AnyWebhookOrder
    by: Principal
    webhooks: Webhooks


def ordered(order: OrderOnWebhook, there: Surroundings) -> WebhookChange:
    """What comes of an order. Raises its Refusal."""
    do = order.do
    if isinstance(do, NewWebhook):
        return _made(order, do, there)
    webhook = find(order.webhooks, order.webhook_id)
    if isinstance(do, NewTerms):
        return _changed(webhook, do, order, there)
    return _altered(webhook, do, order.by, there)


def _altered(
    webhook: Webhook,
    do: NewSecret | Replay | SwitchOn | SwitchOff | Removal,
    by: Principal,
    there: Surroundings,
) -> WebhookChange:
    match do:
        case NewSecret():
            return _rotated(webhook, do, by, there)
        case Replay():
            return _replayed(webhook, do, by, there)
        case SwitchOn():
            return _switched_on(webhook, by, there)
        case SwitchOff():
            return _switched_off(webhook, by, there)
        case Removal():
            fact = _fact(FactKind.WEBHOOK_REMOVED, WebhookRemovedDetail, webhook, by, there)
            return WebhookChange(webhook, (fact,), gone=True)


def _made(order: OrderOnWebhook, do: NewWebhook, there: Surroundings) -> WebhookChange:
    if len(order.webhooks) >= WEBHOOKS_MAX:
        raise Conflict(
            f"There are {WEBHOOKS_MAX} webhooks, the most there may be.",
            "Remove one: `forewarn webhook remove NAME`. One receiver can tell others.",
        )
    _refuse_terms(do.terms, order.webhooks, there, later=do.later, own=None)
    if order.webhook_id in order.webhooks:
        raise Conflict(f"There is a webhook {order.webhook_id} already.", "Order it again.")
    number = there.end if do.number is None else _line(do.number, there)
    webhook = Webhook(
        **{name: getattr(do.terms, name) for name in _TERMS},
        webhook_id=order.webhook_id,
        secret=do.secret,
        number=number,
        generation=there.generation_of(number),
        made_ms=there.now_ms,
        made_by=order.by.name,
    )
    detail = WebhookMadeDetail(
        **_about(webhook), format=webhook.format, scopes=webhook.scopes, kinds=webhook.kinds
    )
    fact = Fact(kind=FactKind.WEBHOOK_MADE, at_ms=there.now_ms, detail=detail)
    return WebhookChange(webhook, (by_whom(fact, order.by),))


def _changed(
    webhook: Webhook, do: NewTerms, order: OrderOnWebhook, there: Surroundings
) -> WebhookChange:
    if do.turn != webhook.turn:
        raise Conflict(
            f"The webhook {webhook.name} was changed by another order since you looked.",
            "Look at it (`forewarn webhook show`), and order it again.",
        )
    _refuse_terms(do.terms, order.webhooks, there, later=do.later, own=webhook.webhook_id)
    terms = {name: getattr(do.terms, name) for name in _TERMS}
    changed = tuple(name for name in _TERMS if terms[name] != getattr(webhook, name))
    if not changed:
        return WebhookChange(webhook)
    after = replace(_anew(webhook), **terms)
    detail = WebhookChangedDetail(
        **_about(after),
        format=after.format,
        scopes=after.scopes,
        kinds=after.kinds,
        changed=changed,
    )
    fact = Fact(kind=FactKind.WEBHOOK_CHANGED, at_ms=there.now_ms, detail=detail)
    return WebhookChange(after, (by_whom(fact, order.by),))


def _rotated(webhook: Webhook, do: NewSecret, by: Principal, there: Surroundings) -> WebhookChange:
    if not 0 <= do.overlap_ms <= OVERLAP_MS_MAX:
        raise Invalid(
            "Two secrets are not kept for so long.",
            f"Up to {OVERLAP_MS_MAX // HOUR_MS} hours would be accepted; 0 ends the old one now.",
        )
    until = there.now_ms + do.overlap_ms if do.overlap_ms else None
    after = replace(
        webhook,
        secret=do.secret,
        old_secret=webhook.secret if until is not None else None,
        old_until_ms=until,
    )
    detail = WebhookRotatedDetail(**_about(after), old_until_ms=until)
    fact = Fact(kind=FactKind.WEBHOOK_ROTATED, at_ms=there.now_ms, detail=detail)
    return WebhookChange(after, (by_whom(fact, by),))


def _replayed(webhook: Webhook, do: Replay, by: Principal, there: Surroundings) -> WebhookChange:
    number = _line(do.number, there)
    after = replace(_anew(webhook), number=number, generation=there.generation_of(number))
    detail = WebhookReplayedDetail(**_about(after), before=webhook.number, after=number)
    fact = Fact(kind=FactKind.WEBHOOK_REPLAYED, at_ms=there.now_ms, detail=detail)
    return WebhookChange(after, (by_whom(fact, by),))


def _switched_on(webhook: Webhook, by: Principal, there: Surroundings) -> WebhookChange:
    """Enabled or failing, it is tried at once; what is well is left alone."""
    if webhook.condition is WebhookCondition.OK:
        return WebhookChange(webhook)
    after = _anew(webhook)
    if webhook.disabled_ms is None:
        return WebhookChange(after)
    fact = _fact(FactKind.WEBHOOK_ENABLED, WebhookEnabledDetail, after, by, there)
    return WebhookChange(after, (fact,))


def _switched_off(webhook: Webhook, by: Principal, there: Surroundings) -> WebhookChange:
    if webhook.disabled_ms is not None:
        return WebhookChange(webhook)
    return _disabled(webhook, by=by, because=f"{by.name} has disabled it", now_ms=there.now_ms)


def _anew(webhook: Webhook) -> Webhook:
    """The webhook without its failures, sending, in its next turn."""
    return replace(
        webhook,
        turn=webhook.turn + 1,
        failing_since_ms=None,
        failures=0,
        failing_ms=0,
        failure="",
        disabled_ms=None,
        disabled_by=None,
        disabled_because="",
    )


def _line(number: int, there: Surroundings) -> int:
    """The line after which it goes on. Raises Invalid for one that is not there."""
    if not there.oldest - 1 <= number <= there.end:
        raise Invalid(
            f"The journal has no line {number} to go on after.",
            f"Lines {there.oldest} to {there.end} are there; {there.oldest - 1} sends them all.",
        )
    return number


def _refuse_terms(
    terms: WebhookTerms, webhooks: Webhooks, there: Surroundings, *, later: bool, own: str | None
) -> None:
    refuse_name(terms.name, "a webhook")
    same = [one for one in webhooks.values() if one.name == terms.name and one.webhook_id != own]
    if same:
        raise WebhookExists(
            f"There is a webhook {terms.name} already.",
            f"Choose another name, or say `forewarn webhook change {terms.name}`.",
        )
    if not 1 <= terms.batch <= BATCH_MAX:
        raise Invalid(
            f"One request cannot have up to {terms.batch} lines.",
            f"1 to {BATCH_MAX} would be accepted.",
        )
    if len(terms.scopes) > SCOPES_MAX or len(set(terms.scopes)) != len(terms.scopes):
        raise Invalid(
            f"These are {len(terms.scopes)} scopes, or one is named twice.",
            f"Up to {SCOPES_MAX} would be accepted, each once.",
        )
    if len(set(terms.kinds)) != len(terms.kinds):
        raise Invalid("A kind of line is named twice.", "Name each once.")
    odd = [name for name in terms.scopes if not name or not name.isprintable()]
    missing = [name for name in terms.scopes if name not in there.scopes]
    if odd or (missing and not later):
        name = (odd or missing)[0]
        raise Invalid(
            f"There is no scope {name!r}. {meant(name, there.scopes)}",
            "Name scopes that are there, or say --later if they are to come.",
        )


# What has come of sending.


def progressed(
    webhook: Webhook, progress: AnyProgress, there: Surroundings, by: Principal
) -> WebhookChange:
    """The webhook with what has come of sending since its present turn began."""
    if isinstance(progress, Failing):
        return _failed(webhook, progress, there, by)
    number = min(progress.number, there.end)
    well = replace(
        webhook,
        number=number,
        generation=there.generation_of(number),
        failing_since_ms=None,
        failures=0,
        failing_ms=0,
        failure="",
    )
    if not progress.skipped:
        return WebhookChange(well)
    after = replace(webhook, number=number, generation=there.generation_of(number))
    detail = WebhookSkippedDetail(**_about(after), before=webhook.number, after=number)
    fact = Fact(kind=FactKind.WEBHOOK_SKIPPED, at_ms=there.now_ms, detail=detail)
    return WebhookChange(after, (by_whom(fact, by),))


def _failed(
    webhook: Webhook, failing: Failing, there: Surroundings, by: Principal
) -> WebhookChange:
    since_ms = webhook.failing_since_ms
    why = failing.why[:WHY_CHARS_MAX]
    after = replace(
        webhook,
        failing_since_ms=there.now_ms if since_ms is None else since_ms,
        failures=failing.failures,
        failing_ms=failing.failing_ms,
        failure=why,
    )
    if not failing.ends:
        return WebhookChange(after)
    return _disabled(after, by=by, because=why, now_ms=there.now_ms)


def _disabled(webhook: Webhook, *, by: Principal, because: str, now_ms: int) -> WebhookChange:
    after = replace(
        webhook,
        turn=webhook.turn + 1,
        disabled_ms=now_ms,
        disabled_by=by.name,
        disabled_because=because,
    )
    detail = WebhookDisabledDetail(**_about(after), because=because)
    fact = Fact(kind=FactKind.WEBHOOK_DISABLED, at_ms=now_ms, detail=detail)
    return WebhookChange(after, (by_whom(fact, by),))


def _about(webhook: Webhook) -> dict[str, str]:
    return {
        "webhook": webhook.webhook_id,
        "name": webhook.name,
        "to": place_of(webhook.url),
    }


def _fact(
    kind: FactKind,
    about: type[AboutWebhook],
    webhook: Webhook,
    by: Principal,
    there: Surroundings,
) -> Fact:
    fact = Fact(kind=kind, at_ms=there.now_ms, detail=about(**_about(webhook)))
    return by_whom(fact, by)
