"""Which services the command line trusts over TLS, and what it says of those that it does not."""

from __future__ import annotations

import ssl
from pathlib import Path

from forewarn.cli.client import EXIT_UNREACHABLE, EXIT_USAGE, ServiceAddress, Stop

# What OpenSSL finds of a certificate (X509_V_ERR_...), as far as something helps against it.
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
_NOT_TRUSTED = (2, 18, 19, 20, 21)
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def trusting(authority: Path | None) -> ssl.SSLContext:
    """What a service has to show: a certificate by this authority, or by one of the system's."""
    try:
        return ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        why = "it holds no certificate in PEM"
    except OSError as error:
        why = error.strerror or str(error)
    raise Stop(
        EXIT_USAGE,
        f"FOREWARN_CA_FILE names {authority}, which cannot be used: {why}.",
        "Give a copy of the authority's certificate, in PEM.",
    )


def no_tls(place: ServiceAddress, error: ssl.SSLError) -> Stop:
    """Why TLS did not come about, and what helps. Nothing was sent, no token either."""
    why, remedy = _found(place, error)
    return Stop(EXIT_UNREACHABLE, f"The service at {place} was not asked: {why}.", remedy)


def _found(place: ServiceAddress, error: ssl.SSLError) -> tuple[str, str]:
    code = getattr(error, "verify_code", None)
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        remedy = "Ask by a name that the certificate has. One of the service's own making has the"
        return "its certificate is for other names", f"{remedy} name in its setting operator_url."
    if code in _NOT_TRUSTED:
        by = "the one in FOREWARN_CA_FILE" if place.trusted else "an authority of this system"
        remedy = (
            "If the service makes its own certificate, copy operator-tls/authority.crt from its"
            " data folder by a way that you trust, and set FOREWARN_CA_FILE to the copy."
        )
        return f"its certificate is not by {by}", remedy
    if code in (_EXPIRED, _NOT_YET_VALID):
        return (
            f"its certificate {'has expired' if code == _EXPIRED else 'is not valid yet'}",
            "See whether the clock of this machine is right; else renew the certificate there.",
        )
    if error.reason in _NO_TLS:
        return (
            "it does not speak TLS",
            "See whether FOREWARN_URL names the right port, or should begin with http://.",
        )
    said = str(getattr(error, "verify_message", "") or error.reason or error)
    return f"TLS fails ({said.replace('_', ' ').lower()})", "The log of the service may say more."
