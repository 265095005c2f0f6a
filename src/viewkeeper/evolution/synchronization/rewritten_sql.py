"""The SQL of a view after everything about it was decided.

What stays is left as it is written: a mention changes only if the column is called differently or
would be found somewhere else, and then an output keeps its name by an alias. Conditions of inner
joins mean the same in ON and in WHERE, so one that names something which its ON cannot see, or
whose table went, moves to WHERE. Tables that come in are joined at the end of their group.

Everything that is not changed stays as its author wrote it, comments and line breaks included. A
stretch that is taken out takes the blanks before it along, but never the line break that ends a
comment.

The parts of a SELECT know their own stretch of text (`viewkeeper.view.sql.select_parts`). Taking
one out needs more: the comma before it, the words JOIN and ON that go with a table, the whole of
WHERE. They are found among the tokens, never by looking for characters, so that comments and quotes
do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect

from viewkeeper.evolution.synchronization.part_choice import PartChoice
from viewkeeper.evolution.synchronization.parts_of_sql import (
    Use,
    ViewCondition,
    ViewParts,
    mentions_of,
    quote_if_needed,
    quote_relation,
)
from viewkeeper.evolution.synchronization.rewritten_names import (
    Owner,
    RewrittenNames,
    StarText,
    StarWriter,
)
from viewkeeper.evolution.synchronization.table_now import TablesNow
from viewkeeper.view.render import spark_type_of
from viewkeeper.view.sql.scope import Scope
from viewkeeper.view.sql.sql_text import Span, SqlPiece, SqlText, tokens_at_top
from viewkeeper.view.sql.view_statement import ParsedView

JOINING = {TokenType.JOIN, TokenType.INNER, TokenType.CROSS, TokenType.COMMA}


@dataclass(frozen=True, slots=True)
class TableClause:
    """A table of FROM: the words that join it, its name and alias, its ON or USING."""

    words: Span
    """Empty, at the table, for the first one."""
    table: Span
    condition: Span | None

    @property
    def end(self) -> int:
        return self.table.end if self.condition is None else self.condition.end


@dataclass(frozen=True, slots=True)
class ClauseLayout:
    """The clauses of a view, and the commas between its items."""

    clauses: tuple[TableClause, ...]
    commas: tuple[Span, ...]
    where: Span | None
    """From the word WHERE to the end of the query."""


def clause_layout_of(parsed: ParsedView) -> ClauseLayout:
    """The places of all clauses in a view's text."""
    body = parsed.body
    tokens = [
        token
        for token in Dialect.get_or_raise("spark").tokenize(parsed.plain.text)
        if body.start <= token.start < body.end
    ]
    top = list(tokens_at_top(tokens))
    last_item, last_table = parsed.parts.items[-1].span, parsed.parts.tables[-1].span
    commas = [
        _span_of(t) for _, t in top if _is_kind(t, TokenType.COMMA) and t.start < last_item.start
    ]
    words = [(i, t) for i, t in top if _is_kind(t, TokenType.WHERE) and t.start > last_table.start]
    end = words[0][0] if words else len(tokens)
    where = Span(words[0][1].start, body.end) if words else None
    starts = {token.start: index for index, token in enumerate(tokens)}
    tables = [starts[table.span.start] for table in parsed.parts.tables]
    begins = [_first_join_word(tokens, index) for index in tables]
    ends = [*begins[1:], end]
    clauses = [
        _table_clause(tokens, *indexes) for indexes in zip(begins, tables, ends, strict=True)
    ]
    return ClauseLayout(tuple(clauses), tuple(commas), where)


def _first_join_word(tokens: list[Token], table: int) -> int:
    """The index of the first word that joins a table."""
    while tokens[table - 1].token_type in JOINING:
        table -= 1
    return table


