"""The files `views/*.sql`: what each defines, and which of them are refused, each by itself.

A file that cannot be read or parsed, that names an unknown source or view, that has the name of
another one, or that would be made from itself, is *refused*: its error is kept by name and file,
and the other views go on. So are the views that read a refused one.

A refused view that is stored already stays: it stands on the SQL by which its rows were made, and
is maintained by that, as far as the sources of that SQL are there. Nobody loses rows because of a
file that is wrong, or half written. Where a file cannot even be asked for a name, any view without
a file may be its view, and stands likewise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.errors import DefinitionError, ProjectError, ViewkeeperError, suggest_nearest

if TYPE_CHECKING:
    from viewkeeper.view.sql.view_statement import ParsedView

FOLDER = "views"
HEAD_CHARACTERS = 10_000
_HEAD = re.compile(
    r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*CREATE\s+(?:OR\s+REPLACE\s+)?MATERIALIZED\s+VIEW\s+"
    r"[`\"]?(?P<name>[A-Za-z_][A-Za-z0-9_]*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class RefusedView:
    """A view that its file does not define, and why; without `is_named` its name is the file's."""

    name: str
    path: str | None
    error: ViewkeeperError
    is_named: bool = True


@dataclass(frozen=True, slots=True)
class ViewFiles:
    """What the files of a project say: the views that could be parsed, and those that not."""

    parsed: Mapping[str, ParsedView]
    refused: tuple[RefusedView, ...] = ()

    @property
    def has_unnamed(self) -> bool:
        """Whether some file could not even be asked for the name of its view."""
        return any(not each.is_named for each in self.refused)

    def without_view(self, name: str) -> ViewFiles:
        """The same without a view."""
        parsed = {each: view for each, view in self.parsed.items() if each != name}
        return ViewFiles(parsed, tuple(each for each in self.refused if each.name != name))

    def with_view(self, view: ParsedView) -> ViewFiles:
        """The same with another view, in the place of the one that has its name."""
        rest = tuple(each for each in self.refused if each.name != view.name)
        return replace(self, parsed={**self.parsed, view.name: view}, refused=rest)


@dataclass(frozen=True, slots=True)
class SettledViews:
    """The views as they are to be maintained, each after those that it reads, and the refused ones,
    some of which stand among the others on the SQL by which they are stored."""

    parsed: Mapping[str, ParsedView]
    refused: Mapping[str, RefusedView]


def read_view_files(folder: Path, stored: Mapping[str, str]) -> ViewFiles:
    """Every file of a project's folder; `stored` is the SQL of the views that are loaded."""
    parsed: dict[str, ParsedView] = {}
    refused: dict[str, RefusedView] = {}
    for file in sorted((folder / FOLDER).glob("*.sql")):
        found = _read_file(file, stored)
        if isinstance(found, RefusedView):
            refused.setdefault(found.name, found)
            continue
        other = parsed.pop(found.name, None)
        if other is not None or found.name in refused:
            path = other.path if other is not None else refused[found.name].path
            refused[found.name] = RefusedView(found.name, str(file), _same_name(found, path))
        else:
            parsed[found.name] = found
    for name in parsed.keys() & refused.keys():
        error = _same_name(parsed.pop(name), refused[name].path)
        refused[name] = replace(refused[name], error=error)
    return ViewFiles(parsed, tuple(refused.values()))


def _same_name(view: ParsedView, other: str | None) -> ProjectError:
    return ProjectError(
        f'two views are called "{view.name}": {other} and {view.path}', hint="rename one of them"
    )


def _read_file(file: Path, stored: Mapping[str, str]) -> ParsedView | RefusedView:
    from viewkeeper.view.sql.view_statement import check_joins, parse_view

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = ProjectError(
            f"{file}: cannot be read",
            detail=str(error),
            hint="a view is a text file in UTF-8 that who runs Viewkeeper may read",
        )
        return RefusedView(file.stem, str(file), found, is_named=False)
    try:
        view = parse_view(text, str(file))
        if stored.get(view.name) != text:
            check_joins(view)
    except ViewkeeperError as error:
        name = name_in_text(text)
        return RefusedView(name or file.stem, str(file), error, is_named=name is not None)
    return view


def name_in_text(text: str) -> str | None:
    """The name that a text gives to its view, whatever is wrong with the rest of it.

    >>> name_in_text("-- by city\\nCREATE MATERIALIZED VIEW cities AS SELCT 1")
    'cities'
    >>> name_in_text("SELECT 1") is None
    True
    """
    found = _HEAD.match(text[:HEAD_CHARACTERS])
    return found["name"] if found else None


