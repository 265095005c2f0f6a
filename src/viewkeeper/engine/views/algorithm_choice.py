"""Which algorithm maintains a view, and whether it may; chosen once, for one run.

The project file names one for all views (`algorithm:`) and for single ones (`views:`); the command
line may name one for a run. An algorithm that cannot work on a view is refused before anything
happens, with the reason; so is one that would promise less than strong consistency here, unless
that level is asked for by name. What SQLite committed between two looks is reported as one
transaction, so on real sources the scenario is that of source-local transactions.

A view is bound and its algorithm chosen as soon as its sources answer. Wrong SQL and a refused
algorithm are known before anything is dropped, and are the trouble of that view alone; a source
that is away only delays.

A view over two parents with a common base, or over a parent and one of its bases, would show two
states of that base at once: each of the two takes the base's transactions in its own time (Ding,
Zhang, Rundensteiner 2000, Example 1). A registry that orders the ids of the base for all these
projects prevents that. Without one such a view is refused when it is defined.

Where a source logs only the key of a deleted row, the view's own rows with that key are deleted. So
the view must show the key, at every place where it uses the table.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.settings.algorithm_settings import (
    DEFAULT,
    SCENARIO,
    AlgorithmSettings,
)
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.bound_view import Binding
from viewkeeper.engine.views.trouble_retries import can_be_mended
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import (
    DamagedSourceError,
    DefinitionError,
    ProjectError,
    SchemaError,
    SourceAwayError,
    UnexpectedSourceError,
    UnsupportedError,
    ViewkeeperError,
    reload_hint,
)
from viewkeeper.evolution.synchronization.parts_of_sql import quote_if_needed, quote_source_table
from viewkeeper.maintain.algorithm_catalogue import KINDS, AlgorithmKind
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.sources.kinds import whole_rows_remedy
from viewkeeper.stages.fold import stored_schema_of
from viewkeeper.upstream.any_source import is_parent
from viewkeeper.upstream.parent_project import ParentProject, common_base
from viewkeeper.view.definition import Field, Fold, Relation, ViewDefinition, name_of_handle
from viewkeeper.view.expression import Column
from viewkeeper.view.keyed_view import KeyedView, keyed_view_of


def relations_deleted_by_key(
    view: ViewDefinition, connections: Connections
) -> tuple[Relation, ...]:
    """The relations of a view of which rows may go by their key only, as the user asked for."""
    found = []
    for relation in view.relations:
        if relation.is_own:
            continue
        listed = connections.settings[relation.source].options.get("delete_by_key", ())
        assert isinstance(listed, Sequence)
        if name_of_handle(relation.table) in listed:
            found.append(relation)
    return tuple(found)


def shown_keys(view: ViewDefinition, relation: Relation, key: Sequence[str]) -> list[list[str]]:
    """For every use of a relation, the view's columns that show its key; an error if one does not.

    A view of which rows are deleted by key must hold the key.
    """
    shown = {o.expression: o.name for o in view.outputs if isinstance(o.expression, Column)}
    found = []
    for place in (place for place in view.places if place.relation == relation):
        names = {c.name: name for c, name in shown.items() if c.place == place.index}
        missing = [column for column in key if column not in names]
        if missing or not key:
            alias = quote_if_needed(place.alias)
            wanted = ", ".join(f"{alias}.{quote_if_needed(column)}" for column in missing)
            raise ProjectError(
                f'view "{view.name}": it does not show the key of {relation}, whose rows are '
                "deleted by key",
                detail=f"missing: {', '.join(missing) or 'the table has no key'}",
                hint=f"select {wanted} in the view, or "
                f"{whole_rows_remedy(quote_source_table(relation.table))}",
            )
        found.append([names[column] for column in key])
    return found


def refuse_dependent(view: ViewDefinition, settings: Settings, connections: Connections) -> None:
    """Refuse a view over sources that share a base, unless a registry orders them.

    SourceAwayError if the files of a parent cannot be read now.
    """
    if settings.registry is not None or len(view.sources) < 2:
        return
    bases = {source: _source_bases(view, source, connections) for source in view.sources}
    found = common_base(bases)
    if found is None:
        return
    one, other, base = found
    raise UnsupportedError(
        f'view "{view.name}": sources "{one}" and "{other}" are both made from "{base}"',
        path=view.path,
        detail="each takes its transactions in its own time, so the view would show two states of "
        "it at once",
        hint="let a registry order them: `registry: {url: ...}` in viewkeeper.yml of this project "
        "and of all that it reads; if these are two databases, give them two names: `global: ...`",
    )


def _source_bases(view: ViewDefinition, source: str, connections: Connections) -> frozenset[str]:
    """The databases behind what a view reads of a source, by their global names."""
    settings = connections.settings[source]
    if not is_parent(settings):
        return frozenset({settings.global_name})
    parent = ParentProject(source, settings.read_path().absolute())
    views = parent.load_head().views
    tables = {
        name_of_handle(relation.table) for relation in view.relations if relation.source == source
    }
    there = (views[table] for table in tables if table in views)
    return frozenset(base for each in there for base in parent.bases_of(each))


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """A view with its algorithm: as it is stored, and the keys that are in it."""

    kind: AlgorithmKind
    options: Mapping[str, Any]
    view: ViewDefinition
    keyed: KeyedView | None

    @property
    def is_default(self) -> bool:
        """Maintained in batches, on Spark where they are large, together with other views."""
        return self.kind.name == DEFAULT

    @property
    def hidden_columns(self) -> tuple[str, ...]:
        graph = self.view.graph
        if graph is not None and isinstance(graph.root, Fold):
            return stored_schema_of(graph.root)[1]
        return self.keyed.hidden if self.keyed else ()

    @property
    def level(self) -> Level:
        return self.kind.promise[SCENARIO]


def choose_algorithm(
    view: ViewDefinition, settings: AlgorithmSettings, connections: Connections
) -> AlgorithmChoice:
    """The view with its algorithm, or a ProjectError that says why it cannot be."""
    kind = settings.kind
    _check_level(view, settings)
    if kind.one_source and len(view.sources) > 1:
        raise _algorithm_refusal(
            view,
            f"{kind.name} is for views over one source",
            f"this one reads {', '.join(view.sources)}",
        )
    if view.needs_spark and kind.name != DEFAULT:
        raise _algorithm_refusal(
            view,
            f"only {DEFAULT} evaluates expressions that need Spark SQL",
            "`viewkeeper explain` shows which they are",
        )
    if kind.name != DEFAULT and (view.graph is not None or view.parents):
        raise _algorithm_refusal(
            view,
            f"only {DEFAULT} maintains more than joins of tables of sources",
            "name the join as a view of its own with that algorithm, and put the report on top",
        )
    for relation in relations_deleted_by_key(view, connections):
        _refuse_in_report(view, relation)
        found = connections.get_source(relation.source).describe_table(relation.table)
        shown_keys(view, relation, found.key)
        if kind.name != DEFAULT:
            raise _algorithm_refusal(
                view,
                f"only {DEFAULT} maintains views over tables whose rows are deleted by key",
                f"{relation} is one of them",
            )
    if not kind.keyed:
        return AlgorithmChoice(kind, settings.options, view, None)
    with_keys = keyed_view_of(view, _relation_keys(view, kind, connections))
    return AlgorithmChoice(kind, settings.options, with_keys.view, with_keys)


def _refuse_in_report(view: ViewDefinition, relation: Relation) -> None:
    if view.graph is not None:
        raise ProjectError(
            f'view "{view.name}": rows of {relation} are deleted by key, which only plain joins '
            "can bear",
            hint=whole_rows_remedy(quote_source_table(relation.table)),
        )


def check_in_group(view: str, kind: AlgorithmKind) -> None:
    """Refuse an algorithm that cannot show every state of a registry's order, one by one."""
    if not _keeps_order(kind):
        able = [k.name for k in KINDS.values() if _keeps_order(k)]
        raise ProjectError(
            f'view "{view}": {kind.name} cannot be used in a project that names a registry',
            detail="it does not show each state of the registry's order by itself, or reads the "
            "order in which reports arrive",
            hint=f"algorithms that can: {', '.join(able)}",
        )


