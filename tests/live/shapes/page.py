"""The tables of `docs/evolution.md`: what each database does, made from the cases that tests run.

`python -m tests.live.shapes.page` writes it; a test checks that it is up to date.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.live.shapes.case import Case, Ending, Family, ReportKind
from tests.live.shapes.cases import CASES

PAGE = Path(__file__).parents[3] / "docs" / "evolution.md"
BEGIN, END = "<!-- shapes:begin -->", "<!-- shapes:end -->"
REPORTS_BEGIN, REPORTS_END = "<!-- reports:begin -->", "<!-- reports:end -->"
REPORT_TITLES: dict[ReportKind, str] = {
    "fold": "aggregates",
    "window": "window",
    "above": "aggregates of the plain view",
}


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


def report_table() -> str:
    """The lines about reports: where one ends otherwise than the plain view of the same table."""
    titles = ["change at the source", "plain view", *REPORT_TITLES.values()]
    lines = [titles, ["---"] * len(titles)]
    for case in CASES:
        if case.reports:
            kinds = [_WORDS[case.reports.get(kind, "exact")] for kind in REPORT_TITLES]
            lines.append([case.title, _WORDS["exact"], *kinds])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def inserted(page: str) -> str:
    """The page with the tables as they are now."""
    whole = _between(page, BEGIN, END, table())
    return _between(whole, REPORTS_BEGIN, REPORTS_END, report_table())


def _between(page: str, begin: str, end: str, text: str) -> str:
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
