"""What a view can do without, and what may stand in for what is lost: evolution preferences.

They are those of EVE's E-SQL, said in the project file instead of in the SQL. Each column,
condition and relation of a view may be *dispensable*, which nothing is unless it is listed, and
*replaceable*, which everything is unless it is listed as irreplaceable. What may replace what is
said by *substitutes*, for all views together. Columns are the view's own output names; conditions
are SQL as the view has it, one conjunct each; relations are named by their alias or source.table.

A substitute's extent says how it relates to its original. For a relation: its rows, on the columns
that are used. For a column: the rows of the original's table joined with the substitute, the
substitute's value in the place of the lost one; `equal` then means that every row of the table
meets exactly one row of the substitute, with the value that was lost.

YAML gives whatever was written: a word where a list is meant, `on` as a boolean, a misspelt key.
Every function here takes `where`, the words that an error begins with, and raises a ProjectError
whose hint is a line that can be pasted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.evolution.extent import Extent
from viewkeeper.view.definition import Relation

Word = TypeVar("Word", bound=Enum)


def read_mapping(raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise ProjectError(f"{where} must be a mapping", hint="write `key: value` lines below it")
    return {str(key): value for key, value in raw.items()}


def refuse_unknown_keys(raw: Mapping[str, object], known: Iterable[str], where: str) -> None:
    """Refuse a key that means nothing here."""
    for key in raw:
        if key not in known:
            raise ProjectError(
                f'{where}: unknown key "{key}"', hint=list_choices("keys", key, known)
            )


def list_choices(what: str, word: str, known: Iterable[str]) -> str:
    """The known words, and which of them was probably meant.

    >>> list_choices("extents", "supreset", ("subset", "superset"))
    'extents: subset, superset; did you mean "superset"?'
    """
    return f"{what}: {', '.join(known)}{suggest_nearest(word, known)}"


def read_texts(raw: object, where: str, example: str) -> tuple[str, ...]:
    """A list of texts, none of them empty."""
    if not isinstance(raw, list | tuple):
        raise ProjectError(f"{where} must be a list", hint=f"for example {example}")
    return tuple(read_one_text(each, where, example) for each in raw)


def read_one_text(raw: object, where: str, example: str) -> str:
    if not isinstance(raw, str) or not raw.strip():
        hint = f"for example {example}; put a word that YAML reads differently in quotes"
        raise ProjectError(f"{where} must be a text, not {raw!r}", hint=hint)
    return raw.strip()


def read_enum_word(raw: object, kind: type[Word], where: str) -> Word:
    """One of the words of an enumeration."""
    known = [str(each.value) for each in kind]
    if str(raw) not in known:
        hint = list_choices("one of", str(raw), known)
        raise ProjectError(f'{where}: "{raw}" is not known', hint=hint)
    return kind(str(raw))


def read_relation(raw: object, where: str, example: str) -> Relation:
    """`source.table` or `source.schema.table`."""
    parts = read_dotted_name(raw, where, example)
    if len(parts) not in (2, 3):
        raise ProjectError(f'{where}: "{raw}" is no table', hint=f"for example {example}")
    return Relation(parts[0], ".".join(parts[1:]))


def read_dotted_name(raw: object, where: str, example: str) -> tuple[str, ...]:
    """The names that dots separate."""
    parts = tuple(read_one_text(raw, where, example).replace("`", "").split("."))
    if not all(part.strip() for part in parts):
        raise ProjectError(f'{where}: "{raw}" has an empty name', hint=f"for example {example}")
    return parts


PREFERENCES = ("policy", "extent", "dispensable", "irreplaceable")
SUBSTITUTE = ("for", "use", "columns", "join", "extent")
SAME_ROW = "same row"
EXAMPLES = {"columns": "[note]", "conditions": '["o.flag = 1"]', "relations": "[c]"}
FOR_COLUMN = (
    "{for: shop.orders.price, use: archive.prices.amount, "
    "join: shop.orders.id = archive.prices.order_id, extent: equal}"
)
FOR_TABLE = "{for: shop.customers, use: crm.clients, columns: {id: client_id}, extent: superset}"


@dataclass(frozen=True, slots=True)
class NamedParts:
    """Parts of a view: output names, conditions as SQL text, aliases or source.table."""

    columns: frozenset[str] = frozenset()
    conditions: frozenset[str] = frozenset()
    relations: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a view wants of its rewritings."""

    extent: Extent = Extent.EQUAL
    dispensable: NamedParts = NamedParts()
    irreplaceable: NamedParts = NamedParts()


@dataclass(frozen=True, slots=True)
class Substitute:
    """What can stand in for a relation, or for one column of it.

    `columns` says what columns of the original are called in `relation`, where the names
    differ; for a column it has that column only. `join` ties `relation` to the original, for a
    column of another relation; a column of the same relation needs none (`join: same row`).
    """

    original: Relation
    column: str | None
    relation: Relation
    columns: Mapping[str, str] = field(default_factory=dict)
    join: str | None = None
    extent: Extent = Extent.EQUAL

    def __str__(self) -> str:
        if self.column is None:
            return str(self.relation)
        return f"{self.relation}.{self.columns[self.column]}"


