"""Random fleets, entirely determined by a seed: bases, members with views, and what happens.

Members are made one after the other, each over bases and views that are there already, so diamonds,
chains and views of several members over one base come by themselves. Values are few, so that joins
hit. Some members come while the run is under way, some leave; some want to be together.

Each mistake breaks one rule that consistency rests on; `docs/fleet-simulation.md` says what the
checker finds then. A mediator takes its rules as a value, and a mistake gives it another one; the
other mistakes are made by the simulated member itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from viewkeeper.check.history.recorded_history import Bag, Row
from viewkeeper.order.mediator import ALL_RULES, Mediator, WaitRules
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.simulate.campaigns.workload import FIELDS, define_view
from viewkeeper.view.definition import Relation, ViewDefinition

COLUMNS = tuple(field.name for field in FIELDS)
DEPTH_MAX = 4
VALUES = 3


@dataclass(frozen=True, slots=True)
class BaseUpdate:
    """A transaction of one base: signed rows by table."""

    base: str
    changes: Mapping[str, tuple[tuple[Row, int], ...]]


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A warehouse: its views by name, and when it joins and leaves, in updates committed before."""

    name: str
    views: Mapping[str, ViewDefinition]
    facts: MemberFacts
    joins: int = 0
    leaves: int | None = None


@dataclass(frozen=True, slots=True)
class FleetScenario:
    """What happens, not when."""

    tables: Mapping[str, Mapping[str, Bag]]
    """The rows of every base's tables at the start."""
    updates: tuple[BaseUpdate, ...]
    members: tuple[MemberPlan, ...]
    """Parents come before those who read them."""


def random_fleet(rng: random.Random) -> FleetScenario:
    """A fleet of two to seven members over one to four bases."""
    tables = {
        f"b{number}": {name: _random_rows(rng) for name in ("r", "s")[: rng.randint(1, 2)]}
        for number in range(1, rng.randint(2, 5))
    }
    updates = _random_updates(rng, tables, rng.randint(3, 9))
    return FleetScenario(tables, updates, _random_members(rng, tables, len(updates)))


def member_plan(name: str, views: Mapping[str, str], together: str = "") -> MemberPlan:
    """A member with these views, by their SELECT; a source that begins with b is a base."""
    made = {view: define_view(select) for view, select in views.items()}
    read = {relation for view in made.values() for relation in view.relations}
    bases = sorted({r.source for r in read if r.source.startswith("b")})
    facts = MemberFacts(
        {base: tuple(sorted(r.table for r in read if r.source == base)) for base in bases},
        tuple(sorted({r.source for r in read} - set(bases))),
        together,
    )
    return MemberPlan(name, made, facts)


def _random_members(
    rng: random.Random, tables: Mapping[str, Mapping[str, Bag]], updates: int
) -> tuple[MemberPlan, ...]:
    known = [Relation(base, table) for base, mine in tables.items() for table in mine]
    depth = dict.fromkeys(tables, 0)
    one_group, labels = rng.random() < 0.1, rng.random() < 0.15
    newest = rng.choice([0, 1, 3])
    made: dict[str, MemberPlan] = {}
    count, second = rng.randint(2, 7), rng.random() < 0.4
    for number in range(1, count + 1):
        name = f"m{number}"
        if second and number == 1 + count // 3 and made:
            known = _second_cluster(rng, known, made)
        usable = [relation for relation in known if depth[relation.source] < DEPTH_MAX]
        views = {
            f"v{i}": _random_select(rng, usable, newest)
            for i in range(1, 3 if rng.random() < 0.2 else 2)
        }
        label = "all" if one_group else rng.choice(["", "some"]) if labels else ""
        plan = member_plan(name, views, label)
        depth[name] = 1 + max(depth[source] for source in plan.facts.read_names)
        known += [Relation(name, view) for view in views]
        made[name] = _draw_joining(rng, plan, made, updates)
    parents = {parent for plan in made.values() for parent in plan.facts.parents}
    return tuple(
        _draw_leaving(rng, plan, updates) if plan.name not in parents else plan
        for plan in made.values()
    )


