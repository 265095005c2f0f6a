"""Deliberate mistakes at keyed places and in probes: each must be found within 50 seeds.

The switches are here, not in the product, and on the reference carrier. The unbroken sweep passes
the very same seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tests.maintain.test_keyed_sweep import run_probe, run_seed
from viewkeeper.delta import reference_carrier
from viewkeeper.delta.algebra import Algebra, Term
from viewkeeper.delta.reference_carrier import Reference, Row
from viewkeeper.maintain import compensation, probe, view_change
from viewkeeper.maintain.compensation import RelationVersions
from viewkeeper.maintain.sweep_family import batch_sweep
from viewkeeper.view.join_tree import JoinTree, KeyedMatch

SEEDS = 50
Bag = Sequence[tuple[Row, int]]


def _shown(patch: pytest.MonkeyPatch, wrong: Callable[[str, Bag], Bag | None]) -> None:
    """Let F be what `wrong` says where it says something."""
    right = reference_carrier.shown_by_match

    def shown(keyed: KeyedMatch, bag: Bag) -> Bag:
        found = wrong(keyed.join.kind, bag)
        return right(keyed, bag) if found is None else found

    patch.setattr(reference_carrier, "shown_by_match", shown)


def forget_the_padding(patch: pytest.MonkeyPatch) -> None:
    _shown(patch, lambda kind, bag: [] if kind == "left" and not bag else None)


def multiply_by_the_matches(patch: pytest.MonkeyPatch) -> None:
    def wrong(kind: str, bag: Bag) -> Bag | None:
        return [((), sum(n for _, n in bag))] if kind == "semi" and bag else None

    _shown(patch, wrong)


def take_no_match_for_null(patch: pytest.MonkeyPatch) -> None:
    _shown(patch, lambda kind, bag: [((None,), 1)] if kind == "exists" and not bag else None)


def turn_the_ties(patch: pytest.MonkeyPatch) -> None:
    right = RelationVersions.terms_at

    def wrong(versions: Any, algebra: Algebra[Any], including: bool) -> Iterable[Term[Any]]:
        return right(versions, algebra, not including)

    patch.setattr(RelationVersions, "terms_at", wrong)


def correct_touches_once(patch: pytest.MonkeyPatch) -> None:
    def wrong(algebra: Any, match: KeyedMatch, versions: Any, partial: Any) -> Any:
        return algebra.join_keyed(partial, versions.terms_at(algebra, including=True), match)

    patch.setattr(compensation, "_match_changes", wrong)


def treat_a_left_place_as_an_inner_one(patch: pytest.MonkeyPatch) -> None:
    right = compensation._padding_changes

    def wrong(algebra: Any, match: KeyedMatch, versions: Any, partial: Any) -> Any:
        nothing = algebra.add([partial, algebra.negate(partial)])
        padded = right(algebra, match, versions, nothing)
        changes = [
            algebra.where(
                algebra.join(partial, rows, match.on, compensation.SAME_TS), match.conditions
            )
            for rows in versions.known_changes(algebra)
        ]
        return algebra.add([padded, *changes])

    patch.setattr(compensation, "_padding_changes", wrong)


def forget_the_on_of_places_above(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JoinTree, "matches_above", lambda tree, place: [])


def forget_the_row_before(patch: pytest.MonkeyPatch) -> None:
    right = compensation.rows_before_changes
    patch.setattr(compensation, "rows_before_changes", lambda *given: right(*given).slice(0, 0))


def drop_rows_without_a_key(patch: pytest.MonkeyPatch) -> None:
    right = compensation.join_versions

    def wrong(algebra: Any, step: Any, versions: Any, waiting: Any) -> Any:
        found = right(algebra, step, versions, waiting)
        is_asked = versions.late is not None or versions.early is not None
        return (
            found
            if is_asked
            else {p: algebra.add([d, algebra.negate(d)]) for p, d in found.items()}
        )

    patch.setattr(view_change, "join_versions", wrong)


def cut_touches_apart(patch: pytest.MonkeyPatch) -> None:
    def wrong(plan: Any, piece: batch_sweep.Slice, changes: batch_sweep.ChangeRows) -> pa.Table:
        return changes.rows_between(piece.start, piece.stop)

    patch.setattr(batch_sweep, "slice_origins", wrong)


def find_padding_by_a_lookup(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(probe, "_finds_all", lambda plan, entry, keys: True)


def forget_the_on_of_the_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(probe, "_conditions_above", lambda plan, place: [])


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is broken, and the worlds in which that must show."""

    apply: Callable[[pytest.MonkeyPatch], None]
    kinds: tuple[str, ...]
    run: Callable[[Algebra[Any], int, str, Sequence[str] | None], None] = run_seed


MISTAKES = (
    Mistake(forget_the_padding, ("left", "inner")),
    Mistake(multiply_by_the_matches, ("semi",)),
    Mistake(take_no_match_for_null, ("exists",)),
    Mistake(turn_the_ties, ("left", "inner", "semi", "anti")),
    Mistake(correct_touches_once, ("semi", "anti", "exists")),
    Mistake(treat_a_left_place_as_an_inner_one, ("left",)),
    Mistake(forget_the_on_of_places_above, ("left", "inner")),
    Mistake(forget_the_row_before, ("left", "anti")),
    Mistake(drop_rows_without_a_key, ("left",)),
    Mistake(cut_touches_apart, ("left", "semi")),
    Mistake(turn_the_ties, ("left", "inner"), run_probe),
    Mistake(find_padding_by_a_lookup, ("left",), run_probe),
    Mistake(forget_the_on_of_the_entry, ("left",), run_probe),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.apply.__name__}-{m.run.__name__}")
def test_a_mistake_is_found(
    mistake: Mistake, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path_factory.mktemp("queue"))
    with monkeypatch.context() as patch:
        mistake.apply(patch)
        found = next((s for s in range(SEEDS) if _fails(mistake, s, folder)), None)
    assert found is not None, f"{SEEDS} seeds do not find it"
    assert not _fails(mistake, found, folder), f"seed {found} fails without the mistake too"


def _fails(mistake: Mistake, seed: int, folder: str) -> bool:
    try:
        mistake.run(Reference(), seed, folder, mistake.kinds)
    except AssertionError:
        return True
    return False
