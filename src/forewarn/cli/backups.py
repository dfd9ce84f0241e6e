"""`forewarn backup`, `restore` and `check-store`: a data folder as one file, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from forewarn.adapters.sqlite.data_folder import DATABASE_NAME, DatabaseRefused
from forewarn.cli import tables
from forewarn.cli.client import EXIT_REFUSED, Stop
from forewarn.cli.session import AsJson, Session, flag, session_of
from forewarn.ports import StoreFailed
from forewarn.wire.instants import time_text

if TYPE_CHECKING:
    from forewarn.adapters.restored_members import LinkPlan
    from forewarn.adapters.sqlite.backup import RestoreResult
    from forewarn.adapters.sqlite.restored_tokens import TokensRestored


def backup(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")],
    move: Annotated[
        bool,
        flag("--move", help="Move the service to another machine: stop it here for good."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Save everything of the running service in one file: guard it like its keys."""
    session = session_of(context)
    if file.exists():
        raise Stop(EXIT_REFUSED, f"{file} exists.", "Name a file that does not.")
    if move:
        _move_out(session, file)
    else:
        _download(session, file)
    size = file.stat().st_size
    if as_json:
        session.show_json({"file": str(file), "bytes": size})
        return
    text = f"Saved {size} bytes in {file}."
    if move:
        text += (
            "\nThis service is ended and does not start here again. On the new machine, with"
            f" {file} there:\n  forewarn --data DIR restore {file.name}"
        )
    session.console.print(text, soft_wrap=True)


def _download(session: Session, file: Path) -> None:
    client = session.client()
    try:
        client.download("backup", to=file)
    except OSError as error:
        raise Stop(
            EXIT_REFUSED,
            f"{file} cannot be written: {error.strerror or error}.",
            "Name a file in a folder that you may write to and that has room.",
        ) from None


def _move_out(session: Session, file: Path) -> None:
    folder = session.data_folder()
    try:
        there = (folder / DATABASE_NAME).exists()
    except PermissionError:
        raise Stop(
            EXIT_REFUSED,
            f"This user may not read {folder}.",
            "Say it as root, or as the user who runs the service.",
        ) from None
    if not there:
        raise Stop(
            EXIT_REFUSED,
            f"{folder} has no database to move.",
            "Name the data folder of the service with --data DIR.",
        )
    from forewarn.wiring.serve import move_out  # noqa: PLC0415 - the whole service

    try:
        move_out(folder, file)
    except DatabaseRefused as refused:
        raise Stop(EXIT_REFUSED, refused.refused, refused.accepted) from None
    except (StoreFailed, OSError) as error:
        raise Stop(
            EXIT_REFUSED,
            f"Nothing was moved, and the service can be started here again: {error}.",
            "Name a file in a folder that you may write to and that has room.",
        ) from None


