"""Shapes and words as SVG text: boxes, lines, arrows. No picture is known here.

Widths are estimated, so every text has room to spare in any font of its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

SANS = "-apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SANS_WIDTH = 0.58  # of a character, in parts of the size
MONO_WIDTH = 0.61

INK = "#1f2933"
SOFT = "#5b6975"
LINE = "#7b8794"
PAPER = "#ffffff"
RED = "#b02a37"


def text_width(words: str, size: float, *, mono: bool = False) -> float:
    return len(words) * size * (MONO_WIDTH if mono else SANS_WIDTH)


def wrapped(words: str, width: float, size: float, *, mono: bool = False) -> list[str]:
    """The words in lines that fit the width."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, mono=mono) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@dataclass(slots=True)
class Drawing:
    """Shapes in the order in which they are painted."""

    width: float
    height: float
    title: str
    _shapes: list[str] = field(default_factory=list)

    def box(
        self, at: tuple[float, float], size: tuple[float, float], fill: str, *, dashed: bool = False
    ) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._shapes.append(
            f'<rect x="{at[0]:g}" y="{at[1]:g}" width="{size[0]:g}" height="{size[1]:g}" rx="7" '
            f'fill="{fill}" stroke="{LINE}"{dash}/>'
        )

    def band(self, at: tuple[float, float], size: tuple[float, float]) -> None:
        """A strip behind a heading."""
        self._shapes.append(
            f'<rect x="{at[0]:g}" y="{at[1]:g}" width="{size[0]:g}" height="{size[1]:g}" rx="5" '
            'fill="#eef1f4"/>'
        )

    def paper(self, at: tuple[float, float], size: tuple[float, float]) -> None:
        """A piece of background, so that words on a line can be read."""
        self._shapes.append(
            f'<rect x="{at[0]:g}" y="{at[1]:g}" width="{size[0]:g}" height="{size[1]:g}" '
            f'fill="{PAPER}" fill-opacity="0.85"/>'
        )

    def text(
        self,
        at: tuple[float, float],
        words: str,
        *,
        size: float = 13,
        mono: bool = False,
        bold: bool = False,
        middle: bool = False,
        fill: str = INK,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        anchor = ' text-anchor="middle"' if middle else ""
        family = f" font-family={quoteattr(MONO)}" if mono else ""
        self._shapes.append(
            f'<text x="{at[0]:g}" y="{at[1]:g}" font-size="{size:g}" fill="{fill}"{weight}{anchor}'
            f"{family}>{escape(words)}</text>"
        )

    def lines(
        self, at: tuple[float, float], words: Iterable[str], *, step: float, size: float = 13
    ) -> float:
        """Several lines of plain text; where the next one would be."""
        y = at[1]
        for one in words:
            self.text((at[0], y), one, size=size, fill=SOFT)
            y += step
        return y

    def line(
        self,
        points: Sequence[tuple[float, float]],
        *,
        arrow: bool = False,
        dashed: bool = False,
        color: str = INK,
        both: bool = False,
    ) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        head = ' marker-end="url(#arrow)"' if arrow or both else ""
        tail = ' marker-start="url(#arrow)"' if both else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.4"{dash}{head}'
            f"{tail}/>"
        )

    def svg(self) -> str:
        """The whole file."""
        shapes = "\n".join(self._shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" font-family='
            f"{quoteattr(SANS)}>\n<title>{escape(self.title)}</title>\n"
            '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
            'markerHeight="8" orient="auto-start-reverse">'
            f'<path d="M0,1 L10,5 L0,9 z" fill="{INK}"/></marker></defs>\n'
            f'<rect width="{self.width:g}" height="{self.height:g}" rx="10" fill="{PAPER}"/>\n'
            f"{shapes}\n</svg>\n"
        )
