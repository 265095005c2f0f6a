"""Random small databases, views over them, and what they show: the judge of view synchronization.

Tables and columns are known here by identity, so that what a rewritten view should show can be said
without looking at names: a row is a mapping from a column's identity to its value. A view is
random text, with every way to name a column, every way to join, and comments anywhere. What a view
shows is computed by definition, over all combinations of rows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pyarrow as pa

from viewkeeper.delta.reference_carrier import evaluate_for_row
from viewkeeper.updates.source_protocol import CurrentNames
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.expression import Compare
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import ParsedView, parse_view

NAMES = ("a", "b", "c", "d", "Total", "order")
SPACE = (" ", "\n  ", " /* , ( AND */ ", " -- ' FROM\n")
Value = int | None


@dataclass(frozen=True)
class Table:
    """A table: its columns' names by identity, and its rows by the columns' identities."""

    id: int
    relation: Relation
    columns: Mapping[int, str]
    rows: tuple[Mapping[int, Value], ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, pa.int64()) for name in self.columns.values())

    def named(self) -> list[dict[str, Value]]:
        return [{name: row.get(id) for id, name in self.columns.items()} for row in self.rows]


@dataclass(frozen=True)
class World:
    """The tables of all sources, by identity."""

    tables: Mapping[int, Table]

    def schema(self, relation: Relation) -> tuple[Field, ...] | None:
        found = [table for table in self.tables.values() if table.relation == relation]
        return found[0].fields if found else None

    def became(self, now: World, relation: Relation) -> CurrentNames | None:
        """What a source would say of one of these tables, later."""
        table = self.called(relation)
        later = now.tables.get(table.id)
        if later is None:
            return None
        kept = {n: later.columns[i] for i, n in table.columns.items() if i in later.columns}
        return CurrentNames(later.relation.table, kept)

    def called(self, relation: Relation) -> Table:
        return next(t for t in self.tables.values() if t.relation == relation)

    def bind(self, text: str) -> ViewDefinition:
        def fields(relation: Relation) -> tuple[Field, ...]:
            found = self.schema(relation)
            assert found is not None, f"{relation} is not there"
            return found

        return bind_view(parse_view(text), fields)

    def types(self, parsed: ParsedView) -> dict[tuple[Relation, str], pa.DataType]:
        """The columns of a view's tables, as the engine knows them from binding."""
        return {(r, f.name): f.type for r in parsed.relations for f in self.called(r).fields}

    def show(self, text: str) -> Shows:
        """What a view shows, with counts."""
        view = self.bind(text)
        names = tuple(output.name for output in view.outputs)
        tests = [
            *view.predicates,
            *(Compare("<=>" if e.null_safe else "=", e.left, e.right) for e in view.equalities),
        ]
        rows: Counter[tuple[Value, ...]] = Counter()
        for combination in itertools.product(
            *(self.called(p.relation).named() for p in view.places)
        ):
            row = {f"{i}.{n}": v for i, each in enumerate(combination) for n, v in each.items()}
            if all(evaluate_for_row(test, row) is True for test in tests):
                rows[
                    tuple(evaluate_for_row(output.expression, row) for output in view.outputs)
                ] += 1
        return Shows(names, rows)


@dataclass(frozen=True)
class Shows:
    """The rows of a view."""

    names: tuple[str, ...]
    rows: Counter[tuple[Value, ...]]

    def only(self, names: tuple[str, ...]) -> Counter[tuple[Value, ...]]:
        """The rows on some columns, counts added up."""
        at = [self.names.index(name) for name in names]
        found: Counter[tuple[Value, ...]] = Counter()
        for row, count in self.rows.items():
            found[tuple(row[i] for i in at)] += count
        return found


def make_world(random: Random) -> World:
    """Two to four tables in two sources; columns of different tables share names."""
    tables = {}
    for id in range(random.randint(2, 4)):
        names = random.sample(NAMES, random.randint(2, 4))
        columns = {10 * id + number: name for number, name in enumerate(names)}
        relation = Relation(random.choice(("shop", "crm")), f"t{id}")
        tables[id] = Table(id, relation, columns, make_rows(random, columns))
    return World(tables)


def make_rows(random: Random, columns: Mapping[int, str]) -> tuple[dict[int, Value], ...]:
    """Few rows of few values, so that joins find something; the first column is a key."""
    return tuple(
        {
            id: key if number == 0 else random.choice((None, 0, 0, 1, 2))
            for number, id in enumerate(columns)
        }
        for key in range(random.randint(1, 4))
    )


@dataclass
class Draft:
    """A view in the making: the uses of tables so far, as aliases and columns."""

    random: Random
    world: World
    uses: list[tuple[str, Table, bool]] = field(default_factory=list)

    def reference(self, use: int, column: str, alone: bool) -> str:
        """A column by one of the names that it has; `alone` if no other table is seen."""
        alias, table, aliased = self.uses[use]
        forms = [f"{alias}.{quote(column)}"] * 2
        if not aliased:
            forms.append(f"{table.relation}.{quote(column)}")
        others = [t for i, (_, t, _) in enumerate(self.uses) if i != use]
        if alone or all(column not in t.columns.values() for t in others):
            forms += [quote(column)] * 2
        return self.random.choice(forms)

    def column(self, use: int) -> str:
        return self.random.choice(list(self.uses[use][1].columns.values()))

    def any_reference(self) -> str:
        use = self.random.randrange(len(self.uses))
        return self.reference(use, self.column(use), alone=False)

    def condition(self) -> str:
        one, other = self.any_reference(), self.any_reference()
        return self.random.choice(
            (
                f"{one} = 0",
                f"{one} < 2",
                f"( {one} = 1 OR {other} IS NULL )",
                f"{one} <> {other}",
                f"( {one} >= 0 AND ( {other} < 2 ) )",
                f"{one} BETWEEN 0 AND 1",
            )
        )


