"""Values of the core as the operator API, the command line and the console show them.

Conversions only: core value in, answer out (`operator_answers`).
"""

from __future__ import annotations

from typing import Any, TypeVar

from forewarn.core import ending, notice
from forewarn.core.facts import detail_words
from forewarn.core.model import (
    SECOND_MS,
    Action,
    Fact,
    Operation,
    ScheduledEvent,
    Scope,
    Vm,
    Webhook,
    Window,
)
from forewarn.core.tokens import Token
from forewarn.core.vm_profile import ATTRIBUTES, VmProfile
from forewarn.wire import operator_answers as answers
from forewarn.wire.instants import needed_time_text, time_text

E = TypeVar("E", bound=answers.EventJson)
V = TypeVar("V", bound=answers.VmJson)
S = TypeVar("S", bound=answers.ScopeJson)
O = TypeVar("O", bound=answers.OperationJson)  # noqa: E741 - an operation


def event_json(event: ScheduledEvent) -> answers.EventJson:
    return event_as(answers.EventJson, event)


def event_as(kind: type[E], event: ScheduledEvent, **more: object) -> E:
    """The event with what this kind of answer says `more` of it."""
    return kind(
        event_id=event.event_id,
        event_type=event.event_type,
        event_source=event.event_source,
        phase=event.phase,
        not_before=needed_time_text(event.not_before_ms),
        earliest_start=time_text(notice.earliest_start_ms(event)),
        window=window_json(event.window),
        resources=event.resources,
        scope=event.scope,
        update_domain=event.update_domain,
        host=event.host,
        cause=event.cause,
        silent=event.silent,
        description=event.description,
        duration_seconds=event.duration_s,
        minimum_notice_seconds=seconds(event.minimum_notice_ms),
        scheduled=needed_time_text(event.scheduled_ms),
        ordered_not_before=time_text(event.ordered_not_before_ms),
        ordered_by=event.ordered_by,
        ordered_by_kind=event.ordered_by_kind,
        operation_id=event.operation_id,
        breaks_domains=event.breaks_domains,
        lose_disk=event.lose_disk,
        shown=time_text(event.shown_ms),
        unreadable_seconds=seconds(event.unreadable_ms),
        approved=time_text(event.approved_ms),
        approved_by=event.approved_by,
        approved_by_kind=event.approved_by_kind,
        overridden_by=event.approved_by if event.override_reason else None,
        override_reason=event.override_reason,
        postponed_from=event.postponed_from,
        postponed_to=event.postponed_to,
        postponements=event.postponements,
        postponed_seconds=seconds(event.postponed_ms),
        started=time_text(event.started_ms),
        deadline=time_text(event.deadline_ms),
        ended=time_text(event.ended_ms),
        outcome=event.outcome,
        actions=tuple(action_json(action) for action in event.actions),
        **more,
    )


def window_json(window: Window | None) -> answers.WindowJson | None:
    if window is None:
        return None
    return answers.WindowJson(
        start=needed_time_text(window.start_ms), end=needed_time_text(window.end_ms)
    )


def action_json(action: Action) -> answers.ActionJson:
    return answers.ActionJson(
        action_id=action.action_id,
        kind=action.kind,
        host=action.host,
        vm=action.vm,
        target_host=action.target_host,
        duration_seconds=action.duration_s,
        phase=action.phase,
        epoch=action.epoch,
        outcome=action.outcome,
        detail=action.detail,
    )


def vm_json(vm: Vm, scope_name: str) -> answers.VmJson:
    return vm_as(answers.VmJson, vm, scope_name)


def vm_as(kind: type[V], vm: Vm, scope_name: str, **more: Any) -> V:
    """The VM with what this kind of answer says `more` of it."""
    return kind(
        name=vm.name,
        vm_id=vm.vm_id,
        scope=scope_name,
        update_domain=vm.update_domain,
        host=vm.host,
        **_profile_json(vm.profile),
        may_run_on=vm.may_run_on,
        off=vm.off,
        went_down=vm.went_down,
        has_polled=vm.has_polled,
        **more,
    )


def _profile_json(profile: VmProfile) -> dict[str, Any]:
    said: dict[str, Any] = {name: getattr(profile, name) for name in ATTRIBUTES}
    return {**said, "tags": dict(profile.tags)}


def scope_as(kind: type[S], scope: Scope, *, enabled: bool, **more: object) -> S:
    """The scope with what this kind of answer says `more` of it. `enabled`: its VMs are told."""
    hold = scope.hold
    return kind(
        name=scope.name,
        kind=scope.kind,
        incarnation=scope.incarnation,
        revision=scope.revision,
        enabled=enabled,
        polled=time_text(scope.polled_ms),
        terminate_notice_seconds=seconds(scope.terminate_notice_ms),
        auto_approve=tuple(sorted(event_type.value for event_type in scope.auto_approve)),
        hold=None
        if hold is None
        else answers.ScopeHoldJson(
            since=needed_time_text(hold.since_ms), event_id=hold.event_id, reason=hold.reason
        ),
        vm_count=len(scope.vms),
        open_events=len(scope.events),
        **more,
    )


