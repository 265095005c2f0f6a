"""The triggers that write the change log, as SQL text.

REPLACE deletes the rows that collide with a new one *without firing delete triggers* (unless the
writer has set recursive_triggers). So each captured table has a side table, *pending*: rows that
may vanish silently.

- BEFORE INSERT and BEFORE UPDATE put every row there that collides with NEW on the rowid or on a
  unique key (a superset is harmless: partial indexes are taken as if they covered every row).
- AFTER INSERT and AFTER UPDATE *settle*: a pending row that collides with NEW and is no longer
  there, or whose identity NEW now has, was replaced. It is logged as deleted and leaves pending.
- Updates and deletes keep pending true. BEFORE them OLD is marked there as moving, so that a
  cascade that runs inside them does not take it for replaced. AFTER UPDATE brings it up to date;
  AFTER DELETE removes it.

What must hold:

1. A pending row is still in the table, with these values; or it is moving; or it was replaced and
   its delete is not logged yet. Rows that OR IGNORE or an upsert left behind are of the first kind
   and do no harm. Trimming clears them: between transactions no row is of the other kinds.
2. Nothing in a trigger can fail or be skipped by the conflict policy of the writer's own statement,
   which SQLite passes on into triggers: no constraint is declared on the log or on pending.
3. A nested write of the same table (a cascade, a trigger of the application) leaves alone what the
   outer statement remembered: settling looks only at rows that collide with its own NEW.
4. A pending row counts as OLD only if its captured values are OLD's too. A trigger of the
   application may fire between REPLACE and our AFTER INSERT, if it is younger than ours, and change
   the row that took the pending one's place. If even the values are the same nothing can tell the
   two apart, so ours are made again when a younger one is seen: SQLite fires the youngest first.

A table on which nothing can be written between BEFORE and the statement's own write (no foreign key
from it, none with an action to it, no trigger of the application BEFORE or on DELETE) needs less: a
row that is updated or deleted just leaves pending, which then stays almost empty. In CPU time that
took upserts in one transaction from 46 to 104 thousand a second; without capture they are 790
thousand.

UPDATE OR REPLACE may change, by the row that it replaces, the very row that it updates: through
foreign-key actions that lead back to the table, or triggers on what is deleted. SQLite's own OLD is
then that of before in the outer AFTER UPDATE, and if the row was deleted that is not run at all. So
an update that collides remembers OLD as its *own* row, and whatever is done to that row meanwhile
brings it up to date. An own row that differs from OLD afterwards is what went. AFTER DELETE settles
rows that have vanished too. BEFORE triggers have a fresh OLD: an own row that differs from it there
was written already by the outer statement, whose AFTER triggers are still to come.

NOT NULL columns with a default need care: under REPLACE a NULL becomes the default after BEFORE
triggers have run, so collisions are searched for with the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.sources.sqlite.capture.capture_tables import LOG, NOW, pending_name
from viewkeeper.sources.sqlite.schema import (
    OWN_PREFIX,
    KeyPart,
    SqliteIndex,
    SqliteTable,
    affinity_of,
    quote_name,
)

# From here on `moving` counts, by one more, the updates of the row that have not ended.
_OWN = 2


def trigger_prefix(capture: int) -> str:
    return f"{OWN_PREFIX}{capture}_"


@dataclass(frozen=True, slots=True)
class PendingTable:
    """The side table of one capture: its fields, and conditions on its rows."""

    capture: int
    table: SqliteTable
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return pending_name(self.capture)

    def table_statements(self) -> Iterator[str]:
        """Create the side table; untyped where values are only kept, typed where compared."""
        pending, keyed = self.name, self.keyed_columns()
        kinds = {column.name: affinity_of(column.declared) for column in self.table.columns}
        identity = [kinds.get(part.column, "INTEGER") for part in self.table.identity]
        fields = [f"k{i} {kind}" for i, kind in enumerate(identity)]
        fields += [f"u{i} {kinds[column]}" for i, column in enumerate(keyed)]
        fields += [f"c{i}" for i in range(len(self.columns))]
        yield f"CREATE TABLE {pending} ({', '.join(fields)}, moving DEFAULT 0)"
        on = [
            f"k{i} COLLATE {quote_name(part.collation)}"
            for i, part in enumerate(self.table.identity)
        ]
        yield f"CREATE INDEX {pending}_identity ON {pending} ({', '.join(on)})"
        for number, key in enumerate(self.table.unique_keys):
            on = [
                f"u{keyed.index(part.column)} COLLATE {quote_name(part.collation)}"
                for part in key.parts
            ]
            yield f"CREATE INDEX {pending}_key_{number} ON {pending} ({', '.join(on)})"

    def keyed_columns(self) -> list[str]:
        """The columns of the unique keys, each once."""
        parts = (part for key in self.table.unique_keys for part in key.parts)
        return list(dict.fromkeys(part.column for part in parts))

    def list_fields(self) -> list[tuple[str, str]]:
        """The fields of a pending row, each with the column that it keeps."""
        named = [(f"k{i}", part.column) for i, part in enumerate(self.table.identity)]
        named += [(f"u{i}", column) for i, column in enumerate(self.keyed_columns())]
        named += [(f"c{i}", column) for i, column in enumerate(self.columns)]
        return named

    def insert_start(self) -> str:
        """The start of an insert of rows `r` of the table into pending."""
        targets = ", ".join(field for field, _ in self.list_fields())
        values = ", ".join(f"r.{quote_name(column)}" for _, column in self.list_fields())
        return f"INSERT INTO {self.name} ({targets}) SELECT {values}"

    def identity_condition(self, row: str) -> str:
        """A pending row has the identity of OLD or NEW."""
        pending = self.name
        return _all_of(
            _equal_sql(f"{pending}.k{i}", f"{row}.{quote_name(part.column)}", part)
            for i, part in enumerate(self.table.identity)
        )

    def same_condition(self, row: Callable[[str], str]) -> str:
        """A pending row has the identity and the captured values of a row (invariant 4)."""
        pending = self.name
        parts = [
            _equal_sql(f"{pending}.k{i}", row(part.column), part)
            for i, part in enumerate(self.table.identity)
        ]
        parts += [
            f"{pending}.c{i} IS {row(column)} COLLATE BINARY"
            for i, column in enumerate(self.columns)
        ]
        return _all_of(parts)

    def old_condition(self) -> str:
        """A pending row is OLD."""
        return self.same_condition(lambda column: f"OLD.{quote_name(column)}")

    def stale_condition(self) -> str:
        """A row is the own one of an update of OLD's row, with other values than OLD's."""
        is_old, identity = self.old_condition(), self.identity_condition("OLD")
        return f"moving >= {_OWN} AND {identity} AND NOT ({is_old})"

    def absent_condition(self) -> str:
        """No row of the table has the identity of a pending row."""
        pending = self.name
        there = _all_of(
            _equal_sql(f"r.{quote_name(part.column)}", f"{pending}.k{i}", part)
            for i, part in enumerate(self.table.identity)
        )
        return f"NOT EXISTS (SELECT 1 FROM {quote_name(self.table.name)} AS r WHERE {there})"


@dataclass(frozen=True, slots=True)
class CaptureStatements:
    """The statements for one capture of some columns of one table."""

    capture: int
    table: SqliteTable
    columns: tuple[str, ...]

    @property
    def _pending(self) -> PendingTable:
        return PendingTable(self.capture, self.table, self.columns)

    def table_statements(self) -> Iterator[str]:
        """Create the side table."""
        return self._pending.table_statements()

    def trigger_statements(self) -> dict[str, str]:
        """Trigger names and their full text, exactly as SQLite keeps it in its schema table."""
        pending = pending_name(self.capture)
        waiting = f"EXISTS (SELECT 1 FROM {pending})"
        leaves = f"DELETE FROM {pending} WHERE {self._pending.old_condition()}; "
        nests = self.table.nests
        parts = {
            "remember_insert": (
                "BEFORE INSERT",
                self._collides_in_table(False),
                self._remember_colliding(False),
            ),
            "remember_update": (
                "BEFORE UPDATE",
                self._keys_change() + self._collides_in_table(True),
                self._remember_colliding(True),
            ),
            "move_update": ("BEFORE UPDATE", waiting, self._mark_moving() if nests else leaves),
            "move_delete": ("BEFORE DELETE", waiting, self._mark_moving() if nests else leaves),
            "insert": ("AFTER INSERT", "", self._log_row(1, "NEW")),
            "update": (
                "AFTER UPDATE",
                self._is_changed(),
                self._log_row(-1, "OLD") + self._log_row(1, "NEW"),
            ),
            "delete": ("AFTER DELETE", "", self._log_row(-1, "OLD")),
            "settle_insert": ("AFTER INSERT", waiting, self._settle_pending("")),
            "settle_update": (
                "AFTER UPDATE",
                waiting,
                self._settle_pending(f" AND NOT ({self._pending.old_condition()})"),
            ),
        }
        if nests:
            del parts["settle_update"]
            parts["update"] = self._nested_update(waiting)
            gone = self._log_pending(self._pending.absent_condition())
            parts["settle_delete"] = ("AFTER DELETE", waiting, leaves + gone)
        prefix = trigger_prefix(self.capture)
        return {
            prefix
            + name: f'CREATE TRIGGER "{prefix}{name}" {event} ON {quote_name(self.table.name)}'
            + f"{f' WHEN {when}' if when else ''} BEGIN {body}END"
            for name, (event, when, body) in parts.items()
        }

    def _nested_update(self, waiting: str) -> tuple[str, str, str]:
        settle = self._settle_pending(f" AND NOT ({self._pending.old_condition()})")
        body = self._log_update() + settle + self._refresh_pending()
        return "AFTER UPDATE", f"{self._is_changed()} OR {waiting}", body

    def is_watched_by(self, triggers: Mapping[str, str]) -> bool:
        """Whether triggers, made for the table as it was, find collisions on all its current keys.

        Those that watch a key too many do no harm.
        """
        prefix = trigger_prefix(self.capture)
        insert, update = (triggers[f"{prefix}remember_{event}"] for event in ("insert", "update"))
        watched = all(
            f"({_all_of(map(self._equals_new_row, parts))})" in insert
            for parts in (self.table.identity, *(key.parts for key in self.table.unique_keys))
        )
        return watched and (bool(self._keys_change()) or " WHEN EXISTS (" in update)

    def _log_row(self, sign: int, row: str) -> str:
        values = "".join(f", {row}.{quote_name(column)}" for column in self.columns)
        return f"{self._into_log()} VALUES ({self.capture}, {sign}, {NOW}{values}); "

    def _into_log(self) -> str:
        targets = "".join(f", c{i}" for i in range(len(self.columns)))
        return f"INSERT INTO {LOG} (capture, sign, at{targets})"

    def _is_changed(self) -> str:
        """Some captured column changed; compared byte by byte, whatever the column's collation."""
        changes = (f"NEW.{c} COLLATE BINARY IS NOT OLD.{c}" for c in map(quote_name, self.columns))
        return _any_of(changes) or "0"

    def _keys_change(self) -> str:
        """An update that changes no key cannot collide, unless it moves into a partial index."""
        if any(key.partial for key in self.table.unique_keys):
            return ""
        keyed = [*(part.column for part in self.table.identity), *self._pending.keyed_columns()]
        changes = (f"NEW.{c} COLLATE BINARY IS NOT OLD.{c}" for c in map(quote_name, keyed))
        return f"({_any_of(changes)}) AND "

    def _is_colliding(
        self, stored: Callable[[SqliteIndex | None, KeyPart], str], new: Callable[[KeyPart], str]
    ) -> str:
        """Some row, whose columns `stored` names, has the identity or a unique key of NEW."""
        alternatives: list[tuple[SqliteIndex | None, Sequence[KeyPart]]] = [
            (None, self.table.identity)
        ]
        alternatives += [(key, key.parts) for key in self.table.unique_keys]
        return _any_of(
            "(" + _all_of(_equal_sql(stored(key, part), new(part), part) for part in parts) + ")"
            for key, parts in alternatives
        )

    def _colliding_rows(self, updating: bool) -> str:
        """FROM and WHERE of the rows of the table that NEW will meet, without OLD."""
        collides = self._is_colliding(
            lambda _, part: f"r.{quote_name(part.column)}", self._new_or_default
        )
        others = (
            _equal_sql(f"r.{quote_name(p.column)}", f"OLD.{quote_name(p.column)}", p)
            for p in self.table.identity
        )
        without = f" AND NOT ({_all_of(others)})" if updating else ""
        return f"FROM {quote_name(self.table.name)} AS r WHERE ({collides}){without}"

    def _collides_in_table(self, updating: bool) -> str:
        return f"EXISTS (SELECT 1 {self._colliding_rows(updating)})"

    def _equals_new_row(self, part: KeyPart) -> str:
        return _equal_sql(f"r.{quote_name(part.column)}", self._new_or_default(part), part)

    def _new_or_default(self, part: KeyPart) -> str:
        new = f"NEW.{quote_name(part.column)}"
        column = next((c for c in self.table.columns if c.name == part.column), None)
        if column is None or not column.not_null or column.default is None:
            return new
        # A comment in it ends with its line.
        end = "\n" if "--" in column.default else ""
        return f"coalesce({new}, ({column.default}{end}))"

    def _remember_colliding(self, updating: bool) -> str:
        pending = pending_name(self.capture)
        colliding = self._colliding_rows(updating)
        same = self._pending.same_condition(lambda column: f"r.{quote_name(column)}")
        unknown = f"NOT EXISTS (SELECT 1 FROM {pending} WHERE {same})"
        if not self.table.nests:
            return f"{self._pending.insert_start()} {colliding} AND {unknown}; "
        # Updates that were ignored left rows as moving or as own; the few that collide lead to
        # them, and each is there once afterwards.
        met = colliding.replace(" AS r WHERE", f" AS r CROSS JOIN {pending} WHERE", 1)
        known = f"SELECT {pending}.rowid {met} AND {same}"
        start = self._pending.insert_start()
        added = f"DELETE FROM {pending} WHERE rowid IN ({known}); {start} {colliding}; "
        return added + (self._remember_own() if updating else "")

    def _remember_own(self) -> str:
        """OLD itself, as own: what is done to it before it is written is not in the outer OLD."""
        pending = pending_name(self.capture)
        values = ", ".join(f"OLD.{quote_name(column)}" for _, column in self._pending.list_fields())
        known = (
            f"SELECT 1 FROM {pending} WHERE moving >= {_OWN} AND {self._pending.old_condition()}"
        )
        targets = ", ".join(field for field, _ in self._pending.list_fields())
        return (
            f"INSERT INTO {pending} ({targets}, moving) SELECT {values}, {_OWN}"
            f" WHERE NOT EXISTS ({known}); "
        )

    def _mark_moving(self) -> str:
        """OLD, which is fresh here, is moving; an own row that is not like it was written."""
        pending = pending_name(self.capture)
        deeper = f"CASE WHEN moving >= {_OWN} THEN moving + 1 ELSE 1 END"
        return (
            f"DELETE FROM {pending} WHERE {self._pending.stale_condition()}; "
            f"UPDATE {pending} SET moving = {deeper} WHERE {self._pending.old_condition()}; "
        )

    def _log_update(self) -> str:
        """OLD, or what became of it since, is logged as deleted, and NEW as inserted."""
        pending, stale = pending_name(self.capture), self._pending.stale_condition()
        own = "".join(f", c{i}" for i in range(len(self.columns)))
        old, new = (
            "".join(f", {row}.{quote_name(column)}" for column in self.columns)
            for row in ("OLD", "NEW")
        )
        is_stale, into = f"EXISTS (SELECT 1 FROM {pending} WHERE {stale})", self._into_log()
        start, changed = f"SELECT {self.capture}", self._is_changed()
        # The same row may be remembered for another statement too; it counts as OLD then.
        now = "".join(f"c{i} = OLD.{quote_name(column)}, " for i, column in enumerate(self.columns))
        now = now.removesuffix(", ") or "k0 = k0"
        parts = [f"s.c{i} IS {pending}.c{i}" for i in range(len(self.columns))]
        parts += [
            _equal_sql(f"s.k{i}", f"{pending}.k{i}", part)
            for i, part in enumerate(self.table.identity)
        ]
        like = _all_of([f"s.moving >= {_OWN}", *parts])
        identity = self._pending.identity_condition("OLD")
        return (
            f"{into} {start}, -1, {NOW}{own} FROM {pending} WHERE {stale}; "
            f"{into} {start}, -1, {NOW}{old} WHERE ({changed}) AND NOT {is_stale}; "
            f"{into} {start}, 1, {NOW}{new} WHERE ({changed}) OR {is_stale}; "
            f"UPDATE {pending} SET {now}, moving = 1 WHERE moving < {_OWN} AND"
            f" {identity} AND EXISTS (SELECT 1 FROM {pending} AS s WHERE {like}); "
        )

    def _settle_pending(self, besides: str) -> str:
        pending, keyed = pending_name(self.capture), self._pending.keyed_columns()
        identity = self.table.identity

        def stored(key: SqliteIndex | None, part: KeyPart) -> str:
            field = f"u{keyed.index(part.column)}" if key else f"k{identity.index(part)}"
            return f"{pending}.{field}"

        def new(part: KeyPart) -> str:
            return f"NEW.{quote_name(part.column)}"

        collides = self._is_colliding(stored, new)
        taken = _all_of(_equal_sql(stored(None, part), new(part), part) for part in identity)
        return self._log_pending(
            f"({collides}) AND ({taken} OR {self._pending.absent_condition()}){besides}"
        )

    def _log_pending(self, condition: str) -> str:
        """Pending rows that were replaced are logged as deleted, and pending no longer."""
        pending = pending_name(self.capture)
        values = "".join(f", c{i}" for i in range(len(self.columns)))
        select = f"SELECT {self.capture}, -1, {NOW}{values} FROM {pending}"
        where = f"WHERE NOT {pending}.moving AND {condition}"
        return f"{self._into_log()} {select} {where}; DELETE FROM {pending} {where}; "

    def _refresh_pending(self) -> str:
        """OLD, if it is pending, is from now on there as the table has it.

        That need not be NEW: a cascade may have changed the row again before this trigger.
        """
        pending = pending_name(self.capture)
        there = _all_of(
            _equal_sql(f"r.{quote_name(part.column)}", f"NEW.{quote_name(part.column)}", part)
            for part in self.table.identity
        )
        moved = f"{pending}.moving = 1 AND {self._pending.old_condition()}"
        is_own = f"{pending}.moving >= {_OWN} AND {self._pending.identity_condition('OLD')}"
        now = ", ".join(
            f"{field} = NEW.{quote_name(column)}" for field, column in self._pending.list_fields()
        )
        return (
            f"{self._pending.insert_start()} FROM {quote_name(self.table.name)} AS r WHERE {there}"
            f" AND EXISTS (SELECT 1 FROM {pending} WHERE {moved}); "
            f"DELETE FROM {pending} WHERE {moved}; "
            f"DELETE FROM {pending} WHERE {pending}.moving = {_OWN} AND {is_own}; "
            f"UPDATE {pending} SET {now}, moving = moving - 1 WHERE {is_own}; "
        )


def _equal_sql(left: str, right: str, part: KeyPart) -> str:
    return f"{left} = {right} COLLATE {quote_name(part.collation)}"


def _any_of(conditions: Iterator[str]) -> str:
    return " OR ".join(conditions)


def _all_of(conditions: Iterator[str] | list[str]) -> str:
    return " AND ".join(conditions)
