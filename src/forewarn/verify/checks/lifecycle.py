"""Checks of the life of an event that is scheduled, approved, started, and gone.

The checks that do something come in the order of that life and leave what they saw in the
observations of the run; the others judge them.
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn.verify import documents
from forewarn.verify.answers import expect_refused, expect_status
from forewarn.verify.check import Failed, Level, Skipped, Topic, expect
from forewarn.verify.checks.etags import quoted
from forewarn.verify.checks.post import UNKNOWN_ID, approval
from forewarn.verify.connection import Answer, Broken
from forewarn.verify.documents import NEWEST, VERSIONS, DocumentRead, EventElement
from forewarn.verify.observations import Life
from forewarn.verify.probe import PATH, Probe, path_of

TOPIC = Topic("life", "The life of an event", level=Level.APPROVE, needs=("get-200",))

# The real service shows news about once per minute (G10).
APPEAR_WITHIN_S = 180
# An approved event starts before its NotBefore, however soon that is.
START_WITHIN_S = 15 * 60
# Started events stay for their impact and, at the real service, ten minutes of watching (3.4).
END_WITHIN_S = 60 * 60
WOKEN_WITHIN_S = 5.0


def order(probe: Probe, event_type: str, before: DocumentRead) -> Life:
    """Have an event scheduled and wait until it appears. Raises Failed if it does not."""
    known = {event_id.upper() for event_id in before.event_ids}
    without = before

    def new(sighting: DocumentRead) -> list[EventElement]:
        return [event for event in sighting.events if event.event_id.upper() not in known]

    def appeared(sighting: DocumentRead) -> bool:
        nonlocal without
        if new(sighting):
            return True
        without = sighting
        return False

    probe.schedule(event_type)
    first = probe.until(appeared, within_s=APPEAR_WITHIN_S, what_for="for the event to appear")
    if first is None:
        raise Failed(f"no new event within {APPEAR_WITHIN_S} s", f"a {event_type} in the document")
    # Another client may have had an event scheduled too.
    mine = min(
        new(first),
        key=lambda event: (probe.vm not in event.resources, event.text("EventType") != event_type),
    )
    probe.observed.left.append(mine.event_id)
    return Life(event_id=mine.event_id, before=before, without=without, first=first)


def started_or_gone(sighting: DocumentRead, event_id: str) -> bool:
    event = sighting.event(event_id)
    return event is None or event.started


def until_gone(probe: Probe, event_id: str) -> DocumentRead | None:
    """Follow an event to its end; the first document without it, None if it stays."""
    gone = probe.until(
        lambda sighting: sighting.event(event_id) is None,
        within_s=END_WITHIN_S,
        what_for="for the event to end",
        coarse=True,
    )
    if gone is not None and event_id in probe.observed.left:
        probe.observed.left.remove(event_id)
    return gone


@TOPIC.check(
    "life-appears",
    "An event that the operator schedules appears in the document, Scheduled.",
    "L10, G1",
    blind="One event of one type; any delay below three minutes passes.",
    level=Level.OPERATOR,
)
def life_appears(probe: Probe) -> None:
    probe.observed.begun = True
    before = probe.document()
    tag = f"If-None-Match: {quoted(before)}"
    waits = probe.request("GET", path_of(NEWEST), tag, "Prefer: wait=60")
    with probe.connection() as waiting:
        probe.turn()
        waiting.send(waits)
        life = order(probe, probe.options.types[0], before)
        try:
            probe.observed.woken = waiting.answer(within_s=WOKEN_WITHIN_S)
        except Broken:
            probe.observed.woken = None
    status = life.event.text("EventStatus")
    expect(status == "Scheduled", status, "Scheduled")
    life.by_version = probe.every_version()
    probe.observed.approved = life


def _life(probe: Probe) -> Life:
    """The event that is followed: the operator's, or the first that is there to be approved."""
    if probe.observed.approved is None and probe.options.operator is not None:
        if probe.observed.begun:
            raise Skipped("no event could be scheduled")
        life_appears(probe)  # it was not asked for, but what it does is needed
    if probe.observed.approved is None:
        sighting = probe.document()
        there = [event for event in sighting.events if event.text("EventStatus") == "Scheduled"]
        if not there:
            raise Skipped("no Scheduled event is there to be approved; give --operator")
        probe.observed.approved = Life(event_id=there[0].event_id, before=None, first=sighting)
    return probe.observed.approved


