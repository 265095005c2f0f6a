"""Random plans, as Spark's plan is read, beside SQL that SQLite knows: reports without Spark.

A plan is written operator by operator together with a text that means the same. The plan goes to
the compiler at the point at which what Spark says has been read, so that everything of ours from
there on takes part: drafts, graphs, stages, state. Its meaning comes from the text, by SQLite.

Columns are numbers, texts and truth values; every column of a plan has a name of its own, so that
the text needs no qualifiers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tests.sql.plan_terms import (
    ARROW,
    INT,
    LONG,
    RANGE_SO_FAR,
    ROWS_AROUND,
    ROWS_SO_FAR,
    TEXT,
    TRUTH,
    OverWords,
    Term,
    call_aggregate,
    compare_terms,
    distinct_rows,
    join_conditions,
    negate_condition,
    number_of,
    operation_of,
    quote_value,
    term_of,
)
from tests.sql.random_history import RANDOM_TABLES
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft
from viewkeeper.engine.compile.drafts.operator_graph import build_graph
from viewkeeper.engine.compile.expressions.expression_translation import Translator
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    PlanAggregate,
    PlanBagOperation,
    PlanBeside,
    PlanConstant,
    PlanExpand,
    PlanExpression,
    PlanFilter,
    PlanItem,
    PlanJoin,
    PlanLeaf,
    PlanLimit,
    PlanLiteral,
    PlanOperation,
    PlanOperator,
    PlanProject,
    PlanScalar,
    PlanSortKey,
    PlanUnion,
    PlanWindow,
)
from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.view.definition import PROJECT, Graph, Relation
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable

TABLES = {
    shape.relation: [
        (at, {pa.int64(): LONG, pa.string(): TEXT}[kind])
        for at, (_, kind) in enumerate(shape.columns.values())
        if kind in ARROW.values()
    ]
    for shape in RANDOM_TABLES
}
"""The ordinals and types of the columns that are read of each relation."""
NAMES = {shape.relation: [*shape.columns] for shape in RANDOM_TABLES}
SIDES = {"LEFT": "LeftOuter", "RIGHT": "RightOuter", "FULL": "FullOuter", "INNER": "Inner"}


@dataclass(frozen=True, slots=True)
class RandomQuery:
    """An operator, and a SELECT with the same rows, whose columns are called as the plan's are."""

    plan: PlanOperator
    text: str

    @property
    def columns(self) -> tuple[Attribute, ...]:
        return self.plan.output


@dataclass(frozen=True, slots=True)
class RandomReport:
    """A view: its query, and the relations that the leaves of its plan read."""

    query: RandomQuery
    leaves: tuple[Relation, ...]

    @property
    def text(self) -> str:
        """What the view's file says: which relations it reads. The plan says the rest, and a short
        text is read quickly."""
        names = [f"{leaf} t{number}" for number, leaf in enumerate(self.leaves)]
        return f"SELECT count(*) AS {self.query.columns[0].name} FROM {', '.join(names)}"

    def compile_graph(self, tables: Sequence[DefinitionTable]) -> Graph:
        """The graph of the plan over tables as they are."""
        known = {Relation(table.source, table.table): table for table in tables}
        read = [
            QueryTable(leaf, known[leaf].fields, known[leaf].unique_keys) for leaf in self.leaves
        ]
        # A plan that needs Spark to be translated fails here, for there is none.
        translator = Translator(None, {})  # type: ignore[arg-type]  # there is no session
        names = [column.name for column in self.query.columns]
        return build_graph(GraphDraft(read, translator), self.query.plan, names)


