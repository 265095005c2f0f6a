"""The views of a project as its files and its warehouse together have them.

What the files say (`viewkeeper.engine.views.view_files`) is settled against what is stored. Whether
the edited SQL of a stored view can be taken is found out later, by who can ask the sources; an edit
that cannot is refused here, as a wrong file is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from viewkeeper.engine.views.view_files import RefusedView, ViewFiles, settle_views
from viewkeeper.errors import ProjectError, ViewkeeperError, reload_hint, suggest_nearest
from viewkeeper.warehouse.metadata.head import Head

if TYPE_CHECKING:
    from viewkeeper.view.sql.view_statement import ParsedView


def edit_refusal(name: str) -> ProjectError:
    """What is said of SQL that needs other rows than those that are stored."""
    return ProjectError(
        f'view "{name}": its SQL is not the one that the stored rows were made by',
        hint=reload_hint([name]),
    )


class WrittenViews:
    """The views that are to be maintained, each after those that it reads, and the refused ones."""

    def __init__(self, files: ViewFiles, sources: frozenset[str]) -> None:
        self._files = files
        self._sources = sources
        self._stored_texts: Mapping[str, str] = {}
        self._edits: dict[str, RefusedView] = {}
        self.parsed: Mapping[str, ParsedView] = {}
        self.refused: Mapping[str, RefusedView] = {}
        """Views that their files do not define, or not as they are stored. Those of them that are
        among the parsed ones are maintained by the SQL by which they are stored."""
        self._settle()

    def _settle(self) -> None:
        found = settle_views(self._files, self._stored_texts, self._sources, self._edits)
        self.parsed, self.refused = found.parsed, found.refused

    def adopt_head(self, head: Head) -> None:
        """Go by what is stored now."""
        self._stored_texts = {name: view.definition for name, view in head.shown_views.items()}
        self._settle()

    def reconsider_edits(self) -> None:
        """Take the SQL of the files again, where it was refused for what is stored."""
        self._edits = {}
        self._settle()

    def refuse_edit(self, name: str, error: ViewkeeperError) -> None:
        """Maintain a stored view by the SQL by which it is stored, instead of that of its file."""
        self._edits[name] = RefusedView(name, self.parsed[name].path, error)
        self._settle()

    def replace_view(self, name: str, other: WrittenViews | None) -> Callable[[], None]:
        """Let a view be what another reading of the files says, or not be there any more. What is
        returned makes that undone."""
        before = self._files, self._stored_texts, self._edits, self.parsed, self.refused
        view = None if other is None else other.parsed[name]
        for relation in () if view is None else view.relations:
            if relation.is_own and relation.table not in self.parsed:
                raise ProjectError(
                    f'view "{name}": view "{relation.table}", which it reads now, is new',
                    hint="ask again when that view is loaded",
                )
        self._edits = {each: edit for each, edit in self._edits.items() if each != name}
        self._files = self._files.without_view(name)
        if view is None:
            self._stored_texts = {n: t for n, t in self._stored_texts.items() if n != name}
        else:
            self._files = self._files.with_view(view)
        self._settle()

        def undo() -> None:
            self._files, self._stored_texts, self._edits, self.parsed, self.refused = before

        return undo

    @property
    def file_texts(self) -> dict[str, str]:
        """What the files say, by view: its SQL, or what is wrong with it."""
        texts = {name: view.text for name, view in self._files.parsed.items()}
        return texts | {each.name: f"refused: {each.error}" for each in self._files.refused}

    def has_same_views(self, other: WrittenViews) -> bool:
        """Whether the same is to be maintained, whatever else is refused."""
        return self._texts_without_edits() == other._texts_without_edits()

    def _texts_without_edits(self) -> dict[str, str]:
        settled = settle_views(self._files, self._stored_texts, self._sources, {})
        return {name: view.text for name, view in settled.parsed.items()}

    def take_refused(self, other: WrittenViews) -> None:
        """Files that were read again say the same of what is maintained, and maybe not of what is
        refused."""
        self._files, self._stored_texts = other._files, other._stored_texts
        self._settle()

    def is_dropped(self, name: str) -> bool:
        """Whether a stored view is one no more: no file defines it, and none that is refused."""
        return not (name in self.parsed or name in self.refused)

    @property
    def readable_names(self) -> tuple[str, ...]:
        """The views of the project, and those whose files are refused but which are stored."""
        kept = (n for n in self.refused if n in self._stored_texts and n not in self.parsed)
        return (*self.parsed, *kept)

    def check_name(self, name: str) -> None:
        """Refuse a name that no view has."""
        known = self.readable_names
        if name in self.refused and name not in known:
            raise self.refused[name].error
        if name not in known:
            raise ProjectError(
                f'there is no view "{name}"',
                hint=f"views of this project: {', '.join(known)}{suggest_nearest(name, known)}",
            )

    def check_all_written(self, names: Iterable[str]) -> None:
        """Refuse names that no view has, or whose files are refused."""
        for name in names:
            self.check_written(name)

    def check_written(self, name: str) -> None:
        """Refuse a name that no view has, or one whose file is refused."""
        self.check_name(name)
        if name in self.refused and name not in self._edits:
            raise self.refused[name].error
