"""Where detection is: the functions of engine and sources that it consists of, each with what is
done in its stead when it is switched off, and with a clock.

Off means that what was true at the first call is taken to be true for ever: nobody scans what waits
for a view, no look compares shapes, and a snapshot does not ask which table it has before it. That
is right as long as nothing but rows changes, and only the benchmark does it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.sources.postgres.answers import questions
from viewkeeper.sources.postgres.decoding import source_stream as postgres_look
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory
from viewkeeper.sources.sqlite import log, snapshot
from viewkeeper.sources.sqlite.resolved_tables import ResolvedTables

Function = Callable[..., Any]
Mode = Literal["with", "without", "clocked"]
_ROUNDS = 2_000


@dataclass(frozen=True, slots=True)
class Place:
    """A function by its owner and name; `off` gives what stands in for it."""

    label: str
    owner: Any
    name: str
    off: Callable[[Function], Function]


def always(result: Any) -> Callable[[Function], Function]:
    """Instead of looking, say what is the rule."""
    return lambda _: lambda *_, **__: result


def remembered(key: Function) -> Callable[[Function], Function]:
    """What was found at the first call whose arguments have the same key."""

    def off(real: Function) -> Function:
        known: dict[Any, Any] = {}

        def recall(*arguments: Any) -> Any:
            about = key(*arguments)
            if about not in known:
                known[about] = real(*arguments)
            return known[about]

        return recall

    return off


def _goes_on(_: Function) -> Function:
    return lambda adapting, name, until: until


ENGINE = (Place("scan of what waits", ViewAdapter, "meet_schema_changes", _goes_on),)

SQLITE = (
    # Whether shapes are written down comes with the statement that reads the position.
    Place("schema changes in a report", log, "schema_changes_between", always(())),
    Place(
        "which table it is, in the log",
        log,
        "find_logged",
        remembered(lambda _, source, __, handle, columns, ___: (source, handle, tuple(columns))),
    ),
    Place(
        "which table it is, in a snapshot",
        ResolvedTables,
        "find_table",
        remembered(lambda tables, _, __, ___, handle: (tables, handle)),
    ),
    Place("values are those of then", snapshot, "refuse_broken", always(None)),
)

POSTGRES = (
    Place(
        "shapes in the catalogue, at looks",
        postgres_look.DecodingLook,
        "compare_shapes",
        always(None),
    ),
    Place(
        "schema changes in the stream",
        PostgresShapeHistory,
        "step_positions",
        always(frozenset()),
    ),
    Place("schema changes in a report", postgres_look, "schema_changes_of", always(())),
    Place(
        "shapes in a snapshot",
        questions,
        "read_shapes",
        remembered(lambda connection, oids: (connection.info.dbname, tuple(sorted(oids)))),
    ),
    Place("values are those of then", questions.PostgresQuestions, "check_shown", always(None)),
    Place("changes can be asked for", questions.PostgresQuestions, "check_askable", always(None)),
)

PLACES: dict[str, tuple[Place, ...]] = {
    "sqlite": (*ENGINE, *SQLITE),
    "postgres": (*ENGINE, *POSTGRES),
}


@dataclass(slots=True)
class Spent:
    """Seconds in one place by the clock and of the processor, and how often it was called."""

    seconds: float = 0.0
    cpu: float = 0.0
    calls: int = 0


@dataclass(slots=True)
class Clocks:
    """What was spent, by the places' labels. A place inside another one counts for that one.

    The clocks' own time is in it until it is taken out, by what they measure around nothing.
    """

    spent: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    _inside: threading.local = field(default_factory=threading.local)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def around(self, real: Function, label: str) -> Function:
        def call(*arguments: Any, **options: Any) -> Any:
            if getattr(self._inside, "one", False):
                return real(*arguments, **options)
            self._inside.one = True
            started, began = time.perf_counter(), time.thread_time()
            try:
                return real(*arguments, **options)
            finally:
                self._inside.one = False
                self._add(label, time.perf_counter() - started, time.thread_time() - began)

        return call

    def _add(self, label: str, seconds: float, cpu: float) -> None:
        with self._lock:
            spent = self.spent[label]
            spent.seconds += seconds
            spent.cpu += cpu
            spent.calls += 1

    def net(self) -> dict[str, Spent]:
        """What was spent without the clocks."""
        around = Clocks()
        nothing = around.around(lambda: None, "")
        for _ in range(_ROUNDS):
            nothing()
        cpu = around.spent[""].cpu / _ROUNDS
        return {
            label: Spent(
                max(0.0, spent.seconds - cpu * spent.calls),
                max(0.0, spent.cpu - cpu * spent.calls),
                spent.calls,
            )
            for label, spent in self.spent.items()
        }


@contextmanager
def detecting(places: Sequence[Place], mode: Mode, clocks: Clocks) -> Iterator[None]:
    """Detection as it is, or switched off, or with clocks."""
    with ExitStack() as stack:
        for place in places if mode != "with" else ():
            real = getattr(place.owner, place.name)
            instead = place.off(real) if mode == "without" else clocks.around(real, place.label)
            stack.enter_context(mock.patch.object(place.owner, place.name, instead))
        yield
