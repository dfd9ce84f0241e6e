"""What a GET costs: against nginx, and when it is spread over many VMs; and the memory for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench import load
from bench.figures import Figure
from bench.fleets import BenchFleet, fleet
from bench.guests import Line, Operator, enable, lines, poll_request
from bench.processes import Failed, Forewarn, Server, cpu_s, forewarn, nginx, program, resident_mib

PAIRS = 9
RUN_S = 3
WARM_UP_S = 1
SPREAD_PAIRS = 15
SPREAD_ROUNDS = 20
SPREAD_CONNECTIONS = 1_000
FEW_VMS = 10
RATE_RATIO_MIN = 0.9
CPU_RATIO_MAX = 2.0
SPREAD_RATIO_MAX = 1.1
MEMORY_MIB_MAX = 150.0

LARGE = fleet(scopes=1_000, vms_per_scope=10, hosts=250, domains=5)


def against_nginx(folder: Path) -> Iterator[Figure]:
    """Requests per second and CPU per request, in pairs that alternate between the two servers."""
    small = fleet(scopes=3, vms_per_scope=3, hosts=3, domains=3)
    with forewarn(folder / "polls", small.inventory()) as ours:
        enable(ours.guest_port, [small.vms[0].address])
        Operator(ours).restart_all([small.vms[0].name])
        body = _document(ours)
        if not load.present():
            yield from _without_wrk(ours, small)
        elif program("nginx") is None:
            yield from _alone(ours)
        else:
            with nginx(folder / "nginx", body) as peer:
                yield from _pairs(ours, peer, len(body), new_connection_each=False)
                yield from _pairs(ours, peer, len(body), new_connection_each=True)


def _document(service: Forewarn) -> bytes:
    line = Line(service.guest_port)
    try:
        return line.ask(poll_request()).body
    finally:
        line.close()


def _pairs(
    ours: Server, peer: Server, body_bytes: int, *, new_connection_each: bool
) -> Iterator[Figure]:
    for server in (ours, peer):
        load.run(server, seconds=WARM_UP_S, new_connection_each=new_connection_each)
    pairs = []
    for number in range(PAIRS):
        # Who goes first alternates too: what disturbs the machine rarely lasts a whole pair.
        order = (ours, peer) if number % 2 == 0 else (peer, ours)
        first, second = (
            load.run(server, seconds=RUN_S, new_connection_each=new_connection_each)
            for server in order
        )
        pairs.append((first, second) if number % 2 == 0 else (second, first))
    rates = [mine.requests_per_s / theirs.requests_per_s for mine, theirs in pairs]
    costs = [mine.cpu_us_per_request / theirs.cpu_us_per_request for mine, theirs in pairs]
    what = "GET, new connection each" if new_connection_each else "GET, keep-alive"
    our_rates = [mine.requests_per_s for mine, _ in pairs]
    their_rates = [theirs.requests_per_s for _, theirs in pairs]
    our_costs_us = [mine.cpu_us_per_request for mine, _ in pairs]
    their_costs_us = [theirs.cpu_us_per_request for _, theirs in pairs]
    yield Figure(
        name=what,
        measured=median(rates),
        unit="x nginx",
        at_least=RATE_RATIO_MIN,
        note=f"{median(our_rates):,.0f} against {median(their_rates):,.0f} req/s; median of "
        f"{PAIRS} pairs, {min(rates):.2f} to {max(rates):.2f}",
        raw={
            "body_bytes": body_bytes,
            "connections": load.CONNECTIONS,
            "ours_requests_per_s": our_rates,
            "nginx_requests_per_s": their_rates,
            "ratios": rates,
        },
    )
    yield Figure(
        name=f"{what}: CPU per request",
        measured=median(costs),
        unit="x nginx",
        at_most=CPU_RATIO_MAX if new_connection_each else None,
        note=f"{median(our_costs_us):.1f} against {median(their_costs_us):.1f} us",
        raw={
            "ours_cpu_us_per_request": our_costs_us,
            "nginx_cpu_us_per_request": their_costs_us,
            "ratios": costs,
        },
    )


def _alone(ours: Forewarn) -> Iterator[Figure]:
    for new_connection_each in (False, True):
        found = load.run(ours, seconds=RUN_S, new_connection_each=new_connection_each)
        yield Figure(
            name="GET, new connection each" if new_connection_each else "GET, keep-alive",
            measured=found.requests_per_s,
            unit="req/s",
            note=f"{found.cpu_us_per_request:.1f} us CPU; nginx is not installed: no comparison",
        )


def _without_wrk(ours: Forewarn, small: BenchFleet) -> Iterator[Figure]:
    with lines(ours.guest_port, [small.vms[0].address] * load.CONNECTIONS) as opened:
        cost_us = _costs_us(ours, opened)[0]
    yield Figure(
        name="GET, keep-alive",
        measured=cost_us,
        unit="us CPU",
        note="wrk is not installed: only the CPU time of a request, no comparison",
    )


def spread(folder: Path) -> Iterator[Figure]:
    """The cost of a GET over 1,000 VMs of 10,000 against 10 of them, and the memory it takes.

    Leaves a data folder with an open event in every scope, for `startup`.
    """
    with forewarn(folder, LARGE.inventory()) as service:
        started_mib = resident_mib(service.pid)
        many = [scope[0].address for scope in LARGE.scopes]
        few = many[:FEW_VMS] * (SPREAD_CONNECTIONS // FEW_VMS)
        enable(service.guest_port, many)
        Operator(service).restart_all([scope[0].name for scope in LARGE.scopes])
        with (
            lines(service.guest_port, many) as over_many,
            lines(service.guest_port, few) as over_few,
        ):
            pairs = [_costs_us(service, over_many, over_few) for _ in range(SPREAD_PAIRS + 1)][1:]
        loaded_mib = resident_mib(service.pid)
    ratios = [over_many / over_few for over_many, over_few in pairs]
    yield Figure(
        name="GET over 1,000 of 10,000 VMs",
        measured=median(ratios),
        unit="x that over 10 VMs",
        at_most=SPREAD_RATIO_MAX,
        note=f"CPU of the server: {median(a for a, _ in pairs):.1f} against "
        f"{median(b for _, b in pairs):.1f} us; median of {SPREAD_PAIRS} pairs",
        raw={
            "scopes": len(LARGE.scopes),
            "vms": len(LARGE.vms),
            "connections": SPREAD_CONNECTIONS,
            "many_cpu_us_per_request": [a for a, _ in pairs],
            "few_cpu_us_per_request": [b for _, b in pairs],
            "ratios": ratios,
        },
    )
    yield Figure(
        name="Resident memory, 10,000 VMs",
        measured=max(started_mib, loaded_mib),
        unit="MiB",
        at_most=MEMORY_MIB_MAX,
        note=f"{started_mib:.0f} MiB after the start, {loaded_mib:.0f} MiB after the load",
        raw={"started_mib": started_mib, "loaded_mib": loaded_mib},
    )


def _costs_us(service: Forewarn, *sets: Sequence[Line]) -> list[float]:
    """CPU time of the server per GET, for each set of connections.

    The sets take turns every few milliseconds, so whatever else the machine does hits all alike.
    """
    used_s = [0.0] * len(sets)
    for _ in range(SPREAD_ROUNDS):
        for number, opened in enumerate(sets):
            used_s[number] += _round_s(service, opened)
    return [
        used / (SPREAD_ROUNDS * len(opened)) * 1e6
        for used, opened in zip(used_s, sets, strict=True)
    ]


def _round_s(service: Forewarn, opened: Sequence[Line]) -> float:
    """CPU time of the server for one GET on each connection, as many under way as for wrk."""
    request = poll_request()
    before_s = cpu_s(service.pid)
    for start in range(0, len(opened), load.CONNECTIONS):
        some = opened[start : start + load.CONNECTIONS]
        for line in some:
            line.send(request)
        if any(line.receive().status != 200 for line in some):
            raise Failed("a poll was not answered 200")
    return cpu_s(service.pid) - before_s
