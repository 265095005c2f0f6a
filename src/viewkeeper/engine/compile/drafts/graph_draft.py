"""A graph while it grows: nodes that are finished, names for their columns, and drafts on top.

What reads a finished node sees it as a place like any other, over `#n`. A draft becomes a node when
something stands above it that is no join, filter or projection, or when it is the right side of a
keyed join and more than one plain relation. A core or fold that computes what an earlier one does,
as where a WITH is read twice, is that node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from viewkeeper.engine.compile.drafts.core_draft import (
    CoreDraft,
    DraftPlace,
    finish_core,
    required_columns,
)
from viewkeeper.engine.compile.expressions.expression_translation import Translator
from viewkeeper.engine.compile.plan.plan_tree import Attribute, PlanExpression, PlanLiteral
from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.view.definition import (
    Constant,
    Core,
    Expand,
    Field,
    Fold,
    Generate,
    KeyRecompute,
    Node,
    Output,
    Relation,
    Union,
    relation_of_node,
)
from viewkeeper.view.expression import Column

ONE = PlanLiteral("1", "integer")


@dataclass(frozen=True, slots=True)
class NodeInput:
    """Columns of a node, as another node reads them."""

    relation: Relation
    fields: tuple[Field, ...]
    required: tuple[bool, ...]


class GraphDraft:
    """The nodes that are finished, and what is known of them."""

    def __init__(self, tables: Sequence[QueryTable], translator: Translator) -> None:
        self.tables = tables
        self.translator = translator
        self.nodes: list[Node] = []
        self.scalars: dict[int, CoreDraft] = {}
        """The values of scalar subqueries that are there, by the ids of their columns."""
        self._numbers = count(1)
        self._keys = count(1)
        self._unique: dict[Relation, set[frozenset[str]]] = {}
        for table in tables:
            known = self._unique.setdefault(table.relation, set())
            known |= {frozenset(columns) for columns in table.unique}

    @property
    def next_number(self) -> int:
        return len(self.nodes)

    def new_name(self) -> str:
        """A name for a column that no other node has."""
        return f"c{next(self._numbers)}"

    def new_column(self) -> Attribute:
        """A column that is not in Spark's plan."""
        return Attribute(-next(self._keys), "")

    def add_node(self, node: Node) -> Relation:
        """Add a finished node; gives the relation under which it is read."""
        assert node.number == len(self.nodes), "nodes are numbered as they are added"
        self.nodes.append(node)
        return relation_of_node(node.number)

    def add_shared(self, node: Core | Fold) -> tuple[Relation, dict[str, str]]:
        """Add a node unless one computes the same; gives the relation under which it is read, and
        what the given node's columns are called there."""
        for other in self.nodes:
            names = match_columns(node, other)
            if names is not None:
                return relation_of_node(other.number), names
        return self.add_node(node), {field.name: field.name for field in node.fields}

    def mark_unique(self, relation: Relation, columns: Sequence[str]) -> None:
        """Remember that a node has one row for these columns at most."""
        self._unique.setdefault(relation, set()).add(frozenset(columns))

    def is_unique(self, relation: Relation, columns: frozenset[str]) -> bool:
        """Whether a relation has one row at most for values of these columns."""
        return any(key <= columns for key in self._unique.get(relation, ()))

    def finish_draft(self, draft: CoreDraft, expressions: Sequence[PlanExpression]) -> NodeInput:
        """The draft as a node that shows these expressions, over columns of places.

        A draft that only reads a node needs no node of its own if plain columns are asked for.
        """
        required = tuple(required_columns(draft, expressions))
        bare = draft.bare_node
        if bare is not None and all(isinstance(e, Attribute) for e in expressions):
            fields = tuple(bare.columns[e.id] for e in expressions if isinstance(e, Attribute))
            return NodeInput(bare.relation, fields, required)
        distinct = dict.fromkeys(expressions) or {ONE: None}
        named = {expression: self.new_name() for expression in distinct}
        outputs = [(name, expression) for expression, name in named.items()]
        core = finish_core(draft, self.next_number, outputs, self.translator)
        relation, names = self.add_shared(core)
        if relation == relation_of_node(core.number):
            self._keep_unique(draft, core, relation)
        types = {field.name: field.type for field in core.fields}
        own = [named[expression] for expression in expressions]
        fields = tuple(Field(names[name], types[name]) for name in own)
        return NodeInput(relation, fields, required)

    def _keep_unique(self, draft: CoreDraft, core: Core, relation: Relation) -> None:
        """A core over one place has a key that its place has, if it shows it."""
        if len(draft.places) != 1:
            return
        shown = {
            output.expression.name: output.name
            for output in core.view.outputs
            if isinstance(output.expression, Column)
        }
        for key in self._unique.get(draft.places[0].relation, ()):
            if key <= shown.keys():
                self.mark_unique(relation, [shown[column] for column in key])

    def seal_draft(
        self,
        draft: CoreDraft,
        needed: Sequence[int],
        computed: Mapping[int, PlanExpression] | None = None,
    ) -> CoreDraft:
        """The draft as a node, and a new draft that reads it, with the same shown columns.

        `computed` are more columns, over columns of places.
        """
        shown = {key: draft.shown[key] for key in needed if key in draft.shown}
        shown |= computed or {}
        found = self.finish_draft(draft, list(shown.values()))
        columns = dict(zip(shown, found.fields, strict=True))
        required = {key for key, never in zip(shown, found.required, strict=True) if never}
        return draft_over(found.relation, columns or self._counted_column(found.relation), required)

    def _counted_column(self, relation: Relation) -> dict[int, Field]:
        assert relation.node is not None
        return {self.new_column().id: self.nodes[relation.node].fields[0]}


