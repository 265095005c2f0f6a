"""Deliberately broken compensation, queue, acknowledgement, replay, store: each must be found out.

The switches are here, not in the product. Each breaks one thing that the proofs rely on; within 50
seeds the checker must find a run that falls below the promise, or that claims a state it does not
have. The unbroken machine passes the very same seeds. Where the general workload is too tame for a
mistake, the test chooses its own: self-joins, transactions that become visible late, crashes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from tests.maintain.runs import SHAPES
from viewkeeper.check.checker import check_history
from viewkeeper.check.levels import CheckAnswer
from viewkeeper.delta.algebra import Side, TsCondition
from viewkeeper.errors import SimulationError
from viewkeeper.maintain import compensation
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.maintain.unit_intake import TakenUnit, UnitIntake
from viewkeeper.simulate.campaigns.workload import JoinShape, Workload, random_scenario
from viewkeeper.simulate.scenario import AlgorithmSubject
from viewkeeper.simulate.simulated_store import SimulatedStore
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.step_choice import play_randomly, random_tempo
from viewkeeper.updates.backlog import Backlog
from viewkeeper.updates.source_protocol import Answer as SourceAnswer
from viewkeeper.updates.view_actions import ViewAction

SEEDS = 50
SELF_JOINS = ("self:2", "self:3", "self:4")
Break = Callable[[pytest.MonkeyPatch], None]
Halves = tuple[pa.Table, pa.Table]


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is broken, and the algorithm and the worlds in which that must show."""

    name: str
    apply: Break
    algorithm: str = "batch_sweep"
    shapes: tuple[str, ...] = SHAPES
    late: bool = False
    """Every transaction is reported before it is visible, and stays hidden for long."""
    crash: float | None = None
    """How likely a crash is at every step; by default as in any random world."""

    def __str__(self) -> str:
        return f"{self.name} ({self.algorithm})"

    @property
    def worlds(self) -> tuple[object, ...]:
        """What its worlds are made from; the same for several mistakes."""
        return self.algorithm, self.shapes, self.late, self.crash


# -- the mistakes ----------------------------------------------------------------------------------


def _halves(patch: pytest.MonkeyPatch, change: Callable[[pa.Table, pa.Table], Halves]) -> None:
    whole = compensation._split_by_cut

    def split(changes: pa.Table, answer: SourceAnswer) -> Halves:
        return change(*whole(changes, answer))

    patch.setattr(compensation, "_split_by_cut", split)


def keep_what_is_too_early(patch: pytest.MonkeyPatch) -> None:
    _halves(patch, lambda included, excluded: (included.slice(0, 0), excluded))


def leave_out_what_is_too_late(patch: pytest.MonkeyPatch) -> None:
    _halves(patch, lambda included, excluded: (included, excluded.slice(0, 0)))


def turn_the_order_of_ts(patch: pytest.MonkeyPatch) -> None:
    right = TsCondition.is_met

    def wrong(when: TsCondition, ours: int, theirs: int) -> bool:
        return right(when, theirs, ours)

    patch.setattr(TsCondition, "is_met", wrong)


def _ties(patch: pytest.MonkeyPatch, counts: Callable[[TsCondition], bool]) -> None:
    """Decide by `counts` whether a change of the same ts at another place meets a row."""
    right = TsCondition.is_met

    def wrong(when: TsCondition, ours: int, theirs: int) -> bool:
        return counts(when) if ours == theirs else right(when, ours, theirs)

    patch.setattr(TsCondition, "is_met", wrong)


def turn_the_order_of_places(patch: pytest.MonkeyPatch) -> None:
    _ties(patch, lambda when: not when.tie)


def let_all_places_see_each_other(patch: pytest.MonkeyPatch) -> None:
    _ties(patch, lambda when: when.side is Side.EARLIER)


def let_no_place_see_another(patch: pytest.MonkeyPatch) -> None:
    _ties(patch, lambda when: when.side is Side.LATER)


def ignore_the_tail(patch: pytest.MonkeyPatch) -> None:
    whole = compensation._split_by_cut

    def split(changes: pa.Table, answer: SourceAnswer) -> Halves:
        return whole(changes, replace(answer, tail=answer.tail.slice(0, 0)))

    patch.setattr(compensation, "_split_by_cut", split)


def forget_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    def clean(backlog: Backlog) -> None:
        backlog._kept = [kept for kept in backlog if not kept.committed]

    patch.setattr(Backlog, "forget_settled", clean)


