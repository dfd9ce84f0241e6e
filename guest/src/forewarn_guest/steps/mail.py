"""The step `email`: sends the facts of the event as plain text, over SMTP."""

from __future__ import annotations

import contextlib
import re
import smtplib
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from forewarn_guest.errors import StepError
from forewarn_guest.steps.credentials import read_secret, trust
from forewarn_guest.steps.retries import Again, until_done
from forewarn_guest.steps.step_context import StepContext, one_line
from forewarn_guest.steps.wording import facts, same_each_time, sentence

ATTEMPT_S = 20.0  # what one attempt may wait for the mail server at a time
SUBJECT_MAX = 200  # characters
SAID_MAX = 200  # characters of an answer that are repeated


def run(occasion: StepContext) -> str:
    """Send it. Raises StepError if the server refuses it, or refuses one of the receivers."""
    options = occasion.options
    where = str(options["server"])
    occasion.deadline.doing = f"The mail server {where} had not taken the mail"
    context = trust(options["ca_file"]) if options["tls"] != "none" else None
    login = _login(options["login_file"]) if options["login_file"] else None
    message = written(occasion)

    def attempt() -> str:
        try:
            refused = _sent(occasion, message, context, login)
        except ssl.SSLCertVerificationError as error:
            raise StepError(
                f"{where} has a certificate that is not trusted ({error.verify_message}).",
                "A certificate of your own is trusted with the option ca_file.",
            ) from error
        except smtplib.SMTPNotSupportedError as error:
            raise StepError(
                f"{where} cannot do what tls or login_file ask for ({error})."
            ) from error
        except smtplib.SMTPRecipientsRefused as error:
            raise _refusal(where, _first_code(error.recipients), str(error.recipients)) from error
        except smtplib.SMTPResponseException as error:
            said = error.smtp_error
            words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
            raise _refusal(where, error.smtp_code, words) from error
        except (OSError, smtplib.SMTPException) as error:
            raise Again(f"{where} could not be asked ({one_line(str(error), SAID_MAX)})") from error
        if refused:  # the others have it: sending again would give it to them twice
            raise StepError(f"{where} took the mail, but not for {', '.join(sorted(refused))}.")
        return f"{where} took the mail for {', '.join(options['to'])}."

    return until_done(attempt, occasion.deadline)


def written(occasion: StepContext) -> EmailMessage:
    """The mail. Nothing of the event can add a header: every value is one line, and bounded."""
    options = occasion.options
    message = EmailMessage(policy=SMTP)
    message["From"] = options["from"]
    message["To"] = ", ".join(options["to"])
    subject = options["subject"] or f"[{occasion.vm}] {sentence(occasion)}"
    message["Subject"] = one_line(subject, SUBJECT_MAX)
    message["Date"] = formatdate()
    # The same each time, so that a mail that is sent again after a crash can be told as the same.
    domain = options["from"].rpartition("@")[2]
    message["Message-ID"] = f"<{same_each_time(occasion)}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no answers from people on leave
    lines = [sentence(occasion), ""]
    lines += [f"{label}: {value}" for label, _name, value in facts(occasion)]
    message.set_content("\n".join(lines) + "\n")
    return message


def _login(path: str) -> tuple[str, str]:
    lines = read_secret(path).splitlines()
    if len(lines) != 2:
        raise StepError(f"{path} must have the user in its first line, the password in its second.")
    return lines[0].strip(), lines[1]


def _sent(
    occasion: StepContext,
    message: EmailMessage,
    context: ssl.SSLContext | None,
    login: tuple[str, str] | None,
) -> dict[str, tuple[int, bytes]]:
    """Send once. Returns the receivers that were refused while others were not."""
    options, place = occasion.options, occasion.options["server"]
    seconds = occasion.deadline.left(ATTEMPT_S)
    name = _own_name(occasion.vm)
    server = (
        smtplib.SMTP_SSL(timeout=seconds, local_hostname=name, context=context)
        if options["tls"] == "implicit"
        else smtplib.SMTP(timeout=seconds, local_hostname=name)
    )
    # The name is what a certificate is checked against; the constructor would set it only together
    # with connecting, and raise there without closing what it opened.
    server._host = place.host  # type: ignore[attr-defined]  # noqa: SLF001
    try:
        code, said = server.connect(place.host, place.port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, said)
        if options["tls"] == "starttls":
            server.starttls(context=context)
        if login is not None:
            server.login(*login)
        refused = server.send_message(message, options["from"], list(options["to"]))
        # The mail is taken: how they part must not make it be sent again.
        with contextlib.suppress(OSError):
            server.putcmd("quit")
    finally:
        server.close()
    return refused


def _own_name(vm: str) -> str:
    """What to call oneself: the VM's name if it can be one. Asking DNS for it takes time."""
    return vm if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,200}[A-Za-z0-9])?", vm) else "localhost"


def _first_code(recipients: dict[str, tuple[int, bytes]]) -> int:
    """The code that decides for all: one that may pass later, if any does."""
    codes = [code for code, _said in recipients.values()]
    return min(codes) if codes else 0


def _refusal(where: str, code: int, words: str) -> Exception:
    said = f"{where} answered {code}: {one_line(words, SAID_MAX).rstrip('. ')}"
    if 400 <= code < 500 or code < 0:  # SMTP: 4xx is not now, 5xx is never; -1 is no answer
        return Again(said)
    return StepError(f"{said}.", "It would answer the same again.")
