"""`viewkeeper partition`: projects that read each other's views, as text, as JSON and drawn.

Settings are made here rather than read where a project reads another one's views, so that only what
this command knows of such a source is tested: its folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import call
from viewkeeper.cli.commands.partition_command import expected_messages, partition_lines
from viewkeeper.cli.commands.partition_projects import (
    FleetProject,
    ProjectFleet,
    place_of,
    read_projects,
)
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.view_catalogue import read_views
from viewkeeper.errors import ProjectError
from viewkeeper.partition.pyco import partition_graph
from viewkeeper.sources.settings import SourceSettings

Sources = Mapping[str, Mapping[str, str]]


def write(folder: Path, sources: Sources, views: Mapping[str, tuple[str, ...]]) -> Path:
    """A project whose views join the tables that are named for them."""
    (folder / "views").mkdir(parents=True)
    facts = {"warehouse": "./warehouse", "sources": sources}
    (folder / "viewkeeper.yml").write_text(json.dumps(facts))
    for name, tables in views.items():
        first, *rest = tables
        joins = "".join(
            f" JOIN {table} AS t{n} ON t0.id = t{n}.id" for n, table in enumerate(rest, 1)
        )
        text = f"CREATE MATERIALIZED VIEW {name} AS SELECT t0.id FROM {first} AS t0{joins}"
        (folder / "views" / f"{name}.sql").write_text(text)
    return folder


def sqlite(path: str) -> dict[str, str]:
    return {"kind": "sqlite", "path": path}


def member(folder: Path, sources: Sources, views: Mapping[str, tuple[str, ...]]) -> FleetProject:
    """The same, with settings that need not be read."""
    write(folder, sources, views)
    found = {
        name: SourceSettings(name, facts["kind"], facts, str(folder))
        for name, facts in sources.items()
    }
    settings = Settings(folder, folder / "warehouse", found)
    return FleetProject(folder.name, settings, read_views(settings))


@pytest.fixture
def diamond(tmp_path: Path) -> ProjectFleet:
    """Example 1 of the paper in three projects, with a reader of its top."""
    bases = {"b1": sqlite("../b1.db"), "b2": sqlite("../b2.db")}
    both = ("b1.t", "b2.t")
    above = {"one": {"kind": "warehouse", "path": "../one"}}
    two = {"two": {"kind": "warehouse", "path": "../two"}}
    top = {"zero": {"kind": "warehouse", "path": "../zero"}, "b3": sqlite("../b3.db")}
    members = [
        member(tmp_path / "one", bases, {"v1": both}),
        member(tmp_path / "two", bases, {"v2": both}),
        member(tmp_path / "zero", above | two, {"v0": ("one.v1", "two.v2")}),
        member(tmp_path / "top", top, {"v3": ("zero.v0", "b3.t")}),
    ]
    return ProjectFleet({each.settings.folder.resolve(): each for each in members})


def test_the_graph_of_several_projects(diamond: ProjectFleet) -> None:
    assert diamond.view_graph().parents == {
        "one.v1": ("b1", "b2"),
        "two.v2": ("b1", "b2"),
        "zero.v0": ("one.v1", "two.v2"),
        "top.v3": ("zero.v0", "b3"),
    }
    assert list(diamond.name_warnings()) == []


def test_the_groups_of_several_projects_as_text(diamond: ProjectFleet) -> None:
    found = partition_graph(diamond.view_graph())
    told = "\n".join(partition_lines(found))
    assert told.startswith("2 groups, 4 views, 3 bases\n")
    assert (
        "(one registry, level 0)\n  views     one.v1, two.v2, zero.v0\n  internal  b1, b2" in told
    )
    assert (
        "(no registry: nothing to agree with, level 1)\n  views     top.v3\n  internal  b3\n"
        in told
    )
    assert "  virtual   zero.v0" in told
    # RyCo: each of three updates is registered once and sent to four views.
    assert (
        expected_messages(found)["ryco"].registered,
        expected_messages(found)["ryco"].ordered,
    ) == (1, 4)
    assert expected_messages(found)["pyco"].ordered == 2 * 3 / 3


def test_a_view_that_the_other_project_does_not_have_is_refused(diamond: ProjectFleet) -> None:
    by_name = {each.name: each for each in diamond.members.values()}
    one, two = by_name["one"], by_name["two"]
    replaced = FleetProject("one", one.settings, two.catalogue)
    fleet = ProjectFleet(diamond.members | {one.settings.folder.resolve(): replaced})
    with pytest.raises(ProjectError, match='view "v0": there is no view "v1" in'):
        fleet.view_graph()


def test_projects_that_share_databases(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"crm": sqlite("../crm.db")}, {"a": ("crm.t",)})
    two = write(tmp_path / "two", {"crm": sqlite("../crm.db")}, {"a": ("crm.t",)})
    fleet = read_projects([one, two, one])
    assert fleet.view_graph().parents == {"one.a": ("crm",), "two.a": ("crm",)}
    assert list(fleet.name_warnings()) == []


def test_one_name_for_two_databases_and_two_names_for_one_are_told(tmp_path: Path) -> None:
    one = write(tmp_path / "a" / "p", {"crm": sqlite("crm.db")}, {"v": ("crm.t",)})
    names = {"crm": sqlite("crm.db"), "sales": sqlite("../../a/p/crm.db")}
    two = write(tmp_path / "b" / "p", names, {"w": ("crm.t", "sales.t")})
    fleet = read_projects([one, two])
    assert sorted(fleet.view_graph().views) == ["a/p.v", "b/p.w"]
    first, second = fleet.name_warnings()
    assert first.startswith('base "crm" is taken for one database, but is sqlite ')
    assert "has several names: crm, sales;" in second


def test_a_view_called_like_a_source_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", {"crm": sqlite("crm.db")}, {"crm": ("crm.t",)})
    result = call("partition", str(folder))
    assert result.exit_code == 2
    assert '"crm" is the name of a view and of a source' in result.stderr


def test_a_password_is_no_part_of_a_place() -> None:
    url = {"url": "postgresql://me:${PW}@db:5433/shop?sslmode=require"}
    assert place_of(SourceSettings("shop", "postgres", url, "")) == "postgres db:5433/shop"


def test_the_command_on_the_sample(shop: Path) -> None:
    result = call("partition")
    assert result.exit_code == 0
    assert result.stdout.startswith("2 groups, 3 views, 3 bases\n")
    assert "one per group (PyCo)" in result.stdout


def test_the_command_draws_and_speaks_json(shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "groups.svg"
    words = ["--together", "order_lines,berlin_bulk", "--why", "order_lines", "berlin_bulk"]
    result = call("partition", str(shop), "--json", "--svg", str(file), *words)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    (group,) = told["groups"]
    assert group["registry"] is True
    assert sorted(group["views"]) == ["berlin_bulk", "customer_totals", "order_lines"]
    assert told["why"][0] == "The project wants berlin_bulk and order_lines together."
    assert told["messages_per_update"]["none"]["registered"] == 0
    assert "order_lines" in file.read_text()


def test_why_two_views_are_apart(shop: Path) -> None:
    result = call("partition", "--why", "order_lines", "berlin_bulk")
    assert result.exit_code == 0
    assert "are not together" in result.stdout
    assert call("partition", "--why", "order_lines", "nothing").exit_code == 2


def test_projects_are_grouped_as_a_registry_does(diamond: ProjectFleet) -> None:
    graph = diamond.project_graph()
    assert graph.parents == {
        "one": ("b1", "b2"),
        "two": ("b1", "b2"),
        "zero": ("one", "two"),
        "top": ("zero", "b3"),
    }
    assert sorted(group.views for group in partition_graph(graph).groups) == [
        ("one", "two", "zero"),
        ("top",),
    ]


def test_projects_are_called_so(diamond: ProjectFleet) -> None:
    told = list(partition_lines(partition_graph(diamond.project_graph()), "project"))
    assert told[0] == "2 groups, 4 projects, 3 bases"
    assert "  projects  one, two, zero" in told


def test_labels_put_projects_together(tmp_path: Path) -> None:
    """Two projects without anything in common, but for what they say."""
    for name in ("left", "right"):
        write(tmp_path / name, {f"{name}_db": sqlite(f"{name}.db")}, {"v": (f"{name}_db.t",)})
    folders = (str(tmp_path / "left"), str(tmp_path / "right"))
    apart = json.loads(call("partition", *folders, "--projects", "--json").stdout)
    assert [group["views"] for group in apart["groups"]] == [["left"], ["right"]]
    for name in ("left", "right"):
        file = tmp_path / name / "viewkeeper.yml"
        registry = {"url": "../registry.db", "together": "both"}
        file.write_text(json.dumps({**json.loads(file.read_text()), "registry": registry}))
    together = json.loads(call("partition", *folders, "--projects", "--json").stdout)
    assert [group["views"] for group in together["groups"]] == [["left", "right"]]