def acknowledge_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    def acknowledged(backlog: Backlog, positions: Mapping[str, int]) -> dict[str, int]:
        return dict(positions)

    patch.setattr(Backlog, "acknowledged_positions", acknowledged)


def replay_whatever_comes_first(patch: pytest.MonkeyPatch) -> None:
    """The ts of the plan go to other transactions than those that it names."""

    def recover(intake: UnitIntake) -> None:
        if len(intake.waiting) < len(intake._stamps):
            return
        for stamp in sorted(intake._stamps, key=lambda stamp: stamp.ts):
            unit = intake.waiting.popleft()
            intake.backlog.take_transactions(unit, stamp.ts)
            intake._taken[stamp.ts] = unit
            intake._again.append(TakenUnit(stamp.ts, unit, None))
        intake._stamps = []

    patch.setattr(UnitIntake, "_restore_stamps", recover)


def drop_negative_counts(patch: pytest.MonkeyPatch) -> None:
    apply = SimulatedStore._apply_change

    def positive(store: SimulatedStore, change: ViewAction) -> None:
        apply(store, change)
        for row in [row for row, count in store._counts.items() if count < 0]:
            del store._counts[row]

    patch.setattr(SimulatedStore, "_apply_change", positive)


MISTAKES = (
    Mistake("what an answer saw too early is not removed", keep_what_is_too_early),
    Mistake("what an answer lacks is not added", leave_out_what_is_too_late),
    Mistake("the order of ts is turned", turn_the_order_of_ts),
    Mistake("both places see each other", let_all_places_see_each_other, shapes=SELF_JOINS),
    Mistake("neither place sees the other", let_no_place_see_another, shapes=SELF_JOINS),
    Mistake("the tail is ignored", ignore_the_tail),
    Mistake("the queue is cleaned too early", forget_what_is_committed, "pvm"),
    Mistake("the queue is cleaned too early", forget_what_is_committed, late=True),
    Mistake("acknowledged too early", acknowledge_what_is_committed, late=True, crash=0.1),
    Mistake("another batch is replayed", replay_whatever_comes_first, crash=0.1),
    Mistake("negative counts are dropped", drop_negative_counts, "pvm"),
)


# -- runs ------------------------------------------------------------------------------------------


def _world(mistake: Mistake, seed: int) -> SimulatedWorld:
    rng = random.Random(seed)
    shape = JoinShape.read_shape(rng.choice(mistake.shapes))
    transactions = rng.choice(list(Transactions))
    scenario = random_scenario(rng, Workload(shape, transactions, keyed=False, one_source=False))
    if mistake.late:
        late = frozenset((source, t.name) for t in scenario.transactions for source in t.parts)
        scenario = replace(scenario, fifo=False, late=late)
    world = SimulatedWorld(scenario, AlgorithmSubject(mistake.algorithm))
    tempo = random_tempo(rng, world)
    if mistake.late:
        tempo = replace(tempo, reveal=0.05)
    if mistake.crash is not None:
        tempo = replace(tempo, crash=mistake.crash)
    play_randomly(world, rng, tempo)
    return world


def _kept_promise(mistake: Mistake, seed: int) -> bool:
    """Whether the run has the level that is promised, and every claim is true."""
    kind = KINDS[mistake.algorithm]
    try:
        world = _world(mistake, seed)
    except (AssertionError, SimulationError):
        return False  # a machine that trips over its own assertion, or never ends, is found out
    level = min(kind.promise.values())
    verdict = check_history(world.run_history(kind.as_of), at_least=level)
    return verdict.has_level(level) is CheckAnswer.YES and not verdict.claim_faults


@pytest.mark.parametrize("first", {m.worlds: m for m in reversed(MISTAKES)}.values(), ids=str)
def test_the_unbroken_machine_passes_the_seeds_of_every_mistake(first: Mistake) -> None:
    assert all(_kept_promise(first, seed) for seed in range(SEEDS))


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_found_within_fifty_seeds(
    monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    mistake.apply(monkeypatch)
    found = next((seed for seed in range(SEEDS) if not _kept_promise(mistake, seed)), None)
    assert found is not None


def test_any_order_of_places_will_do_as_long_as_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one ts a view change adds place after place; which goes first does not matter."""
    turned = Mistake("", turn_the_order_of_places, shapes=SELF_JOINS)
    turned.apply(monkeypatch)
    assert all(_kept_promise(turned, seed) for seed in range(SEEDS))