def quote(name: str) -> str:
    return f"`{name}`" if name == "order" else name


def make_view(random: Random, world: World) -> str:
    """The text of a view, not always one that can be bound."""
    draft = Draft(random, world)
    clauses = [make_table(draft)]
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        clauses.append(make_join(draft))
    items = ", ".join(make_items(draft))
    where = " AND ".join(draft.condition() for _ in range(random.choice((0, 0, 1, 2))))
    tail = f" WHERE {where}" if where else ""
    text = f"CREATE MATERIALIZED VIEW v AS SELECT {items} FROM {''.join(clauses)}{tail}"
    return scatter(random, text)


def make_table(draft: Draft) -> str:
    random = draft.random
    table = random.choice(list(draft.world.tables.values()))
    taken = any(alias == table.relation.table for alias, _, _ in draft.uses)
    if taken or random.random() < 0.5:
        alias = f"x{len(draft.uses)}"
        draft.uses.append((alias, table, True))
        return f"{table.relation} {random.choice(('AS ', ''))}{alias}"
    draft.uses.append((table.relation.table, table, False))
    return str(table.relation)


def make_join(draft: Draft) -> str:
    random = draft.random
    table = make_table(draft)
    mine, other = len(draft.uses) - 1, random.randrange(len(draft.uses) - 1)
    shared = [
        name
        for name in draft.uses[mine][1].columns.values()
        if sum(name in t.columns.values() for _, t, _ in draft.uses[:-1]) == 1
    ]
    kind = random.random()
    if kind < 0.3 and shared:
        return f" JOIN {table} USING ( {quote(random.choice(shared))} )"
    if kind < 0.4:
        return f" , {table}"
    left = draft.reference(other, draft.column(other), alone=False)
    right = draft.reference(mine, draft.column(mine), alone=False)
    more = f" AND {draft.condition()}" if random.random() < 0.3 else ""
    return f" {random.choice(('JOIN', 'INNER JOIN'))} {table} ON {left} = {right}{more}"


def make_items(draft: Draft) -> list[str]:
    random = draft.random
    star = random.random()
    items = []
    if star < 0.15:
        items.append("*")
    elif star < 0.35:
        items.append(f"{random.choice(draft.uses)[0]}.*")
    for number in range(random.randint(0 if items else 1, 3)):
        kind = random.random()
        if kind < 0.4 and not items:
            items.append(draft.any_reference())
        elif kind < 0.7:
            items.append(f"{draft.any_reference()} AS o{number}")
        else:
            items.append(f"{draft.any_reference()} + {draft.any_reference()} AS o{number}")
    return items


def scatter(random: Random, text: str) -> str:
    """The text with other blanks between its words, sometimes with comments."""
    if random.random() < 0.5:
        return text
    words = text.split(" ")
    spaces = [random.choice(SPACE) if random.random() < 0.3 else " " for _ in words[1:]]
    return words[0] + "".join(s + w for s, w in zip(spaces, words[1:], strict=True))


def renamed(random: Random, world: World) -> World:
    """The same tables under other names: fresh ones, exchanged ones, ones that others have."""
    tables = dict(world.tables)
    for id, table in world.tables.items():
        if random.random() < 0.4:
            name = random.choice((f"n{id}", f"old.t{id}", "select"))
            relation = Relation(table.relation.source, name)
            if all(t.relation != relation for t in tables.values()):
                tables[id] = replace(tables[id], relation=relation)
        tables[id] = replace(tables[id], columns=renamed_columns(random, table.columns))
    pairs = [p for p in itertools.combinations(tables.values(), 2) if same_source(*p)]
    if pairs and random.random() < 0.4:
        one, other = random.choice(pairs)
        tables[one.id] = replace(one, relation=other.relation)
        tables[other.id] = replace(other, relation=one.relation)
    return World(tables)


def same_source(one: Table, other: Table) -> bool:
    return one.relation.source == other.relation.source


def renamed_columns(random: Random, columns: Mapping[int, str]) -> dict[int, str]:
    found = dict(columns)
    for id in columns:
        if random.random() < 0.3:
            free = [n for n in (*NAMES, "e", "x y") if n not in found.values()]
            found[id] = random.choice(free)
    if len(found) > 1 and random.random() < 0.2:
        one, other = random.sample(list(found), 2)
        found[one], found[other] = found[other], found[one]
    return found


def grown(random: Random, world: World) -> World:
    """The same tables with more columns."""
    tables = dict(world.tables)
    for id, table in world.tables.items():
        free = [name for name in (*NAMES, "new") if name not in table.columns.values()]
        if random.random() < 0.4 and free:
            new = {10 * id + 9: random.choice(free)}
            rows = tuple({**row, 10 * id + 9: random.choice((None, 1))} for row in table.rows)
            tables[id] = replace(table, columns={**table.columns, **new}, rows=rows)
    return World(tables)


def without_columns(random: Random, world: World) -> World:
    """The same tables without some of their columns."""
    tables = {}
    for id, table in world.tables.items():
        left = [c for c in table.columns if random.random() > 0.3] or list(table.columns)[:1]
        tables[id] = replace(table, columns={c: table.columns[c] for c in left})
    return World(tables)