def read_preferences(raw: Mapping[str, Any], where: str) -> Preferences:
    """The `evolution` of a view in the project file; its `policy` is read by `read_policies`."""
    facts = read_mapping(raw, where)
    refuse_unknown_keys(facts, PREFERENCES, where)
    return Preferences(
        read_enum_word(facts.get("extent", "equal"), Extent, f"{where}.extent"),
        _read_parts(facts.get("dispensable"), f"{where}.dispensable"),
        _read_parts(facts.get("irreplaceable"), f"{where}.irreplaceable"),
    )


def _read_parts(raw: object, where: str) -> NamedParts:
    facts = {} if raw is None else read_mapping(raw, where)
    refuse_unknown_keys(facts, tuple(EXAMPLES), where)
    read = {
        key: frozenset(read_texts(value, f"{where}.{key}", EXAMPLES[key]))
        for key, value in facts.items()
    }
    _check_conditions(read.get("conditions", frozenset()), where)
    return NamedParts(**read)


def _check_conditions(conditions: frozenset[str], where: str) -> None:
    """Refuse a condition that is no SQL, or several."""
    if not conditions:
        return
    # The parser of SQL is imported by projects that name a condition.
    from viewkeeper.evolution.condition_text import is_conjunction, parse_condition

    for condition in sorted(conditions):
        if is_conjunction(parse_condition(condition, f"{where}.conditions")):
            raise ProjectError(
                f'{where}.conditions: "{condition}" is several conditions',
                hint="list what AND ties together one by one",
            )


def read_substitutes(raw: object, where: str) -> tuple[Substitute, ...]:
    """The `substitutes` of the project file, in their order: the first that fits is used."""
    if raw is None:
        return ()
    if not isinstance(raw, list):
        hint = f"write one line for each: - {FOR_TABLE}"
        raise ProjectError(f"{where} must be a list", hint=hint)
    return tuple(_read_substitute(each, f"{where}[{number}]") for number, each in enumerate(raw))


def _read_substitute(raw: object, where: str) -> Substitute:
    facts = read_mapping(raw, where)
    refuse_unknown_keys(facts, SUBSTITUTE, where)
    for key in ("for", "use", "extent"):
        if key not in facts:
            raise ProjectError(f'{where}: "{key}" is missing', hint=f"for example {FOR_TABLE}")
    extent = read_enum_word(facts["extent"], Extent, f"{where}.extent")
    if "join" in facts and "columns" in facts:
        raise ProjectError(f"{where}: `join` is for a column, `columns` is for a table")
    if "join" in facts:
        return _substitute_column(facts, extent, where)
    if (
        "columns" not in facts
        and len(read_dotted_name(facts["for"], f"{where}.for", FOR_TABLE)) > 2
    ):
        raise ProjectError(
            f'{where}: is "{facts["for"]}" a column or a table?',
            hint=f"a column says how it is joined: {FOR_COLUMN}; a table of a schema says what"
            " its columns are called, if only `columns: {}`",
        )
    return _substitute_table(facts, extent, where)


def _substitute_table(facts: dict[str, Any], extent: Extent, where: str) -> Substitute:
    columns = read_mapping(facts.get("columns") or {}, f"{where}.columns")
    return Substitute(
        read_relation(facts["for"], f"{where}.for", "shop.customers"),
        None,
        read_relation(facts["use"], f"{where}.use", "crm.clients"),
        {
            name: read_one_text(now, f"{where}.columns.{name}", "client_id")
            for name, now in columns.items()
        },
        None,
        extent,
    )


def _substitute_column(facts: dict[str, Any], extent: Extent, where: str) -> Substitute:
    original, column = _read_column(facts["for"], f"{where}.for")
    stand_in, target = _read_column(facts["use"], f"{where}.use")
    join = read_one_text(facts["join"], f"{where}.join", "shop.orders.id = archive.prices.order_id")
    if original == stand_in:
        if join != SAME_ROW:
            hint = f"join: {SAME_ROW}"
            raise ProjectError(f"{where}.join: both columns are of {original}", hint=hint)
        return Substitute(original, column, stand_in, {column: target}, None, extent)
    _check_join(join, (original, stand_in), f"{where}.join")
    return Substitute(original, column, stand_in, {column: target}, join, extent)


def _read_column(raw: object, where: str) -> tuple[Relation, str]:
    parts = read_dotted_name(raw, where, "shop.orders.price")
    if len(parts) not in (3, 4):
        raise ProjectError(f'{where}: "{raw}" is no column', hint=f"for example {FOR_COLUMN}")
    return Relation(parts[0], ".".join(parts[1:-1])), parts[-1]


def _check_join(join: str, relations: tuple[Relation, Relation], where: str) -> None:
    """Every column in it must be one of the two tables, by its full name."""
    # The parser of SQL is imported by projects that name a join.
    from viewkeeper.evolution.condition_text import (
        columns_named,
        owner_of_column,
        parse_condition,
    )

    for column in columns_named(parse_condition(join, where)):
        if owner_of_column(column) not in {str(each).lower() for each in relations}:
            raise ProjectError(
                f'{where}: "{column.sql("spark")}" is a column of neither {relations[0]} nor'
                f" {relations[1]}",
                hint=f"name columns in full: {FOR_COLUMN}",
            )