def restore(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file made by `forewarn backup`.")],
    force: Annotated[
        bool, flag("--force", help="Replace the database that is there; it is kept aside.")
    ] = False,
    revoke: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A host that is no member any more. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a data folder from a backup, while no service runs on it."""
    session = session_of(context)
    folder = session.data_folder()
    from forewarn.wiring.serve import restore as restored  # noqa: PLC0415 - the whole service

    try:
        done = restored(file, folder, force=force, revoke=revoke or ())
    except DatabaseRefused as refused:
        raise Stop(EXIT_REFUSED, refused.refused, refused.accepted) from None
    except (StoreFailed, OSError) as error:
        raise Stop(
            EXIT_REFUSED,
            f"The restore failed, and the folder is as it was: {error}.",
            "See that the folder can be written to and has room.",
        ) from None
    if as_json:
        session.show_json(_restored_json(done))
    else:
        text = "\n".join(_restored_lines(done, file, folder))
        session.console.print(Text(text), soft_wrap=True)


def _restored_json(done: RestoreResult) -> dict[str, object]:
    link = done.link
    return {
        "database": str(done.database),
        "kept_aside": None if done.kept_aside is None else str(done.kept_aside),
        "scopes": done.scopes,
        "unread": done.unread,
        "members": list(link.members.members),
        "members_from": link.members_from.value,
        "members_until": time_text(link.until_ms),
        "members_unread": link.unread,
        "revoked": [one.name for one in link.members.revoked],
        "tokens": list(done.tokens.valid),
        "tokens_ended": list(done.tokens.ended),
    }


def _restored_lines(done: RestoreResult, file: Path, folder: Path) -> Iterator[str]:
    yield f"Restored {done.database} with {tables.count(done.scopes, 'scope')}."
    if done.kept_aside is not None:
        yield f"What was there is kept in {done.kept_aside}."
    if done.unread:
        yield f"Its incarnations could not be read: {done.unread}. Those of the backup were raised."
    yield from _member_lines(done.link, file, folder)
    yield from _token_lines(done.tokens)


def _token_lines(tokens: TokensRestored) -> Iterator[str]:
    """Whom tokens let in now, and how far that can be believed."""
    if tokens.ended:
        yield f"Tokens of the backup that let no caller in any more: {', '.join(tokens.ended)}."
    if not tokens.valid:
        return
    yield f"Tokens that let callers in: {', '.join(tokens.valid)}."
    if not tokens.known:
        yield (
            "If one was revoked or rotated after the backup, revoke it after the start:"
            " `forewarn token revoke NAME`."
        )


def _member_lines(link: LinkPlan, file: Path, folder: Path) -> Iterator[str]:
    """Who is a member now, and how far that can be believed."""
    command = f"forewarn --data {folder} restore {file}"
    if link.unread:
        yield f"The list of members of this machine could not be read: {link.unread}."
    names = ", ".join(link.members.members) or "none"
    match link.members_from.value:
        case "nowhere":
            yield "The backup has no members: a host has to join, also one that had joined."
        case "machine":
            yield f"The members are those of this machine: {names}."
            if link.left_out:
                yield (
                    "The backup has another authority, which was left out. To have that one and its"
                    f" members, move {folder / 'link'} away and say"
                    f" `{command} --force`."
                )
        case "backup-and-machine":
            yield f"The members are those of this machine and of the backup: {names}."
        case _:
            yield (
                f"The members are those of the backup, whose list reaches until"
                f" {time_text(link.until_ms)}: {names}."
            )
            if link.members.members:
                yield (
                    "If one was revoked after that, shut it out before the start:"
                    f" `{command} --force --revoke NAME`."
                )
    out = sorted({one.name for one in link.members.revoked} - set(link.members.members))
    if out:
        yield f"Revoked, and no members: {', '.join(out)}."


def check_store(
    context: typer.Context,
    *,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A backup; without one, the data folder is checked."),
    ] = None,
    as_json: Annotated[bool, flag("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Look at every page and row of a database, or at a backup and its digest. Changes nothing."""
    session = session_of(context)
    folder = session.data_folder()
    from forewarn.wiring.serve import check_backup, check_folder  # noqa: PLC0415 - the service

    try:
        found = check_folder(folder) if file is None else check_backup(file)
    except OSError as error:
        raise Stop(
            EXIT_REFUSED,
            f"{file or folder} cannot be read: {error.strerror or error}.",
            "Name a backup, or a data folder with --data DIR, that this user may read.",
        ) from None
    wrong = [one for one in found if one.wrong]
    if as_json:
        items = [{"what": one.what, "said": one.said, "wrong": one.wrong} for one in found]
        session.show_json({"ok": not wrong, "items": items})
    else:
        for one in found:
            line = (
                f"WRONG  {one.what}: {one.wrong}" if one.wrong else f"ok     {one.what}: {one.said}"
            )
            session.console.print(Text(line), soft_wrap=True)
    if wrong:
        of = "the backup" if file is not None else "the database"
        remedy = (
            "Restore the newest backup for which `forewarn check-store FILE` finds nothing wrong."
        )
        if file is not None:
            remedy = (
                "Do not restore it. Make another with `forewarn backup FILE` while control runs."
            )
        raise Stop(EXIT_REFUSED, f"Something of {of} is not as it must be.", remedy)