def _table_clause(tokens: list[Token], begin: int, table: int, end: int) -> TableClause:
    kinds = (TokenType.ON, TokenType.USING)
    inside = tokens[table:end]
    condition = next(
        (i for i, token in tokens_at_top(inside) if token.token_type in kinds), len(inside)
    )
    first = tokens[table].start
    return TableClause(
        Span(tokens[begin].start, first),
        Span(first, inside[condition - 1].end + 1),
        Span(inside[condition].start, inside[-1].end + 1) if condition < len(inside) else None,
    )


def _is_kind(token: Token, kind: TokenType) -> bool:
    return token.token_type is kind


def _span_of(token: Token) -> Span:
    return Span(token.start, token.end + 1)


class TextEdits:
    """Replacements and insertions in a text."""

    def __init__(self, sql: SqlText) -> None:
        self.sql = sql
        self._replaced: list[tuple[Span, str]] = []
        self._inserted: defaultdict[int, list[str]] = defaultdict(list)

    def replace_span(self, span: Span, text: str) -> None:
        self._replaced.append((span, text))

    def insert_text(self, offset: int, text: str) -> None:
        """After what was inserted there before."""
        self._inserted[offset].append(text)

    def delete_span(self, span: Span) -> None:
        """Take a stretch out, and the blanks before it."""
        before = self.sql.text[: span.start]
        kept = before.rstrip()
        if "--" in kept.rpartition("\n")[2]:
            kept = before
        self.replace_span(Span(len(kept), span.end), "")

    def edited_text(self) -> str:
        inserted = [(Span(at, at), "".join(texts)) for at, texts in self._inserted.items()]
        whole = Span(0, len(self.sql.text))
        return self.sql.replace_spans(whole, [*self._replaced, *inserted])


@dataclass(frozen=True, slots=True)
class RewrittenSql:
    """The rewritten SQL, and what its stars are now, by item."""

    sql: str
    stars: dict[int, StarText]


