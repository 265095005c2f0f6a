"""How views are dropped: their files first, then what is stored of them, if nothing reads them.

A view is gone when its file and what is stored of it are gone. The file goes first: whoever dies in
between leaves a view whose file is gone, and the next run drops that by itself. Readers that have
begun keep what they read for the retention; then the files are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.view_files import FOLDER
from viewkeeper.errors import ProjectError, ViewkeeperError, reload_hint, suggest_nearest
from viewkeeper.upstream import leases
from viewkeeper.view.definition import PROJECT
from viewkeeper.warehouse.metadata.head import Head
from viewkeeper.warehouse.metadata.record import Drop
from viewkeeper.warehouse.store import Store

if TYPE_CHECKING:
    from viewkeeper.view.sql.view_statement import ParsedView


@dataclass(frozen=True, slots=True)
class DroppedView:
    """A view that is to go: its rows, its file if there is one, and who may still read it."""

    name: str
    rows: int
    file: Path | None


@dataclass(frozen=True, slots=True)
class ViewDrop:
    """What a drop removes; `children` are other projects that read views of this warehouse."""

    views: tuple[DroppedView, ...]
    children: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that still define the views."""
        return tuple(view.file for view in self.views if view.file is not None)

    def remove_files(self) -> None:
        """Remove the files that still define the views."""
        for file in self.files:
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise ProjectError(f"{file}: cannot be removed", detail=str(error)) from error

    def check_drop(self, with_files: bool, force: bool) -> None:
        """Refuse to drop what would come back, or what others may need."""
        if self.files and not with_files:
            names = [view.name for view in self.views]
            raise ProjectError(
                f"{self.files[0]} still defines the view: the next run would load it again",
                hint=f"`viewkeeper drop {' '.join(names)} --file` removes the file too, "
                f"{reload_hint(names)} instead",
            )
        if self.children and not force:
            raise ProjectError(
                f"other projects read views of this warehouse: {', '.join(self.children)}",
                detail="a view that they read would be a source that has lost a table",
                hint="detach them first (`viewkeeper detach` there), or add --force",
            )


def plan_drop(settings: Settings, head: Head, names: Sequence[str], now: float) -> ViewDrop:
    """What a drop of these views removes; a ProjectError if another view reads one of them."""
    written = _written_views(settings)
    known = tuple(dict.fromkeys((*head.shown_views, *written)))
    for name in names:
        if name not in head.shown_views:
            has_file = name in written
            raise ProjectError(
                f'view "{name}": nothing is stored of it',
                hint=f"remove {written[name].path}, and it is gone"
                if has_file
                else f"views: {', '.join(known) or 'none'}{suggest_nearest(name, known)}",
            )
        readers = [reader for reader in _readers_of(head, written, name) if reader not in names]
        if readers:
            raise ProjectError(
                f'view "{name}": view "{readers[0]}" reads it',
                hint=f"drop both: `viewkeeper drop {' '.join([*names, *readers])}`",
            )
    views = tuple(
        DroppedView(name, head.views[name].rows, _file_of(written.get(name))) for name in names
    )
    children = sorted({str(each) for each in leases.active_leases(settings.warehouse, now)})
    return ViewDrop(views, tuple(children))


def drop_stored(store: Store, names: Sequence[str]) -> None:
    """Drop what is stored of views, their folds included, in one record."""
    gone = [view for name in names for view in store.head.tables_of(name)]
    store.commit(Drop(view.view, view.table) for view in gone)


def _file_of(parsed: ParsedView | None) -> Path | None:
    return Path(parsed.path) if parsed is not None and parsed.path else None


def _written_views(settings: Settings) -> dict[str, ParsedView]:
    """The views that the project's files define; a file that cannot be read defines none."""
    from viewkeeper.view.sql.view_statement import parse_view

    found: dict[str, ParsedView] = {}
    for file in sorted((settings.folder / FOLDER).glob("*.sql")):
        with suppress(OSError, UnicodeDecodeError, ViewkeeperError):
            view = parse_view(file.read_text(encoding="utf-8"), str(file))
            found[view.name] = view
    return found


def _readers_of(head: Head, written: dict[str, ParsedView], name: str) -> list[str]:
    """The views of the project that read a view, by their files or by what is stored of them."""
    files = [
        reader
        for reader, view in written.items()
        if any(relation.is_own and relation.table == name for relation in view.relations)
    ]
    stored = [
        reader
        for reader, view in head.shown_views.items()
        if view.versions
        and any((each.source, each.table) == (PROJECT, name) for each in view.versions[-1].bound)
    ]
    return list(dict.fromkeys((*files, *stored)))
