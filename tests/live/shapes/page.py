"""The table of `docs/evolution.md`: what each database does, made from the cases that tests run.

`python -m tests.live.shapes.page` writes it; a test checks that it is up to date.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.live.shapes.case import Case, Ending, Family
from tests.live.shapes.cases import CASES

PAGE = Path(__file__).parents[3] / "docs" / "evolution.md"
BEGIN, END = "<!-- shapes:begin -->", "<!-- shapes:end -->"


@dataclass(frozen=True, slots=True)
class Variant:
    """A database, and the way it is followed."""

    title: str
    family: Family


VARIANTS = {
    "sqlite": Variant("SQLite", "sqlite"),
    "postgres": Variant("PostgreSQL", "postgres"),
    "postgres-plain": Variant("PostgreSQL without event triggers", "postgres"),
    "postgres-triggers": Variant("PostgreSQL, `capture: triggers`", "postgres"),
    "mariadb": Variant("MariaDB", "mariadb"),
}

_WORDS: dict[Ending, str] = {
    "exact": "exact",
    "stops": "stops",
    "refused": "refused",
    "none": "-",
}


def table() -> str:
    """The lines between the markers."""
    titles = ["change at the source", *(variant.title for variant in VARIANTS.values())]
    lines = [titles, ["---"] * len(titles), *(_line(case) for case in CASES)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _line(case: Case) -> list[str]:
    title = f"{case.title} ({case.note})" if case.note else case.title
    endings = (case.ending(name, variant.family) for name, variant in VARIANTS.items())
    return [title, *(_WORDS[ending] for ending in endings)]


def inserted(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
