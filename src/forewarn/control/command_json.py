"""Commands, what they are answered, how they are refused, and their log, as JSON and back.

For code that writes them down or sends them to another control. What is unknown is refused by name:
a command that is only half understood must not be decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, Union, get_args

import msgspec

from forewarn.control import commands
from forewarn.control.command_handlers import DECIDERS
from forewarn.control.command_log import Began, Entry, LoggedBatch, TakenBack
from forewarn.control.commands import Command, RefusedPart
from forewarn.control.inventory.file_reader import InventoryClash
from forewarn.core import errors
from forewarn.core.errors import Invalid, Refusal, Unavailable

R = TypeVar("R")

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Union[tuple(DECIDERS)])  # noqa: UP007

_entries: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Began | LoggedBatch | TakenBack)


def written(command: Command[Any]) -> bytes:
    return _encode(command)


def read(text: bytes | str) -> Command[Any]:
    """The command that was written. Raises Invalid for one that is not known."""
    try:
        command: Command[Any] = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(
            f"The command was not understood: {error}.", f"There are: {', '.join(_tags())}."
        ) from None
    _refuse_unread("command", text, command)
    return command


def entry_written(entry: Entry) -> bytes:
    """An entry of the command log as one line, without its end."""
    return _encode(entry)


def entry_read(line: bytes | str) -> Entry:
    """The entry of the command log that this line is. Raises Invalid if it is not an entry."""
    try:
        entry: Entry = _entries.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(
            f"The entry of the command log was not understood: {error}.",
            "There are: began, batch, taken-back.",
        ) from None
    if isinstance(entry, Began):
        _refuse_unread("entry of the command log", line, entry)
    if not isinstance(entry, LoggedBatch):
        return entry
    commands = tuple(read(_encode(each)) for each in entry.commands)
    return msgspec.structs.replace(entry, commands=commands)


def _refuse_unread(what: str, text: bytes | str, understood: msgspec.Struct) -> None:
    """Refuse what was said and not understood, at any depth: values of the core ignore it."""
    said, kept = msgspec.json.decode(text), msgspec.json.decode(_encode(understood))
    known = dict.fromkeys(understood.__struct_fields__)  # also what is not written by default
    unread = next(_unread(said, known | kept, "$"), None)
    if unread is not None:
        raise Invalid(
            f"The {what} was not understood: it has an unknown field `{unread}`.",
            "Leave it out, or ask a control of the version that wrote it.",
        )


def _unread(said: Any, kept: Any, path: str) -> Iterator[str]:
    """Where fields are that were not kept; the keys of a map are."""
    if isinstance(said, dict) and isinstance(kept, dict):
        for key, value in said.items():
            if key in kept:
                yield from _unread(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    if isinstance(said, list) and isinstance(kept, list):
        for number, (one, other) in enumerate(zip(said, kept, strict=False)):
            yield from _unread(one, other, f"{path}[{number}]")


def _tags() -> Iterator[str]:
    return (str(kind.__struct_config__.tag) for kind in DECIDERS)


def answer_type(kind: type[Command[Any]]) -> Any:
    """The type of what a command of this kind is answered."""
    (base,) = kind.__orig_bases__  # type: ignore[attr-defined] # what it was made from: Command[R]
    return get_args(base)[0]


def answer_written(answer: object) -> bytes:
    return _encode(answer)


def answer_read(command: Command[R], text: bytes | str) -> R:
    """What the command was answered."""
    if isinstance(command, commands.AllOf):  # one after the other, each of its own type
        each = msgspec.json.decode(text, type=list[msgspec.Raw])
        found: Any = tuple(
            answer_read(o, bytes(t)) for o, t in zip(command.orders, each, strict=True)
        )
    else:
        found = msgspec.json.decode(text, type=answer_type(type(command)))
    answer: R = found
    return answer


def refusal_written(refusal: Refusal | Unavailable) -> bytes:
    if isinstance(refusal, Unavailable):
        return _encode(RefusedPart("unavailable", str(refusal)))
    return _encode(RefusedPart.of(refusal))


def refusal_read(text: bytes | str) -> Refusal | Unavailable:
    """The refusal that was written; one of an unknown kind is a plain Refusal."""
    said = msgspec.json.decode(text, type=RefusedPart)
    if said.code == "unavailable":
        return Unavailable(said.refused)
    if said.found:
        return InventoryClash.of(said.found)
    return _REFUSALS.get(said.code, Refusal)(said.refused, said.accepted)


_REFUSALS: dict[str, type[Refusal]] = {
    kind("").code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, Refusal)
}
