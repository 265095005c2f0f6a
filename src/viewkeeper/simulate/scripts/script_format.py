"""Scripts: a scenario, an algorithm and its steps as a text that reads like a paper's example.

Tests are written in it and failures are printed in it; `read_script` is the inverse of `str`.

    # SWEEP, figure 5
    view SELECT r2.d, r3.f FROM x.r1 r1, y.r2 r2, z.r3 r3 WHERE r1.b = r2.c AND r2.d = r3.e
    table x.r1 (a, b)  (1,3) (2,3)
    table y.r2 (c, d)  (3,7)
    table z.r3 (e, f)  (5,6) (7,8)
    transaction T1  +y.r2(3,5)
    algorithm sweep
    run the first row of the table
      commit T1
      deliver y
      expect asked r1 (3)
      drain
      expect view (5,6)[2] (7,8)[2]

A line that is indented goes on with the statement before it, and # begins a comment. A column is an
integer or `name text`; a star marks those of the key. A transaction with parts at several sources
is global. `reporter T at x`: x reports it for all; `late T at x`: it is reported before it is
visible. `channels` are `fifo`, `cuts` (answers apart from reports, with positions) or `tails` (and
with the changes that the asker lacks). `steps NAME` names a group of lines that runs use by its
name. A run may have an algorithm of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from viewkeeper.check.history.recorded_history import CommittedTransaction
from viewkeeper.simulate.row_text import write_bag, write_row
from viewkeeper.simulate.scenario import AlgorithmSubject, Scenario, ScenarioTable, Step
from viewkeeper.view.definition import Relation

Words = Literal["view", "stored", "commits", "asked", "answered", "compensated", "lookups", "level"]


@dataclass(frozen=True, slots=True)
class Expect:
    """What must be true at this point of a run; `text` is what was written after `what`."""

    what: Words
    text: str

    def __str__(self) -> str:
        return f"expect {self.what} {self.text}"


@dataclass(frozen=True, slots=True)
class Drain:
    """Run to the end in a fixed order."""

    def __str__(self) -> str:
        return "drain"


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A step or an expectation, and where it is written."""

    what: Step | Drain | Expect
    number: int = 0


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """One way through a scenario: its title, who maintains the view, and what happens when."""

    title: str
    subject: AlgorithmSubject
    lines: tuple[ScriptLine, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A scenario and the runs through it."""

    scenario: Scenario
    runs: tuple[ScriptRun, ...]
    path: str | None = None

    def __str__(self) -> str:
        return "\n".join(
            [*_scenario_lines(self.scenario), *(t for r in self.runs for t in _run_lines(r))]
        )


def script_of(
    scenario: Scenario, subject: AlgorithmSubject, steps: Iterable[Step], title: str
) -> Script:
    """A run that was made, as a script."""
    lines = tuple(ScriptLine(step) for step in steps)
    return Script(scenario, (ScriptRun(title, subject, lines),))


def select_of(scenario: Scenario) -> str:
    """The view's SELECT in one line."""
    text = re.sub(r"\s+", " ", scenario.view.text.strip().rstrip(";"))
    return re.sub(r"(?i)^create (or replace )?materialized view \S+ as ", "", text)


def _scenario_lines(scenario: Scenario) -> list[str]:
    lines = [f"view {select_of(scenario)}"]
    lines += [_table_line(table) for table in scenario.tables]
    lines += [_transaction_line(transaction) for transaction in scenario.transactions]
    lines += [f"reporter {name} at {source}" for name, source in sorted(scenario.reporter.items())]
    lines += [f"late {name} at {source}" for source, name in sorted(scenario.late)]
    if not scenario.fifo:
        lines.append(f"channels {'tails' if scenario.tails else 'cuts'}")
    return lines


def _table_line(table: ScenarioTable) -> str:
    columns = [
        field.name
        + ("*" if field.name in table.key else "")
        + (" text" if field.type == pa.string() else "")
        for field in table.fields
    ]
    rows = f"  {write_bag(table.rows)}" if table.rows else ""
    return f"table {table.relation} ({', '.join(columns)}){rows}"


def _transaction_line(transaction: CommittedTransaction) -> str:
    changes = [
        _change_text(relation, row, count)
        for part in transaction.parts.values()
        for relation, rows in part.items()
        for row, count in rows
    ]
    return f"transaction {transaction.name}  {' '.join(changes)}"


def _change_text(relation: Relation, row: tuple[Any, ...], count: int) -> str:
    return " ".join([f"{'+' if count > 0 else '-'}{relation}{write_row(row)}"] * abs(count))


def _run_lines(run: ScriptRun) -> list[str]:
    return [f"run {run.title}", f"  algorithm {subject_text(run.subject)}"] + [
        f"  {line.what}" for line in run.lines
    ]


def subject_text(subject: AlgorithmSubject) -> str:
    return " ".join([subject.name, *(f"{k}={v}" for k, v in sorted(subject.options.items()))])


def read_options(words: Iterable[str]) -> Mapping[str, Any]:
    """Options from `key=value`; numbers and true or false are such, all else is text."""
    return dict(map(_read_option, words))


def _read_option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"expected key=value, not {text!r}")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    return key, int(value) if re.fullmatch(r"-?\d+", value) else value