def _keeps_order(kind: AlgorithmKind) -> bool:
    complete = kind.promise[SCENARIO] >= Level.COMPLETE
    return complete and not (kind.arrival or kind.caught_up)


def _check_level(view: ViewDefinition, settings: AlgorithmSettings) -> None:
    promised = settings.kind.promise[SCENARIO]
    wanted = Level.STRONG if settings.level is None else settings.level
    if promised < wanted:
        raise ProjectError(
            f'view "{view.name}": {settings.name} promises {promised.lower_name} here, '
            f"less than {wanted.lower_name}",
            detail="that is its level for transactions of several changes at one source, which is "
            "how sources report what they committed between two looks",
            hint=f"choose another algorithm, or ask for that level by name: --level "
            f"{promised.lower_name}, or views: {{{view.name}: {{algorithm: {settings.name}, level: "
            f"{promised.lower_name}}}}} in viewkeeper.yml",
        )


def _relation_keys(
    view: ViewDefinition, kind: AlgorithmKind, connections: Connections
) -> dict[Relation, tuple[Field, ...]]:
    keys = {}
    for relation in view.relations:
        found = connections.get_source(relation.source).describe_table(relation.table)
        if not found.key:
            raise _algorithm_refusal(
                view,
                f"{kind.name} needs a key of every relation, and {relation} has none",
                "a PRIMARY KEY or UNIQUE constraint over NOT NULL columns is one",
            )
        fields = {field.name: field for field in found.fields}
        keys[relation] = tuple(fields[name] for name in found.key)
    return keys


