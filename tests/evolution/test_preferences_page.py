"""Every result that docs/evolution-preferences.md shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest
import yaml

from viewkeeper.evolution.policy import STRICTEST_FIRST, Policies, read_policies
from viewkeeper.evolution.preferences import read_preferences, read_substitutes
from viewkeeper.evolution.synchronization.synchronize import (
    NoRewriting,
    Rewriting,
    synchronize_view,
)
from viewkeeper.updates.schema_change import KINDS, ChangeKind
from viewkeeper.updates.source_protocol import CurrentNames
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.sql.view_statement import parse_view

PAGE = (Path(__file__).parents[2] / "docs" / "evolution-preferences.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
VIEW = next(text for kind, text in BLOCKS if kind == "sql")
PROJECT = yaml.safe_load(next(text for kind, text in BLOCKS if kind == "yaml"))
CASES = re.findall(
    r"\*\*(Lost|Renamed): ([\w.]+)(?: to (\w+))?\*\*(.*?)```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL
)
TABLES: dict[Relation, dict[str, pa.DataType]] = {
    Relation("shop", "orders"): {
        "id": pa.int64(),
        "price": pa.decimal128(10, 2),
        "note": pa.string(),
        "customer": pa.int64(),
        "flag": pa.int64(),
    },
    Relation("shop", "customers"): {"id": pa.int64(), "name": pa.string()},
    Relation("archive", "prices"): {"order_id": pa.int64(), "amount": pa.decimal128(10, 2)},
    Relation("crm", "clients"): {"client_id": pa.int64(), "name": pa.string()},
}


def changed(what: str, now: str) -> Rewriting | NoRewriting:
    """The page's view after one thing is lost, or has another name."""
    parsed = parse_view(VIEW, "views/order_lines.sql")
    source, table, *column = what.split(".")
    relation = Relation(source, table)
    tables = {key: dict(fields) for key, fields in TABLES.items()}
    became: dict[Relation, CurrentNames | None] = {
        key: CurrentNames(key.table, {name: name for name in TABLES[key]})
        for key in parsed.relations
    }
    if not column:
        del tables[relation]
        became[relation] = None
    else:
        kind = tables[relation].pop(column[0])
        tables[relation] |= {now: kind} if now else {}
        names = {name: name for name in TABLES[relation] if name != column[0]}
        became[relation] = CurrentNames(table, names | ({column[0]: now} if now else {}))
    return synchronize_view(
        parsed,
        became,
        lambda r: tuple(Field(*f) for f in tables[r].items()) if r in tables else None,
        read_preferences(PROJECT["views"]["order_lines"]["evolution"], "views"),
        read_substitutes(PROJECT["substitutes"], "substitutes"),
        lost_types={(r, n): kind for r, fields in TABLES.items() for n, kind in fields.items()},
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_the_page_shows_what_happens(case: tuple[str, ...]) -> None:
    _, what, now, words, kind, text = case
    found = changed(what, now)
    if kind == "text":
        assert isinstance(found, NoRewriting)
        assert "\n".join([found.reason, *found.mends, ""]) == text
        return
    assert isinstance(found, Rewriting), found
    assert found.text == text
    extent = re.search(r"extent (\w+)", words)
    assert found.extent.value == (extent[1] if extent else "equal")


def test_the_page_has_a_case_of_every_kind() -> None:
    assert [case[0] for case in CASES].count("Lost") == 4
    assert {kind for kind, _ in BLOCKS} == {"sql", "yaml", "text"}


def test_the_page_names_all_kinds_of_change_and_all_policies_in_their_order() -> None:
    said = re.search(r"Kinds: (.*?)\. Words", PAGE)
    assert said is not None
    assert tuple(re.findall(r"`(\w+)`", said[1])) == KINDS == get_args(ChangeKind)
    table = PAGE.split("## Policies")[1]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == STRICTEST_FIRST


def test_the_policy_of_the_example_refines_the_project() -> None:
    raw = PROJECT["views"]["order_lines"]["evolution"]["policy"]
    assert read_policies(raw, "policy") == Policies("evolve", {"drop_column": "approve"})
