"""The gate of the console: which requests a browser may send, who they are from, and what every
answer carries.

A page of another site must neither read here nor press a button here: the name in Host is one that
no site of the web can have (DNS rebinding), a request that changes something comes from our own
pages (Origin, Sec-Fetch-Site, and the secret in each form), the cookie is sent by nothing else
(SameSite=Strict, HttpOnly), and no answer runs a script that is not ours (CSP).
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Scope

from forewarn.api.console.sessions import LIFE_S, ConsoleSession
from forewarn.core.errors import Forbidden
from forewarn.endpoint.browsers_and_proxies import host_accepted

SESSION_KEY = "forewarn.console.session"  # in the scope of a request with a session
COOKIE_CHARS_MAX = 8_192

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class NotOurHost(Forbidden):
    """The request is for a name that may be another site's."""


class NotOurPage(Forbidden):
    """A request that changes something does not come from a page of ours."""


def with_headers(message: Message) -> Message:
    """The start of an answer, with what each of ours carries. What a handler has set stays."""
    headers = MutableHeaders(scope={"headers": list(message["headers"])})
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-store")
    return {**message, "headers": headers.raw}


def refuse_foreign_host(headers: Headers, names: frozenset[str]) -> None:
    """Raises NotOurHost unless the name asked for is ours for sure. `names` are those that an
    operator has given the console.
    """
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not hosts[0] or not host_accepted(hosts[0], names):
        raise NotOurHost(
            "The console does not answer to the name that your browser asked for.",
            "An IP address, localhost, a name without a dot, and the names in the setting"
            " console_names are accepted.",
        )


def refuse_foreign_page(scope: Scope) -> None:
    """Raises NotOurPage for a request that is not sent by a page of this console."""
    headers = Headers(scope=scope)
    site = headers.get("sec-fetch-site")
    origins = headers.getlist("origin")
    own = site in (None, "same-origin") and (bool(origins) or site == "same-origin")
    if not own or any(not _is_own(origin, headers["host"]) for origin in origins):
        raise NotOurPage(
            "This request does not come from a page of the console.",
            "Open the console in this browser, and press the button there.",
        )


def _is_own(origin: str, host: str) -> bool:
    """Whether an Origin names the host that was asked. A proxy may have changed http to https."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def comes_from_elsewhere(scope: Scope) -> bool:
    """Whether a link on another site leads here: then the cookie was not sent along."""
    headers = Headers(scope=scope)
    return (
        headers.get("sec-fetch-site") in ("cross-site", "same-site")
        and headers.get("sec-fetch-mode") == "navigate"
    )


def is_prefetch(scope: Scope) -> bool:
    """Whether a browser only asks in case that its person goes there."""
    headers = Headers(scope=scope)
    told = headers.get("sec-purpose", "") + headers.get("purpose", "")
    return "prefetch" in told or "prerender" in told


# Cookies.


def cookie_name(scope: Scope) -> str:
    """The cookie of this port: cookies of one machine are shared by all its ports."""
    _, _, port = Headers(scope=scope).get("host", "").rpartition(":")
    return f"forewarn_{port if port.isdecimal() else 'console'}"


def read_cookie(scope: Scope) -> str:
    """The secret in the cookie; empty without one, or with more than one."""
    found = []
    name = cookie_name(scope)
    for value in Headers(scope=scope).getlist("cookie"):
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(value[:COOKIE_CHARS_MAX])
        except CookieError:
            continue
        if name in jar:
            found.append(jar[name].value)
    return found[0] if len(found) == 1 else ""


def cookie_header(scope: Scope, secret: str, *, secure: bool) -> str:
    """What Set-Cookie says. An empty secret takes the cookie away."""
    life_s = int(LIFE_S) if secret else 0
    parts = [f"{cookie_name(scope)}={secret}", "Path=/console", f"Max-Age={life_s}"]
    return "; ".join([*parts, "HttpOnly", "SameSite=Strict", *(["Secure"] if secure else [])])


def session_of(request: Request) -> ConsoleSession:
    """Who is at the browser. Only requests that passed the gate have it."""
    session = request.scope[SESSION_KEY]
    if not isinstance(session, ConsoleSession):
        raise TypeError("a request without a session got past the gate")
    return session
