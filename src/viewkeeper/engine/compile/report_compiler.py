"""What a report of a project means: by Spark, or by what Spark has said of the same query before.

Other views are only resolved by Spark, if they leave expressions to it: so a type that does not fit
is found when the view is defined.

A project may say of a view that it is computed again instead of maintained (`refresh: full`), or
that it is so if it cannot be maintained (`refresh: auto`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import DefinitionError, UnsupportedError
from viewkeeper.storage.user_cache import user_cache_folder
from viewkeeper.view.definition import Graph, Relation
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable

if TYPE_CHECKING:
    from viewkeeper.engine.compile.compiled_graphs import CompiledGraphs
    from viewkeeper.engine.compile.query_compiler import QueryCompiler
    from viewkeeper.engine.compile.query_table import QueryTable


class KeptAnswers:
    """What Spark has said of the queries of one project before, by the settings that it has."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def answer_on(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> KeptAnswer:
        """What is kept of the text of a report over these tables."""
        return self._answer_in(self._settings.refresh.word_of(name), text, tables)

    def answer_on_types(self, text: str, tables: Sequence[DefinitionTable]) -> KeptAnswer:
        """What is kept of the query of a view that is no report, which is only resolved."""
        return self._answer_in("check", text, tables)

    def _answer_in(self, mode: str, text: str, tables: Sequence[DefinitionTable]) -> KeptAnswer:
        from viewkeeper.engine.compile.compiled_graphs import (
            FOLDER,
            CompiledGraphs,
            query_digest,
        )

        digest = query_digest(text, _name_tables(tables), mode, self._settings.spark.config)
        return KeptAnswer(CompiledGraphs(user_cache_folder(FOLDER)), digest)


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What is kept of one query."""

    kept: CompiledGraphs
    digest: str

    @property
    def graph(self) -> Graph | None:
        return self.kept.find_graph(self.digest)

    @property
    def is_checked(self) -> bool:
        """Whether Spark could resolve the query."""
        return self.kept.has_check(self.digest)

    @property
    def refusal(self) -> DefinitionError | None:
        """Why Spark has refused the query, if it has."""
        return self.kept.find_refusal(self.digest)

    @contextmanager
    def keep_refusals(self) -> Iterator[None]:
        """Inside, Spark is asked; that it refuses the query is kept."""
        try:
            yield
        except DefinitionError as error:
            self.kept.keep_refusal(self.digest, error)
            raise


class ReportCompiler:
    """Compiles the reports of one project, by the settings that it has."""

    def __init__(self, settings: Settings, spark: SparkHandle) -> None:
        self._settings = settings
        self._spark = spark
        self._kept = KeptAnswers(settings)
        self._compiler: QueryCompiler | None = None

    def compile_report(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> Graph:
        """What the text of a view over these tables means."""
        mode = self._settings.refresh.word_of(name)
        if self._spark.is_given:
            return self._ask_spark(mode, text, _name_tables(tables))
        answer = self._kept.answer_on(name, text, tables)
        graph = answer.graph
        if graph is None:
            with answer.keep_refusals():
                graph = self._ask_spark(mode, text, _name_tables(tables))
            if not self._spark.is_given:
                answer.kept.keep_graph(answer.digest, graph)
        return graph

    def check_query(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> None:
        """A DefinitionError if Spark cannot resolve the query of a view that is no report."""
        if self._spark.is_given:
            self._get_compiler().check_text(text, _name_tables(tables))
            return
        answer = self._kept.answer_on_types(text, tables)
        if not answer.is_checked:
            with answer.keep_refusals():
                self._get_compiler().check_text(text, _name_tables(tables))
            answer.kept.keep_check(answer.digest)

    def _get_compiler(self) -> QueryCompiler:
        from viewkeeper.engine.compile.query_compiler import QueryCompiler

        if self._compiler is None:
            self._compiler = QueryCompiler(self._spark.get_session())
        return self._compiler

    def _ask_spark(self, mode: str, text: str, tables: Sequence[QueryTable]) -> Graph:
        from viewkeeper.engine.compile.recomputed_query import describe_recomputed

        if mode == "full":
            return describe_recomputed(self._spark.get_session(), text, tables, "refresh: full")
        try:
            return self._get_compiler().compile_text(text, tables)
        except UnsupportedError as error:
            if mode != "auto":
                raise
            reason = f"refresh: auto, and {error.message}"
            return describe_recomputed(self._spark.get_session(), text, tables, reason)


def _name_tables(tables: Sequence[DefinitionTable]) -> list[QueryTable]:
    from viewkeeper.engine.compile.query_table import QueryTable

    return [
        QueryTable(Relation(each.source, each.table), each.fields, each.unique_keys)
        for each in tables
    ]
