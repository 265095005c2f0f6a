"""The SQL of a view after everything about it was decided.

What stays is left as it is written: a mention changes only if the column is called differently or
would be found somewhere else, and then an output keeps its name by an alias. Conditions of inner
joins mean the same in ON and in WHERE, so one that names something which its ON cannot see, or
whose table went, moves to WHERE. Tables that come in are joined at the end of their group.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from viewkeeper.evolution.synchronization.clause_layout import clause_layout_of
from viewkeeper.evolution.synchronization.part_choice import PartChoice
from viewkeeper.evolution.synchronization.parts_of_sql import (
    Use,
    ViewCondition,
    ViewParts,
    mentions_of,
)
from viewkeeper.evolution.synchronization.quoted_names import quote_if_needed, quote_relation
from viewkeeper.evolution.synchronization.rewritten_names import Owner, RewrittenNames
from viewkeeper.evolution.synchronization.star_items import StarText, StarWriter
from viewkeeper.evolution.synchronization.table_now import TablesNow
from viewkeeper.evolution.synchronization.text_edits import TextEdits
from viewkeeper.view.render import spark_type_of
from viewkeeper.view.sql.scope import Scope
from viewkeeper.view.sql.sql_text import Span, SqlPiece


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

    # -- SELECT ---------------------------------------------------------------------------------

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

    # -- FROM -----------------------------------------------------------------------------------

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

    # -- WHERE ----------------------------------------------------------------------------------

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