@TOPIC.check(
    "wait-woken",
    "A GET that waits is answered with the new document as soon as there is one.",
    "design 5",
    blind="One GET that waits, answered up to five seconds after the event was seen; many "
    "are not tried.",
    level=Level.OPERATOR,
    needs=("life-appears", "wait-held"),
    choice=True,
)
def wait_woken(probe: Probe) -> None:
    answer, before = probe.observed.woken, _life(probe).before
    if answer is None or before is None:
        raise Failed("no answer to the GET that waited", "the new document")
    sighting = documents.read(answer, NEWEST)
    good = sighting.incarnation != before.incarnation
    expect(good, answer, f"another incarnation than {before.incarnation}")


@TOPIC.check(
    "life-type",
    "The event is of the type that was ordered.",
    "contract 6.1",
    blind="The first of --types alone; the checks of notice compare the others.",
    level=Level.OPERATOR,
    needs=("life-appears",),
)
def life_type(probe: Probe) -> None:
    ordered = probe.options.types[0]
    event_type = _life(probe).event.text("EventType")
    expect(event_type == ordered, event_type, ordered)


@TOPIC.check(
    "life-names-vm",
    "Resources names the VM, byte for byte as compute.name does.",
    "C6, contract 10",
    blind="That the VM is among the names; surplus or missing names of other VMs are not noticed.",
    level=Level.OPERATOR,
    needs=("life-appears", "instance-name"),
)
def life_names_vm(probe: Probe) -> None:
    resources = _life(probe).event.resources
    expect(probe.vm in resources, resources, f"a list with {probe.vm}")


@TOPIC.check(
    "life-every-version",
    "The event is shown, with the same EventId, at every api-version that knows its type.",
    "Q7, contract 1.6",
    blind="That the EventId is there; its fields are not compared from version to version.",
    level=Level.OPERATOR,
    needs=("life-appears",),
)
def life_every_version(probe: Probe) -> None:
    expect_shown(_life(probe), VERSIONS[0])


def expect_shown(life: Life, since: str) -> None:
    """Fail unless the event was shown at every api-version from `since` on."""
    missing = [
        version
        for version, sighting in life.by_version.items()
        if version >= since and sighting.event(life.event_id) is None
    ]
    expect(not missing, f"{life.event_id} is not in {', '.join(missing)}", "it is in all of them")


@TOPIC.check(
    "life-old-tag",
    "The tag of the document before no longer gets 304.",
    "H7",
    blind="The one tag from before, as it came; older ones and other forms of it are not tried.",
    level=Level.OPERATOR,
    needs=("life-appears", "tag-echoed"),
)
def life_old_tag(probe: Probe) -> None:
    before = _life(probe).before
    if before is None:
        raise Skipped("no document was read before the event")
    expect_status(probe.poll(f"If-None-Match: {before.tag}"), 200)


@TOPIC.check(
    "approve-unknown-too",
    "A POST with one unknown EventId among good ones is refused, and nothing of it is applied.",
    "design 5 (not known of the real service, A6)",
    blind="The unknown one last, and one look after it; a start that comes later is not seen.",
    level=Level.OPERATOR,
    needs=("life-appears", "post-unknown-id"),
    choice=True,
)
def approve_unknown_too(probe: Probe) -> None:
    life = _life(probe)
    expect_refused(probe.post(approval(life.event_id, UNKNOWN_ID)))
    status = _status(probe, life)
    expect(status == "Scheduled", f"the event is {status}", "Scheduled still")


def _status(probe: Probe, life: Life) -> str:
    event = probe.document().event(life.event_id)
    return "gone" if event is None else event.text("EventStatus")


