"""Pages from values: Jinja2 with every text escaped, and the words for times, lengths and bytes.

The one module that knows Jinja2. Times are written in UTC for every reader; the script adds the
reader's own zone beside it.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from urllib.parse import quote, urlencode

from jinja2 import (
    Environment,
    FunctionLoader,
    StrictUndefined,
    TemplateNotFound,
    pass_context,
)
from jinja2.runtime import Context
from markupsafe import Markup, escape

from forewarn.api.console.view_models.grid import WORDS, Grid
from forewarn.api.console.view_models.values import ID_CHARS_SHOWN, Ref
from forewarn.core.model import SECOND_MS
from forewarn.text.durations import span
from forewarn.text.packaged import packaged_bytes, packaged_names, packaged_text

CONSOLE = "forewarn.api.console"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOLDERS = {"host": "hosts", "vm": "vms", "scope": "scopes", "event": "events"}
_FOLDERS["operation"] = "operations"
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
ASSETS = ("console.css", "console.js", "icon.svg")
_MARK_CHARS = 12


# Times.


def utc(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def clock_text(ms: int) -> str:
    """`10:15:00 UTC`."""
    return f"{utc(ms):%H:%M:%S} UTC"


def date_text(ms: int) -> str:
    """`2026-03-03 10:15:00 UTC`."""
    return f"{utc(ms):%Y-%m-%d %H:%M:%S} UTC"


def far_text(ms: int) -> str:
    """`Sun 15 Mar 10:15 UTC`: an instant of another day."""
    at = utc(ms)
    return f"{at:%a %d} {_MONTHS[at.month - 1]} {at:%H:%M} UTC"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@pass_context
def time_tag(context: Context, ms: int | None, how: str = "clock", otherwise: str = "—") -> Markup:
    """An instant; `how`: clock (the time, and the day if it is not today), now, date, tick, day."""
    if ms is None:
        return Markup('<span class="none">{}</span>').format(otherwise)
    today = utc(context["now_ms"]).date() == utc(ms).date()
    texts = {
        "clock": clock_text(ms) if today else far_text(ms),
        "now": clock_text(ms),
        "date": date_text(ms),
        "tick": f"{utc(ms):%H:%M}",
        "day": f"{utc(ms):%a %d}",
    }
    return Markup('<time datetime="{}" data-at="{}" data-how="{}" title="{}">{}</time>').format(
        f"{utc(ms):%Y-%m-%dT%H:%M:%SZ}", ms, how, date_text(ms), texts[how]
    )


def away_text(ms: int, now_ms: int) -> str:
    """`in 14m 32s`, `3m 1s ago`, `now`."""
    left_s = (ms - now_ms) // SECOND_MS
    if left_s == 0:
        return "now"
    return f"in {span(left_s)}" if left_s > 0 else f"{span(-left_s)} ago"


def away_tag(ms: int | None, now_ms: int) -> Markup:
    """How far away an instant is. The script counts on from there."""
    if ms is None:
        return Markup()
    return Markup('<span class="away" data-away="{}">{}</span>').format(ms, away_text(ms, now_ms))


def length_text(ms: int | None) -> str:
    """`15m`; what is not known is a dash."""
    return "—" if ms is None else span(ms / SECOND_MS)


def bytes_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"


# Words, links.


_ID = re.compile(r"[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}")
_NAMED_ID = re.compile(rf"\b(event|operation) ({_ID.pattern})")


def with_code(text: str) -> Markup:
    """A sentence in which `commands` stand between backticks. Ids are short, and links."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one that is not closed is no command
        return _with_links(text)
    shown = (
        Markup("<code>{}</code>").format(_ID.sub(_beginning, part))
        if place % 2
        else _with_links(part)
        for place, part in enumerate(parts)
    )
    return Markup().join(shown)


def _beginning(found: re.Match[str]) -> str:
    return found[0][:ID_CHARS_SHOWN]  # a command takes the beginning of an id for the id


def _with_links(text: str) -> Markup:
    shown, at = Markup(), 0
    for found in _NAMED_ID.finditer(text):
        ref = Ref("event" if found[1] == "event" else "operation", found[2])
        link = Markup('<a class="id" href="{}">{}</a>').format(url_of(ref), ref.label)
        shown += escape(text[at : found.start(2)]) + link
        at = found.end()
    return shown + escape(text[at:])


def url_of(ref: Ref) -> str:
    if ref.kind == "token":  # all of them are on one page
        return "/console/access"
    return f"/console/{_FOLDERS[ref.kind]}/{quote(ref.name, safe='')}"


def url_with(path: str, **asked: object) -> str:
    """A path with a query; what is empty is left out."""
    given = {key: str(value) for key, value in asked.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def quoted(name: str) -> str:
    return quote(name, safe="")


def grid_cells(grid: Grid, first: int, codes: str) -> Markup:
    """The cells of one group, without more than they need: there may be thousands.

    Hosts that are not well are links with their names; the others are found by their place.
    """
    begin, end = (bisect_left(grid.named, (place,)) for place in (first, first + len(codes)))
    named = dict(grid.named[begin:end])
    if not named:
        return Markup("".join(_BARE[code] for code in codes))  # noqa: S704 - ours, from a table
    return Markup().join(
        Markup('<a class="{}" href="/console/hosts/{}" title="{}"></a>').format(
            code, quoted(named[place]), f"{named[place]}: {WORDS[code]}"
        )
        if place in named
        else Markup(_BARE[code])  # noqa: S704 - ours, from a table
        for place, code in enumerate(codes, first)
    )


_BARE = {code: f'<i class="{code}"></i>' for code in WORDS} | {"o": "<i></i>"}


# Assets.


@cache
def asset(name: str) -> bytes:
    """An asset, by its name."""
    return packaged_bytes(CONSOLE, f"assets/{name}")


@cache
def asset_url(name: str) -> str:
    """Where an asset is. Its content is in its address, so that a browser may keep it for ever."""
    mark = hashlib.sha256(asset(name)).hexdigest()[:_MARK_CHARS]
    return f"/console/assets/{mark}/{name}"


# Templates.


class Pages:
    """Renders templates. `packages` are those beside the console's own, by the folder they have."""

    def __init__(self, packages: Mapping[str, str] | None = None) -> None:
        self._packages = packages or {}
        self.rendered = 0  # how often a template was
        self._environment = Environment(
            autoescape=True,
            undefined=StrictUndefined,
            loader=FunctionLoader(self._source),
            auto_reload=False,
            cache_size=-1,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            t=time_tag,
            lasts=length_text,
            bytes=bytes_text,
            code=with_code,
            url=url_of,
            quoted=quoted,
        )
        self._environment.globals.update(
            asset=asset_url, away=away_tag, url_with=url_with, cells=grid_cells, ref=Ref
        )

    def _source(self, name: str) -> str:
        folder, _, file = name.rpartition("/")
        package = self._packages.get(folder, CONSOLE)
        path = f"templates/{file if folder in self._packages else name}"
        try:
            return packaged_text(package, path)
        except FileNotFoundError:
            raise TemplateNotFound(name) from None

    def load(self) -> None:
        """Compile the templates that pages are made of now, and not when they are asked for."""
        for folder in ("", "now/"):
            for name in packaged_names(CONSOLE, f"templates/{folder}"):
                if name.endswith(".html"):
                    self._environment.get_template(folder + name)

    def render(self, template: str, **values: object) -> str:
        self.rendered += 1
        return self._environment.get_template(template).render(**values)
