"""A plan whose views are versions of one head: the names are replaced, the rest stays as it came.

A table of the DataFrame interface gets the version's identifier under an alias that is its name. In
the text of a query the names of views are replaced where they stand: a name that a WITH around it
defines is not a view. What Spark's own parser makes of the new text is then held against the list
of relations that it may read: the versions, and names of WITH. A view that was not replaced would
be none of them, so a text that we read otherwise than Spark is refused, and never a mixed state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from viewkeeper.engine.query.checked_query import CheckedQuery, check_query
from viewkeeper.engine.spark.parsed_plan import check_plan
from viewkeeper.errors import DefinitionError, RefusedRequestError
from viewkeeper.readers.connect.catalogue_answers import (
    answer_question,
    answer_statement,
    view_name_of,
)
from viewkeeper.readers.connect.pinned_views import ViewPin, ViewRead
from viewkeeper.readers.connect.plan_check import check_message, messages_in
from viewkeeper.view.sql.sql_text import own_span_of
from viewkeeper.warehouse.metadata.head import Head

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SELECT = "SELECT "
AS_OF = "asof"
"""The option of a table, in lower case, as the data source has it."""


class NamedViews:
    """What a checked plan names: the views of a head, and its texts as they were read."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self._views = tuple(head.shown_views)
        self._texts: dict[str, CheckedQuery] = {}
        self.used: dict[ViewRead, None] = {}
        """What is read, in the order in which it is named."""

    def take_plan(self, plan: Any) -> None:
        """Check a plan, and note what it names."""
        for message in messages_in(plan):
            check_message(message)
            match message.DESCRIPTOR.full_name:
                case "spark.connect.Read.NamedTable":
                    self.used[self.read_table(message)] = None
                case "spark.connect.SQL":
                    if answer_statement(message.query, self.head) is None:
                        self._use_text(message.query)
                case "spark.connect.Expression.ExpressionString":
                    # It can have subqueries.
                    self._use_text(f"{_SELECT}{message.expression}")

    def _use_text(self, text: str) -> None:
        self.used.update(dict.fromkeys(map(ViewRead, self.read_text(text).views)))

    def read_text(self, text: str) -> CheckedQuery:
        """A text, checked; read once."""
        if text not in self._texts:
            self._texts[text] = check_query(text, self._views)
        return self._texts[text]

    def read_table(self, table: Any) -> ViewRead:
        """What a table of the DataFrame interface stands for."""
        options = {key.lower(): value for key, value in table.options.items()}
        as_of = options.pop(AS_OF, None)
        if options or (as_of is not None and not as_of.isdecimal()):
            raise RefusedRequestError(
                f"an option of {table.unparsed_identifier} is not known",
                detail=", ".join(f"{key}={value}" for key, value in table.options.items()),
                hint='the only one is a ts: spark.read.option("asOf", 12).table(NAME)',
            )
        name = view_name_of(table.unparsed_identifier, self.head)
        return ViewRead(name, None if as_of is None else int(as_of))


class PlanPins:
    """Puts versions into plans."""

    def __init__(self, spark: SparkSession, named: NamedViews, pin: ViewPin) -> None:
        self._spark = spark
        self._named = named
        self._identifiers = {read: found.identifier for read, found in pin.versions.items()}
        self._own_texts: set[str] = set()

    def pin_plan(self, plan: Any) -> None:
        """Replace what names views, in place."""
        for message in messages_in(plan):
            match message.DESCRIPTOR.full_name:
                case "spark.connect.Relation":
                    self._pin_relation(message)
                case "spark.connect.SQL":
                    replace_fields(message, query=self._pin_text(message.query))
                case "spark.connect.Expression.ExpressionString":
                    text = self._pin_text(f"{_SELECT}{message.expression}")
                    replace_fields(message, expression=text.removeprefix(_SELECT))

    def _pin_relation(self, relation: Any) -> None:
        match relation.WhichOneof("rel_type"):
            case "catalog":
                answer = answer_question(relation.catalog, self._named.head)
                if answer is not None:
                    relation.ClearField("catalog")
                    replace_fields(relation.sql, query=answer)
                    self._own_texts.add(answer)
            case "read":
                self._pin_table(relation)

    def _pin_table(self, relation: Any) -> None:
        table = relation.read.named_table
        if table.unparsed_identifier in self._identifiers.values():
            # It was put here a moment ago.
            return
        read = self._named.read_table(table)
        pinned = type(relation)()
        pinned.common.CopyFrom(relation.common)
        replace_fields(pinned.subquery_alias, alias=read.view)
        source = pinned.subquery_alias.input.read.named_table
        replace_fields(source, unparsed_identifier=self._identifiers[read])
        relation.CopyFrom(pinned)

    def _pin_text(self, text: str) -> str:
        if text in self._own_texts:
            return text
        answer = answer_statement(text, self._named.head)
        if answer is not None:
            return answer
        query = self._named.read_text(text)
        newest = {r.view.lower(): i for r, i in self._identifiers.items() if r.as_of is None}
        pinned = pin_tables(query, newest)
        check_plan(self._spark, pinned, {*newest.values(), *query.defined})
        return pinned


def replace_fields(message: Any, **texts: str) -> None:
    """Give a message texts of its own kind's fields; none is empty, which would change nothing."""
    message.MergeFrom(type(message)(**texts))


def pin_tables(query: CheckedQuery, identifiers: Mapping[str, str]) -> str:
    """The text of a query with identifiers in place of the views; their names become aliases.

    >>> query = check_query("WITH a AS (SELECT * FROM a) SELECT a.x FROM a, b y", ("a", "b"))
    >>> pin_tables(query, {"a": "t.a1", "b": "t.b7"})
    'WITH a AS (SELECT * FROM t.a1 AS `a`) SELECT a.x FROM a, t.b7 y'
    """
    pieces: list[tuple[int, int, str]] = []
    for table in query.tree.find_all(exp.Table):
        name = table.name.lower()
        if name not in identifiers or is_defined_around(table, name):
            continue
        span = own_span_of(table.this)
        if span is None or query.text[span.start : span.end].strip("`").lower() != name:
            raise DefinitionError(
                f"the query cannot be read where it names {table.name}",
                hint="write it in plainer SQL",
            )
        # A sample stands between a table and its alias.
        named = table.alias or table.args.get("sample")
        alias = "" if named else f" AS `{table.name}`"
        pieces.append((span.start, span.end, identifiers[name] + alias))
    text = query.text
    for start, end, piece in sorted(pieces, reverse=True):
        text = text[:start] + piece + text[end:]
    return text


def is_defined_around(table: exp.Table, name: str) -> bool:
    """Whether a name, in lower case, is one that a WITH defines for the place of the table: in the
    query of the WITH, or in a later one of its definitions; in its own if it is recursive."""
    inside: exp.Expr = table
    above = table.parent
    while above is not None:
        if isinstance(above, exp.With):
            names = [cte.alias.lower() for cte in above.expressions]
            at = next(n for n, cte in enumerate(above.expressions) if cte is inside)
            if name in names[: at + bool(above.args.get("recursive"))]:
                return True
        elif isinstance(above, exp.Query):
            within = above.args.get("with_")
            defined = within.expressions if within is not None and within is not inside else ()
            if name in [cte.alias.lower() for cte in defined]:
                return True
        inside, above = above, above.parent
    return False