def _refused_alone(probe: Probe, send: Callable[[bytes], Answer]) -> None:
    """Fail unless an approval that is good but for how it is sent is refused and does nothing."""
    life = _life(probe)
    if _status(probe, life) != "Scheduled":
        raise Skipped("the event is no longer Scheduled")
    expect_status(send(approval(life.event_id)), 400)
    status = _status(probe, life)
    expect(status == "Scheduled", f"the event is {status}", "Scheduled still")


@TOPIC.check(
    "post-no-header",
    "An approval without the Metadata header is refused with 400, and approves nothing.",
    "H1, A5",
    blind="The newest api-version, and one look after it; a start that comes late is not seen.",
)
def post_no_header(probe: Probe) -> None:
    _refused_alone(probe, lambda body: probe.post(body, metadata=False))


@TOPIC.check(
    "post-no-version",
    "An approval without api-version is refused with 400, and approves nothing.",
    "Q1",
    blind="One look after it; a version that is empty or unknown is not tried on a POST.",
)
def post_no_version(probe: Probe) -> None:
    _refused_alone(probe, lambda body: probe.ask(probe.request("POST", PATH, body=body)))


@TOPIC.check(
    "approve-200",
    "Approving an event of the document is answered 200.",
    "A1, A4",
    blind="The status alone; an approval that is answered and then lost is for "
    "approve-starts to find.",
)
def approve_200(probe: Probe) -> None:
    answer = probe.post(approval(_life(probe).event_id))
    probe.observed.approval = answer
    expect_status(answer, 200)


@TOPIC.check(
    "approve-body",
    "The body of that 200 is empty or JSON.",
    "A7, contract 10 (empty by design 5)",
    blind="Any JSON passes; what it says is not read.",
    needs=("approve-200",),
)
def approve_body(probe: Probe) -> None:
    answer = probe.observed.approval
    good = answer is not None and (not answer.body.strip() or answer.json is not None)
    expect(good, answer, "an empty body, or JSON")


@TOPIC.check(
    "approve-starts",
    "An approved event starts before its NotBefore.",
    "contract 3.2, A9",
    blind="An event that would have started early without the approval passes too.",
    needs=("approve-200", "get-date"),
)
def approve_starts(probe: Probe) -> None:
    life = _life(probe)
    started = need_started(probe, life)
    life.after_approval = started
    if started.event(life.event_id) is not None:
        life.started = started
        probe.every_version()  # the checks of documents want to see it Started


def need_started(probe: Probe, life: Life, *, coarse: bool = False) -> DocumentRead:
    """Follow an approved event to its start, at most to its NotBefore. Raises Failed if it stays.

    Skipped where the start may be kept back by others. With `coarse` it may be found gone already.
    """
    started = _until_started(probe, life, coarse=coarse)
    if started is not None:
        return started
    if life.event.text("EventSource") == "Platform":
        raise Skipped("it did not start; a host may wait for other tenants (A9)")
    raise Failed(f"{life.event_id} is Scheduled still", "Started, or gone, before NotBefore")


def _until_started(probe: Probe, life: Life, *, coarse: bool) -> DocumentRead | None:
    now = probe.document()
    if started_or_gone(now, life.event_id):
        return now
    left_s = START_WITHIN_S
    if now.now_s is not None and life.not_before_s is not None:
        left_s = max(0, life.not_before_s - now.now_s - 1)
    return probe.until(
        lambda sighting: started_or_gone(sighting, life.event_id),
        within_s=left_s,
        what_for="for the approved event to start",
        coarse=coarse,
    )


@TOPIC.check(
    "life-id-stable",
    "The event keeps its EventId when it starts.",
    "L13",
    blind="Another EventId is looked for only where the first one is gone at the start.",
    needs=("approve-starts",),
)
def life_id_stable(probe: Probe) -> None:
    life = _life(probe)
    after = life.after_approval
    if life.started is not None or after is None:
        return
    kept = {event_id.upper() for event_id in life.first.event_ids}
    twins = [
        event.event_id
        for event in after.events
        if event.event_id.upper() not in kept
        and event.text("EventType") == life.event.text("EventType")
        and set(event.resources) & set(life.event.resources)
    ]
    expect(not twins, f"{life.event_id} became {', '.join(twins)}", "the same EventId")