class PlanWriter:
    """Writes the reports of one case; later ones read earlier ones."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = 0
        self._leaves: list[Relation] = []
        self._views: dict[str, tuple[Attribute, ...]] = {}
        self._operators: Mapping[Callable[[int], RandomQuery], int] = {
            self._filtered: 3,
            self._projected: 2,
            self._joined: 8,
            self._matched: 5,
            self._united: 2,
            self._compared: 3,
            self._aggregated: 6,
            self._windowed: 4,
            self._limited: 1,
            self._beside_scalar: 3,
            self._rolled_up: 1,
        }

    def write_case(self, count: int) -> dict[str, RandomReport]:
        """So many reports, by their names."""
        found = {}
        for number in range(count):
            self._leaves = []
            query = self._query(self._rng.choice((1, 2, 2, 3)))
            name = f"v{number}"
            found[name] = RandomReport(query, tuple(self._leaves))
            self._views[name] = query.columns
        return found

    # -- columns and terms ---------------------------------------------------------------------

    def _column(self, type_text: str) -> Attribute:
        self._next += 1
        return Attribute(self._next, type_text, f"c{self._next}")

    def _alias(self) -> str:
        self._next += 1
        return f"q{self._next}"

    def _pick(self, columns: Sequence[Attribute], kind: str | None = None) -> Term | None:
        """One of the columns, of this type or of any that can be compared."""
        fitting = [c for c in columns if (c.type == kind if kind else c.type in (LONG, TEXT))]
        return term_of(self._rng.choice(fitting)) if fitting else None

    def _literal(self, kind: str) -> Term:
        if kind == TEXT:
            value = self._rng.choice(("u", "v", "", "U"))
            return Term(PlanLiteral(value, TEXT), f"'{value}'", TEXT)
        value = str(self._rng.choice((0, 1, 2, 3)))
        return Term(PlanLiteral(value, kind), value, kind)

    def _condition(self, columns: Sequence[Attribute], others: Sequence[Attribute] = ()) -> Term:
        """A condition over the columns, or between them and the others."""
        flags = [term_of(column) for column in columns if column.type == TRUTH]
        share = self._rng.random()
        if flags and share < 0.6:
            plain = self._comparison(columns, others)
            return self._rng.choice(
                (flags[0], join_conditions("Or", flags[0], plain), negate_condition(flags[0]))
            )
        if share < 0.15 and (term := self._pick(columns)) is not None:
            missing = operation_of("IsNull", TRUTH, term.plan)
            return Term(missing, f"{term.text} IS NULL", TRUTH)
        if share < 0.4:
            kind = self._rng.choice(("And", "Or"))
            return join_conditions(kind, *(self._comparison(columns, others) for _ in range(2)))
        return self._comparison(columns, others)

    def _comparison(self, columns: Sequence[Attribute], others: Sequence[Attribute]) -> Term:
        term = self._pick(columns) or term_of(columns[0])
        word = self._rng.choice(("=", "=", "<", ">=", ">", "IS NOT DISTINCT FROM"))
        if term.type == TRUTH:
            return negate_condition(term)
        other = self._pick(others, term.type) if others else None
        if other is None and self._rng.random() < 0.3:
            other = self._pick(columns, term.type)
        found = compare_terms(word, term, other or self._literal(term.type))
        return negate_condition(found) if self._rng.random() < 0.2 else found

    def _value(self, columns: Sequence[Attribute]) -> Term:
        """A value that a projection computes."""
        number = self._pick(columns, LONG)
        if number is None or self._rng.random() < 0.4:
            return self._pick(columns) or term_of(columns[0])
        other = self._pick(columns, LONG) or number
        match self._rng.randrange(3):
            case 0:
                kind, sign = self._rng.choice((("Add", "+"), ("Subtract", "-")))
                made = operation_of(kind, LONG, number.plan, other.plan)
                return Term(made, f"({number.text} {sign} {other.text})", LONG)
            case 1:
                zero = self._literal(LONG)
                made = operation_of("Coalesce", LONG, number.plan, zero.plan)
                return Term(made, f"coalesce({number.text}, {zero.text})", LONG)
        when, zero = self._condition(columns), self._literal(LONG)
        made = operation_of("CaseWhen", LONG, when.plan, number.plan, zero.plan)
        text = f"CASE WHEN {when.text} THEN {number.text} ELSE {zero.text} END"
        return Term(made, text, LONG)

    # -- operators -----------------------------------------------------------------------------

    def _query(self, depth: int) -> RandomQuery:
        if depth <= 0:
            return self._leaf()
        [write] = self._rng.choices([*self._operators], [*self._operators.values()])
        return write(depth - 1)

    def _leaf(self) -> RandomQuery:
        if self._rng.random() < 0.06:
            return self._constant()
        if self._views and self._rng.random() < 0.25:
            name = self._rng.choice([*self._views])
            known = [(at, c.type) for at, c in enumerate(self._views[name])]
            names, relation = [c.name for c in self._views[name]], Relation(PROJECT, name)
        else:
            name = self._rng.choice([*TABLES])
            known, names, relation = TABLES[name], NAMES[name], Relation(*name.split("."))
        chosen = known if self._rng.random() < 0.6 else known[:2]
        columns = tuple(self._column(kind) for _, kind in chosen)
        alias = self._alias()
        shown = ", ".join(
            f"{alias}.{names[at]} AS {column.name}"
            for (at, _), column in zip(chosen, columns, strict=True)
        )
        self._leaves.append(relation)
        plan = PlanLeaf(len(self._leaves) - 1, columns, tuple(at for at, _ in chosen))
        return RandomQuery(plan, f"SELECT {shown} FROM {name} {alias}")

    def _constant(self) -> RandomQuery:
        """Rows of the text itself, beside a table, since a view reads at least one."""
        columns = (self._column(LONG), self._column(TEXT))
        rows = ((1, "u"), (2, None), (None, "v"))[: self._rng.randint(1, 3)]
        texts = [
            "SELECT "
            + ", ".join(f"{quote_value(v)} AS {c.name}" for v, c in zip(r, columns, strict=True))
            for r in rows
        ]
        types = (ARROW[LONG], ARROW[TEXT])
        plan = PlanConstant(columns, types, rows)
        left = self._table_leaf()
        right = RandomQuery(plan, " UNION ALL ".join(texts))
        return self._join(left, right, "INNER")

    def _table_leaf(self) -> RandomQuery:
        columns = (self._column(LONG), self._column(LONG))
        alias = self._alias()
        shown = f"{alias}.customer AS {columns[0].name}, {alias}.level AS {columns[1].name}"
        self._leaves.append(Relation("shop", "visits"))
        plan = PlanLeaf(len(self._leaves) - 1, columns, (0, 1))
        return RandomQuery(plan, f"SELECT {shown} FROM shop.visits {alias}")

    def _filtered(self, depth: int) -> RandomQuery:
        below = self._query(depth)
        condition = self._condition(below.columns)
        text = f"SELECT * FROM {self._from(below)} WHERE {condition.text}"
        return RandomQuery(PlanFilter(below.plan, condition.plan), text)

    def _projected(self, depth: int) -> RandomQuery:
        below = self._query(depth)
        values = [self._value(below.columns) for _ in range(self._rng.randint(1, 3))]
        items = [PlanItem(self._column(value.type), value.plan) for value in values]
        shown = [f"{v.text} AS {i.attribute.name}" for v, i in zip(values, items, strict=True)]
        text = f"SELECT {', '.join(shown)} FROM {self._from(below)}"
        return RandomQuery(PlanProject(below.plan, tuple(items)), text)

    def _from(self, query: RandomQuery) -> str:
        return f"({query.text}) {self._alias()}"

    def _joined(self, depth: int) -> RandomQuery:
        left, right = self._query(depth), self._query(self._rng.randint(0, depth))
        kind = self._rng.choice(("INNER", "LEFT", "LEFT", "LEFT", "RIGHT", "FULL"))
        return self._join(left, right, kind)

    def _join(self, left: RandomQuery, right: RandomQuery, kind: str) -> RandomQuery:
        on = self._on(left, right)
        if on is None:
            text = f"SELECT * FROM {self._from(left)} CROSS JOIN {self._from(right)}"
            return RandomQuery(PlanJoin("Cross", left.plan, right.plan, None), text)
        text = f"SELECT * FROM {self._from(left)} {kind} JOIN {self._from(right)} ON {on.text}"
        return RandomQuery(PlanJoin(SIDES[kind], left.plan, right.plan, on.plan), text)

    def _on(self, left: RandomQuery, right: RandomQuery) -> Term | None:
        """An equality between both sides, and now and then more."""
        pairs = [
            (term_of(one), term_of(other))
            for one in left.columns
            for other in right.columns
            if one.type == other.type and one.type in (LONG, TEXT)
        ]
        if not pairs:
            return None
        word = "IS NOT DISTINCT FROM" if self._rng.random() < 0.15 else "="
        found = compare_terms(word, *self._rng.choice(pairs))
        if self._rng.random() < 0.15:
            found = join_conditions("And", found, compare_terms("=", *self._rng.choice(pairs)))
        if self._rng.random() < 0.3:
            found = join_conditions("And", found, self._comparison(left.columns, right.columns))
        if self._rng.random() < 0.2:
            found = join_conditions("And", found, self._comparison(right.columns, ()))
        return found

    def _matched(self, depth: int) -> RandomQuery:
        """EXISTS, NOT EXISTS, NOT IN, or EXISTS as a column."""
        left, right = self._query(depth), self._query(self._rng.randint(0, depth))
        on = self._on(left, right)
        if on is None:
            return left
        inner = f"SELECT 1 FROM {self._from(right)} WHERE {on.text}"
        match self._rng.randrange(5):
            case 0 | 1:
                text = f"SELECT * FROM {self._from(left)} WHERE EXISTS ({inner})"
                return RandomQuery(PlanJoin("LeftSemi", left.plan, right.plan, on.plan), text)
            case 2:
                text = f"SELECT * FROM {self._from(left)} WHERE NOT EXISTS ({inner})"
                return RandomQuery(PlanJoin("LeftAnti", left.plan, right.plan, on.plan), text)
            case 3:
                column = self._column(TRUTH)
                plan = PlanJoin("ExistenceJoin", left.plan, right.plan, on.plan, column)
                inner = f"EXISTS ({inner}) AS {column.name}"
                alias = self._alias()
                text = f"SELECT {alias}.*, {inner} FROM ({left.text}) {alias}"
                return RandomQuery(plan, text)
        return self._not_in(left, right)

    def _not_in(self, left: RandomQuery, right: RandomQuery) -> RandomQuery:
        mine = self._pick(left.columns)
        theirs = self._pick(right.columns, mine.type) if mine is not None else None
        if mine is None or theirs is None:
            return left
        equal = operation_of("EqualTo", TRUTH, mine.plan, theirs.plan)
        unknown = operation_of("IsNull", TRUTH, equal)
        plan = PlanJoin(
            "LeftAnti", left.plan, right.plan, operation_of("Or", TRUTH, equal, unknown)
        )
        listed = f"SELECT {theirs.text} FROM {self._from(right)}"
        text = f"SELECT * FROM {self._from(left)} WHERE {mine.text} NOT IN ({listed})"
        return RandomQuery(plan, text)

    def _pair(self, depth: int) -> tuple[RandomQuery, RandomQuery] | None:
        """Two queries with columns of the same types."""
        left, right = self._query(depth), self._query(self._rng.randint(0, depth))
        pairs: list[tuple[Attribute, Attribute]] = []
        for one in left.columns:
            fitting = [c for c in right.columns if c.type == one.type and c.type in (LONG, TEXT)]
            if fitting and len(pairs) < 2:
                pairs.append((one, self._rng.choice(fitting)))
        if not pairs:
            return None
        mine, theirs = zip(*pairs, strict=True)
        return self._renamed(left, mine), self._renamed(right, theirs)

    def _renamed(self, query: RandomQuery, columns: Sequence[Attribute]) -> RandomQuery:
        """Some columns of a query, under new names."""
        items = tuple(PlanItem(self._column(each.type), each) for each in columns)
        shown = [f"{c.name} AS {i.attribute.name}" for c, i in zip(columns, items, strict=True)]
        text = f"SELECT {', '.join(shown)} FROM {self._from(query)}"
        return RandomQuery(PlanProject(query.plan, items), text)

    def _united(self, depth: int) -> RandomQuery:
        if (pair := self._pair(depth)) is None:
            return self._query(depth)
        columns = pair[0].columns
        output = tuple(self._column(each.type) for each in columns)
        plan: PlanOperator = PlanUnion((pair[0].plan, pair[1].plan), output)
        word = self._rng.choice(("UNION ALL", "UNION"))
        if word == "UNION":
            plan = distinct_rows(plan)
        return self._set_text(plan, word, pair)

    def _set_text(
        self, plan: PlanOperator, word: str, pair: tuple[RandomQuery, RandomQuery]
    ) -> RandomQuery:
        """The text of a set operation, whose columns have the names of the first query."""
        named = zip(pair[0].columns, plan.output, strict=True)
        shown = ", ".join(f"{old.name} AS {new.name}" for old, new in named)
        both = f"SELECT * FROM {self._from(pair[0])} {word} SELECT * FROM {self._from(pair[1])}"
        return RandomQuery(plan, f"SELECT {shown} FROM ({both}) {self._alias()}")

    def _compared(self, depth: int) -> RandomQuery:
        """DISTINCT, INTERSECT and EXCEPT, with and without ALL."""
        share = self._rng.random()
        if share < 0.3 or (pair := self._pair(depth)) is None:
            below = self._query(depth)
            text = f"SELECT DISTINCT * FROM {self._from(below)}"
            return RandomQuery(distinct_rows(below.plan), text)
        left, right = pair
        word = self._rng.choice(("INTERSECT", "EXCEPT"))
        if share < 0.6:
            output = tuple(self._column(each.type) for each in left.columns)
            bags = PlanBagOperation(word.capitalize(), left.plan, right.plan, output)
            counted = (self._with_copies(left), self._with_copies(right))
            named = zip(left.columns, output, strict=True)
            shown = ", ".join(f"{old.name} AS {new.name}" for old, new in named)
            both = f"SELECT * FROM ({counted[0]}) {self._alias()} {word} "
            both += f"SELECT * FROM ({counted[1]}) {self._alias()}"
            return RandomQuery(bags, f"SELECT {shown} FROM ({both}) {self._alias()}")
        equal = [
            operation_of("EqualNullSafe", TRUTH, one, other)
            for one, other in zip(left.columns, right.columns, strict=True)
        ]
        on = equal[0] if len(equal) == 1 else operation_of("And", TRUTH, *equal)
        kind = "LeftSemi" if word == "INTERSECT" else "LeftAnti"
        plan = distinct_rows(PlanJoin(kind, left.plan, right.plan, on))
        return self._set_text(plan, word, pair)

    def _with_copies(self, query: RandomQuery) -> str:
        """The rows with the number of each among its copies: equal bags are then equal sets."""
        names = ", ".join(column.name for column in query.columns)
        alias = self._alias()
        number = f"row_number() OVER (PARTITION BY {names} ORDER BY {names}) AS copy"
        return f"SELECT {alias}.*, {number} FROM ({query.text}) {alias}"

    def _aggregated(self, depth: int) -> RandomQuery:
        below = self._query(depth)
        plain = [column for column in below.columns if column.type in (LONG, TEXT)]
        groups = self._rng.sample(plain, min(len(plain), self._rng.choice((0, 1, 1, 2))))
        return self._aggregate(below, groups)

    def _aggregate(self, below: RandomQuery, groups: Sequence[Attribute]) -> RandomQuery:
        calls = [self._call(below.columns) for _ in range(self._rng.randint(1, 3))]
        items = [PlanItem(self._column(call.type), call.plan) for call in calls]
        shown = [
            *(group.name for group in groups),
            *(f"{c.text} AS {i.attribute.name}" for c, i in zip(calls, items, strict=True)),
        ]
        all_items = (*(PlanItem(group, group) for group in groups), *items)
        by = f" GROUP BY {', '.join(group.name for group in groups)}" if groups else ""
        text = f"SELECT {', '.join(shown)} FROM {self._from(below)}{by}"
        return RandomQuery(PlanAggregate(below.plan, tuple(groups), all_items), text)

    def _call(self, columns: Sequence[Attribute]) -> Term:
        """An aggregate over the columns."""
        word = self._rng.choice(("count", "count", "sum", "sum", "min", "max", "max", "avg"))
        kind = None if word in ("count", "min", "max") else LONG
        term = self._pick(columns, kind)
        is_distinct = word in ("count", "sum") and self._rng.random() < 0.2
        if term is None or (word == "count" and not is_distinct and self._rng.random() < 0.5):
            one = PlanLiteral("1", INT)
            return self._filtered_call(columns, "count(*)", False, operation_of("Count", LONG, one))
        result = {"count": LONG, "avg": "double"}.get(word, term.type)
        name = {"avg": "Average"}.get(word, word.capitalize())
        function = operation_of(name, result, term.plan)
        text = f"{word}({'DISTINCT ' if is_distinct else ''}{term.text})"
        return self._filtered_call(columns, text, is_distinct, function)

    def _filtered_call(
        self, columns: Sequence[Attribute], text: str, is_distinct: bool, function: PlanOperation
    ) -> Term:
        operands: tuple[PlanExpression, ...] = (function,)
        if self._rng.random() < 0.2:
            condition = self._condition(columns)
            operands, text = (function, condition.plan), f"{text} FILTER (WHERE {condition.text})"
        facts = (("isDistinct", is_distinct),)
        plan = PlanOperation("AggregateExpression", operands, facts, function.java)
        return Term(plan, text, function.java.type_text)

    def _rolled_up(self, depth: int) -> RandomQuery:
        """GROUP BY ROLLUP of one column."""
        below = self._query(depth)
        group = self._pick(below.columns)
        if group is None:
            return below
        assert isinstance(group.plan, Attribute)
        output = (self._column(group.type), self._column(INT))
        rows = ((group.plan, number_of(0)), (PlanLiteral(None, group.type), number_of(1)))
        count = operation_of("Count", LONG, PlanLiteral("1", INT))
        counted = PlanOperation(
            "AggregateExpression", (count,), (("isDistinct", False),), count.java
        )
        items = (PlanItem(output[0], output[0]), PlanItem(self._column(LONG), counted))
        plan = PlanAggregate(PlanExpand(below.plan, rows, output), output, items)
        source = self._from(below)
        one, two = (item.attribute.name for item in items)
        text = (
            f"SELECT {group.text} AS {one}, count(*) AS {two} FROM {source} GROUP BY {group.text} "
            f"UNION ALL SELECT NULL, count(*) FROM {source} HAVING count(*) > 0"
        )
        return RandomQuery(plan, text)

    def _windowed(self, depth: int) -> RandomQuery:
        below = self._query(depth)
        plain = [column for column in below.columns if column.type in (LONG, TEXT)]
        if not plain:
            return below
        part = self._rng.sample(plain, min(len(plain), self._rng.choice((0, 1, 1, 1))))
        key = PlanSortKey(self._rng.choice(plain), *[self._rng.random() < 0.5] * 2)
        words = OverWords(part, key, below.columns)
        function, frame, over = self._window_call(below.columns, words)
        spec = PlanOperation("WindowSpecDefinition", (frame,))
        called = PlanOperation("WindowExpression", (function, spec), (), function.java)
        item = PlanItem(self._column(function.java.type_text), called)
        plan = PlanWindow(words.sort(below.plan), (item,), tuple(part), (key,))
        alias = self._alias()
        shown = f"{alias}.*, {over} AS {item.attribute.name}"
        return RandomQuery(plan, f"SELECT {shown} FROM ({below.text}) {alias}")

    def _window_call(
        self, columns: Sequence[Attribute], words: OverWords
    ) -> tuple[PlanOperation, PlanOperation, str]:
        """A function, its frame, and its text with OVER."""
        number = self._pick(columns, LONG)
        match self._rng.randrange(5 if number is not None else 2):
            case 0:
                function = operation_of("RowNumber", INT)
                return function, ROWS_SO_FAR, f"row_number() {words.over(complete=True)}"
            case 1:
                kind, word = self._rng.choice((("Rank", "rank"), ("DenseRank", "dense_rank")))
                return operation_of(kind, INT), ROWS_SO_FAR, f"{word}() {words.over()}"
            case 2:
                assert number is not None
                nothing = PlanLiteral(None, LONG)
                offset = self._rng.choice((1, 2))
                function = operation_of("Lag", LONG, number.plan, number_of(offset), nothing)
                text = f"lag({number.text}, {offset}) {words.over(complete=True)}"
                return function, ROWS_SO_FAR, text
            case 3:
                assert number is not None
                function = call_aggregate(operation_of("Sum", LONG, number.plan))
                return function, RANGE_SO_FAR, f"sum({number.text}) {words.over()}"
        assert number is not None
        function = call_aggregate(operation_of("Max", LONG, number.plan))
        frame = "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"
        text = f"max({number.text}) {words.over(complete=True, frame=frame)}"
        return function, ROWS_AROUND, text

    def _limited(self, depth: int) -> RandomQuery:
        below = self._query(depth)
        plain = [column for column in below.columns if column.type in (LONG, TEXT)]
        if not plain:
            return below
        key = PlanSortKey(self._rng.choice(plain), *[self._rng.random() < 0.5] * 2)
        words = OverWords((), key, below.columns)
        limit, skipped = self._rng.randint(1, 3), self._rng.choice((0, 0, 1))
        plan = PlanLimit(words.sort(below.plan), skipped, limit)
        order = f"ORDER BY {words.order(complete=True)} LIMIT {limit} OFFSET {skipped}"
        return RandomQuery(plan, f"SELECT * FROM {self._from(below)} {order}")

    def _beside_scalar(self, depth: int) -> RandomQuery:
        """Rows that are compared with the value of a whole query, or show it."""
        below, inner = self._query(depth), self._query(self._rng.randint(0, depth))
        mine = self._pick(below.columns, LONG)
        value = self._pick(inner.columns, LONG)
        if mine is None or value is None:
            return below
        word = self._rng.choice(("Max", "Min", "Sum"))
        column = self._column(LONG)
        called = call_aggregate(operation_of(word, LONG, value.plan))
        one = PlanAggregate(inner.plan, (), (PlanItem(column, called),))
        # The value stands beside the rows under a name of its own.
        shown = self._column(LONG)
        plan = PlanBeside(below.plan, (PlanScalar(one, shown),))
        text = f"(SELECT {word}({value.text}) AS {column.name} FROM {self._from(inner)})"
        scalar = Term(shown, text, LONG)
        if self._rng.random() < 0.25:
            new = self._column(LONG)
            less = operation_of("Subtract", LONG, mine.plan, shown)
            items = (*(PlanItem(c, c) for c in below.columns), PlanItem(new, less))
            alias = self._alias()
            shows = f"{alias}.*, {mine.text} - {text} AS {new.name}"
            query = f"SELECT {shows} FROM ({below.text}) {alias}"
            return RandomQuery(PlanProject(plan, items), query)
        condition = compare_terms(self._rng.choice(("=", "<", ">=", ">")), mine, scalar)
        kept = PlanFilter(plan, condition.plan)
        items = tuple(PlanItem(each, each) for each in below.columns)
        query = f"SELECT * FROM {self._from(below)} WHERE {condition.text}"
        return RandomQuery(PlanProject(kept, items), query)