def settle_views(
    files: ViewFiles,
    stored: Mapping[str, str],
    sources: frozenset[str],
    edits: Mapping[str, RefusedView],
) -> SettledViews:
    """Which views are maintained, and by which SQL; `edits` of stored views are refused too."""
    settling = _Settling(files, stored)
    for each in (*files.refused, *edits.values()):
        settling.refuse(each)
    if files.has_unnamed:
        settling.keep_stored_views()
    while settling.refuse_wrong(sources):
        pass
    parsed = {name: settling.parsed[name] for name in reading_order(settling.parsed)}
    return SettledViews(parsed, settling.refused)


class _Settling:
    """The views of a project while some of them are refused."""

    def __init__(self, files: ViewFiles, stored: Mapping[str, str]) -> None:
        self._files = files
        self._stored = stored
        self.parsed = dict(files.parsed)
        self.refused: dict[str, RefusedView] = {}

    def refuse(self, found: RefusedView) -> None:
        """Refuse a view; if it is stored by other SQL, that takes its place."""
        from viewkeeper.view.sql.view_statement import parse_view

        self.refused.setdefault(found.name, found)
        before, text = self.parsed.pop(found.name, None), self._stored.get(found.name)
        if text is not None and (before is None or before.text != text):
            self.parsed[found.name] = parse_view(text, None)

    def keep_stored_views(self) -> None:
        """Let stored views without a file stand while a file could be that of any of them."""
        unnamed = next(each for each in self._files.refused if not each.is_named)
        for name in self._stored.keys() - self.parsed.keys() - self.refused.keys():
            error = DefinitionError(
                f'view "{name}": no file defines it, and {unnamed.path} may be the one, which '
                "cannot be read",
                path=unnamed.path,
                hint=f"mend that file; without it the view would be dropped: {unnamed.error}",
            )
            self.refuse(RefusedView(name, unnamed.path, error))

    def refuse_wrong(self, sources: frozenset[str]) -> bool:
        """Refuse some views that cannot be maintained beside the others; whether there were any."""
        found = [
            RefusedView(view.name, view.path, error)
            for view in self.parsed.values()
            if (error := self._wrong_relation(view, sources)) is not None
        ]
        found = found or [*self._views_in_circle()]
        for each in found:
            self.refuse(each)
        return bool(found)

    def _wrong_relation(self, view: ParsedView, sources: frozenset[str]) -> DefinitionError | None:
        for relation in view.relations:
            if relation.is_own and relation.table not in self.parsed:
                return self._unknown_view(view, relation.table)
            if not relation.is_own and relation.source not in sources:
                known = tuple(sorted(sources))
                return DefinitionError(
                    f'view "{view.name}": unknown source "{relation.source}" in {relation}',
                    path=view.path,
                    hint=(
                        "sources of the project: "
                        f"{', '.join(known)}{suggest_nearest(relation.source, known)}"
                    ),
                )
        return None

    def _unknown_view(self, view: ParsedView, table: str) -> DefinitionError:
        parent = self.refused.get(table)
        if parent is not None:
            return DefinitionError(
                f'view "{view.name}": it reads view "{table}", which is refused',
                path=view.path,
                detail=parent.error.message,
                hint=f"mend {parent.path}",
            )
        return DefinitionError(
            f'view "{view.name}": "{table}" is not a view of the project, and as a table it does '
            "not say its source",
            path=view.path,
            hint="write it as source.table or source.schema.table"
            f"{suggest_nearest(table, tuple(sorted(self.parsed)))}",
        )

    def _views_in_circle(self) -> Iterator[RefusedView]:
        """Views that would be made from themselves; those that are stored so are not to blame."""
        circle = find_circle(self.parsed)
        new = [name for name in circle if self.parsed[name].text != self._stored.get(name)]
        reads = " reads ".join(f'"{name}"' for name in (*circle, *circle[:1]))
        for name in new or circle:
            path = self.parsed[name].path
            error = DefinitionError(
                f'view "{name}": it would be made from itself',
                path=path,
                detail=reads,
                hint="let one of them read the sources instead",
            )
            yield RefusedView(name, path, error)


def find_circle(parsed: Mapping[str, ParsedView]) -> tuple[str, ...]:
    """Views of which each reads the next, and the last the first; nothing if there are none."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
        if name in path:
            return path[path.index(name) :]
        if name not in done:
            for relation in parsed[name].relations:
                if relation.is_own and (found := visit(relation.table, (*path, name))):
                    return found
            done.add(name)
        return ()

    return next((found for name in parsed if (found := visit(name, ()))), ())


def reading_order(parsed: Mapping[str, ParsedView]) -> list[str]:
    """The views, each after those that it reads; they form no circle."""
    ordered: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            for relation in parsed[name].relations:
                if relation.is_own:
                    visit(relation.table)
            ordered[name] = None

    for name in parsed:
        visit(name)
    return list(ordered)