def draft_over(
    relation: Relation, columns: Mapping[int, Field], required: Sequence[int] | set[int] = ()
) -> CoreDraft:
    """A draft that reads one relation; ids that name one column of it are one expression."""
    first: dict[str, int] = {}
    shown = {key: Attribute(first.setdefault(columns[key].name, key), "") for key in columns}
    return CoreDraft((DraftPlace(relation, columns, frozenset(required)),), (), dict(shown))


def match_columns(node: Core | Fold, other: Node) -> dict[str, str] | None:
    """What the columns of a node are called in another one that computes the same; None if it does
    not, or if that is not plain to see."""
    match node, other:
        case Core(), Core():
            if _core_facts(node) != _core_facts(other) or node.copies or other.copies:
                return None
        case Fold(), Fold():
            if _fold_facts(node) != _fold_facts(other):
                return None
        case _:
            return None
    pairs = zip(node.fields, other.fields, strict=True)
    return {mine.name: its.name for mine, its in pairs}


def _core_facts(core: Core) -> tuple[object, ...]:
    view = core.view
    shown = tuple(output.expression for output in view.outputs)
    return view.places, view.equalities, view.predicates, shown


def _fold_facts(fold: Fold) -> tuple[object, ...]:
    """What a fold computes, its calls by their numbers instead of their names."""
    numbers = {call.name: number for number, call in enumerate(fold.calls)}
    calls = tuple(replace(call, name="") for call in fold.calls)
    shown = tuple(
        (numbers.get(each.name, each.name) if isinstance(each, Column) else each)
        for each in (output.expression for output in fold.outputs)
    )
    return fold.input, fold.groups, calls, shown, fold.is_global


def rename_node(node: Node, columns: Sequence[tuple[str, str]]) -> Node:
    """A node with other columns: pairs of the new name and the name that it has."""
    positions = [[field.name for field in node.fields].index(old) for _, old in columns]
    fields = tuple(
        Field(new, node.fields[at].type) for (new, _), at in zip(columns, positions, strict=True)
    )
    match node:
        case Core():
            kept = [output for output in node.view.outputs if _counts_copies(node, output)]
            outputs = (*_rename_outputs(node.view.outputs, columns), *kept)
            return replace(node, view=replace(node.view, outputs=outputs))
        case Fold() | KeyRecompute():
            return replace(node, outputs=_rename_outputs(node.outputs, columns))
        case Union():
            picked = tuple(tuple(names[at] for at in positions) for names in node.columns)
            return replace(node, columns=picked, fields=fields)
        case Expand():
            renamed = tuple(_rename_outputs(outputs, columns) for outputs in node.projections)
            return replace(node, projections=renamed, fields=fields)
        case Generate():
            shown = tuple(node.columns[at] for at in positions)
            return replace(node, columns=shown, fields=fields)
        case Constant():
            rows = tuple(tuple(row[at] for at in positions) for row in node.rows)
            return replace(node, fields=fields, rows=rows)


def _counts_copies(core: Core, output: Output) -> bool:
    return core.copies is not None and core.copies.name == output.name


def _rename_outputs(
    outputs: Sequence[Output], columns: Sequence[tuple[str, str]]
) -> tuple[Output, ...]:
    by_name = {output.name: output.expression for output in outputs}
    return tuple(Output(new, by_name[old]) for new, old in columns)
