"""What views would become, laid before somebody who approves or rejects it.

A view whose policy is `approve` is held at a schema change. What it would become is written into
the warehouse, for `viewkeeper changes` to show; `viewkeeper approve` and `viewkeeper reject` leave
their word beside it, from any process, and the maintainer finds it there. The word names what it is
about, so that a later schema change cannot be approved by accident.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from viewkeeper.engine.report import StateChange
from viewkeeper.errors import ProjectError
from viewkeeper.storage import stored_files
from viewkeeper.storage.sealed_json import translate_decode_errors, unseal_or_plain, write_sealed
from viewkeeper.storage.storage_path import StoragePath, name_of
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.warehouse.metadata.definition_version import (
    READERS,
    DefinitionVersion,
    encode_versions,
)

FOLDER = "proposals"
HELD = (
    "held at a schema change that needs approval\n"
    "  hint: `viewkeeper changes` shows it, `viewkeeper approve {0}` or `viewkeeper reject {0}` "
    "decides"
)

Word = Literal["approve", "reject"]

_MEND = "remove the file; the next run proposes again, and waits for a decision"


@dataclass(frozen=True, slots=True)
class Proposed:
    """A definition that a view would get, and what would be done to its rows."""

    view: str
    version: DefinitionVersion
    before: str
    adaptation: str
    at: float

    @property
    def id(self) -> str:
        """What is proposed, in short: the same proposal has the same id whenever it is made."""
        facts = (self.version.text, *self.version.causes, self.adaptation)
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]

    @property
    def state_change(self) -> StateChange:
        """What observers hear of it."""
        causes = "; ".join(self.version.causes)
        text = f'view "{self.view}" is held at a schema change that needs approval: {causes}'
        hint = f"see `viewkeeper changes {self.view}`"
        return StateChange("change_proposed", text, hint, view=self.view, ts=self.version.ts)


@dataclass(frozen=True, slots=True)
class _Decided:
    """What was decided about a proposal."""

    id: str
    word: Word


class Proposals:
    """The proposals of a warehouse."""

    def __init__(self, root: StoragePath) -> None:
        self._folder = root / FOLDER

    def put_proposal(self, proposed: Proposed) -> None:
        """Write a proposal down for the user to decide, in place of an earlier one for the view."""
        known = self.read_proposal(proposed.view)
        if known is not None and known.id == proposed.id:
            return
        stored_files.make_folder(self._folder)
        (version,) = encode_versions([proposed.version])
        body = {**{k: getattr(proposed, k) for k in ("view", "before", "adaptation", "at")}}
        write_sealed(self._proposal_file(proposed.view), "proposal", {**body, "version": version})

    def read_proposal(self, view: str) -> Proposed | None:
        path = self._proposal_file(view)
        try:
            with translate_decode_errors(path, "proposal", _MEND):
                return read_typed(Proposed, unseal_or_plain(path, "proposal", _MEND), READERS)
        except FileNotFoundError:
            return None

    def list_proposals(self) -> list[Proposed]:
        found = (
            self.read_proposal(path.stem)
            for path in sorted(self._folder.glob("*.json"), key=name_of)
        )
        return [proposed for proposed in found if proposed is not None]

    def answer_proposal(self, view: str, word: Word) -> Proposed:
        """Leave a word for the maintainer."""
        proposed = self.read_proposal(view)
        if proposed is None:
            raise ProjectError(
                f'view "{view}": nothing waits for a decision', hint="`viewkeeper changes`"
            )
        body = {"id": proposed.id, "word": word}
        write_sealed(self._decision_file(view), "word", body)
        return proposed

    def decision_of(self, proposed: Proposed) -> Word | None:
        """What was decided about exactly this, if anything."""
        path = self._decision_file(proposed.view)
        try:
            with translate_decode_errors(path, "word", _MEND):
                found = read_typed(_Decided, unseal_or_plain(path, "word", _MEND))
        except FileNotFoundError:
            return None
        return found.word if found.id == proposed.id else None

    def clear_proposals(self, views: Iterable[str]) -> None:
        for view in views:
            stored_files.remove_file(self._proposal_file(view))
            stored_files.remove_file(self._decision_file(view))

    def _proposal_file(self, view: str) -> StoragePath:
        return self._folder / f"{view}.json"

    def _decision_file(self, view: str) -> StoragePath:
        return self._folder / f"{view}.word"
