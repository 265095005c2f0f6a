"""The page *What SQL is incremental*, made from the table of constructs.

    python -m tests.sql.construct_page

writes the part of `docs/sql.md` between its two markers.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests.sql.construct_forms import Construct
from tests.sql.constructs import CONSTRUCTS
from tests.sql.refused_constructs import REFUSED

PAGE = Path(__file__).parent.parent.parent / "docs" / "sql.md"
BEGIN = "<!-- begin: made by `python -m tests.sql.construct_page` -->"
END = "<!-- end -->"


def write_tables() -> str:
    """The tables of all constructs, section by section."""
    parts = []
    for section, constructs in groupby(CONSTRUCTS, key=lambda each: each.section):
        rows = [_row_of(each.name, each.stored_words, _example_of(each)) for each in constructs]
        parts.append("\n".join([f"### {section}\n", *_head("stored besides the view"), *rows]))
    rows = [
        _row_of(each.name, _in_cell(each.way_out), f"`{_in_cell(each.text)}`") for each in REFUSED
    ]
    return "\n\n".join([*parts, "\n".join(["### Refused\n", *_head("way out"), *rows])])


def _row_of(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(middle: str) -> tuple[str, str]:
    return f"| construct | {middle} | example |", "| --- | --- | --- |"


def _example_of(construct: Construct) -> str:
    views = [f"`{name}` is `{_in_cell(text)}`" for name, text in construct.parents]
    return "; ".join([f"`{_in_cell(construct.text)}`", *views])


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")


def put_tables(page: str) -> str:
    """A page with the tables of now between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE} has lost its first marker"
    assert end, f"{PAGE} has lost its second marker"
    return f"{before}{begin}\n\n{write_tables()}\n\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(put_tables(PAGE.read_text()))
