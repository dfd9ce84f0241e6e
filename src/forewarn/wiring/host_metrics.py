"""The numbers that a host daemon shows at /metrics: what each is called, and who knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from forewarn.adapters.loop_lateness import LoopLateness
from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.metrics import EndpointMetrics
from forewarn.host.daemon import Hosts
from forewarn.host.feed_reader import FeedReader
from forewarn.host.guest_proxy import GuestProxy
from forewarn.host.identity import WitnessedIdentity
from forewarn.host.metrics import HostMetrics
from forewarn.host.vm_watcher import VmWatcher

Numbers = Mapping[str, tuple[str, Callable[[], float | None]]]


class MeasuredHost(Protocol):
    """The parts of a host daemon that know numbers."""

    endpoint: Endpoint
    feed_reader: FeedReader
    guests: GuestProxy
    hosts: Hosts
    identity: WitnessedIdentity
    watch: VmWatcher

    @property
    def lateness(self) -> LoopLateness: ...


def host_metrics(host: MeasuredHost) -> HostMetrics:
    """Everything a host daemon counts, read at a scrape."""
    measures = HostMetrics()
    for name, (text, read) in _gauges(host).items():
        measures.gauge(name, text, read)
    for name, (text, read) in _counters(host).items():
        measures.count(name, text, read)
    measures.add(EndpointMetrics(host.endpoint.counters))
    measures.add(host.hosts.heartbeat_times)
    measures.add(host.lateness)
    return measures


def _gauges(host: MeasuredHost) -> Numbers:
    feed_reader, watch = host.feed_reader, host.watch
    return {
        "forewarn_link_up": ("1 while control answers.", lambda: int(feed_reader.up)),
        "forewarn_documents_age_seconds": (
            "How long ago control last said that the documents on show are the right ones.",
            lambda: feed_reader.age_s,
        ),
        "forewarn_scopes_served": ("Scopes on show.", lambda: len(feed_reader.names)),
        "forewarn_documents_refused": (
            "Scopes whose document control wants to take back to an older incarnation.",
            lambda: len(feed_reader.refused),
        ),
        "forewarn_control_refused": (
            "1 while nothing of control is obeyed; the log says why.",
            lambda: int(bool(feed_reader.refuses)),
        ),
        "forewarn_claims_held": ("Actions under way.", lambda: host.hosts.held),
        "forewarn_vms_on_host": (
            "VMs on this hypervisor; absent while it is away.",
            lambda: None if watch.seen is None else len(watch.seen),
        ),
        "forewarn_vms_waiting_for_control": (
            "VMs that came here and get 503 until control has said what they are to read.",
            lambda: host.identity.waiting,
        ),
        "forewarn_vm_problems": (
            "VMs that cannot be used as they are.",
            lambda: len(watch.problems),
        ),
        "forewarn_channel_problems": (
            "Bridges, taps and VMs that cannot be served.",
            lambda: len(watch.channel_problems),
        ),
    }


def _counters(host: MeasuredHost) -> Numbers:
    feed_reader, watch, hosts, guests = host.feed_reader, host.watch, host.hosts, host.guests
    return {
        "forewarn_link_failures": ("Asking for changes failed.", lambda: feed_reader.failures),
        "forewarn_control_epochs": (
            "Controls that were followed: one more after each restart of control.",
            lambda: feed_reader.epochs,
        ),
        "forewarn_heartbeats": ("Heartbeats that control took.", lambda: hosts.heartbeats),
        "forewarn_host_errors": (
            "Steps, turns and looks that broke or hung.",
            lambda: hosts.failures + watch.failures,
        ),
        "forewarn_host_reports": (
            "Times that control was told what is here.",
            lambda: watch.reports_taken,
        ),
        "forewarn_first_reads_dropped": (
            "First reads that were not kept.",
            lambda: guests.dropped,
        ),
    }