def scope_json(scope: Scope, *, enabled: bool) -> answers.ScopeDetail:
    """A scope with its VMs and its open events, silent ones included."""
    return scope_as(
        answers.ScopeDetail,
        scope,
        enabled=enabled,
        recoveries=tuple(
            answers.RecoveryJson(
                update_domain=recovery.update_domain,
                since=needed_time_text(recovery.since_ms),
                until=needed_time_text(recovery.until_ms),
                waiting_for=recovery.waiting_for,
            )
            for recovery in scope.recoveries
        ),
        vms=tuple(vm_json(vm, scope.name) for vm in scope.vms),
        events=tuple(event_json(event) for event in scope.events),
        deleted=scope.deleted,
    )


def operation_json(operation: Operation) -> answers.OperationJson:
    return operation_as(answers.OperationJson, operation)


def operation_as(kind: type[O], operation: Operation, **more: object) -> O:
    """The operation with what this kind of answer says `more` of it."""
    return kind(
        operation_id=operation.operation_id,
        host=operation.host,
        event_type=operation.event_type,
        cause=operation.cause,
        phase=operation.phase,
        ordered=needed_time_text(operation.ordered_ms),
        ordered_by=operation.ordered_by,
        ordered_by_kind=operation.ordered_by_kind,
        ordered_not_before=time_text(operation.ordered_not_before_ms),
        window=window_json(operation.window),
        duration_seconds=operation.duration_s,
        description=operation.description,
        broke_domains_by=operation.broke_domains_by,
        postponements=operation.postponements,
        postponed_seconds=seconds(operation.postponed_ms),
        lose_disk=operation.lose_disk,
        members=tuple(
            answers.OperationMember(scope=scope, event_id=event_id)
            for scope, event_id in operation.members
        ),
        action=None if operation.action is None else action_json(operation.action),
        started=time_text(operation.started_ms),
        deadline=time_text(operation.deadline_ms),
        ended=time_text(operation.ended_ms),
        ended_as=ending.ended_as(operation),
        outcome=operation.outcome,
        revision=operation.revision,
        **more,
    )


def webhook_json(webhook: Webhook, end: int, now_ms: int) -> answers.WebhookJson:
    """The webhook, as far as it is kept; `end` is that of the journal."""
    until_ms = webhook.old_until_ms
    return answers.WebhookJson(
        webhook_id=webhook.webhook_id,
        name=webhook.name,
        url=webhook.url,
        format=webhook.format,
        scopes=webhook.scopes,
        kinds=webhook.kinds,
        batch=webhook.batch,
        condition=webhook.condition,
        after=f"{webhook.generation}-{webhook.number}",
        behind=max(0, end - webhook.number),
        turn=webhook.turn,
        made=needed_time_text(webhook.made_ms),
        made_by=webhook.made_by,
        old_secret_until=time_text(until_ms) if until_ms and until_ms > now_ms else None,
        failing_since=time_text(webhook.failing_since_ms),
        failures=webhook.failures,
        failure=webhook.failure,
        disabled=time_text(webhook.disabled_ms),
        disabled_by=webhook.disabled_by,
        disabled_because=webhook.disabled_because,
    )


def token_json(token: Token, now_ms: int) -> answers.TokenJson:
    return answers.TokenJson(
        token_id=token.token_id,
        name=token.name,
        role=token.role,
        scopes=token.scopes,
        made=needed_time_text(token.made_ms),
        made_by=token.made_by,
        expires=needed_time_text(token.expires_ms),
        rotated=time_text(token.rotated_ms),
        used=time_text(token.used_ms),
        revoked=time_text(token.revoked_ms),
        revoked_by=token.revoked_by,
        valid=token.ended_ms(now_ms) is None,
    )


def fact_json(fact: Fact, number: int) -> answers.FactJson:
    """A line of the journal under its number."""
    return answers.FactJson(
        number=number,
        kind=fact.kind,
        at=needed_time_text(fact.at_ms),
        scope=fact.scope,
        event_id=fact.event_id,
        operation_id=fact.operation_id,
        host=fact.host,
        vm=fact.vm,
        by=fact.by,
        by_kind=fact.by_kind,
        by_id=fact.by_id,
        detail=detail_words(fact.detail),
    )


def seconds(ms: int) -> int | float:
    """Whole seconds as an integer, others with their fraction."""
    return ms // SECOND_MS if ms % SECOND_MS == 0 else ms / SECOND_MS
