"""View adaptation: what the stored rows of a view need when its definition becomes another one.

As little as is exact. Names cost nothing: a definition that only has other names for the same
columns leaves the rows as they are. A column of the view that goes is left out, and the counts of
rows that become the same by that add up, which is what projection does to bags. A column that comes
and is NULL in every row from before is NULL in the stored rows; one that got a wider type is read
as that. Everything else is repaired by the difference between what the new definition gives and
what is stored; a new table is only needed where an old one cannot hold both.

Every expression has a *form*: a value that is equal for two expressions that give the same value
for the same rows. Columns of the old definition are called as the new one calls them; one that is
not there any more, or has other values now, has a form that is equal to nothing. Implicit
conversions and the types of literals are left out: where they differ because a column got a wider
type, they lose nothing (`viewkeeper.view.sql.coerce`). What only Spark can evaluate may depend on
types in any way, and so may a call, so there the types must be the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.sources.tables.column_type import is_widening
from viewkeeper.view.definition import Field, Output, Relation, ViewDefinition
from viewkeeper.view.expression import (
    Arithmetic,
    Call,
    Cast,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
    SparkSql,
    type_of,
)
from viewkeeper.view.render import quote_name

Named = tuple[Relation, str]
Form: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class MeaningComparison:
    """Forms of the old definition by the names of the new one; `rewritten` are old columns."""

    old: ViewDefinition
    new: ViewDefinition
    same: Mapping[Named, Named]
    rewritten: frozenset[Named]

    def has_same_conditions(self) -> bool:
        """Whether both join the same tables by the same conditions."""
        if len(self.old.places) != len(self.new.places):
            return False
        joined = zip(self.old.places, self.new.places, strict=True)
        if not all(self._is_same_table(one.relation, other.relation) for one, other in joined):
            return False
        return self._condition_forms(self.old) == self._condition_forms(self.new)

    def has_same_value(self, old: Expression, new: Expression) -> bool:
        """Whether two expressions give the same value for the same rows."""
        return self.expression_form(old, self.old) == self.expression_form(new, self.new)

    def _is_same_table(self, one: Relation, other: Relation) -> bool:
        ways = {theirs for (mine, _), (theirs, _) in self.same.items() if mine == one}
        return other in ways if ways else one == other

    def _condition_forms(self, view: ViewDefinition) -> frozenset[Form]:
        found = {self.expression_form(predicate, view) for predicate in view.predicates}
        for pair in view.equalities:
            operator: Form = "<=>" if pair.null_safe else "="
            sides = frozenset(self.expression_form(side, view) for side in (pair.left, pair.right))
            found.add(("compare", operator, sides))
        return frozenset(found)

    def expression_form(self, expression: Expression, view: ViewDefinition) -> Form:
        match expression:
            case Column():
                return self._column_form(expression, view)
            case Literal():
                return ("literal", isinstance(expression.value, bool), expression.value)
            case Cast():
                return self.expression_form(expression.operand, view)
            case Compare() | Logic():
                return self._binary_form(expression, view)
            case Not() | IsNull():
                return (type(expression).__name__, self.expression_form(expression.operand, view))
            case Arithmetic():
                sides = self._forms_of((expression.left, expression.right), view)
                return ("arithmetic", expression.operator, _scale_of(expression.type), *sides)
            case Call():
                return self._call_form(expression, view)
            case SparkSql():
                return self._spark_form(expression, view)
            case _:
                assert_never(expression)

    def _binary_form(self, expression: Compare | Logic, view: ViewDefinition) -> Form:
        sides = self._forms_of((expression.left, expression.right), view)
        if expression.operator in ("=", "<=>", "<>", "and", "or"):
            return ("compare", expression.operator, frozenset(sides))
        return ("compare", expression.operator, *sides)

    def _forms_of(self, expressions: Iterable[Expression], view: ViewDefinition) -> list[Form]:
        return [self.expression_form(expression, view) for expression in expressions]

    def _call_form(self, call: Call, view: ViewDefinition) -> Form:
        """A call; like Spark's own text it may depend on types in any way."""
        kinds = (call.type, *(type_of(argument) for argument in call.arguments))
        return ("call", call.function, kinds, *self._forms_of(call.arguments, view))

    def _spark_form(self, expression: SparkSql, view: ViewDefinition) -> Form:
        forms = {column: self._column_form(column, view) for column in expression.columns}
        text = expression.text
        for column, form in forms.items():
            text = text.replace(quote_name(column.label), quote_name(repr(form)))
        return ("spark", text, frozenset((form, column.type) for column, form in forms.items()))

    def _column_form(self, column: Column, view: ViewDefinition) -> Form:
        relation = view.places[column.place].relation
        if view is self.new:
            return ("column", column.place, column.name.lower())
        now = self.same.get((relation, column.name))
        lost = ("lost", column.place, column.name)
        if now is None or (relation, column.name) in self.rewritten:
            return lost
        if column.place >= len(self.new.places):
            return lost
        place = self.new.places[column.place]
        if now[0] != place.relation:
            return lost
        kinds = [f.type for f in place.fields if f.name.lower() == now[1].lower()]
        kept = all(kind == column.type or is_widening(column.type, kind) for kind in kinds)
        return ("column", column.place, now[1].lower()) if kept else lost


