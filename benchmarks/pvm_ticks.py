"""The PVM paper's experiment with a clock of ticks: how long a set of updates takes.

Citation: Zhang, Ding, Rundensteiner: Parallel multisource view maintenance, 2003, section 7 and
figure 22.

The idea: the algorithm is the production state machine and the sources really evaluate its lookups;
only time is made up. A source answers so many lookups at a time, first come, first served, and each
takes the same number of ticks. All else is free, unless the setting says that compensation and the
start of a view change take time as well, as in the paper's cost model (`benchmarks.pvm_cost`).

What must hold:
1. Nothing reads a clock and nothing is left to chance: a setting has one timeline.
2. In one tick, in this order: updates commit and are reported, lookups end, answers are handed over
   in the order in which they were asked for, view changes begin.
3. The view that comes out is the recomputed one: the fastest wrong view is no result.

Symbols: those of table 3 are fields of `TickSetting`; SQ_i,j and SQR_i,j are cells of `tick_table`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import assert_never

from benchmarks.pvm_scenario import experiment_scenario
from viewkeeper.check.history.recorded_history import Row
from viewkeeper.delta.reference_carrier import Reference
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import (
    AcknowledgeAction,
    Answered,
    AskAction,
    CommitAction,
    Delivered,
    Event,
    StampAction,
)
from viewkeeper.simulate.scenario import AlgorithmSubject
from viewkeeper.simulate.simulated_source import SimulatedSource
from viewkeeper.simulate.simulated_store import SimulatedStore
from viewkeeper.simulate.simulated_world import load_initial_rows
from viewkeeper.updates.source_protocol import Answer
from viewkeeper.view.sweep_plan import sweep_plan_of


@dataclass(frozen=True, slots=True)
class TickSetting:
    """An experiment: the updates, and what takes how many ticks."""

    sources: int
    """m, each with one relation of the chain."""
    updates: int
    """n."""
    run: int = 1
    """c, consecutive updates from the same source."""
    interval: int = 0
    """i, from one update to the next."""
    at_once: int = 1
    """q, lookups that a source answers at a time."""
    lookup: int = 2
    """C_remote, from the beginning of a lookup to its answer."""
    local: int = 0
    """C_local, for each concurrent update that an answer contains."""
    start: int = 0
    """a, between the starts of two view changes."""


@dataclass(frozen=True, slots=True)
class Served:
    """A lookup at work: for which update, at which source, from when to when.

    `concurrent` are the later updates that its answer contains; each is compensated for.
    """

    update: int
    source: int
    begin: int
    end: int
    concurrent: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened when; updates and sources are numbered from 1 as in the paper."""

    happened: Mapping[int, tuple[int, int]]
    """Per update its source and its tick."""
    served: tuple[Served, ...]
    begun: Mapping[int, int]
    """When the view change of an update began."""
    ended: Mapping[int, int]
    """When an update was committed to the view."""
    rows: Mapping[Row, int]
    """The view in the end."""

    @property
    def elapsed_ticks(self) -> int:
        """T, from the first update to the last commit."""
        return max(self.ended.values())


def run_timeline(setting: TickSetting, subject: AlgorithmSubject) -> Timeline:
    """Run an algorithm through a setting."""
    return _Run(setting, subject).run_agenda()


def tick_table(line: Timeline) -> list[list[str]]:
    """Figure 22: a row per tick and a cell per source, which says what the source does then.

    An update that commits is `DU1`; a lookup for update 1 at source 2 is `SQ1,2` while it is at
    work and `SQR1,2` in its last tick.
    """
    width = max([source for source, _ in line.happened.values()] + [s.source for s in line.served])
    cells = [[""] * width for _ in range(line.elapsed_ticks + 1)]

    def write(tick: int, source: int, word: str) -> None:
        cells[tick][source - 1] = f"{cells[tick][source - 1]} {word}".lstrip()

    for update, (source, tick) in line.happened.items():
        write(tick, source, f"DU{update}")
    for lookup in line.served:
        for tick in range(lookup.begin + 1, lookup.end + 1):
            word = "SQR" if tick == lookup.end else "SQ"
            write(tick, lookup.source, f"{word}{lookup.update},{lookup.source}")
    return cells


# -- what can happen, in the order in which it does within one tick --------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Happens:
    update: int


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    ask: AskAction
    begin: int


@dataclass(frozen=True, slots=True, eq=False)
class _Arrives:
    ask: AskAction
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Begins:
    ask: AskAction


_Entry = _Happens | _Ends | _Arrives | _Begins
_ORDER: tuple[type[_Entry], ...] = (_Happens, _Ends, _Arrives, _Begins)


