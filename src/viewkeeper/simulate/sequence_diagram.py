"""A run as a message sequence diagram: sources, warehouse and view side by side, time downwards.

Everything that happened has a row of its own, so no text can cover another. A message leaves its
sender in one row and reaches its receiver in a later one: the longer it is under way, the steeper
its arrow, and what crosses it is concurrent with it. Compensations are written where the answer
arrives that needed them. A message that the warehouse lost in a crash ends in a cross.

The trace (`viewkeeper.simulate.trace`) has all of it; here is only where it goes.

Text is text, so that it can be searched and read aloud; it has a white rim, so that lines may pass
behind it. Widths are estimates for a font in which every character is equally wide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from viewkeeper.simulate.row_text import write_bag
from viewkeeper.simulate.scripts.script_format import subject_text
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.trace import TraceEntry

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


ROW = 24
TOP = 64
BETWEEN = 70
"""Room before the warehouse and before the view, for slanted arrows."""
LIMIT = 46
"""Characters of a label; the whole is in its title."""
COLOURS = {
    "report": "#1f5fae",
    "question": "#6b6b6b",
    "answer": "#2b7d3c",
    "lost": "#c03020",
    "life": "#c9c9c9",
    "store": "#7a3e9d",
}
STYLE = (
    "<style>"
    f"text{{font:12px {MONO};fill:#222;paint-order:stroke;stroke:#fff;stroke-width:4px;"
    "stroke-linejoin:round}"
    f".title{{font:bold 16px {SANS}}} .head{{font:bold 13px {SANS}}} .step{{fill:#999}}"
    ".fix{fill:#c05a00;font-weight:bold} .crash{fill:#c03020;font-weight:bold}"
    f".told{{fill:{COLOURS['question']}}} .state{{fill:{COLOURS['store']};font-weight:bold}}"
    + "".join(f"line.{kind}{{stroke:{colour}}}" for kind, colour in COLOURS.items())
    + "line{stroke-width:1.5} line.question{stroke-dasharray:6 4} line.life{stroke-width:1}"
    + "line.store{stroke-width:1} circle{fill:#1f5fae} circle.answer{fill:#2b7d3c}"
    + "circle.store{fill:#7a3e9d} rect.head{fill:#f2f2f2;stroke:#bbb} rect.crash{fill:#fbe9e7}"
    + "</style><defs>"
    + "".join(arrowhead_marker(kind, colour) for kind, colour in COLOURS.items() if kind != "life")
    + "</defs>"
)


@dataclass(frozen=True, slots=True)
class Lane:
    """A lifeline: its name, its place, and what was there at the start.

    What a source says stands to the left of its line, because its messages leave to the right.
    """

    title: str
    x: float
    lines: tuple[str, ...]
    leftward: bool


def draw_diagram(world: SimulatedWorld, title: str) -> str:
    """The run of a world as SVG."""
    return _Diagram(world).draw_page(title)


class _Diagram:
    """The places of everything that one run draws."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._entries = world.trace.entries
        self._draw = Drawing()
        labels = {name: list[str]() for name in [*world.sources, WAREHOUSE, VIEW, STEPS]}
        for entry in self._entries:
            for lane, text in _labels_of(entry):
                labels[lane].append(text)
        labels[STEPS] = list(world.trace.steps)
        starts = self._initial_lines()
        for lane, lines in starts.items():
            labels[lane] += [*lines, f"source {lane}"]
        labels[WAREHOUSE].append(f"{subject_text(world.subject)}   ")
        self._lanes: dict[str, Lane] = {}
        x = 24 + max((text_width(shorten_text(t, LIMIT)) for t in labels[STEPS]), default=0) + 30
        for lane in [*world.sources, WAREHOUSE, VIEW]:
            source = lane in world.sources
            room = max(120.0, *(text_width(shorten_text(t, LIMIT)) for t in labels[lane])) + 36
            heading = f"source {lane}" if source else lane
            at = x + room if source else x + BETWEEN
            self._lanes[lane] = Lane(heading, at, starts.get(lane, ()), source)
            x = at if source else at + room
        self._wide = max(x, 760.0)
        self._start = TOP + 34 + 18 * max((len(s) for s in starts.values()), default=0)

    def _initial_lines(self) -> dict[str, tuple[str, ...]]:
        """What every lane has at the start."""
        found: dict[str, tuple[str, ...]] = dict.fromkeys(self._world.sources, ())
        for table in self._world.scenario.tables:
            text = f"{table.relation.table}: {write_bag(table.rows)}"
            found[table.relation.source] += (text,)
        found[WAREHOUSE] = (subject_text(self._world.subject),)
        found[VIEW] = (write_bag(self._world.store.states[0].rows),)
        return found

    def _row_y(self, index: int) -> float:
        return self._start + ROW * (index + 1)

    def draw_page(self, title: str) -> str:
        bottom = self._row_y(len(self._entries))
        self._draw.draw_text(24, 26, title, "title", limit=120)
        self._draw_crashes()
        self._draw_lifelines(bottom)
        self._draw_steps()
        self._draw_messages()
        for index, entry in enumerate(self._entries):
            self._draw_marks(index, entry)
        self._draw_legend(bottom + 34)
        return self._draw.render_page(self._wide, bottom + 64, STYLE, title)

    def _draw_crashes(self) -> None:
        for index, entry in enumerate(self._entries):
            if entry.what == "crash":
                top = self._row_y(index) - ROW / 2 + 2
                self._draw.draw_box(12, top, self._wide - 24, ROW - 4, "crash")

    def _draw_lifelines(self, bottom: float) -> None:
        for name, lane in self._lanes.items():
            high = 22 + 18 * len(lane.lines)
            self._draw.draw_line(lane.x, TOP - 12 + high, lane.x, bottom, "life", head=False)
            inner = [
                text_width(lane.title, 13),
                *(text_width(shorten_text(t, LIMIT)) for t in lane.lines),
            ]
            left = lane.x - max(inner) - 12 if lane.leftward else lane.x - 12
            self._draw.draw_box(left, TOP - 12, max(inner) + 24, high, "head")
            self._draw.draw_text(lane.x, TOP, lane.title, "head", end=lane.leftward)
            for number, text in enumerate(lane.lines):
                kind = "state" if name == VIEW else ""
                y = TOP + 18 * (number + 1)
                self._draw.draw_text(lane.x, y, text, kind, LIMIT, lane.leftward)

    def _draw_steps(self) -> None:
        """The steps, each beside the first thing that it did."""
        said = set[int]()
        for index, entry in enumerate(self._entries):
            if entry.step not in said:
                said.add(entry.step)
                text = self._world.trace.steps[entry.step - 1]
                self._draw.draw_text(24, self._row_y(index), text, "step", LIMIT)

    def _draw_messages(self) -> None:
        """An arrow for every message, from where it was sent to where it arrived."""
        for index, entry in enumerate(self._entries):
            match entry.what:
                case "commit":
                    for source in entry.sources:
                        self._draw_arrow(
                            "report", source, WAREHOUSE, index, self._find_report(index, source)
                        )
                case "ask" | "ask again":
                    (source,) = entry.sources
                    end = self._find_arrival(index, ("evaluate",), entry.number)
                    self._draw_arrow("question", WAREHOUSE, source, index, end)
                case "evaluate":
                    (source,) = entry.sources
                    end = self._find_arrival(index, ("answer", "ask again"), entry.number)
                    self._draw_arrow("answer", source, WAREHOUSE, index, end)
                case "store":
                    said = shorten_text(dict(_labels_of(entry))[WAREHOUSE], LIMIT)
                    here = self._lanes[WAREHOUSE].x + 16 + text_width(said)
                    y = self._row_y(index)
                    self._draw.draw_line(here, y, self._lanes[VIEW].x - 5, y, "store")

    def _draw_arrow(self, kind: str, start: str, goal: str, index: int, end: int | None) -> None:
        x1, x2, y1 = self._lanes[start].x, self._lanes[goal].x, self._row_y(index)
        if end is not None:
            # Up to the rim of the dot at the other end.
            self._draw.draw_line(x1, y1, x2 + (5 if x2 < x1 else 0), self._row_y(end), kind)
            return
        x, y = x1 + (x2 - x1) * 0.4, y1 + ROW * 0.8
        self._draw.draw_line(x1, y1, x, y, "lost", head=False)
        self._draw.draw_line(x - 5, y - 5, x + 5, y + 5, "lost", head=False)
        self._draw.draw_line(x - 5, y + 5, x + 5, y - 5, "lost", head=False)

    def _find_arrival(self, index: int, kinds: tuple[str, ...], number: int | None) -> int | None:
        """Where a question or an answer arrived; None if a crash came first."""
        for later in range(index + 1, len(self._entries)):
            entry = self._entries[later]
            if entry.what == "crash":
                return None
            if entry.what in kinds and entry.number == number:
                return later
        return None

    def _find_report(self, index: int, source: str) -> int | None:
        """The step in which the report of a commit arrived; crashes only delay it."""
        (name,) = self._entries[index].names
        for later in range(index + 1, len(self._entries)):
            entry = self._entries[later]
            if entry.what == "deliver" and name in entry.names and source in entry.sources:
                return later
        return None

    def _draw_marks(self, index: int, entry: TraceEntry) -> None:
        y = self._row_y(index)
        kinds = {"compensate": "fix", "crash": "crash", "answer": "told", "deliver": "told"}
        dots = {"commit": "report", "evaluate": "answer", "store": "store"}
        for name, text in _labels_of(entry):
            lane = self._lanes[name]
            if entry.what in dots:
                self._draw.draw_dot(lane.x, y, dots[entry.what])
            kind = "state" if name == VIEW else kinds.get(entry.what, "")
            x = lane.x - 10 if lane.leftward else lane.x + 10
            self._draw.draw_text(x, y, text, kind, LIMIT, lane.leftward)

    def _draw_legend(self, y: float) -> None:
        x = 24.0
        for kind, text in LEGEND:
            self._draw.draw_line(x, y, x + 34, y, kind)
            self._draw.draw_text(x + 42, y, text)
            x += 42 + text_width(text) + 28
        self._draw.draw_text(
            x, y, "orange: what compensation takes out of an answer or puts back", "fix"
        )


