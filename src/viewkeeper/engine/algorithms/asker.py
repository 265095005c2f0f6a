"""Asking real sources for a state machine: several questions at the same time, each in one state.

Every question gets a snapshot of its own. Where a source cannot hold a snapshot over several reads
(SQLite in rollback mode), a question of several reads is made again until all of them had the same
cut. Answers come back in the order in which they are ready.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing

from viewkeeper.delta.kernel import Kernel
from viewkeeper.engine.batch.part_sweep import typed_answer
from viewkeeper.engine.connections.open_sources import Connections, tables_by_source
from viewkeeper.errors import SourceAwayError
from viewkeeper.maintain.algorithm_protocol import AskAction
from viewkeeper.maintain.query_terms import answer_question
from viewkeeper.sources.kinds import one_state_hint_of
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer, Lookup, Snapshot
from viewkeeper.view.sweep_plan import SweepPlan

ATTEMPTS = 20


class Asker:
    """Questions under way; use as a context manager."""

    def __init__(
        self,
        plan: SweepPlan,
        connections: Connections,
        workers: int,
    ) -> None:
        self._plan = plan
        self._connections = connections
        self._tables = tables_by_source([plan.view])
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ask")
        self._at_work: dict[Future[tuple[Answer, ...]], AskAction] = {}
        self.lookups: Counter[str] = Counter()

    def submit_question(self, ask: AskAction) -> None:
        """Begin to ask."""
        self.lookups[ask.source] += max(1, len(ask.lookups))
        self._at_work[self._pool.submit(self._read_answers, ask)] = ask

    def wait_for_answers(self) -> list[tuple[AskAction, tuple[Answer, ...]]]:
        """Wait for the next answers; an error of a source is raised here."""
        assert self._at_work, "nobody is asked, so nobody will answer"
        ended, _ = wait(self._at_work, return_when=FIRST_COMPLETED)
        return [(self._at_work.pop(future), future.result()) for future in ended]

    def _read_answers(self, ask: AskAction) -> tuple[Answer, ...]:
        source = self._connections.get_source(ask.source)
        for _ in range(ATTEMPTS):
            snapshots = source.prepare_snapshots(ask.after, self._tables[ask.source])
            with snapshots as opener, closing(opener()) as snapshot:
                answers, cuts = self._read_once(ask, snapshot)
            if len(cuts) <= 1:
                return answers
        raise SourceAwayError(
            ask.source,
            "it changes faster than several of its tables can be read in one state",
            hint=one_state_hint_of(self._connections.settings[ask.source]),
        )

    def _read_once(self, ask: AskAction, snapshot: Snapshot) -> tuple[tuple[Answer, ...], set[Cut]]:
        """The answers, and the cuts that they were read under."""
        cuts: set[Cut] = set()

        def read(lookup: Lookup) -> Answer:
            answer = typed_answer(
                self._plan.view, lookup, snapshot.answer_lookup(lookup, ask.after)
            )
            cuts.add(answer.cut)
            return answer

        return answer_question(Kernel(), self._plan, ask, read, now=Cut(ask.after)), cuts

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
