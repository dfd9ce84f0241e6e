"""Every check there is, in the order in which they run."""

from __future__ import annotations

from forewarn.verify.check import Check, Topic
from forewarn.verify.checks import (
    api_versions,
    connections,
    documents_read,
    etags,
    instance,
    lifecycle,
    methods_and_paths,
    ordinary_get,
    rate_limit,
    refusals,
    refused_posts,
    request_headers,
    unapproved_and_canceled,
    version_parameter,
)

TOPICS: tuple[Topic, ...] = (
    ordinary_get.ROOT,
    ordinary_get.TOPIC,
    request_headers.TOPIC,
    version_parameter.TOPIC,
    methods_and_paths.TOPIC,
    refusals.TOPIC,
    api_versions.TOPIC,
    etags.TOPIC,
    etags.WAITING,
    connections.TOPIC,
    instance.TOPIC,
    refused_posts.TOPIC,
    lifecycle.TOPIC,
    unapproved_and_canceled.TOPIC,
    documents_read.TOPIC,
    rate_limit.TOPIC,
)
CHECKS: tuple[Check, ...] = tuple(check for topic in TOPICS for check in topic.checks)
BY_ID: dict[str, Check] = {check.id: check for check in CHECKS}
TITLES: dict[str, str] = {topic.name: topic.title for topic in TOPICS}


def named(names: tuple[str, ...]) -> frozenset[str]:
    """The ids that are meant by ids and topics. Raises KeyError with a name that is neither."""
    found: set[str] = set()
    for name in names:
        if name in TITLES:
            found.update(check.id for check in CHECKS if check.topic == name)
        else:
            found.add(BY_ID[name].id)
    return frozenset(found)


def selected(only: tuple[str, ...]) -> tuple[Check, ...]:
    """The checks with these ids or topics and all that must come before; all if none is named.

    Raises KeyError with a name that is neither.
    """
    if not only:
        return CHECKS
    wanted: set[str] = set()
    left = list(named(only))
    while left:
        check_id = left.pop()
        if check_id not in wanted:
            wanted.add(check_id)
            left.extend((*BY_ID[check_id].needs, *BY_ID[check_id].after))
    return tuple(check for check in CHECKS if check.id in wanted)