class _Run:
    """A setting at work: an agenda of what happens when, and a queue at every source."""

    def __init__(self, setting: TickSetting, subject: AlgorithmSubject) -> None:
        self._setting = setting
        self._scenario = experiment_scenario(setting.sources, setting.updates, setting.run)
        plan = sweep_plan_of(self._scenario.view)
        names = self._scenario.source_names
        self._sources = {name: SimulatedSource(name, self._scenario, plan) for name in names}
        columns = [output.name for output in plan.view.outputs]
        rows = load_initial_rows(self._scenario, plan)
        self._store = SimulatedStore(columns, (), rows, dict.fromkeys(names, 0))
        resume = self._store.resume_point(())
        self._algorithm = KINDS[subject.name].make(Reference(), plan, resume, **subject.options)
        self._number = {name: number for number, name in enumerate(names, 1)}
        self._agenda: list[tuple[int, int, int, _Entry]] = []
        self._queues: dict[str, deque[AskAction]] = {name: deque() for name in names}
        self._at_work: Counter[str] = Counter()
        self._free = 0
        """From when on the next view change can begin."""
        self._update: dict[tuple[str, int], int] = {}
        """Updates by source and position."""
        self._stamped: dict[int, int] = {}
        """Updates by ts, until they are committed."""
        self._asker: dict[int, int] = {}
        """For which update a question was asked."""
        self._happened: dict[int, tuple[int, int]] = {}
        self._served: list[Served] = []
        self._begun: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def run_agenda(self) -> Timeline:
        for update in range(1, self._setting.updates + 1):
            self._plan_entry((update - 1) * self._setting.interval, update, _Happens(update))
        while self._agenda:
            now, _, _, entry = heappop(self._agenda)
            self._make_entry(now, entry)
        assert self._algorithm.is_idle, "everything was answered, so everything is committed"
        served = tuple(sorted(self._served, key=lambda s: (s.begin, s.source)))
        return Timeline(self._happened, served, self._begun, self._ended, self._store.visible_rows)

    def _plan_entry(self, tick: int, number: int, entry: _Entry) -> None:
        heappush(self._agenda, (tick, _ORDER.index(type(entry)), number, entry))

    def _make_entry(self, now: int, entry: _Entry) -> None:
        match entry:
            case _Happens():
                self._commit_update(now, entry.update)
            case _Ends():
                self._end_lookup(now, entry)
            case _Arrives():
                answered = Answered(entry.ask.number, entry.answers)
                self._follow_event(now, answered, self._asker[entry.ask.number])
            case _Begins():
                self._queue_ask(now, entry.ask)
            case _:
                assert_never(entry)

    # -- sources -----------------------------------------------------------------------------------

    def _commit_update(self, now: int, update: int) -> None:
        transaction = self._scenario.transactions[update - 1]
        (name,) = transaction.parts
        position = self._sources[name].commit_transaction(transaction)
        self._update[name, position] = update
        self._happened[update] = (self._number[name], now)
        self._follow_event(now, Delivered((self._sources[name].report_at(position),)), None)

    def _queue_ask(self, now: int, ask: AskAction) -> None:
        self._queues[ask.source].append(ask)
        self._serve_source(now, ask.source)

    def _serve_source(self, now: int, name: str) -> None:
        """Begin with the next lookups of a source, as many as it answers at a time."""
        while self._queues[name] and self._at_work[name] < self._setting.at_once:
            ask = self._queues[name].popleft()
            self._at_work[name] += 1
            self._plan_entry(now + self._setting.lookup, ask.number, _Ends(ask, now))

    def _end_lookup(self, now: int, ended: _Ends) -> None:
        """A source has the answer; compensation takes time for what it contains too early."""
        ask, update = ended.ask, self._asker[ended.ask.number]
        answers = self._sources[ask.source].evaluate_ask(ask)
        concurrent = sum(
            later > update and name == ask.source and answers[0].cut.includes(position)
            for (name, position), later in self._update.items()
        )
        served = Served(update, self._number[ask.source], ended.begin, now, concurrent)
        self._served.append(served)
        arrival = now + concurrent * self._setting.local
        self._plan_entry(arrival, ask.number, _Arrives(ask, answers))
        self._at_work[ask.source] -= 1
        self._serve_source(now, ask.source)

    # -- the warehouse -----------------------------------------------------------------------------

    def _follow_event(self, now: int, event: Event, update: int | None) -> None:
        """Carry out what follows from an event.

        A question belongs to the update whose ts was given last or, before that, to the update
        that was answered.
        """
        when = now
        for action in self._algorithm.receive_event(event):
            match action:
                case StampAction():
                    self._store.note_stamp(action)
                    (named,) = action.transactions
                    update = self._stamped[action.ts] = self._update[named]
                    when = self._begun[update] = max(now, self._free)
                    self._free = when + self._setting.start
                case AskAction():
                    assert update is not None, "an update is taken before it asks"
                    self._asker[action.number] = update
                    self._plan_entry(when, action.number, _Begins(action))
                case CommitAction():
                    self._store.apply_commit(action)
                    self._note_commit(now, action)
                case AcknowledgeAction():
                    pass
                case _:
                    assert_never(action)

    def _note_commit(self, now: int, commit: CommitAction) -> None:
        in_view = [ts for ts in self._stamped if ts <= commit.ts or ts in commit.ahead]
        for ts in in_view:
            self._ended[self._stamped.pop(ts)] = now