class RewritingWriter:
    """Writes one rewriting; `kept` are names of tables that must stay."""

    def __init__(
        self,
        view: ViewParts,
        choice: PartChoice,
        world: TablesNow,
        kept: set[str],
        keep_columns: bool,
    ) -> None:
        self.view, self.choice, self.world = view, choice, world
        self.naming = RewrittenNames(view, choice, kept)
        self.layout = clause_layout_of(view.parsed)
        self.edits = TextEdits(view.parsed.sql)
        self.stars = StarWriter(view, choice, self.naming, keep_columns)
        self.kept = [view.conditions[index] for index in sorted(choice.conditions)]
        self.leads = self._lead_tables()

    def write_sql(self) -> RewrittenSql:
        stars = self._write_items()
        moved = [c for place in range(len(self.view.tables)) for c in self._write_condition(place)]
        self._write_substitutes()
        self._write_where(moved)
        self._write_tables()
        self._remove_tables()
        return RewrittenSql(self.edits.edited_text(), stars)

    def _write_items(self) -> dict[int, StarText]:
        stars: dict[int, StarText] = {}
        removed: set[int] = set()
        for index, item in enumerate(self.view.items):
            shown = [i for i, each in enumerate(self.view.shown) if each.item == index]
            if any(self.view.shown[i].starred for i in shown):
                stars[index] = self.stars.write_star(index)
                text = stars[index].text
                if text:
                    self.edits.replace_span(item.span, text)
                elif text is not None:
                    removed.add(index)
            elif shown[0] in self.choice.shown:
                self._write_item(index, shown[0])
            else:
                removed.add(index)
        self._remove_items(removed)
        return stars

    def _write_item(self, index: int, shown: int) -> None:
        item = self.view.items[index]
        nulled = self.choice.nulled.get(shown, frozenset())
        changes = self._changed_mentions(
            self.view.whole, item.piece, self.naming.all_owners(), nulled
        )
        for change in changes:
            self.edits.replace_span(*change)
        if item.alias is None and changes:
            name = self.view.shown[shown].name
            value = self.choice.values.get(next(iter(self.view.shown[shown].uses)))
            if nulled or value is None or value.column.lower() != name.lower():
                self.edits.insert_text(item.span.end, f" AS {quote_if_needed(name)}")

    def _remove_items(self, removed: set[int]) -> None:
        spans = [item.span for item in self.view.items]
        last = max(set(range(len(spans))) - removed)
        for index in sorted(removed):
            if index < last:
                self.edits.replace_span(Span(spans[index].start, spans[index + 1].start), "")
                continue
            comma = self.layout.commas[index - 1]
            between = Span(comma.end, spans[index].start)
            if self.view.parsed.sql.text_of(between).strip():
                self.edits.delete_span(comma)
                self.edits.replace_span(spans[index], "")
            else:
                self.edits.delete_span(Span(comma.start, spans[index].end))

    def _changed_mentions(
        self, scope: Scope, piece: SqlPiece, seen: list[Owner], nulled: frozenset[Use]
    ) -> list[tuple[Span, str]]:
        found = []
        for mention in mentions_of(scope, piece.node):
            if mention.use in nulled:
                kind = spark_type_of(self.view.types[mention.use])
                found.append((mention.span, f"CAST(NULL AS {kind})"))
            else:
                value = self.choice.values[mention.use]
                change = self.naming.change_mention(value, seen, mention)
                found += [change] if change else []
        return found

    def _lead_tables(self) -> dict[int, int]:
        """For every group that is left, the table that begins it now."""
        leads: dict[int, int] = {}
        for place in self.naming.left:
            leads.setdefault(self.view.tables[place].group, place)
        return leads

    def _is_new_lead(self, place: int) -> bool:
        """Whether a table begins its group now but did not before."""
        group = self.view.tables[place].group
        first = next(i for i, table in enumerate(self.view.tables) if table.group == group)
        return self.leads.get(group) == place and place != first

    def _write_condition(self, place: int) -> list[ViewCondition]:
        """Write the ON or USING of a table; the conditions of it that must move to WHERE."""
        mine = [c for c in self.kept if c.home == place]
        if place in self.choice.gone or self._is_new_lead(place):
            moved = mine
        else:
            moved = [c for c in mine if not self._is_visible(c, place)]
        span = self.layout.clauses[place].condition
        if span is None or place in self.choice.gone:
            return moved
        stay = [c for c in mine if c not in moved]
        seen = self.naming.owners_seen_by(place)
        if place in self.naming.using and stay == mine:
            self._write_using(place, stay)
        elif len(stay) == len(self.view.tables[place].on) and not self.view.tables[place].using:
            for condition in stay:
                self._change_in_place(condition, seen)
        elif stay:
            pieces = self.view.tables[place].on
            self.edits.replace_span(span, "ON " + self._join_conditions(stay, pieces, seen))
        else:
            self.edits.delete_span(span)
        return moved

    def _is_visible(self, condition: ViewCondition, place: int) -> bool:
        owners = {self.choice.values[use].owner for use in condition.uses}
        return owners <= set(self.naming.owners_seen_by(place))

    def _write_using(self, place: int, conditions: list[ViewCondition]) -> None:
        names = zip(self.view.tables[place].using, conditions, strict=True)
        for identifier, condition in names:
            assert condition.pair is not None
            now = self.choice.values[condition.pair[0]].column
            if identifier.name.lower() != now.lower():
                start, end = identifier.meta["start"], identifier.meta["end"]
                self.edits.replace_span(Span(start, end + 1), quote_if_needed(now))

    def _change_in_place(self, condition: ViewCondition, seen: list[Owner]) -> None:
        assert condition.piece is not None
        changes = self._changed_mentions(condition.scope, condition.piece, seen, frozenset())
        for change in changes:
            self.edits.replace_span(*change)

    def _write_tables(self) -> None:
        for place in self.naming.left:
            standing, table = self.choice.standings[place], self.view.tables[place]
            assert standing is not None, "what is gone is not left"
            if self.naming.is_renamed(place):
                alias = (
                    f" AS {quote_if_needed(table.alias)}" if self.naming.needs_alias(place) else ""
                )
                self.edits.replace_span(table.span, quote_relation(standing.relation) + alias)

    def _remove_tables(self) -> None:
        clauses, tables = self.layout.clauses, self.view.tables
        for group in {table.group for table in tables}:
            members = [i for i, table in enumerate(tables) if table.group == group]
            lead = self.leads.get(group)
            if lead is None and members[0] > self.naming.left[0]:
                start, end = clauses[members[0]].words.start, clauses[members[-1]].end
                self.edits.delete_span(Span(start, end))
            elif lead is not None and lead != self.naming.left[0] and lead != members[0]:
                self.edits.replace_span(
                    Span(clauses[members[0]].table.start, clauses[lead].table.start), ""
                )
            for place in members:
                if lead is not None and place > lead and place in self.choice.gone:
                    self.edits.delete_span(Span(clauses[place].words.start, clauses[place].end))
        first = self.naming.left[0]
        if first > 0:
            self.edits.replace_span(Span(clauses[0].table.start, clauses[first].table.start), "")

    def _write_substitutes(self) -> None:
        for beside in self.choice.beside:
            group = self.view.tables[beside.place].group
            last = max(i for i, table in enumerate(self.view.tables) if table.group == group)
            alias = self.naming.alias_of(beside)
            place = self.naming.alias_of(beside.place)
            condition = beside.join_condition(self.world, self.view, place, alias)
            joined = f" JOIN {quote_relation(beside.relation)} AS {alias} ON {condition}"
            self.edits.insert_text(self.layout.clauses[last].end, joined)

    def _write_where(self, moved: list[ViewCondition]) -> None:
        pieces, seen = self.view.parsed.parts.where, self.naming.all_owners()
        mine = [c for c in self.kept if c.home is None]
        if len(mine) == len(pieces) and not moved:
            for condition in mine:
                self._change_in_place(condition, seen)
            return
        span = self.layout.where
        if not mine and not moved:
            assert span is not None, "something was taken out of WHERE"
            self.edits.delete_span(span)
            return
        text = "WHERE " + self._join_conditions([*mine, *moved], pieces, seen)
        if span is None:
            self.edits.insert_text(self.layout.clauses[-1].end, f" {text}")
        else:
            self.edits.replace_span(span, text)

    def _join_conditions(
        self, conditions: list[ViewCondition], pieces: tuple[SqlPiece, ...], seen: list[Owner]
    ) -> str:
        """Conditions with AND between them, on lines as they were."""
        texts: list[str] = []
        for condition in conditions:
            if texts:
                texts.append(self._gap_before(condition, pieces))
            texts.append(self._condition_text(condition, seen))
        return "".join(texts)

    def _gap_before(self, condition: ViewCondition, pieces: tuple[SqlPiece, ...]) -> str:
        """The gap before a condition if it holds an AND and no bracket."""
        index = pieces.index(condition.piece) if condition.piece in pieces else 0
        if index:
            span = Span(pieces[index - 1].span.end, pieces[index].span.start)
            gap = self.view.parsed.sql.text_of(span)
            if not set(gap) & set("()"):
                return gap
        return " AND "

    def _condition_text(self, condition: ViewCondition, seen: list[Owner]) -> str:
        if condition.piece is None:
            assert condition.pair is not None
            sides = [self.choice.values[use] for use in condition.pair]
            return " = ".join(
                f"{self.naming.alias_of(v.owner)}.{quote_if_needed(v.column)}" for v in sides
            )
        changes = self._changed_mentions(condition.scope, condition.piece, seen, frozenset())
        text = self.view.parsed.sql.replace_spans(condition.piece.span, changes)
        # What AND ties together binds tighter than OR.
        loose = isinstance(condition.piece.node, exp.Or | exp.Xor)
        return f"({text})" if loose else text
