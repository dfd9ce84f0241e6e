"""What a step proves itself with, and whom it trusts: secrets and certificates in files."""

from __future__ import annotations

import ssl
from pathlib import Path

from forewarn_guest.errors import StepError

SECRET_MAX = 16 * 1024  # bytes


def read_secret(path: str) -> str:
    """The content of a file with a secret, without the blanks around it. It is never shown."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(SECRET_MAX + 1)
        secret = content.decode("utf-8").strip()
    except OSError as error:
        raise StepError(f"{path} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError:
        raise StepError(f"{path} is no text in UTF-8.") from None
    if not secret or len(content) > SECRET_MAX:
        raise StepError(f"{path} is empty or larger than {SECRET_MAX} bytes.")
    return secret


def trust(ca_file: str | None) -> ssl.SSLContext:
    """Whom to trust: the system's certificates, or those of a file in their place."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # no such file, and no certificate in it
        raise StepError(f"{ca_file} has no certificates to trust ({error}).") from error
