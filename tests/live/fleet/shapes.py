"""The shapes of fleets under test, as data: which member reads what.

A column `a_n` shows the counter of base `a`; where a base comes by two ways the second is `a_n2`,
and only a view that is consistent with its bases shows the same in both.
"""

from __future__ import annotations

from tests.live.fleet.fleet import MemberPlan


def over(one: str, table: str, other: str, others: str) -> str:
    """A join of tables of two bases."""
    return (
        f"SELECT t.id AS tid, u.id AS uid, t.v AS tv, u.v AS uv, ct.n AS {one}_n, cu.n AS {other}_n"
        f" FROM {one}.{table} t JOIN {other}.{others} u ON t.k = u.k"
        f" JOIN {one}.clock ct ON t.one = ct.one JOIN {other}.clock cu ON u.one = cu.one"
    )


def alone(base: str, table: str) -> str:
    """A table of one base."""
    return (
        f"SELECT t.id AS tid, t.k, t.v AS tv, c.n AS {base}_n"
        f" FROM {base}.{table} t JOIN {base}.clock c ON t.one = c.one"
    )


DIAMOND = (
    MemberPlan("v1", {"x": over("a", "item", "b", "part")}),
    MemberPlan("v2", {"y": over("a", "part", "b", "item")}),
    MemberPlan(
        "v0",
        {
            "z": "SELECT x.tid, x.uid, x.tv, y.uv, x.a_n, x.b_n, y.a_n AS a_n2, y.b_n AS b_n2"
            " FROM v1.x x JOIN v2.y y ON x.tid = y.uid"
        },
    ),
)
"""Example 1 of the paper."""

CHAIN = (
    MemberPlan("p1", {"w": over("a", "item", "b", "part")}),
    MemberPlan("p2", {"w": "SELECT w.tid, w.uid, w.tv, w.a_n, w.b_n FROM p1.w w WHERE w.tv >= 0"}),
    MemberPlan(
        "p3",
        {
            "w": "SELECT w.tid, w.uid, t.v, w.a_n, w.b_n, c.n AS a_n2 FROM p2.w w"
            " JOIN a.part t ON w.tid = t.id JOIN a.clock c ON t.one = c.one"
        },
    ),
    MemberPlan(
        "p4",
        {
            "w": "SELECT w.tid, w.v, t.v AS bv, w.a_n, w.b_n, c.n AS b_n2 FROM p3.w w"
            " JOIN b.item t ON w.uid = t.id JOIN b.clock c ON t.one = c.one"
        },
    ),
)
"""Depth 4; both bases join in again further down, so that all are one group."""

BESIDE = (
    MemberPlan("low", {"w": over("a", "item", "b", "part")}),
    MemberPlan(
        "high",
        {
            "w": "SELECT w.tid, w.uid, t.v, w.a_n, w.b_n, c.n AS a_n2 FROM low.w w"
            " JOIN a.part t ON w.tid = t.id JOIN a.clock c ON t.one = c.one"
        },
    ),
)
"""A member that reads a base, and a parent over the same base."""

TABLES = (
    MemberPlan("items", {"w": alone("a", "item")}, together="all"),
    MemberPlan("parts", {"w": alone("a", "part"), "u": over("a", "part", "b", "item")}, "all"),
)
"""Two members that read different tables of one base, in one group because they ask for it."""

VIRTUAL = (
    MemberPlan("p", {"w": over("a", "item", "b", "part")}),
    MemberPlan("q", {"w": "SELECT w.tid, w.uid, w.tv, w.a_n, w.b_n FROM p.w w WHERE w.tid >= 0"}),
    MemberPlan("r", {"w": "SELECT w.tid, w.uv, w.a_n, w.b_n FROM p.w w WHERE w.uid >= 0"}),
    MemberPlan(
        "s",
        {
            "w": "SELECT x.tid, x.tv, y.uv, x.a_n, x.b_n, y.a_n AS a_n2, y.b_n AS b_n2"
            " FROM q.w x JOIN r.w y ON x.tid = y.tid"
        },
    ),
)
"""A diamond over a view: p is a group of its own, and for the others a base."""

SHAPES = {
    "diamond": DIAMOND,
    "chain": CHAIN,
    "beside": BESIDE,
    "tables": TABLES,
    "virtual": VIRTUAL,
}
