"""In which order relations are asked, where unique keys say which question multiplies rows.

The views are those of a shop: items belong to orders of customers, and to suppliers of nations,
which belong to regions.
"""

from __future__ import annotations

import pyarrow as pa

from viewkeeper.view.definition import Equality, Field, Output, Place, Relation, ViewDefinition
from viewkeeper.view.expression import Column, Compare, Literal
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of

INT = pa.int64()
KEYS = {
    "customers": "customer",
    "orders": "order",
    "items": "item",
    "suppliers": "supplier",
    "nations": "nation",
    "regions": "region",
}
JOINS = (
    ("orders.customer", "customers.customer"),
    ("items.order", "orders.order"),
    ("suppliers.supplier", "items.supplier"),
    ("suppliers.nation", "customers.nation"),
    ("nations.nation", "suppliers.nation"),
    ("regions.region", "nations.region"),
)
FIELDS = tuple(Field(name, INT) for name in [*KEYS.values(), "value"])


def plan_of(hidden: str, knows_keys: bool = True) -> SweepPlan:
    """The plan of the joined shop, of which a condition hides rows of one table."""
    tables = list(KEYS)
    places = tuple(
        Place(
            at,
            table,
            Relation("shop", table),
            FIELDS,
            unique=frozenset([frozenset([key])] if knows_keys else []),
        )
        for at, (table, key) in enumerate(KEYS.items())
    )

    def column(name: str) -> Column:
        table, _, field = name.partition(".")
        return Column(tables.index(table), field, INT)

    equalities = tuple(Equality(column(one), column(other), False) for one, other in JOINS)
    predicates = (Compare("=", column(f"{hidden}.value"), Literal(1, INT)),)
    outputs = (Output("value", column("items.value")),)
    return sweep_plan_of(ViewDefinition("v", places, equalities, predicates, outputs, "", ""))


def asked_by(plan: SweepPlan, origin: str) -> list[str]:
    """The tables that a change of one table asks for, in order."""
    names = [place.alias for place in plan.view.places]
    place = names.index(origin)
    return [names[step.target] for step in plan.steps if place in step.origins]


def test_what_multiplies_rows_closes_a_cycle() -> None:
    plan = plan_of("regions")
    assert plan.view.places[plan.tree.root].alias == "items"
    ((left, right),) = [(each.left, each.right) for each in plan.tree.residual]
    assert (left.name, right.name) == ("nation", "nation")
    assert asked_by(plan, "items") == ["suppliers", "nations", "regions", "orders", "customers"]


def test_a_region_that_hides_is_asked_before_suppliers() -> None:
    plan = plan_of("regions")
    assert asked_by(plan, "nations")[0] == "regions"
    assert asked_by(plan, "suppliers")[:2] == ["nations", "regions"]


def test_a_customer_that_hides_is_asked_before_items() -> None:
    assert asked_by(plan_of("customers"), "orders")[0] == "customers"


def test_every_order_has_the_same_steps() -> None:
    for hidden in KEYS:
        plan = plan_of(hidden)
        assert len(plan.steps) == 2 * (len(KEYS) - 1)
        for origin in KEYS:
            assert sorted([origin, *asked_by(plan, origin)]) == sorted(KEYS)


def test_without_keys_the_best_connected_place_is_the_root() -> None:
    plan = plan_of("regions", knows_keys=False)
    assert plan.view.places[plan.tree.root].alias == "suppliers"
    assert asked_by(plan, "nations") == ["suppliers", "customers", "items", "orders", "regions"]
