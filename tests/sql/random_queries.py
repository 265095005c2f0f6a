"""Random queries: a seeded grammar over four relations, the views before, and WITH.

    python -m tests.sql.random_queries SEED [NUMBER]

prints what a seed writes. A query is a block of FROM, WHERE, GROUP BY, HAVING and SELECT, a set
operation of two, or one of them below a WITH or in FROM. Some ask for the time. Every query of a
case becomes a view, and later ones may read it.

What is known to be refused is written rarely, so that refusals are seen and counted and do not take
the place of what is to be tried.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.sql.random_expressions import EXACT, ExpressionWriter, Scope, ScopeColumn
from tests.sql.random_history import RANDOM_TABLES
from tests.sql.random_subqueries import SubqueryWriter
from tests.sql.random_windows import WindowWriter

TYPE_NAMES = {
    "int64": "int",
    "double": "double",
    "string": "str",
    "date32[day]": "date",
    "timestamp[us]": "moment",
}

Columns = Sequence[tuple[str, str, bool]]
"""The columns of a relation: name, type, and whether NULL can be in it."""


@dataclass(frozen=True, slots=True)
class Query:
    """A text with its columns."""

    text: str
    columns: Columns


@dataclass(frozen=True, slots=True)
class FromClause:
    """FROM with its joins, the columns that can then be named, and conditions for WHERE."""

    text: str
    scope: Scope
    conditions: tuple[str, ...] = ()


def relation_columns() -> dict[str, Columns]:
    """The columns of the four relations."""
    return {
        shape.relation: [
            (name, TYPE_NAMES.get(str(kind), "dec"), "KEY" not in declared)
            for name, (declared, kind) in shape.columns.items()
        ]
        for shape in RANDOM_TABLES
    }


class QueryWriter:
    """Writes queries over relations; those that it is told of later are read too."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._expressions = ExpressionWriter(rng)
        self._windows = WindowWriter(rng, self._expressions)
        self._subqueries = SubqueryWriter(rng, self._expressions, self._inner_item)
        self._tables = relation_columns()
        self._views: dict[str, Columns] = {}
        self._aliases = 0

    def write_case(
        self, count: int, is_valid: Callable[[str, Mapping[str, str]], bool]
    ) -> dict[str, str]:
        """So many views by name; some read those before them.

        `is_valid` says whether Spark reads a text over the views before it.
        """
        found: dict[str, str] = {}
        while len(found) < count:
            self._expressions.asks_time = self._chance(0.12)
            query = self.write_query(2)
            if is_valid(query.text, found):
                name = f"v{len(found) + 1}"
                found[name] = query.text
                self._views[name] = query.columns
        return found

    def write_query(self, depth: int) -> Query:
        """Any query."""
        share = self._rng.random()
        if depth > 0 and share < 0.12:
            return self._with(depth)
        if depth > 0 and share < 0.27:
            return self._set_operation(depth)
        return self._block(depth, None, {})

    def _chance(self, share: float) -> bool:
        return self._expressions.chance(share)

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"

    # -- whole queries -------------------------------------------------------------------------

    def _with(self, depth: int) -> Query:
        defined: dict[str, Columns] = {}
        parts = []
        for _ in range(self._rng.randint(1, 2)):
            name = f"w{self._alias()}"
            inner = self._block(depth - 1, None, defined)
            parts.append(f"{name} AS ({inner.text})")
            defined = {**defined, name: inner.columns}
        outer = self._block(depth - 1, None, defined)
        return Query(f"WITH {', '.join(parts)} {outer.text}", outer.columns)

    def _set_operation(self, depth: int) -> Query:
        types = [self._rng.choice(EXACT) for _ in range(self._rng.randint(1, 3))]
        sides = [self._block(depth - 1, types, {}) for _ in range(self._rng.choice((2, 2, 2, 3)))]
        words = (
            "UNION ALL",
            "UNION ALL",
            "UNION",
            "INTERSECT",
            "EXCEPT",
            "EXCEPT ALL",
            "INTERSECT ALL",
        )
        word = self._rng.choice(words)
        columns = [(name, kind, True) for name, kind, _ in sides[0].columns]
        return Query(f" {word} ".join(f"({side.text})" for side in sides), columns)

    def _block(
        self, depth: int, types: Sequence[str] | None, defined: Mapping[str, Columns]
    ) -> Query:
        """One SELECT; with `types` its columns have exactly these."""
        source = self._from(depth, defined)
        tests = list(source.conditions)
        if self._chance(0.5):
            tests.append(self._expressions.condition(source.scope))
        if depth > 0 and self._chance(0.3):
            tests.append(self._subqueries.write_test(source.scope))
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        if types is None and self._chance(0.5):
            return self._aggregate(source, where)
        return self._plain(source, where, types, depth)

    # -- SELECT --------------------------------------------------------------------------------

    def _plain(
        self, source: FromClause, where: str, types: Sequence[str] | None, depth: int
    ) -> Query:
        kinds = types or [self._rng.choice(EXACT) for _ in range(self._rng.randint(1, 4))]
        chosen = [(self._expressions.value(source.scope, kind), kind) for kind in kinds]
        if types is None and depth > 0 and self._chance(0.1):
            chosen.append((self._subqueries.write_existence(source.scope), "bool"))
        if types is None and depth > 0 and self._chance(0.12):
            chosen.append(self._subqueries.write_scalar(source.scope))
        if types is None and (column := self._expressions.pick_column(source.scope, ("real",))):
            chosen.append((column.text, "real"))
        qualify = ""
        if types is None and self._chance(0.25):
            found = [self._windows.write_window(source.scope) for _ in range(2)]
            chosen += [each for each in found if each is not None]
        elif self._chance(0.06):
            qualify = self._windows.write_qualify(source.scope)
        distinct = "DISTINCT " if self._chance(0.2) and not qualify else ""
        shown = ", ".join(f"{text} AS c{n}" for n, (text, _) in enumerate(chosen, 1))
        columns = [(f"c{n}", kind, True) for n, (_, kind) in enumerate(chosen, 1)]
        limit = self._windows.write_limit(len(chosen)) if self._chance(0.05) else ""
        text = f"SELECT {distinct}{shown} FROM {source.text}{where}{qualify}{limit}"
        return Query(text, columns)

    def _aggregate(self, source: FromClause, where: str) -> Query:
        groups = self._groups(source.scope)
        calls = [self._call(source.scope) for _ in range(self._rng.randint(1, 3))]
        chosen = [*groups, *calls]
        shown = ", ".join(f"{text} AS c{n}" for n, (text, _) in enumerate(chosen, 1))
        columns = [(f"c{n}", kind, True) for n, (_, kind) in enumerate(chosen, 1)]
        having = f" HAVING {self._having(source.scope)}" if self._chance(0.25) else ""
        text = f"SELECT {shown} FROM {source.text}{where}{self._group_by(groups)}{having}"
        return Query(text, columns)

    def _groups(self, scope: Scope) -> list[tuple[str, str]]:
        found: dict[str, str] = {}
        for _ in range(self._rng.choice((0, 1, 1, 1, 2, 2))):
            column = self._expressions.pick_column(scope, EXACT)
            if column is not None and self._chance(0.8):
                found[column.text] = column.type
            elif column is not None:
                found[self._expressions.value([column], column.type, 1)] = column.type
        return list(found.items())

    def _group_by(self, groups: Sequence[tuple[str, str]]) -> str:
        if not groups:
            return ""
        texts = [text for text, _ in groups]
        listed = ", ".join(texts)
        numbers = ", ".join(str(n) for n in range(1, len(texts) + 1))
        columns_only = all(text.replace(".", "").replace("_", "").isalnum() for text in texts)
        forms = [listed] * 6 + [numbers, "ALL"]
        if columns_only and not listed[0].isdigit() and self._chance(0.15):
            sets = f"GROUPING SETS (({listed}), ({texts[-1]}), ())"
            forms = [f"ROLLUP ({listed})", f"CUBE ({listed})", sets]
        return f" GROUP BY {self._rng.choice(forms)}"

    def _call(self, scope: Scope) -> tuple[str, str]:
        """An aggregate, or an expression over aggregates, with its type."""
        call, kind = self._plain_call(scope)
        if self._chance(0.15):
            call = f"{call} FILTER (WHERE {self._expressions.condition(scope, 1)})"
        if kind in ("int", "double", "dec") and self._chance(0.2):
            other, _ = self._plain_call(scope, "int")
            call = self._rng.choice(
                (
                    f"coalesce({call}, 0)",
                    f"{call} + {other}",
                    f"CASE WHEN {other} > 2 THEN {call} END",
                    f"{call} * 2",
                )
            )
        return call, kind

    def _plain_call(self, scope: Scope, kind: str | None = None) -> tuple[str, str]:
        column = self._expressions.pick_column(scope, (*EXACT,)) if kind is None else None
        if column is None or self._chance(0.2):
            return "count(*)", "int"
        value = column.text
        if self._chance(0.2):
            value = self._expressions.value(scope, column.type, 1)
        if self._chance(0.08):
            return self._windows.write_ordered_call(value, column.type)
        if column.type in ("int", "double", "dec") and self._chance(0.5):
            return self._number_call(value, column.type)
        test = self._expressions.condition(scope, 0)
        forms = [(f"{word}({value})", column.type) for word in ("min", "max", "min", "max")]
        forms += [(f"count({value})", "int"), (f"count(DISTINCT {value})", "int")]
        forms += [(f"count_if({test})", "int"), (f"bool_or({test})", "bool")]
        forms += [(f"every({test})", "bool")]
        return self._rng.choice(forms)

    def _number_call(self, value: str, kind: str) -> tuple[str, str]:
        share = self._rng.random()
        if share < 0.6:
            return f"sum({value})", kind
        if share < 0.85:
            return f"avg({value})", "dec" if kind == "dec" else "real"
        if share < 0.93:
            return f"sum(DISTINCT {value})", kind
        return f"{self._rng.choice(('stddev', 'var_pop', 'stddev_pop'))}({value})", "real"

    def _having(self, scope: Scope) -> str:
        call, kind = self._plain_call(scope)
        if kind in EXACT and self._chance(0.25):
            return self._subqueries.write_comparison(call, kind)
        if kind == "int":
            return f"{call} > {self._rng.randint(0, 2)}"
        return (
            f"count(*) > {self._rng.randint(0, 2)}" if self._chance(0.7) else f"{call} IS NOT NULL"
        )

    # -- FROM ----------------------------------------------------------------------------------

    def _from(self, depth: int, defined: Mapping[str, Columns]) -> FromClause:
        if self._chance(0.08):
            return self._using()
        first = self._item(depth, defined, first=True)
        joins = self._rng.choice((0, 0, 1, 1, 1, 2, 2, 3))
        for number in range(joins):
            # A comma binds less than JOIN: what follows it could not name what is before.
            last = number == joins - 1
            first = self._join(first, self._item(depth, defined), last and self._chance(0.1))
        return first

    def _item(self, depth: int, defined: Mapping[str, Columns], first: bool = False) -> FromClause:
        alias = self._alias()
        if defined and self._chance(0.6):
            name = self._rng.choice(list(defined))
            return self._named(name, alias, defined[name])
        if self._views and self._chance(0.12):
            name = self._rng.choice(list(self._views))
            return self._named(name, alias, self._views[name])
        if depth > 0 and self._chance(0.15):
            inner = self.write_query(depth - 1)
            return self._named(f"({inner.text})", alias, inner.columns)
        names = (
            list(self._tables)
            if not first
            else ["shop.orders"] * 2 + ["crm.tickets"] * 2 + ["shop.visits"]
        )
        name = self._rng.choice(names)
        if self._chance(0.04) and name in ("shop.orders", "crm.tickets"):
            return self._generated(name, alias)
        return self._named(name, alias, self._tables[name])

    def _generated(self, name: str, alias: str) -> FromClause:
        """A table of which every row becomes several."""
        made = self._rng.choice(
            (
                ("explode(split(g.note || ',' || g.kind, ',')) AS part", ("part", "str", True)),
                ("explode(split(g.note, 'u')) AS part", ("part", "str", True)),
                ("explode(array(g.kind, g.customer, 0)) AS part", ("part", "int", True)),
            )
        )
        text = f"(SELECT g.*, {made[0]} FROM {name} AS g)"
        return self._named(text, alias, [*self._tables[name], made[1]])

    def _named(self, name: str, alias: str, columns: Columns) -> FromClause:
        scope = [ScopeColumn(f"{alias}.{column}", kind, null) for column, kind, null in columns]
        return FromClause(f"{name} AS {alias}", scope)

    def _using(self) -> FromClause:
        """Two tables with columns of one name."""
        kind = self._rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN"))
        one, other = self._alias(), self._alias()
        if self._chance(0.4):
            word = kind if kind == "JOIN" else "LEFT JOIN"
            shared = [ScopeColumn("customer", "int"), ScopeColumn("level", "int")]
            shared += [ScopeColumn(f"{one}.cost", "dec")]
            return FromClause(f"crm.tickets AS {one} NATURAL {word} shop.visits AS {other}", shared)
        scope = [ScopeColumn("customer", "int"), ScopeColumn(f"{one}.note", "str")]
        scope += [ScopeColumn(f"{one}.price", "dec")]
        scope += [ScopeColumn(f"{other}.name", "str"), ScopeColumn(f"{other}.rank", "int")]
        text = f"shop.orders AS {one} {kind} crm.customers AS {other} USING (customer)"
        return FromClause(text, scope)

    def _join(self, left: FromClause, right: FromClause, comma: bool) -> FromClause:
        equality = self._subqueries.write_equality(left.scope, right.scope)
        if equality is None:
            return left
        tests = [equality]
        if comma:
            scope = [*left.scope, *right.scope]
            return FromClause(f"{left.text}, {right.text}", scope, (*left.conditions, *tests))
        if self._chance(0.3):
            over = right.scope if self._chance(0.5) else [*left.scope, *right.scope]
            tests.append(self._expressions.condition(over, 1))
        on = f"ON {' AND '.join(tests)}"
        kind = self._join_kind()
        text = f"{left.text} {kind} {right.text} {on}"
        if kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN"):
            return FromClause(text, left.scope, left.conditions)
        lefts = _padded(left.scope) if kind in ("RIGHT JOIN", "FULL JOIN") else left.scope
        rights = _padded(right.scope) if kind in ("LEFT JOIN", "FULL JOIN") else right.scope
        return FromClause(text, [*lefts, *rights], left.conditions)

    def _join_kind(self) -> str:
        kinds = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
        return self._rng.choices(kinds, (40, 35, 8, 8, 5, 4))[0]

    def _inner_item(self) -> tuple[str, Scope]:
        """What a subquery in an expression reads."""
        inner = self._item(0, {})
        return inner.text, inner.scope


def _padded(scope: Scope) -> list[ScopeColumn]:
    return [ScopeColumn(column.text, column.type) for column in scope]


def main() -> None:
    seed, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    writer = QueryWriter(random.Random(seed))
    for name, text in writer.write_case(count, lambda *_: True).items():
        print(f"-- {name}\n{text}")


if __name__ == "__main__":
    main()
