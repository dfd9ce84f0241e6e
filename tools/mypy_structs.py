"""A plugin of mypy: `msgspec.structs.replace(value, name=...)` is checked as a call of its class.

By its own types `replace` takes any keyword. Here each must be a field of the value, and each new
value must be of the field's type, as mypy sees to it for `dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.expandtype import expand_type_by_instance
from mypy.nodes import ARG_NAMED_OPT, ARG_POS
from mypy.plugin import FunctionSigContext, Plugin
from mypy.types import CallableType, FunctionLike, Instance, get_proper_type

REPLACE = "msgspec.structs.replace"


class Structs(Plugin):
    def get_function_signature_hook(
        self, fullname: str
    ) -> Callable[[FunctionSigContext], FunctionLike] | None:
        return _checked if fullname == REPLACE else None


def _checked(call: FunctionSigContext) -> CallableType:
    signature = call.default_signature
    if not call.args[0]:
        return signature
    kind = get_proper_type(call.api.get_expression_type(call.args[0][0]))
    if not isinstance(kind, Instance) or kind.type.get("__struct_fields__") is None:
        return signature
    made = kind.type.get("__init__")
    init = get_proper_type(made.type) if made else None
    if not isinstance(init, CallableType):
        return signature
    init = expand_type_by_instance(init, kind)
    fields = list(zip(init.arg_names, init.arg_types, strict=True))[1:]  # but for `self`
    return signature.copy_modified(
        arg_types=[kind, *(of for _, of in fields)],
        arg_kinds=[ARG_POS, *(ARG_NAMED_OPT for _ in fields)],
        arg_names=[None, *(name for name, _ in fields)],
        ret_type=kind,
        variables=(),
    )


def plugin(_version: str) -> type[Structs]:
    """What mypy asks a plugin for."""
    return Structs
