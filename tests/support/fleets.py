"""Small fleets as inventory files say them. No test lives here."""

from __future__ import annotations


def hosts(*names: str) -> str:
    return "".join(f'[[host]]\nname = "{name}"\n' for name in names)


def scope(name: str, kind: str = "availability-set") -> str:
    return f'[[scope]]\nname = "{name}"\nkind = "{kind}"\n'


def vm(name: str, **keys: object) -> str:
    """A VM of scope web on h1 that is known by its address; None leaves a key out."""
    number = sum(name.encode()) % 200 + 1
    given: dict[str, object] = {
        "name": name,
        "scope": "web",
        "update_domain": 0,
        "host": "h1",
        "address": f"192.0.2.{number}",
        **keys,
    }
    lines = (f"{key} = {_toml(value)}" for key, value in given.items() if value is not None)
    return "[[vm]]\n" + "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def alone(name: str, **keys: object) -> str:
    """A standalone VM."""
    return vm(name, **{"scope": None, "update_domain": None, **keys})


HOSTS = hosts("h1", "h2", "h3")
WEB = scope("web", "placement-group")
BOTH = HOSTS + WEB + vm("web_0") + vm("web_1", update_domain=1, host="h2")