WAREHOUSE, VIEW, STEPS = "warehouse", "view", ""
LEGEND = (("report", "report"), ("question", "question"), ("answer", "answer"), ("store", "commit"))


def _labels_of(entry: TraceEntry) -> list[tuple[str, str]]:
    """What an entry says, and in which lane."""
    match entry.what:
        case "commit":
            return [
                (source, f"{entry.text}: {rows}")
                for source, rows in zip(entry.sources, entry.rows, strict=True)
            ]
        case "evaluate":
            return [(entry.sources[0], f"A{entry.number}: {entry.text}")]
        case "deliver":
            return [(WAREHOUSE, f"receives {entry.text}")]
        case "ask" | "ask again":
            again = " again" if entry.what == "ask again" else ""
            return [(WAREHOUSE, f"Q{entry.number}{again}: {entry.text}?")]
        case "answer":
            meanwhile = f", meanwhile {', '.join(entry.names)}" if entry.names else ""
            return [(WAREHOUSE, f"A{entry.number}{meanwhile}")]
        case "compensate":
            return [(WAREHOUSE, f"compensates {entry.text}")]
        case "store":
            done = "; ".join(entry.names) or "no change"
            return [(WAREHOUSE, f"commits {done}"), (VIEW, entry.rows[0])]
        case "crash":
            return [(WAREHOUSE, "crash, and a new beginning")]