@TOPIC.check(
    "approve-again",
    "Approving it again is answered 200.",
    "A4, A12",
    blind="After the start; a second approval while the event is Scheduled is not tried.",
    needs=("approve-starts",),
)
def approve_again(probe: Probe) -> None:
    expect_status(probe.post(approval(_life(probe).event_id)), 200)


@TOPIC.check(
    "approve-any-case",
    "An EventId is compared without case.",
    "design 5, A8 (not known of the real service)",
    blind="The status after the start; that it starts an event is for start-any-case.",
    needs=("approve-again",),
    choice=True,
)
def approve_any_case(probe: Probe) -> None:
    event_id = _life(probe).event_id
    for other in {event_id.lower(), event_id.upper()} - {event_id}:
        expect_status(probe.post(approval(other)), 200)


@TOPIC.check(
    "approve-other-version",
    "A POST may use another api-version than the GET did.",
    "Q7",
    blind="The status after the start; that it starts an event is for start-other-version.",
    needs=("approve-again",),
)
def approve_other_version(probe: Probe) -> None:
    event_id = _life(probe).event_id
    for version in VERSIONS[1:-1]:
        answer = probe.post(approval(event_id), version=version)
        expect(answer.status == 200, f"{version}: {answer}", "200")


@TOPIC.check(
    "approve-oldest",
    "A POST at 2017-03-01 does not need the Metadata header.",
    "H2",
    blind="The status after the start; what such a POST does to a Scheduled event is not seen.",
    needs=("approve-again", "header-not-required-before"),
)
def approve_oldest(probe: Probe) -> None:
    body = approval(_life(probe).event_id)
    expect_status(probe.post(body, version=VERSIONS[0], metadata=False), 200)


@TOPIC.check(
    "approve-more-fields",
    "DocumentIncarnation, as a number or a text, and other fields beside it are skipped.",
    "A3",
    blind="Fields beside StartRequests; more fields inside one of the requests are not tried.",
    needs=("approve-again",),
)
def approve_more_fields(probe: Probe) -> None:
    event_id = _life(probe).event_id
    for incarnation in (1, "1"):
        body = approval(event_id, DocumentIncarnation=incarnation, Other={"a": [1]})
        expect_status(probe.post(body), 200)


@TOPIC.check(
    "approve-content-type",
    "The Content-Type of a POST is not looked at.",
    "H5",
    blind="Three types after the start; a charset, or a malformed type, is not tried.",
    needs=("approve-again",),
)
def approve_content_type(probe: Probe) -> None:
    body = approval(_life(probe).event_id)
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json"):
        answer = probe.post(body, f"Content-Type: {kind}")
        expect(answer.status == 200, f"{kind}: {answer}", "200")


@TOPIC.check(
    "approve-twice-in-one",
    "An EventId may stand twice in one POST.",
    "A2, A4",
    blind="After the start; twice in the first approval is not tried.",
    needs=("approve-again",),
)
def approve_twice_in_one(probe: Probe) -> None:
    event_id = _life(probe).event_id
    expect_status(probe.post(approval(event_id, event_id)), 200)


@TOPIC.check(
    "life-ends",
    "A started event leaves the document when it is over.",
    "L10",
    blind="Any end within an hour passes; whether the impact was over by then is not seen.",
    needs=("approve-starts", "life-id-stable"),
)
def life_ends(probe: Probe) -> None:
    life = _life(probe)
    life.gone = until_gone(probe, life.event_id)
    expect(life.gone, f"{life.event_id} is there after {END_WITHIN_S} s", "its end")


@TOPIC.check(
    "approve-ended",
    "Approving an event that is over is answered 200 and has no effect.",
    "design 5 (not known of the real service, A6)",
    blind="Right after the end; how long an ended event is remembered is not tried.",
    needs=("life-ends",),
    choice=True,
)
def approve_ended(probe: Probe) -> None:
    life = _life(probe)
    expect_status(probe.post(approval(life.event_id)), 200)
    expect(probe.document().event(life.event_id) is None, f"{life.event_id} is back", "it is gone")
