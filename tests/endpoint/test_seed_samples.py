"""The samples of the documents, as the bytes their clients put on the wire.

Each request is written as the named client sends it for the code shown in the documents: header
names, their order, bodies with the client's own spacing.
"""

from __future__ import annotations

import json

import pytest

from support.endpoint_world import EVENT_ID, running

# PowerShell 5, Invoke-RestMethod -Headers @{"Metadata"="true"} -Method get
POWERSHELL_GET = (
    b"GET /metadata/scheduledevents?api-version=%b HTTP/1.1\r\n"
    b"Metadata: true\r\n"
    b"User-Agent: Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.14393\r\n"
    b"Host: 169.254.169.254\r\n"
    b"Connection: Keep-Alive\r\n\r\n"
)
# PowerShell 5, Invoke-RestMethod -Method POST -Body (ConvertTo-Json ...); .NET waits for 100.
POWERSHELL_POST_HEAD = (
    b"POST /metadata/scheduledevents?api-version=%b HTTP/1.1\r\n"
    b"Metadata: true\r\n"
    b"User-Agent: Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.14393\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n"
    b"Host: 169.254.169.254\r\n"
    b"Content-Length: %d\r\n"
    b"Expect: 100-continue\r\n"
    b"Connection: Keep-Alive\r\n\r\n"
)
POWERSHELL_BODY_2017 = (
    b'{\r\n    "DocumentIncarnation":  2,\r\n    "StartRequests":  [\r\n'
    b"                          {\r\n"
    b'                              "EventId":  "%b"\r\n'
    b"                          }\r\n                      ]\r\n}"
)
POWERSHELL_BODY_2020 = (
    b'{\r\n    "StartRequests":  [\r\n                          {\r\n'
    b'                              "EventId":  "%b"\r\n'
    b"                          }\r\n                      ]\r\n}"
)
# The C# sample reads with DownloadString of WebClient and sets the Metadata header.
WEBCLIENT_GET = (
    b"GET /metadata/scheduledevents?api-version=2017-03-01 HTTP/1.1\r\n"
    b"Metadata: true\r\n"
    b"Host: 169.254.169.254\r\n"
    b"Connection: Keep-Alive\r\n\r\n"
)
# It approves with UploadString and sets a Content-Type, but no Metadata header (H2).
WEBCLIENT_POST_HEAD = (
    b"POST /metadata/scheduledevents?api-version=2017-03-01 HTTP/1.1\r\n"
    b"Content-Type: application/json\r\n"
    b"Host: 169.254.169.254\r\n"
    b"Content-Length: %d\r\n"
    b"Expect: 100-continue\r\n\r\n"
)
# Newtonsoft: the incarnation is a string in the sample's class.
WEBCLIENT_BODY = b'{"DocumentIncarnation":"2","StartRequests":[{"EventId":"%b"}]}'
# Python 2, urllib2.Request with add_header('Metadata', 'true')
URLLIB2_GET = (
    b"GET /metadata/scheduledevents?api-version=2017-03-01 HTTP/1.1\r\n"
    b"Accept-Encoding: identity\r\n"
    b"Host: 169.254.169.254\r\n"
    b"Connection: close\r\n"
    b"Metadata: true\r\n"
    b"User-Agent: Python-urllib/2.7\r\n\r\n"
)
# curl -H Metadata:true URL
CURL_GET = (
    b"GET /metadata/scheduledevents?api-version=2017-03-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\n"
    b"User-Agent: curl/7.47.0\r\n"
    b"Accept: */*\r\n"
    b"Metadata:true\r\n\r\n"
)
# curl -H Metadata:true -X POST -d '...' URL
CURL_POST_HEAD = (
    b"POST /metadata/scheduledevents?api-version=2017-03-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\n"
    b"User-Agent: curl/7.47.0\r\n"
    b"Accept: */*\r\n"
    b"Metadata:true\r\n"
    b"Content-Length: %d\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\n"
)
CURL_BODY = b'{"DocumentIncarnation":"5", "StartRequests": [{"EventId": "%b"}]}'
# PowerShell's curl, which is Invoke-WebRequest: -Method POST -Body '...'
CURL_BODY_2020 = b'{"StartRequests": [{"EventId": "%b"}]}'

UPPER = EVENT_ID.encode()
LOWER = EVENT_ID.lower().encode()


@pytest.mark.parametrize(
    "request_bytes",
    [
        POWERSHELL_GET % b"2017-03-01",
        POWERSHELL_GET % b"2019-01-01",
        POWERSHELL_GET % b"2019-08-01",
        WEBCLIENT_GET,
        URLLIB2_GET,
        CURL_GET,
    ],
)
def test_every_sample_reads_its_events(request_bytes: bytes) -> None:
    with running() as world:
        client = world.client()
        answer = client.ask(request_bytes)
        events = json.loads(answer.body)["Events"]
        assert (answer.status, events[0]["EventId"]) == (200, EVENT_ID)
        expected = ["_web_0"] if b"2017-03-01" in request_bytes else ["web_0"]
        assert events[0]["Resources"] == expected
        closes = b"Connection: close" in request_bytes
        assert (answer.headers.get("connection") == "close") == closes


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (WEBCLIENT_POST_HEAD, WEBCLIENT_BODY % UPPER),
        (POWERSHELL_POST_HEAD.replace(b"=%b", b"=2017-03-01"), POWERSHELL_BODY_2017 % UPPER),
        (POWERSHELL_POST_HEAD.replace(b"=%b", b"=2019-01-01"), POWERSHELL_BODY_2020 % UPPER),
        (POWERSHELL_POST_HEAD.replace(b"=%b", b"=2019-01-01"), CURL_BODY_2020 % LOWER),
        (CURL_POST_HEAD, CURL_BODY % LOWER),
        (CURL_POST_HEAD, CURL_BODY_2020 % LOWER),
    ],
)
def test_every_sample_approves_its_event(head: bytes, body: bytes) -> None:
    with running() as world:
        client = world.client()
        client.send(head % len(body))
        if b"Expect: 100-continue" in head:
            assert client.answer().status == 100
        client.send(body)
        answer = client.answer()
        assert (answer.status, answer.body) == (200, b"")
        assert world.service.approved == [("web_0", (EVENT_ID,))]


def test_the_sample_without_the_header_is_refused_where_the_header_is_required() -> None:
    with running() as world:
        body = WEBCLIENT_BODY % UPPER
        head = WEBCLIENT_POST_HEAD.replace(b"2017-03-01", b"2017-08-01") % len(body)
        client = world.client()
        client.send(head + body)
        assert client.answer().status == 400
        assert world.service.approved == []
