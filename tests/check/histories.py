"""Histories for tests: random small ones, and a short way to write planted ones.

Random histories have one to three sources, a view with equalities, NULLs, duplicates and self-
joins, transactions that may be global, also with parts that two sources have in opposite orders.
Their states come from a random serial schedule, or are then spoiled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from tests.check.brute import Brute
from viewkeeper.check.history.recorded_history import (
    Bag,
    CommittedTransaction,
    RecordedHistory,
    Row,
    ShownState,
)
from viewkeeper.view.definition import Equality, Field, Output, Place, Relation, ViewDefinition
from viewkeeper.view.expression import Arithmetic, Column, Compare, Expression, Literal
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

FIELDS = (Field("a", pa.int64()), Field("b", pa.int64()))
Changes = tuple[tuple[Row, int], ...]


# -- planted histories -----------------------------------------------------------------------------


def planted(
    sql: str,
    tables: Mapping[str, tuple[str, list[Row]]],
    transactions: Mapping[str, Mapping[str, str]],
    states: list[ShownState],
) -> RecordedHistory:
    """A history of integers: tables as "a b" and rows, changes as {"x.r": "+1,2 -3,4"}."""
    relations = {Relation(*name.split(".")): given for name, given in tables.items()}
    fields = {
        relation: tuple(Field(name, pa.int64()) for name in columns.split())
        for relation, (columns, _) in relations.items()
    }
    parsed = parse_view(f"CREATE MATERIALIZED VIEW v AS {sql}")
    return RecordedHistory(
        bind_view(parsed, fields.__getitem__),
        fields,
        {relation: Counter(rows) for relation, (_, rows) in relations.items()},
        tuple(
            CommittedTransaction(name, _parts(changes)) for name, changes in transactions.items()
        ),
        tuple(states),
    )


def _parts(changes: Mapping[str, str]) -> dict[str, dict[Relation, Changes]]:
    parts: dict[str, dict[Relation, Changes]] = {}
    for name, text in changes.items():
        relation = Relation(*name.split("."))
        rows = tuple((row(word[1:]), 1 if word[0] == "+" else -1) for word in text.split())
        parts.setdefault(relation.source, {})[relation] = rows
    return parts


def row(text: str) -> Row:
    return tuple(int(value) for value in text.split(","))


def shown(text: str = "", **given: object) -> ShownState:
    """A state with these rows: "1,2 3,4"."""
    state = ShownState(Counter(row(word) for word in text.split()))
    return replace(state, **given)  # type: ignore[arg-type]  # tests name the fields right


# -- random histories ------------------------------------------------------------------------------


def random_history(rng: random.Random, spoil: bool = True) -> RecordedHistory:
    """A history, entirely determined by the generator; not spoiled, it shows every state."""
    sources = ["x", "y", "z"][: rng.randint(1, 3)]
    relations = [Relation(source, "r") for source in sources]
    initial = {r: Counter(_row(rng) for _ in range(rng.randint(1, 4))) for r in relations}
    base = RecordedHistory(
        _view(rng, relations),
        dict.fromkeys(relations, FIELDS),
        initial,
        _transactions(rng, initial),
        (),
    )
    states = _full(rng, base)
    return replace(base, states=tuple(_spoiled(rng, base, states) if spoil else states))


def random_orders(rng: random.Random) -> RecordedHistory:
    """A history of empty transactions, most of them global, in any orders at their sources."""
    history = random_history(rng)
    names = [f"T{number}" for number in range(rng.randint(1, 7))]
    parts = [(n, s) for n in names for s in rng.sample("vwxyz", rng.randint(1, 2))]
    rng.shuffle(parts)
    return replace(history, transactions=tuple(CommittedTransaction(n, {s: {}}) for n, s in parts))


def _row(rng: random.Random) -> Row:
    return tuple(None if rng.random() < 0.1 else rng.randint(0, 1) for _ in FIELDS)


def _view(rng: random.Random, relations: list[Relation]) -> ViewDefinition:
    used = relations + ([rng.choice(relations)] if rng.random() < 0.2 else [])
    places = tuple(Place(i, f"p{i}", relation, FIELDS) for i, relation in enumerate(used))

    def column(place: int) -> Column:
        return Column(place, rng.choice("ab"), pa.int64())

    equalities = tuple(
        Equality(column(rng.randrange(i)), column(i), rng.random() < 0.3)
        for i in range(1, len(places))
        if rng.random() < 0.7
    )
    one = Literal(1, pa.int64())
    predicates = list[Expression]()
    if rng.random() < 0.2:
        predicates.append(Compare(rng.choice(["<", ">=", "<>"]), column(0), one))
    if rng.random() < 0.2:
        predicates.append(Compare("<=", column(0), column(len(places) - 1)))
    outputs = [Output(f"o{i}", column(rng.randrange(len(places)))) for i in range(2)]
    if rng.random() < 0.3:
        outputs.append(Output("sum", Arithmetic("+", column(0), one, pa.int64())))
    return ViewDefinition("v", places, equalities, tuple(predicates), tuple(outputs), "", "")


def _transactions(
    rng: random.Random, initial: Mapping[Relation, Counter[Row]]
) -> tuple[CommittedTransaction, ...]:
    rows = {relation: Counter(bag) for relation, bag in initial.items()}
    result = list[CommittedTransaction]()
    late = list[tuple[str, Relation]]()
    for number in range(rng.randint(0, 6)):
        chosen = rng.sample(list(rows), rng.choice([1, min(2, len(rows))]))
        name = f"T{number + 1}"
        if len(chosen) > 1 and rng.random() < 0.4:
            late.append((name, chosen.pop()))
        parts = {r.source: {r: _changes(rng, rows[r])} for r in chosen}
        result.append(CommittedTransaction(name, parts))
        if late and rng.random() < 0.5:
            result.append(_late(rng, rows, late.pop(0)))
    return (*result, *(_late(rng, rows, part) for part in late))


def _late(
    rng: random.Random, rows: Mapping[Relation, Counter[Row]], part: tuple[str, Relation]
) -> CommittedTransaction:
    name, relation = part
    return CommittedTransaction(name, {relation.source: {relation: _changes(rng, rows[relation])}})


def _changes(rng: random.Random, rows: Counter[Row]) -> Changes:
    changes = list[tuple[Row, int]]()
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2])):
        present = sorted(rows.elements(), key=repr)
        remove = present and rng.random() < 0.5
        change = (rng.choice(present), -1) if remove else (_row(rng), 1)
        rows[change[0]] += change[1]
        changes.append(change)
    return tuple(changes)


# -- states ----------------------------------------------------------------------------------------


def _full(rng: random.Random, history: RecordedHistory) -> list[ShownState]:
    """Every state along one serial schedule, with right claims, each now and then twice."""
    brute = Brute(history)
    schedule = rng.choice(list(brute.schedules()))
    claimed = rng.random() < 0.5
    states = []
    for vector in brute.vectors(schedule):
        state = ShownState(dict(brute.view(vector)), vector if claimed else None)
        states += [state] * (2 if rng.random() < 0.1 else 1)
    return states


def _spoiled(
    rng: random.Random, history: RecordedHistory, states: list[ShownState]
) -> list[ShownState]:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(states))
        other = rng.randrange(len(states))
        match rng.randrange(9):
            case 0:
                states[at] = replace(states[at], rows=_other_rows(rng, states[at].rows))
            case 1:
                states[at], states[other] = states[other], states[at]
            case 2 | 6 | 7 if len(states) > 1:
                del states[at]
            case 3:
                states[at] = _anywhere(rng, history)
            case 4:
                states[at] = replace(states[at], claim=_vector(rng, history))
            case 5:
                states[at] = replace(states[at], quiet=True)
            case _:
                states.insert(at, _anywhere(rng, history))
    return states


def _other_rows(rng: random.Random, rows: Bag) -> Bag:
    changed = Counter(dict(rows))
    if changed and rng.random() < 0.5:
        changed[rng.choice(sorted(changed, key=repr))] += rng.choice([1, -1])
    else:
        width = len(next(iter(rows), (0, 0)))
        changed[tuple(rng.randint(0, 2) for _ in range(width))] += 1
    return {row: count for row, count in changed.items() if count}


def _vector(rng: random.Random, history: RecordedHistory) -> dict[str, int]:
    return {source: rng.randint(0, n) for source, n in Brute(history).final.items()}


def _anywhere(rng: random.Random, history: RecordedHistory) -> ShownState:
    """The view over any vector, atomic or not."""
    return ShownState(dict(Brute(history).view(_vector(rng, history))))
