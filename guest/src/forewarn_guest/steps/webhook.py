"""The step `webhook`: posts the event as JSON, and tries again while that may help.

http.client is used as it is: it knows no proxies of the environment and follows no redirects.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from forewarn_guest import __version__
from forewarn_guest.errors import StepError
from forewarn_guest.steps.credentials import read_secret, trust
from forewarn_guest.steps.retries import Again, until_done
from forewarn_guest.steps.step_context import StepContext, one_line
from forewarn_guest.steps.wording import same_each_time, sentence

ATTEMPT_S = 15.0  # what one attempt may wait for the other side at a time
ANSWER_MAX = 2000  # bytes read of an answer, to repeat them in a failure
SAID_MAX = 200  # characters of it that are repeated
RETRY_AFTER_MAX_S = 60.0
_LATER = (408, 425, 429)  # with every 5xx: what may be accepted when it is sent again


def run(occasion: StepContext) -> str:
    """Post until the answer is a 2xx. Raises StepError for an answer that time will not mend."""
    options = occasion.options
    url = urlsplit(options["url"])
    shown = f"{url.scheme}://{url.netloc}"  # the path of a webhook is often its secret
    occasion.deadline.doing = f"{shown} had not answered"
    context = trust(options["ca_file"]) if url.scheme == "https" else None
    body = json.dumps(content(occasion)).encode("ascii")
    headers = _headers(occasion)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")

    def attempt() -> str:
        seconds = occasion.deadline.left(ATTEMPT_S)
        host = url.hostname or ""
        port = url.port or (80 if context is None else 443)  # or an IPv6 address is read as one
        connection = (
            http.client.HTTPConnection(host, port, timeout=seconds)
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
        )
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            said = _words(answer)
        except ssl.SSLCertVerificationError as error:
            raise StepError(
                f"{shown} has a certificate that is not trusted ({error.verify_message}).",
                "A certificate of your own is trusted with the option ca_file.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise Again(f"{shown} could not be asked ({one_line(str(error), SAID_MAX)})") from error
        finally:
            connection.close()
        return _judged(shown, answer, said)

    return until_done(attempt, occasion.deadline)


def _words(answer: http.client.HTTPResponse) -> str:
    """What an answer says against it, as far as it came. A 2xx is done, whatever follows it."""
    if 200 <= answer.status < 300:
        return ""
    try:
        body = answer.read(ANSWER_MAX)
    except (OSError, http.client.HTTPException):  # the code has come, and says enough
        return ""
    return one_line(body.decode("utf-8", "replace").strip(), SAID_MAX)


def content(occasion: StepContext) -> dict[str, Any]:
    """What is posted. `text` is a sentence, which is what chat services show of a webhook."""
    return {
        "text": sentence(occasion),
        "event": occasion.event,
        "vm": occasion.vm,
        "part": occasion.part,
        "first_named": occasion.first_named,
        "seconds_left": occasion.seconds_left,
    }


def _headers(occasion: StepContext) -> Mapping[str, str]:
    """What goes with it. The key is the same for a step that is repeated: see RFC draft
    idempotency-key-header, which receivers of webhooks follow."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"forewarn-guest/{__version__}",
        "Idempotency-Key": f'"{same_each_time(occasion)}"',
        **occasion.options["headers"],
    }
    path = occasion.options["secret_file"]
    if path:
        secret = read_secret(path)
        if not (secret.isascii() and secret.isprintable()):
            raise StepError(f"{path} has more than one line, or other letters than ASCII.")
        headers[occasion.options["secret_header"]] = secret
    return headers


def _judged(shown: str, answer: http.client.HTTPResponse, words: str) -> str:
    """What to make of an answer."""
    code = answer.status
    if 200 <= code < 300:
        return f"{shown} answered {code}."
    said = f"{shown} answered {code}" + (f": {words}" if words else "")
    if code in _LATER or code >= 500:
        raise Again(said, _retry_after(answer))
    if 300 <= code < 400:
        raise StepError(f"{said}.", "Redirects are not followed: name the last URL.")
    raise StepError(f"{said}.", "It would answer the same again.")


def _retry_after(answer: http.client.HTTPResponse) -> float:
    """How long the other side asked to wait: seconds, or a date against its own Date."""
    asked = answer.headers.get("Retry-After") or ""
    if asked.isascii() and asked.isdigit():
        return min(float(asked), RETRY_AFTER_MAX_S)
    try:
        until = parsedate_to_datetime(asked)
        now = parsedate_to_datetime(answer.headers.get("Date") or "")
        wait = (until - now).total_seconds()
    except (TypeError, ValueError, IndexError):  # no such header, or no date in it
        return 0.0
    return max(0.0, min(wait, RETRY_AFTER_MAX_S))
