"""Which algorithm maintains a view, and whether it may.

The project file names one for all views (`algorithm:`) and for single ones (`views:`); the command
line may name one for a run. An algorithm that cannot work on a view is refused before anything
happens, with the reason; so is one that would promise less than strong consistency here, unless
that level is asked for by name. What SQLite committed between two looks is reported as one
transaction, so on real sources the scenario is that of source-local transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.views.deleted_by_key import relations_deleted_by_key, shown_keys
from viewkeeper.errors import ProjectError
from viewkeeper.maintain.algorithm_catalogue import KINDS, AlgorithmKind
from viewkeeper.maintain.promises import Level, TransactionKind
from viewkeeper.sources.settings import suggest_nearest
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.keyed_view import KeyedView, keyed_view_of

DEFAULT = "batch_sweep"
SCENARIO = TransactionKind.LOCAL
"""How real sources report: what was committed between two looks is one transaction."""


@dataclass(frozen=True, slots=True)
class AlgorithmSettings:
    """An algorithm by name; `level` accepts a promise below strong, by its name."""

    name: str = DEFAULT
    level: Level | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> AlgorithmKind:
        return KINDS[self.name]


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
        return self.keyed.hidden if self.keyed else ()

    @property
    def level(self) -> Level:
        return self.kind.promise[SCENARIO]


def read_algorithm(name: object, raw: Mapping[str, Any], where: str) -> AlgorithmSettings:
    """An algorithm as the project file or the command line names it."""
    kind = KINDS.get(str(name))
    if kind is None:
        raise ProjectError(
            f'{where}: unknown algorithm "{name}"',
            hint=f"algorithms: {', '.join(KINDS)}{suggest_nearest(str(name), tuple(KINDS))}",
        )
    level = read_level(raw["level"], where) if "level" in raw else None
    options = {key: value for key, value in raw.items() if key not in ("algorithm", "level")}
    if options and kind.name == DEFAULT:
        raise ProjectError(
            f"{where}: {DEFAULT} has no options of its own",
            hint="how batches are cut is said under `batch:`, for all views together",
        )
    kind.check_options(options, where)
    return AlgorithmSettings(kind.name, level, options)


def read_level(word: object, where: str) -> Level:
    """A level by its name."""
    words = {level.lower_name: level for level in Level}
    if str(word) not in words:
        raise ProjectError(
            f'{where}: unknown level "{word}"',
            hint=f"levels: {', '.join(words)}{suggest_nearest(str(word), tuple(words))}",
        )
    return words[str(word)]


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
    for relation in relations_deleted_by_key(view, connections):
        shown_keys(view, relation, connections.get_source(relation.source).key_of(relation.table))
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
        source = connections.get_source(relation.source)
        key = source.key_of(relation.table)
        if not key:
            raise _algorithm_refusal(
                view,
                f"{kind.name} needs a key of every relation, and {relation} has none",
                "a PRIMARY KEY or UNIQUE constraint over NOT NULL columns is one",
            )
        fields = {field.name: field for field in source.schema_of(relation.table)}
        keys[relation] = tuple(fields[name] for name in key)
    return keys


def _algorithm_refusal(view: ViewDefinition, message: str, detail: str) -> ProjectError:
    return ProjectError(
        f'view "{view.name}": {message}', detail=detail, hint=f"{DEFAULT} maintains every view"
    )
