"""Whether two definitions demand and show the same, when only names and wider types differ.

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

from viewkeeper.sources.tables.wider_types import is_widening
from viewkeeper.view.definition import Relation, ViewDefinition
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