def _algorithm_refusal(view: ViewDefinition, message: str, detail: str) -> ProjectError:
    return ProjectError(
        f'view "{view.name}": {message}', detail=detail, hint=f"{DEFAULT} maintains every view"
    )


IfAllRefused: TypeAlias = Literal["raise", "retry", "go on"]
"""What a start does that finds all views refused: it fails; or it fails unless a source may be
mended, for which a run waits; or it goes on, because other files may come."""


class AlgorithmChoices(Mapping[str, AlgorithmChoice]):
    """The choice of every view that could be bound."""

    def __init__(self, workspace: Workspace) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._made: dict[str, AlgorithmChoice] = {}
        self.refused: dict[str, ViewkeeperError] = {}
        """Views that cannot be bound or maintained so; a run tries again where a source is mended,
        and the next start all of them."""
        self.provisional: set[str] = set()
        """Views that can only be maintained once they have followed a schema change."""

    def __getitem__(self, name: str) -> AlgorithmChoice:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def bind_views(self, again: Container[str] = ()) -> None:
        """Bind every view whose sources answer; those with wrong SQL or tables are refused.

        For those that are about to be loaded `again` it does not matter what is stored.
        """
        for name in self._catalogue:
            if name not in self._made and name not in self.refused:
                self._bind_or_refuse(name, again)

    def bind_refused(self, name: str) -> None:
        """Bind a refused view again; it stays refused if that is wrong still."""
        self.forget_view(name)
        self._bind_or_refuse(name, ())

    def _bind_or_refuse(self, name: str, again: Container[str]) -> None:
        try:
            self._bind_view(name, again)
        except (DefinitionError, ProjectError, SchemaError) as error:
            self.refuse_view(name, error)

    def raise_refused(self, named: Sequence[str], if_all: IfAllRefused) -> None:
        """An error if a view that somebody has `named` is refused, or all of them are and nobody
        waits for that to change."""
        refused = self.refused_views()
        for name in named:
            if name in refused:
                raise refused[name]
        waits = if_all == "go on" or (
            if_all == "retry" and any(can_be_mended(error) for error in self.refused.values())
        )
        if refused.keys() >= {*self._catalogue} and not waits:
            raise next(iter(refused.values()))

    def refused_views(self) -> dict[str, ViewkeeperError]:
        """The views that are refused, and why: by their files, or when they were bound."""
        by_file = {name: each.error for name, each in self._catalogue.written.refused.items()}
        return by_file | self.refused

    def refuse_views(self, found: Iterable[tuple[str, ViewkeeperError]]) -> None:
        """Refuse views that were found to be wrong."""
        for name, error in list(found):
            self.refuse_view(name, error)

    def refuse_view(self, name: str, error: ViewkeeperError) -> None:
        """A view is not maintained by this run; nothing is captured for it if it is new."""
        self.refused[name] = error
        self._made.pop(name, None)
        if name not in self._store.head.views:
            self._catalogue.forget_binding(name)

    def bind_again(self, name: str) -> None:
        """Bind a view that is to be loaded again, now."""
        self.forget_view(name)
        self._bind_view(name, (name,))
        if name not in self._made:
            raise ProjectError(
                f'view "{name}": it cannot be bound now, because a source does not answer or a '
                "view that it reads is not loaded",
                hint="`viewkeeper status` says which; ask again when it is back",
            )

    def forget_view(self, name: str) -> Callable[[], None]:
        """A view is bound again, or is not in the project any more; what is returned makes that
        undone."""
        made, provisional, refused = {**self._made}, {*self.provisional}, {**self.refused}
        self._made.pop(name, None)
        self.refused.pop(name, None)
        self.provisional.discard(name)

        def undo() -> None:
            self._made, self.provisional, self.refused = made, provisional, refused

        return undo

    def _bind_view(self, name: str, again: Container[str]) -> None:
        sources = self._catalogue.sources_of(name)
        self._connections.greet_sources(sources)
        if not self._connections.can_ask(sources) or not self._catalogue.can_bind(name):
            return
        try:
            view = self._catalogue.bind_view(name, self._connections)
            try:
                self._fix_choice(name, self.choice_of(name, view), again)
            except SchemaError:
                if name in again or name not in self._store.head.maintained_views:
                    raise
                # Its keys went with a schema change that the next look reports.
                kind = self._settings.algorithm_of(name).kind
                self._made[name] = AlgorithmChoice(kind, {}, view, None)
                self._catalogue.stored[name] = view
                self.provisional.add(name)
        except (SourceAwayError, DamagedSourceError, UnexpectedSourceError) as error:
            self._connections.note_error(error)

    def choice_of(self, name: str, view: ViewDefinition) -> AlgorithmChoice:
        """The algorithm of a view with this definition; an error if it cannot be."""
        refuse_dependent(view, self._settings, self._connections)
        if self._settings.registry is not None:
            check_in_group(name, self._settings.algorithm_of(name).kind)
        return choose_algorithm(view, self._settings.algorithm_of(name), self._connections)

    def _fix_choice(self, name: str, choice: AlgorithmChoice, again: Container[str]) -> None:
        """Fix the algorithm of a view; refuse one that its stored rows do not fit."""
        stored = self._store.head.maintained_views.get(name)
        if stored is not None and name not in again and stored.hidden != choice.hidden_columns:
            if stored.hidden and choice.hidden_columns:
                # All algorithms that store keys store the same ones: the tables have others now.
                self.provisional.add(name)
                self._made[name] = choice
                self._catalogue.stored[name] = choice.view
                return
            raise ProjectError(
                f'view "{name}": {choice.kind.name} stores other columns than those that are there',
                detail="algorithms that delete by key keep the keys of all relations in the view",
                hint="choose the algorithm that it was loaded for; or write this one into "
                f"viewkeeper.yml, then {reload_hint([name])}",
            )
        self._made[name] = choice
        self._catalogue.stored[name] = choice.view

    def replace_choice(self, name: str, binding: Binding, choice: AlgorithmChoice) -> None:
        """From now on a view is this."""
        self._catalogue.put_binding(name, binding)
        self._catalogue.coming.pop(name, None)
        self.provisional.discard(name)
        self._made[name] = choice
        self._catalogue.stored[name] = choice.view
