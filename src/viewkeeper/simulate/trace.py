"""What happened in a run, in order: the raw material of the sequence diagram and of spec tests.

A trace belongs to one run. Each entry says under which step it happened, who took part, and what
was said, in the words of the papers: transactions by name, questions by number, rows as tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from viewkeeper.check.history import Row
from viewkeeper.maintain.protocol import Ask, Commit
from viewkeeper.updates.protocol import Answer

What = Literal["commit", "deliver", "ask", "ask again", "evaluate", "answer", "store", "crash"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened; `number` is the question's, `sources` those concerned."""

    step: int
    text: str
    what: What
    sources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    number: int | None = None
    rows: tuple[str, ...] = ()


class Trace:
    """Entries as they happen."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.steps: list[str] = []

    def begin(self, step: str) -> None:
        self.steps.append(step)

    def _add(self, what: What, text: str, **facts: object) -> None:
        self.entries.append(Entry(len(self.steps), text, what, **facts))  # type: ignore[arg-type]  # the facts are Entry's own fields

    def committed(self, name: str, parts: Mapping[str, int]) -> None:
        self._add("commit", name, sources=tuple(parts), names=(name,))

    def delivered(self, names: Iterable[str], sources: Sequence[str]) -> None:
        told = tuple(names)
        self._add("deliver", ", ".join(told), sources=tuple(sources), names=told)

    def asked(self, ask: Ask) -> None:
        self._add("ask", question(ask), sources=(ask.source,), number=ask.number)

    def asked_again(self, ask: Ask) -> None:
        self._add("ask again", question(ask), sources=(ask.source,), number=ask.number)

    def evaluated(self, ask: Ask, answers: Sequence[Answer]) -> None:
        rows = tuple(row for answer in answers for row in shown(answer.rows))
        self._add("evaluate", f"A{ask.number}", sources=(ask.source,), number=ask.number, rows=rows)

    def answered(self, ask: Ask) -> None:
        self._add("answer", f"A{ask.number}", sources=(ask.source,), number=ask.number)

    def stored(self, commit: Commit, rows: Mapping[Row, int]) -> None:
        told = tuple(
            f"{_tuple(row)}" + (f"[{count}]" if count != 1 else "") for row, count in rows.items()
        )
        self._add("store", f"ts {commit.ts}", rows=told)

    def crashed(self) -> None:
        self._add("crash", "crash")


def question(ask: Ask) -> str:
    """A question in a few words: what of whom, for which keys."""
    if ask.terms:
        return f"Q{ask.number}: {len(ask.terms)} terms"
    told = []
    for lookup in ask.lookups:
        keys = "all" if lookup.keys is None else " ".join(shown(lookup.keys))
        told.append(f"{lookup.relation.table}? {keys}")
    return f"Q{ask.number}: " + "; ".join(told)


def shown(table: pa.Table) -> tuple[str, ...]:
    """Rows as the papers write them."""
    return tuple(_tuple(tuple(row.values())) for row in table.to_pylist())


def _tuple(row: Row) -> str:
    return "(" + ",".join("-" if value is None else str(value) for value in row) + ")"