def _second_cluster(
    rng: random.Random, known: list[Relation], made: Mapping[str, MemberPlan]
) -> list[Relation]:
    """What a second cluster reads of the first: the views of one member, and bases besides it."""
    chosen = rng.choice(sorted(made))
    behind, waiting = set[str](), [chosen]
    while waiting:
        reads = made[waiting.pop()].facts.read_names
        behind |= reads
        waiting += [name for name in reads if name in made]
    return [r for r in known if r.source == chosen or r.source not in (*made, *behind)]


def _draw_joining(
    rng: random.Random, plan: MemberPlan, made: Mapping[str, MemberPlan], updates: int
) -> MemberPlan:
    """When it comes: not before those that it reads."""
    earliest = max((made[parent].joins for parent in plan.facts.parents), default=0)
    joins = rng.randint(earliest, updates) if rng.random() < 0.25 else earliest
    return MemberPlan(plan.name, plan.views, plan.facts, joins)


def _draw_leaving(rng: random.Random, plan: MemberPlan, updates: int) -> MemberPlan:
    if rng.random() < 0.85:
        return plan
    return MemberPlan(
        plan.name, plan.views, plan.facts, plan.joins, rng.randint(plan.joins, updates)
    )


def _random_select(rng: random.Random, known: list[Relation], newest: int) -> str:
    """A chain over one to three relations; what is newest is read most, where that is wanted."""
    count = min(rng.choice([1, 2, 2, 2, 3]), len(known))
    weights = [1 + newest * number for number in range(len(known))]
    used: list[Relation] = []
    while len(used) < count:
        chosen = rng.choices(known, weights)[0]
        if chosen not in used:
            used.append(chosen)
    places = range(len(used))
    columns = [f"p{rng.choice(places)}.{name} AS {name}" for name in COLUMNS]
    pairs = [f"p{i}.{rng.choice('ab')} = p{i + 1}.{rng.choice('ka')}" for i in places[:-1]]
    tables = ", ".join(f"{relation} p{i}" for i, relation in enumerate(used))
    where = f" WHERE {' AND '.join(pairs)}" if pairs else ""
    return f"SELECT {', '.join(columns)} FROM {tables}{where}"


def _random_rows(rng: random.Random) -> dict[Row, int]:
    return dict(Counter(_random_row(rng) for _ in range(rng.randint(1, 3))))


def _random_row(rng: random.Random) -> Row:
    return (rng.randrange(VALUES), rng.randrange(VALUES), rng.randrange(VALUES), rng.randrange(9))


def _random_updates(
    rng: random.Random, tables: Mapping[str, Mapping[str, Bag]], count: int
) -> tuple[BaseUpdate, ...]:
    now = {b: {t: Counter(dict(rows)) for t, rows in mine.items()} for b, mine in tables.items()}
    made = []
    for _ in range(count):
        base = rng.choice(sorted(now))
        changes: dict[str, list[tuple[Row, int]]] = {}
        for _ in range(rng.randint(1, 2)):
            table = rng.choice(sorted(now[base]))
            present = sorted(row for row, n in now[base][table].items() if n > 0)
            delete = present and rng.random() < 0.4
            row, sign = (rng.choice(present), -1) if delete else (_random_row(rng), 1)
            now[base][table][row] += sign
            changes.setdefault(table, []).append((row, sign))
        made.append(BaseUpdate(base, {table: tuple(rows) for table, rows in changes.items()}))
    return tuple(made)


class Mistake(Enum):
    """One rule that is broken."""

    NO_PARENT_WAIT = "an id is taken though a parent has not committed it"
    NO_LOG_WAIT = "an id is taken though the log has not been read up to it"
    TAKES_HIDDEN = "a state is taken that the parent does not show"
    READS_NEWEST = "a parent is asked for its newest rows, whatever they contain"
    REGISTERS_EARLY = "an id of a view is registered before the view has committed it"
    NO_FIRST_REPORT = "a reporter does not register where its log stands when a group begins"
    LOADS_ANYWHERE = "a new member loads though its parents stand apart"


_RULES = {
    Mistake.NO_PARENT_WAIT: WaitRules(parents=False),
    Mistake.NO_LOG_WAIT: WaitRules(bases=False),
    Mistake.TAKES_HIDDEN: WaitRules(shown_states=False),
}


def make_mediator(mistake: Mistake | None, n: int) -> Mediator:
    """A mediator, as it should be or with a mistake."""
    return Mediator(n, rules=_RULES.get(mistake, ALL_RULES) if mistake else ALL_RULES)
