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
from forewarn.verify.checks.refused_posts import UNKNOWN_ID, WRONG_SHAPES
from forewarn.verify.connection import Answer, Broken
from forewarn.verify.documents import NEWEST, VERSIONS, DocumentRead, EventElement
from forewarn.verify.event_following import (
    approval,
    approve,
    need_end,
    need_started,
    order,
)
from forewarn.verify.observations import Life
from forewarn.verify.probe import PATH, Probe, path_of

TOPIC = Topic("life", "The life of an event", level=Level.APPROVE, needs=("get-200",))

WOKEN_WITHIN_S = 5.0


@TOPIC.check(
    "life-appears",
    "An event that the operator schedules appears in the document, Scheduled.",
    "L10, G1",
    not_checked="One event of one type; any delay below three minutes passes.",
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
    life.by_version = probe.every_version()
    probe.observed.approved = life
    status = life.event.text("EventStatus")
    expect(status == "Scheduled", status, "Scheduled")


def _life(probe: Probe) -> Life:
    """The event that is followed: the operator's, or one that is there and may be approved."""
    if probe.observed.approved is None and probe.options.operator is not None:
        if probe.observed.begun:
            raise Skipped("no event could be scheduled")
        life_appears(probe)  # it was not asked for, but what it does is needed
    if probe.observed.approved is None:
        document = probe.document()
        event = _approvable(probe, document)
        names, at = ", ".join(event.resources), event.text("NotBefore")
        what = f"event {event.event_id}: {event.text('EventType')} of {names}, NotBefore {at}"
        probe.options.announce(f"approves {what}")
        if probe.options.approve_event is not None and not probe.options.agree(what):
            raise Skipped(f"the answer was no: {event.event_id} is not approved")
        probe.observed.approved = Life(event_id=event.event_id, before=None, first=document)
    return probe.observed.approved


def _approvable(probe: Probe, document: DocumentRead) -> EventElement:
    """The Scheduled event that may be approved: this VM's alone, or the one that was named."""
    there = [event for event in document.events if event.text("EventStatus") == "Scheduled"]
    wanted = probe.options.approve_event
    if wanted is not None:
        named = [event for event in there if event.event_id.upper() == wanted.upper()]
        if not named:
            raise Skipped(f"no Scheduled event {wanted} is there to be approved")
        return named[0]
    if not there:
        raise Skipped("no Scheduled event is there to be approved; give --operator")
    own = [event for event in there if event.resources == (probe.vm,)]
    if not own:
        ids = ", ".join(f"{event.event_id} ({', '.join(event.resources)})" for event in there)
        raise Skipped(
            f"no Scheduled event is for {probe.vm} alone; --approve-event ID would approve "
            f"another: {ids}"
        )
    return own[0]


@TOPIC.check(
    "wait-woken",
    "A GET that waits is answered with the new document as soon as there is one.",
    "Forewarn's choice",
    not_checked="One GET that waits, answered up to five seconds after the event was seen; many "
    "are not tried.",
    level=Level.OPERATOR,
    needs=("wait-held",),
    after=("life-appears",),
    choice=True,
)
def wait_woken(probe: Probe) -> None:
    answer, before = probe.observed.woken, _life(probe).before
    if answer is None or before is None:
        raise Failed("no answer to the GET that waited", "the new document")
    document = documents.read(answer, NEWEST)
    good = document.incarnation != before.incarnation
    expect(good, answer, f"another incarnation than {before.incarnation}")


@TOPIC.check(
    "life-type",
    "The event is of the type that was ordered.",
    "contract 6.1",
    not_checked="The first of --types alone; the checks of notice compare the others.",
    level=Level.OPERATOR,
    after=("life-appears",),
)
def life_type(probe: Probe) -> None:
    ordered = probe.options.types[0]
    event_type = _life(probe).event.text("EventType")
    expect(event_type == ordered, event_type, ordered)


@TOPIC.check(
    "life-names-vm",
    "Resources names the VM, byte for byte as compute.name does.",
    "C6, contract 10",
    not_checked="That the VM is among the names; surplus or missing names of other VMs are not "
    "noticed.",
    level=Level.OPERATOR,
    needs=("instance-name",),
    after=("life-appears",),
)
def life_names_vm(probe: Probe) -> None:
    resources = _life(probe).event.resources
    expect(probe.vm in resources, resources, f"a list with {probe.vm}")


@TOPIC.check(
    "life-every-version",
    "The event is shown, with the same EventId, at every api-version that knows its type.",
    "Q7, contract 1.6",
    not_checked="That the EventId is there; its fields are not compared from version to version.",
    level=Level.OPERATOR,
    after=("life-appears",),
)
def life_every_version(probe: Probe) -> None:
    expect_shown(_life(probe), VERSIONS[0])


def expect_shown(life: Life, since: str) -> None:
    """Fail unless the event was shown at every api-version from `since` on."""
    missing = [
        version
        for version, document in life.by_version.items()
        if version >= since and document.event(life.event_id) is None
    ]
    expect(not missing, f"{life.event_id} is not in {', '.join(missing)}", "it is in all of them")


@TOPIC.check(
    "life-old-tag",
    "The tag of the document before no longer gets 304.",
    "H7",
    not_checked="The one tag from before, as it came; older ones and other forms of it are not "
    "tried.",
    level=Level.OPERATOR,
    needs=("tag-echoed",),
    after=("life-appears",),
)
def life_old_tag(probe: Probe) -> None:
    before = _life(probe).before
    if before is None:
        raise Skipped("no document was read before the event")
    expect_status(probe.poll(f"If-None-Match: {before.tag}"), 200)


@TOPIC.check(
    "approve-unknown-too",
    "A POST with one unknown EventId among good ones is refused, and nothing of it is applied.",
    "Forewarn's choice (not known of the real service, A6)",
    not_checked="The unknown one last, and one look after it; a start that comes later is not "
    "seen.",
    level=Level.OPERATOR,
    needs=("post-unknown-id",),
    after=("life-appears",),
    choice=True,
)
def approve_unknown_too(probe: Probe) -> None:
    life = _scheduled(probe)
    expect_refused(probe.post(approval(life.event_id, UNKNOWN_ID)))
    _still_scheduled(probe, life)


def _status(probe: Probe, life: Life) -> str:
    event = probe.document().event(life.event_id)
    return "gone" if event is None else event.text("EventStatus")


def _scheduled(probe: Probe) -> Life:
    """The event that is followed. Skipped unless it is still Scheduled."""
    life = _life(probe)
    if _status(probe, life) != "Scheduled":
        raise Skipped("the event is no longer Scheduled")
    return life


def _still_scheduled(probe: Probe, life: Life) -> None:
    """Fail unless the event, which nothing has approved, is Scheduled. Its time may have come."""
    document = probe.document()
    if _time_has_come(document, life):
        raise Skipped("its NotBefore has come, so that it starts by itself")
    event = document.event(life.event_id)
    status = "gone" if event is None else event.text("EventStatus")
    expect(status == "Scheduled", f"the event is {status}", "Scheduled still")


def _time_has_come(document: DocumentRead, life: Life) -> bool:
    now_s, not_before_s = document.now_s, life.not_before_s
    return now_s is not None and not_before_s is not None and now_s >= not_before_s


def _refused_alone(probe: Probe, send: Callable[[bytes], Answer]) -> None:
    """Fail unless an approval that is good but for how it is sent is refused and does nothing."""
    life = _scheduled(probe)
    expect_status(send(approval(life.event_id)), 400)
    _still_scheduled(probe, life)


@TOPIC.check(
    "refused-standing",
    "While an event stands, a GET without header or api-version is refused with 400 all the same.",
    "H1, Q1",
    not_checked="Two GETs; the other refusals are tried while there may be no event.",
    needs=("header-required", "version-missing"),
)
def refused_standing(probe: Probe) -> None:
    _scheduled(probe)
    for what, answer in (
        ("without Metadata: true", probe.poll(metadata=False)),
        ("without api-version", probe.get(PATH)),
    ):
        expect(answer.status == 400, f"{what}: {answer}", "400")


@TOPIC.check(
    "post-malformed-standing",
    "While an event stands, a malformed approval is refused with 400, and approves nothing.",
    "A5, E16",
    not_checked="Seven bodies and one look after them; a start that comes later is not seen.",
)
def post_malformed_standing(probe: Probe) -> None:
    life = _scheduled(probe)
    for body in (b"", b'{"StartRequests":[{"EventId":', *WRONG_SHAPES):
        answer = probe.post(body)
        expect(answer.status == 400, f"{body.decode()} is answered {answer}", "400")
    _still_scheduled(probe, life)


@TOPIC.check(
    "post-unknown-standing",
    "An approval of an EventId that this VM never had approves no other event.",
    "L12, contract 3.2",
    not_checked="One id and one look after it, whatever the answer; a start that comes late is "
    "not seen.",
)
def post_unknown_standing(probe: Probe) -> None:
    life = _scheduled(probe)
    probe.post(approval(UNKNOWN_ID))
    _still_scheduled(probe, life)


@TOPIC.check(
    "post-no-header",
    "An approval without the Metadata header is refused with 400, and approves nothing.",
    "H1, A5",
    not_checked="The newest api-version, and one look after it; a start that comes late is not "
    "seen.",
)
def post_no_header(probe: Probe) -> None:
    _refused_alone(probe, lambda body: probe.post(body, metadata=False))


@TOPIC.check(
    "post-no-version",
    "An approval without api-version is refused with 400, and approves nothing.",
    "Q1",
    not_checked="One look after it; a version that is empty or unknown is not tried on a POST.",
)
def post_no_version(probe: Probe) -> None:
    _refused_alone(probe, lambda body: probe.ask(probe.request("POST", PATH, body=body)))


@TOPIC.check(
    "approve-200",
    "Approving an event of the document is answered 200.",
    "A1, A4",
    not_checked="The status alone; an approval that is answered and then lost is for "
    "approve-starts to find.",
)
def approve_200(probe: Probe) -> None:
    life = _scheduled(probe)
    approve(probe, life)
    if life.approval is not None:
        expect_status(life.approval, 200)


@TOPIC.check(
    "approve-body",
    "The body of that 200 is empty or JSON.",
    "A7, contract 10 (empty by Forewarn's choice)",
    not_checked="Any JSON passes; what it says is not read.",
    after=("approve-200",),
)
def approve_body(probe: Probe) -> None:
    answer = _life(probe).approval
    if answer is None or not 200 <= answer.status < 300:
        raise Skipped("nothing was approved")
    good = not answer.body.strip() or answer.json is not None
    expect(good, answer, "an empty body, or JSON")


@TOPIC.check(
    "approve-starts",
    "An approved event starts before its NotBefore.",
    "contract 3.2, A9",
    not_checked="One event of one type; those of other types are for starts-Redeploy and its like.",
    needs=("get-date",),
    after=("approve-200",),
)
def approve_starts(probe: Probe) -> None:
    life = _life(probe)
    if life.approval is None or not 200 <= life.approval.status < 300:
        raise Skipped("nothing was approved")
    started = need_started(probe, life)
    if started.event(life.event_id) is not None:
        probe.every_version()  # the checks of documents want to see it Started


@TOPIC.check(
    "start-old-tag",
    "The tag of the document before the start no longer gets 304.",
    "H7",
    not_checked="The one tag from before, as it came, right after the start; older ones are not "
    "tried.",
    needs=("tag-echoed",),
    after=("approve-starts",),
)
def start_old_tag(probe: Probe) -> None:
    life = _life(probe)
    if life.waited is None or life.after_approval is None:
        raise Skipped("the start was not seen")
    expect_status(probe.poll(f"If-None-Match: {life.waited.tag}"), 200)


@TOPIC.check(
    "life-id-stable",
    "The event keeps its EventId when it starts.",
    "L13",
    not_checked="Another EventId is looked for only where the first one is gone at the start.",
    after=("approve-starts",),
)
def life_id_stable(probe: Probe) -> None:
    life = _life(probe)
    if life.after_approval is None:
        raise Skipped("the start was not seen")
    twins = life.twins(life.after_approval)
    if twins:  # the rest of its life is followed by that name
        life.first_id, life.event_id = life.event_id, twins[0]
    expect(not twins, f"{life.first_id} became {', '.join(twins)}", "the same EventId")


@TOPIC.check(
    "approve-again",
    "Approving it again is answered 200.",
    "A4, A12",
    not_checked="After the start; a second approval while the event is Scheduled is not tried.",
    after=("approve-starts", "life-id-stable"),
)
def approve_again(probe: Probe) -> None:
    expect_status(probe.post(approval(_approved(probe).event_id)), 200)


def _approved(probe: Probe) -> Life:
    """The event after its approval. Skipped if it is over: what is answered then is not known."""
    life = _life(probe)
    if life.approval is None:
        raise Skipped("nothing was approved")
    if probe.document().event(life.event_id) is None:
        raise Skipped("the event is over")
    return life


@TOPIC.check(
    "approve-any-case",
    "An EventId is compared without case.",
    "Forewarn's choice, A8 (not known of the real service)",
    not_checked="The status after the start; that it starts an event is for start-any-case.",
    after=("life-id-stable",),
    choice=True,
)
def approve_any_case(probe: Probe) -> None:
    event_id = _approved(probe).event_id
    for other in {event_id.lower(), event_id.upper()} - {event_id}:
        expect_status(probe.post(approval(other)), 200)


@TOPIC.check(
    "approve-other-version",
    "A POST may use another api-version than the GET did.",
    "Q7",
    not_checked="The status after the start; that it starts an event is for start-other-version.",
    after=("life-id-stable",),
)
def approve_other_version(probe: Probe) -> None:
    event_id = _approved(probe).event_id
    for version in VERSIONS[1:-1]:
        answer = probe.post(approval(event_id), version=version)
        expect(answer.status == 200, f"{version}: {answer}", "200")


@TOPIC.check(
    "approve-oldest",
    "A POST at 2017-03-01 does not need the Metadata header.",
    "H2",
    not_checked="The status after the start; what such a POST does to a Scheduled event is not "
    "seen.",
    needs=("header-not-required-before",),
    after=("life-id-stable",),
)
def approve_oldest(probe: Probe) -> None:
    body = approval(_approved(probe).event_id)
    expect_status(probe.post(body, version=VERSIONS[0], metadata=False), 200)


@TOPIC.check(
    "approve-more-fields",
    "DocumentIncarnation, as a number or a text, and other fields beside it are skipped.",
    "A3",
    not_checked="Fields beside StartRequests; more fields inside one of the requests are not "
    "tried.",
    after=("life-id-stable",),
)
def approve_more_fields(probe: Probe) -> None:
    event_id = _approved(probe).event_id
    for incarnation in (1, "1"):
        body = approval(event_id, DocumentIncarnation=incarnation, Other={"a": [1]})
        expect_status(probe.post(body), 200)


@TOPIC.check(
    "approve-content-type",
    "The Content-Type of a POST is not looked at.",
    "H5",
    not_checked="Three types after the start; a charset, or a malformed type, is not tried.",
    after=("life-id-stable",),
)
def approve_content_type(probe: Probe) -> None:
    body = approval(_approved(probe).event_id)
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json"):
        answer = probe.post(body, f"Content-Type: {kind}")
        expect(answer.status == 200, f"{kind}: {answer}", "200")


@TOPIC.check(
    "approve-with-tag",
    "If-None-Match on an approval is not looked at.",
    "H7",
    not_checked="The current tag after the start; an older one, and other conditions, are not "
    "tried.",
    after=("life-id-stable",),
)
def approve_with_tag(probe: Probe) -> None:
    life = _approved(probe)
    tag = probe.document().tag or "0"
    expect_status(probe.post(approval(life.event_id), f"If-None-Match: {tag}"), 200)


@TOPIC.check(
    "approve-keep-alive",
    "After an approval the connection goes on, or its end was said with Connection: close.",
    "contract 10",
    not_checked="One approval after the start; after a POST that is refused the connection may "
    "end.",
    needs=("get-content-length",),
    after=("life-id-stable",),
)
def approve_keep_alive(probe: Probe) -> None:
    body = approval(_approved(probe).event_id)
    with probe.connection() as connection:
        probe.turn()
        connection.send(probe.request("POST", path_of(NEWEST), body=body))
        if connection.answer().closes:
            return
        probe.turn()
        connection.send(probe.request("GET", path_of(NEWEST)))
        try:
            probe.note(connection.answer())
        except Broken as broken:
            raise Failed(str(broken), "an answer, or Connection: close before") from None


@TOPIC.check(
    "approve-twice-in-one",
    "An EventId may stand twice in one POST.",
    "A2, A4",
    not_checked="After the start; twice in the first approval is not tried.",
    after=("life-id-stable",),
)
def approve_twice_in_one(probe: Probe) -> None:
    event_id = _approved(probe).event_id
    expect_status(probe.post(approval(event_id, event_id)), 200)


@TOPIC.check(
    "life-ends",
    "A started event leaves the document when it is over.",
    "L10",
    not_checked="Any end within an hour passes; whether the impact was over by then is not seen.",
    after=("life-id-stable",),
)
def life_ends(probe: Probe) -> None:
    life = _life(probe)
    need_end(probe, life, coarse=False)


@TOPIC.check(
    "end-old-tag",
    "The tag of the document before the end no longer gets 304.",
    "H7",
    not_checked="The one tag from before, as it came, right after the end; older ones are not "
    "tried.",
    needs=("tag-echoed",),
    after=("life-ends",),
)
def end_old_tag(probe: Probe) -> None:
    life = _life(probe)
    if life.last is None or life.gone is None:
        raise Skipped("the end was not seen")
    expect_status(probe.poll(f"If-None-Match: {life.last.tag}"), 200)


@TOPIC.check(
    "approve-ended",
    "Approving an event that is over is answered 200 and has no effect.",
    "Forewarn's choice (not known of the real service, A6)",
    not_checked="Right after the end; how long an ended event is remembered is not tried.",
    needs=("life-ends",),
    choice=True,
)
def approve_ended(probe: Probe) -> None:
    life = _life(probe)
    expect_status(probe.post(approval(life.event_id)), 200)
    expect(probe.document().event(life.event_id) is None, f"{life.event_id} is back", "it is gone")
