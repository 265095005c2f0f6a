"""Reading scripts: text in, a `Script` out, and every error says in which line it is.

The language is described in `viewkeeper.simulate.scripts.script_format`. A statement is a line and
the indented lines below it. Statements about the scenario come in any order; names must be known
where they are used, so that a slip of the pen is an error and not a step that never happens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import get_args

import pyarrow as pa

from viewkeeper.check.history.recorded_history import CommittedTransaction, Row
from viewkeeper.errors import SimulationError, ViewkeeperError
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.simulate.row_text import read_bag, take_row
from viewkeeper.simulate.scenario import (
    AlgorithmSubject,
    CommitStep,
    CrashStep,
    RevealStep,
    Scenario,
    ScenarioTable,
    read_step,
)
from viewkeeper.simulate.scripts.script_format import (
    Drain,
    Expect,
    Script,
    ScriptLine,
    ScriptRun,
    Words,
    read_options,
)
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

Part = dict[Relation, list[tuple[Row, int]]]

_TABLE = re.compile(r"(\w+)\.(\w+)\s*\(([^)]*)\)\s*(.*)")
_COLUMN = re.compile(r"(\w+)(\*?)(\s+text)?")
_CHANGE = re.compile(r"\s*([+-])(\w+)\.(\w+)")
_COMMENT = re.compile(r"^((?:[^'#]|'[^']*')*)#.*")
_AT = re.compile(r"(\S+) at (\S+)")


@dataclass(frozen=True, slots=True)
class _Statement:
    """A line without its comment, and the indented lines below it, with their numbers."""

    number: int
    word: str
    text: str
    body: tuple[tuple[int, str], ...]

    @property
    def whole_text(self) -> str:
        return " ".join([self.text, *(text for _, text in self.body)]).strip()


@dataclass(slots=True)
class _ScriptReader:
    """What was read so far."""

    path: str | None
    select: _Statement | None = None
    tables: dict[Relation, ScenarioTable] = field(default_factory=dict)
    transactions: list[CommittedTransaction] = field(default_factory=list)
    channels: str = "fifo"
    reporter: dict[str, str] = field(default_factory=dict)
    late: set[tuple[str, str]] = field(default_factory=set)
    subject: AlgorithmSubject | None = None
    groups: dict[str, tuple[ScriptLine, ...]] = field(default_factory=dict)
    runs: list[ScriptRun] = field(default_factory=list)

    def error_at(self, number: int, message: str, hint: str | None = None) -> SimulationError:
        where = f"{self.path or 'script'}:{number}"
        return SimulationError(f"{where}: {message}", hint=hint)

    def take_statement(self, statement: _Statement) -> None:
        readers: dict[str, Callable[[_Statement], None]] = {
            "view": self._read_view,
            "table": self._read_table,
            "transaction": self._read_transaction,
            "channels": self._read_channels,
            "reporter": self._read_reporter,
            "late": self._read_late,
            "algorithm": self._read_algorithm,
            "steps": self._read_steps,
            "run": self._read_run,
        }
        reader = readers.get(statement.word)
        if reader is None:
            known = ", ".join(readers)
            raise self.error_at(
                statement.number, f'"{statement.word[:100]}" begins no statement', known
            )
        try:
            reader(statement)
        except ValueError as wrong:
            raise self.error_at(statement.number, str(wrong)) from wrong

    def _read_view(self, statement: _Statement) -> None:
        self.select = statement

    def _read_table(self, statement: _Statement) -> None:
        found = _TABLE.fullmatch(statement.whole_text)
        if found is None:
            raise ValueError("expected: table source.name (column, ...) (1,2) ...")
        source, name, columns, rows = found.groups()
        fields, key = [], []
        for text in columns.split(","):
            column = _COLUMN.fullmatch(text.strip())
            if column is None:
                raise ValueError(f"expected a column like a, a* or a text, not {text.strip()!r}")
            fields.append(Field(column[1], pa.string() if column[3] else pa.int64()))
            key += [column[1]] if column[2] else []
        relation = Relation(source, name)
        bag = read_bag(rows)
        self.tables[relation] = ScenarioTable(relation, tuple(fields), tuple(key), bag)
        for row, count in bag.items():
            self._check_row(relation, row)
            if count < 1:
                raise ValueError(f"a table has no row {count} times")

    def _check_row(self, relation: Relation, row: Row) -> None:
        fields = self.tables[relation].fields
        kinds = [str if f.type == pa.string() else int for f in fields]
        if len(row) != len(fields) or not all(
            v is None or (isinstance(v, kind) and not (isinstance(v, int) and abs(v) >= 2**63))
            for v, kind in zip(row, kinds, strict=True)
        ):
            told = ", ".join(f.name for f in fields)
            raise ValueError(f"{row} is no row of {relation} ({told})")

    def _read_transaction(self, statement: _Statement) -> None:
        name, _, rest = statement.whole_text.partition(" ")
        if name in {t.name for t in self.transactions}:
            raise ValueError(f"there are two transactions {name}")
        parts: dict[str, Part] = {}
        while rest.strip():
            found = _CHANGE.match(rest)
            if found is None:
                raise ValueError(f"expected +source.table(...) or -source.table(...) at: {rest}")
            relation = self._known_relation(Relation(found[2], found[3]))
            row, rest = take_row(rest[found.end() :])
            self._check_row(relation, row)
            change = (row, 1 if found[1] == "+" else -1)
            parts.setdefault(relation.source, {}).setdefault(relation, []).append(change)
        if not parts:
            raise ValueError(f"transaction {name} changes nothing")
        frozen = {s: {r: tuple(rows) for r, rows in part.items()} for s, part in parts.items()}
        self.transactions.append(CommittedTransaction(name, frozen))

    def _known_relation(self, relation: Relation) -> Relation:
        if relation not in self.tables:
            raise ValueError(f"there is no table {relation}")
        return relation

    def _read_channels(self, statement: _Statement) -> None:
        if statement.text not in ("fifo", "cuts", "tails"):
            raise ValueError("channels are fifo, cuts or tails")
        self.channels = statement.text

    def _read_reporter(self, statement: _Statement) -> None:
        name, source = self._read_part(statement)
        self.reporter[name] = source

    def _read_late(self, statement: _Statement) -> None:
        name, source = self._read_part(statement)
        self.late.add((source, name))

    def _read_part(self, statement: _Statement) -> tuple[str, str]:
        found = _AT.fullmatch(statement.whole_text)
        if found is None:
            raise ValueError(f"expected: {statement.word} TRANSACTION at SOURCE")
        part = {t.name: t.parts for t in self.transactions}.get(found[1], {})
        if found[2] not in part:
            raise ValueError(f"{found[1]} is no transaction at source {found[2]}")
        return found[1], found[2]

    def _read_algorithm(self, statement: _Statement) -> None:
        self.subject = _read_subject(statement.whole_text)

    def _read_steps(self, statement: _Statement) -> None:
        if not re.fullmatch(r"\w+", statement.text):
            raise ValueError("expected: steps NAME")
        lines = [line for number, text in statement.body for line in self._read_lines(number, text)]
        self.groups[statement.text] = tuple(lines)

    def _read_run(self, statement: _Statement) -> None:
        subject, lines = self.subject, list[ScriptLine]()
        for number, text in statement.body:
            if text.startswith("algorithm "):
                subject = _read_subject(text.removeprefix("algorithm "))
            else:
                lines += self._read_lines(number, text)
        if subject is None:
            raise ValueError("who maintains the view? algorithm NAME, here or before")
        self.runs.append(ScriptRun(statement.text, subject, tuple(lines)))

    def _read_lines(self, number: int, text: str) -> Iterator[ScriptLine]:
        if text in self.groups:
            yield from self.groups[text]
        elif text == "drain":
            yield ScriptLine(Drain(), number)
        elif text.startswith("expect "):
            yield ScriptLine(self._read_expect(number, text), number)
        else:
            yield self._read_step_line(number, text)

    def _read_expect(self, number: int, text: str) -> Expect:
        _, word, rest = [*text.split(maxsplit=2), "", ""][:3]
        for known in get_args(Words):
            if word == known:
                return Expect(known, rest)
        raise self.error_at(
            number, f'nothing called "{word}" can be expected', str(get_args(Words))
        )

    def _read_step_line(self, number: int, text: str) -> ScriptLine:
        try:
            step = read_step(text)
        except ValueError as wrong:
            groups = f"; the groups are {', '.join(self.groups)}" if self.groups else ""
            raise self.error_at(number, str(wrong) + groups) from wrong
        names = {t.name for t in self.transactions}
        if isinstance(step, CommitStep | RevealStep) and step.transaction not in names:
            raise self.error_at(number, f"there is no transaction {step.transaction}")
        sources = {relation.source for relation in self.tables}
        if not isinstance(step, CommitStep | CrashStep) and step.source not in sources:
            raise self.error_at(number, f"there is no source {step.source}")
        return ScriptLine(step, number)

    def build_script(self) -> Script:
        if self.select is None:
            raise self.error_at(1, "no view; begin with: view SELECT ...")
        scenario = Scenario(
            self._bind_view(self.select),
            tuple(self.tables.values()),
            tuple(self.transactions),
            fifo=self.channels == "fifo",
            tails=self.channels == "tails",
            reporter=self.reporter,
            late=frozenset(self.late),
        )
        return Script(scenario, tuple(self.runs), self.path)

    def _bind_view(self, select: _Statement) -> ViewDefinition:
        def fields(relation: Relation) -> tuple[Field, ...]:
            return self.tables[self._known_relation(relation)].fields

        try:
            text = f"CREATE MATERIALIZED VIEW v AS {select.whole_text}"
            return bind_view(parse_view(text, None), fields)
        except (ValueError, ViewkeeperError) as wrong:
            raise self.error_at(select.number, str(wrong)) from wrong


def _read_subject(text: str) -> AlgorithmSubject:
    name, *options = text.split()
    if name not in KINDS:
        raise ValueError(f'there is no algorithm "{name}"; there are {", ".join(KINDS)}')
    return AlgorithmSubject(name, read_options(options))


def read_script(text: str, path: str | None = None) -> Script:
    """A script from its text; a SimulationError names the line of what is wrong."""
    reader = _ScriptReader(path)
    for statement in _split_statements(text, reader):
        reader.take_statement(statement)
    return reader.build_script()


def _split_statements(text: str, reader: _ScriptReader) -> Iterator[_Statement]:
    head: tuple[int, str, str] | None = None
    body: list[tuple[int, str]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub(r"\1", raw).rstrip()
        if not line:
            continue
        if line[0].isspace():
            if head is None:
                raise reader.error_at(number, "an indented line needs a statement above it")
            body.append((number, line.strip()))
            continue
        if head is not None:
            yield _Statement(*head, tuple(body))
        word, _, rest = line.partition(" ")
        head, body = (number, word, rest.strip()), []
    if head is not None:
        yield _Statement(*head, tuple(body))
