"""A few shapes of SVG, as text: what a sequence diagram needs and no more.

Text is text, so that it can be searched and read aloud; it has a white rim, so that lines may pass
behind it. Widths are estimates for a font in which every character is equally wide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
SANS = "system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif"
SIZE = 12
CHARACTER = 0.62
"""The width of a character, in units of the font's size."""


def text_width(text: str, size: int = SIZE) -> float:
    """About how wide a text is."""
    return len(text) * CHARACTER * size


def shorten_text(text: str, limit: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(slots=True)
class Drawing:
    """Shapes in the order in which they are drawn."""

    parts: list[str] = field(default_factory=list)

    def draw_line(
        self, x1: float, y1: float, x2: float, y2: float, kind: str, head: bool = True
    ) -> None:
        marker = f' marker-end="url(#{kind})"' if head else ""
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.parts.append(f'<line class="{kind}" {ends}{marker}/>')

    def draw_dot(self, x: float, y: float, kind: str) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')

    def draw_box(self, x: float, y: float, wide: float, high: float, kind: str) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" '
            'rx="4"/>'
        )

    def draw_text(
        self, x: float, y: float, text: str, kind: str = "", limit: int = 200, end: bool = False
    ) -> None:
        """A text that begins (or ends) at x, its middle at y; cut at `limit`, then with a title."""
        told = shorten_text(text, limit)
        title = f"<title>{escape(text)}</title>" if told != text else ""
        anchor = ' text-anchor="end"' if end else ""
        self.parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y + 4:.1f}"{anchor}>{escape(told)}{title}</text>'
        )

    def render_page(self, wide: float, high: float, style: str, title: str) -> str:
        """The whole drawing."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" '
                f'width="{wide:.0f}" height="{high:.0f}" role="img">',
                f"<title>{escape(title)}</title>",
                style,
                f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#ffffff"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def arrowhead_marker(name: str, colour: str) -> str:
    """The head of an arrow, to be named by lines."""
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0,1 L10,5 L0,9 z" fill="{colour}"/></marker>'
    )
