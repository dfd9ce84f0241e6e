"""What a configuration says that is allowed and probably not meant. Pure."""

from __future__ import annotations

from forewarn_guest.config_keys import NOTICE_S, PREEMPT, TELLS_SINCE
from forewarn_guest.configuration import Approve, Rule, Step
from forewarn_guest.durations import in_words


def warnings_about(rules: tuple[Rule, ...], api_version: str, where: str) -> tuple[str, ...]:
    """A sentence for each, with its line, in the order of the lines."""
    found: list[tuple[int, str]] = []
    for number, rule in enumerate(rules):
        found += _limits(rule)
        found += _approval(rule)
        found += _versions(rule, api_version)
        cover = next((earlier for earlier in rules[:number] if _covers(earlier, rule)), None)
        if cover is not None:
            says = f"Rule {rule.name} matches nothing that rule {cover.name} before it leaves."
            found.append((rule.line, says))
    return tuple(f"{where}:{line}: {says}" for line, says in sorted(found))


def _limits(rule: Rule) -> list[tuple[int, str]]:
    types = rule.event_types or tuple(NOTICE_S)
    notices = [
        (NOTICE_S[one], one)
        for one in types
        if one in NOTICE_S and (rule.event_types or one != PREEMPT)
    ]
    if not notices:
        return []
    notice_s, shortest = min(notices)
    long = [
        (step.line, _too_long(rule, step, shortest))
        for step in rule.prepare
        if step.limit_s > notice_s
    ]
    together_s = sum(step.limit_s for step in rule.prepare)
    if long or together_s <= notice_s:
        return long
    return [(rule.line, _too_many(rule, together_s, shortest))]


def _too_long(rule: Rule, step: Step, shortest: str) -> str:
    return (
        f"Step {step.name} may take {in_words(step.limit_s)}, but {shortest} can come with"
        f" {in_words(NOTICE_S[shortest])} of notice; it is stopped {in_words(rule.margin_s)}"
        " before the event may start."
    )


def _too_many(rule: Rule, together_s: float, shortest: str) -> str:
    return (
        f"The prepare steps of rule {rule.name} may take {in_words(together_s)} one after the"
        f" other, but {shortest} can come with {in_words(NOTICE_S[shortest])} of notice; what has"
        " no time left then is left out, and the event is not approved."
    )


def _approval(rule: Rule) -> list[tuple[int, str]]:
    approves = rule.approve in (Approve.AFTER_PREPARE, Approve.FIRST_NAMED)
    if rule.ignore or rule.prepare or not approves:
        return []
    return [(rule.line, f"Rule {rule.name} approves at once: it has no prepare step.")]


def _versions(rule: Rule, api_version: str) -> list[tuple[int, str]]:
    used = list(rule.event_types)
    used += ["source"] if rule.source else []
    used += ["min_duration"] if rule.min_duration_s is not None else []
    return [
        (rule.line, _not_told(rule, word, api_version))
        for word in used
        if api_version < TELLS_SINCE.get(word, "")
    ]


def _not_told(rule: Rule, word: str, api_version: str) -> str:
    effects = {
        "source": "no event tells its source, so the rule matches none",
        "min_duration": "no event tells its length, so the rule takes short ones too",
    }
    return (
        f"Rule {rule.name} needs api_version {TELLS_SINCE[word]} or later for {word}:"
        f" with {api_version} {effects.get(word, 'there are no such events')}."
    )


def _covers(earlier: Rule, later: Rule) -> bool:
    """True if every event that the later rule matches is matched by the earlier one."""
    if earlier.event_types:
        types = bool(later.event_types) and set(later.event_types) <= set(earlier.event_types)
    else:
        types = PREEMPT not in later.event_types
    source = earlier.source in ("", later.source)
    least, later_least = earlier.min_duration_s, later.min_duration_s
    length = least is None or (later_least is not None and later_least >= least)
    names = not earlier.resources or (
        bool(later.resources) and set(later.resources) <= set(earlier.resources)
    )
    return types and source and length and names
