"""Graphs of queries that were compiled before, kept in the user's cache folder.

Spark says what a report means, and starting it takes far longer than all the rest of a first run
over few rows. What it says is a function of the text, the tables with their types and unique keys,
the versions of Spark and of this program, and the settings of the session. So the graph is kept
under a digest of all these, and another project, or the same one after its warehouse was removed,
starts no Spark for it.

That Spark has refused a query is kept too, for those who must not start it: whoever may asks again,
so that the text of a refusal is always its newest.

What is kept may be lost, or be damaged, at any time: then Spark is asked again. Sessions that a
program gives us have settings that we do not know; nothing is kept of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.errors import DefinitionError, UnsupportedError, ViewkeeperError
from viewkeeper.storage import disk
from viewkeeper.storage.sealed_json import seal_body, unseal_file
from viewkeeper.view.definition import Graph
from viewkeeper.view.graph_json import decode_graph, encode_graph

FOLDER = "graphs"
"""In the user's cache."""

REFUSAL_FACTS = ("line", "column", "detail", "hint")
FILES_MAX = 1_000
"""So many graphs are kept; beyond that the oldest go."""
_WAY_OUT = "nothing to do: it is made again"


def compiler_marks() -> list[tuple[str, int, int]]:
    """Which files the compiler consists of, and when they were written: a checkout whose compiler
    was mended has the version that it had before."""
    package = Path(__file__).parents[2]
    files = [*(package / "engine" / "compile").rglob("*.py"), *(package / "view").rglob("*.py")]
    found = [(file, file.stat()) for file in sorted(files)]
    return [(file.name, mark.st_mtime_ns, mark.st_size) for file, mark in found]


def query_digest(
    text: str, tables: Sequence[QueryTable], mode: str, settings: Mapping[str, str]
) -> str:
    """A digest of all that decides what a query is compiled into."""
    read = [
        (
            str(table.relation),
            [(field.name, str(field.type), field.nullable) for field in table.schema],
            sorted(table.unique),
        )
        for table in tables
    ]
    versions = [version("viewkeeper"), version("pyspark"), *compiler_marks()]
    facts = json.dumps([versions, mode, sorted(settings.items()), text, read])
    return hashlib.sha256(facts.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CompiledGraphs:
    """The graphs that are kept in a folder."""

    folder: Path

    def find_graph(self, digest: str) -> Graph | None:
        """The graph of a query; None if there is none that can be believed."""
        with suppress(OSError, KeyError, ValueError, RecursionError, ViewkeeperError):
            body = unseal_file(self._path_of(digest), "graph", _WAY_OUT)
            if body["digest"] == digest:
                return decode_graph(body["graph"])
        return None

    def has_check(self, digest: str) -> bool:
        """Whether Spark could resolve a query before."""
        with suppress(OSError, KeyError, ValueError, ViewkeeperError):
            return bool(unseal_file(self._path_of(digest), "check", _WAY_OUT)["digest"] == digest)
        return False

    def keep_check(self, digest: str) -> None:
        """Keep that Spark can resolve a query."""
        self._keep_body(digest, "check", {"digest": digest})

    def find_refusal(self, digest: str) -> DefinitionError | None:
        """Why Spark has refused a query; None if it has not, as far as is known."""
        with suppress(OSError, KeyError, TypeError, ValueError, ViewkeeperError):
            body = unseal_file(self._path_of(digest), "refusal", _WAY_OUT)
            if body["digest"] == digest:
                kind = UnsupportedError if body["unsupported"] else DefinitionError
                return kind(body["message"], **{fact: body[fact] for fact in REFUSAL_FACTS})
        return None

    def keep_refusal(self, digest: str, error: DefinitionError) -> None:
        """Keep why Spark has refused a query."""
        message = error.message if error.line is None else error.message.partition(": ")[2]
        facts = {fact: getattr(error, fact) for fact in REFUSAL_FACTS}
        unsupported = isinstance(error, UnsupportedError)
        body = {"digest": digest, "unsupported": unsupported, "message": message, **facts}
        self._keep_body(digest, "refusal", body)

    def keep_graph(self, digest: str, graph: Graph) -> None:
        """Keep the graph of a query; a folder that cannot be written is nobody's trouble."""
        self._keep_body(digest, "graph", {"digest": digest, "graph": encode_graph(graph)})

    def _keep_body(self, digest: str, kind: str, body: dict[str, object]) -> None:
        with suppress(OSError, ViewkeeperError):
            disk.replace_file(self._path_of(digest), seal_body(kind, body), durable=False)
            self._remove_oldest()

    def _path_of(self, digest: str) -> Path:
        return self.folder / f"{digest}.json"

    def _remove_oldest(self) -> None:
        kept = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in kept[: max(0, len(kept) - FILES_MAX)]:
            disk.remove_file(path)