def _scale_of(kind: pa.DataType) -> Form:
    """What the type of a calculation does to its value: decimals are rounded to their scale."""
    return kind.scale if isinstance(kind, pa.Decimal128Type) else is_type.is_floating(kind)


@dataclass(frozen=True, slots=True)
class Nothing:
    """The definitions differ by names only."""


@dataclass(frozen=True, slots=True)
class Restate:
    """The stored rows stay, under other columns: some left out, some NULL, some of wider types."""

    drop: tuple[str, ...] = ()
    add: tuple[Field, ...] = ()
    widen: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Load by the new definition and append the difference to what is stored, restated so."""

    drop: tuple[str, ...] = ()
    add: tuple[Field, ...] = ()
    widen: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Reload:
    """The old table cannot hold the new rows: load into a new one."""


Adaptation = Nothing | Restate | Difference | Reload


def choose_adaptation(
    old: ViewDefinition,
    new: ViewDefinition,
    same: Mapping[Named, Named],
    rewritten: frozenset[Named],
    added: frozenset[Named] = frozenset(),
    dropped: frozenset[str] = frozenset(),
) -> Adaptation:
    """The least that turns rows of `old` into rows of `new`.

    Columns are named by the relation's handle and their name. `same` has, for columns of the old
    definition, those of the new one that are the same with their values kept; `rewritten` are old
    columns whose values changed all the same. `added` are new columns that are NULL in all rows
    from before. `dropped` are names that the stored table had columns under once: what gets such a
    name would show their values.
    """
    likeness = MeaningComparison(old, new, same, rewritten)
    before = {output.name.lower(): output for output in old.outputs}
    after = {output.name.lower(): output for output in new.outputs}
    came = [output for name, output in after.items() if name not in before]
    stayed = [(before[name], output) for name, output in after.items() if name in before]
    gone = tuple(output.name for name, output in before.items() if name not in after)
    back = {name.lower() for name in dropped} & {output.name.lower() for output in came}
    if back or not all(_can_hold(likeness, *pair) for pair in stayed):
        return Reload()
    fields = [_field_of(output) for output in came]
    exact = (
        likeness.has_same_conditions()
        and all(likeness.has_same_value(one.expression, other.expression) for one, other in stayed)
        and all(_is_null(output, new, added) for output in came)
    )
    add = tuple(field for field in fields if field is not None)
    if len(add) < len(fields):
        # A column whose type only Spark knows cannot be declared in the stored table.
        return Reload()
    widen = tuple(
        _wider_field(one, other)
        for one, other in stayed
        if _type_of_output(one) != _type_of_output(other)
    )
    if not exact:
        return Difference(gone, add, widen)
    return Restate(gone, add, widen) if gone or add or widen else Nothing()


def _can_hold(likeness: MeaningComparison, old: Output, new: Output) -> bool:
    """Whether the column that an output is stored in can hold its new values."""
    before, after = _type_of_output(old), _type_of_output(new)
    if before is None or after is None:
        # Spark will say; two that give the same value have the same type.
        return likeness.has_same_value(old.expression, new.expression)
    return before == after or is_widening(before, after)


def _type_of_output(output: Output) -> pa.DataType | None:
    return type_of(output.expression)


def _field_of(output: Output) -> Field | None:
    kind = _type_of_output(output)
    return None if kind is None else Field(output.name, kind)


def _wider_field(old: Output, new: Output) -> Field:
    kind = _type_of_output(new)
    assert kind is not None, "a type that is not known differs from none"
    return Field(old.name, kind)


def _is_null(output: Output, view: ViewDefinition, added: frozenset[Named]) -> bool:
    """Whether an output is NULL in every row from before."""
    match output.expression:
        case Literal(value=None):
            return True
        case Column() as column:
            return (view.places[column.place].relation, column.name) in added
    return False
