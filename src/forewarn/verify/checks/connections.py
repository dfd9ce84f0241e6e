"""Checks of connections: kept, closed, shared, cut into pieces."""

from __future__ import annotations

from forewarn.verify import documents
from forewarn.verify.check import Failed, Skipped, Topic, expect
from forewarn.verify.connection import Broken, Connection
from forewarn.verify.documents import NEWEST
from forewarn.verify.probe import PATH, Probe, path_of

TOPIC = Topic("connections", "Connections", needs=("get-200", "get-content-length"))

GARBAGE = b"\x16\x03\x01\x02\x00 this is no request\r\n\r\n"


def _get(probe: Probe, *headers: str) -> bytes:
    return probe.request("GET", path_of(NEWEST), *headers)


@TOPIC.check(
    "keep-alive",
    "A connection takes one GET after another, unless it says Connection: close.",
    "contract 10, RFC 9112, 9.3",
    not_checked="Two GETs; how many more a connection takes, and how long it may idle, is not "
    "measured.",
)
def keep_alive(probe: Probe) -> None:
    with probe.connection() as connection:
        for _ in range(2):
            probe.turn()
            connection.send(_get(probe))
            answer = connection.answer()
            documents.read(answer, NEWEST)
            if answer.closes:
                raise Skipped("it ends connections and says so, which is allowed (RFC 9112, 9.6)")


@TOPIC.check(
    "close-said",
    "After a refusal the connection goes on, or its end was said with Connection: close.",
    "contract 10",
    not_checked="One kind of refusal; after the others a connection may end without a word.",
)
def close_said(probe: Probe) -> None:
    with probe.connection() as connection:
        probe.turn()
        connection.send(probe.request("GET", PATH))
        if connection.answer().closes:
            return
        probe.turn()
        connection.send(_get(probe))
        try:
            documents.read(connection.answer(), NEWEST)
        except Broken as broken:
            raise Failed(str(broken), "an answer, or Connection: close before") from None


@TOPIC.check(
    "close-asked",
    "A request with Connection: close ends the connection, and the answer says so.",
    "RFC 9112, 9.6",
    not_checked="After an answer 200; after a refusal or a POST it is not tried.",
)
def close_asked(probe: Probe) -> None:
    with probe.connection() as connection:
        probe.turn()
        connection.send(_get(probe, "Connection: close"))
        answer = connection.answer()
        expect(answer.closes, answer.headers, "Connection: close")
        ended = connection.ends(probe.options.timeout_s)
        expect(ended, "the connection stays open", "its end")


@TOPIC.check(
    "pipelined",
    "Requests that are sent at once are answered in their order.",
    "RFC 9112, 9.3.2",
    not_checked="Three GETs and their statuses; POSTs, and more than three at once, are not tried.",
    needs=("version-missing", "keep-alive", "close-said"),
)
def pipelined(probe: Probe) -> None:
    with probe.connection() as connection:
        for _ in range(3):
            probe.turn()
        connection.send(_get(probe) + probe.request("GET", PATH) + _get(probe))
        statuses = [connection.answer().status for _ in range(3)]
    expect(statuses == [200, 400, 200], statuses, "200, 400, 200")


@TOPIC.check(
    "in-pieces",
    "A request may arrive in pieces.",
    "RFC 9112, 2.2",
    not_checked="Three pieces of a GET, 10 ms apart; slower senders, and POSTs in pieces, are "
    "not tried.",
)
def in_pieces(probe: Probe) -> None:
    request = _get(probe)
    with probe.connection() as connection:
        probe.turn()
        for piece in (request[:9], request[9:-3], request[-3:]):
            connection.send(piece)
            connection.quiet_for(0.01)
        documents.read(connection.answer(), NEWEST)


@TOPIC.check(
    "absolute-form",
    "The request line may hold a whole URL.",
    "RFC 9112, 3.2.2",
    not_checked="The endpoint's own URL; one of another host, as a proxy gets, is not tried.",
    choice=True,
)
def absolute_form(probe: Probe) -> None:
    line = f"GET {probe.target.url}{path_of(NEWEST)} HTTP/1.1\r\n".encode()
    rest = _get(probe).partition(b"\r\n")[2]
    documents.read(probe.ask(line + rest), NEWEST)


@TOPIC.check(
    "others-go-on",
    "A client that sends half a request keeps no other client waiting.",
    "P1: every process of the VM may call",
    not_checked="One idle connection and half a request; hundreds of them, and slow readers, are "
    "not tried.",
)
def others_go_on(probe: Probe) -> None:
    with probe.connection() as idle, probe.connection() as half:
        half.send(_get(probe)[:20])
        idle.quiet_for(0.01)
        documents.read(probe.poll(), NEWEST)


@TOPIC.check(
    "not-http",
    "Bytes that are not a request are answered 400, or the connection ends.",
    "RFC 9112, 3",
    not_checked="One piece of garbage; smuggled, endless and nearly right requests are not tried.",
    choice=True,
)
def not_http(probe: Probe) -> None:
    with probe.connection() as connection:
        probe.turn()
        connection.send(GARBAGE)
        _refused_or_ended(connection)
    documents.read(probe.poll(), NEWEST)


def _refused_or_ended(connection: Connection) -> None:
    try:
        answer = connection.answer()
    except Broken as broken:
        if connection.ends(0):
            return
        raise Failed(str(broken), "400, or the end of the connection") from None
    expect(answer.status == 400, answer, "400, or the end of the connection")
