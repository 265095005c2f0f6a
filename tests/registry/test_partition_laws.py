"""Theorem 2 over random view graphs: the partition is valid, unique, finest and so the largest.

Small graphs are compared with every way to split their views; larger ones with figure 12 on plain
sets. The order in which views are met is varied by their names, which is what decides it.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.graphs import (
    as_defined,
    as_lemma_6,
    figure_12,
    is_dependent,
    is_valid,
    partitions,
    random_graph,
    view_graphs,
)
from viewkeeper.partition.pyco import Partition, partition_graph
from viewkeeper.partition.view_graph import ViewGraph, group_bases

SEEDS = range(60)


def views_of(found: Partition) -> set[frozenset[str]]:
    return {frozenset(group.views) for group in found.groups}


@given(view_graphs())
def test_the_partition_is_the_only_one_of_atomic_groups_and_has_the_most_groups(
    graph: ViewGraph,
) -> None:
    valid = [
        split for split in partitions(graph.views) if all(is_valid(graph, each) for each in split)
    ]
    found = views_of(partition_graph(graph))
    assert found in [set(map(frozenset, split)) for split in valid]
    assert len(found) == max(map(len, valid))
    assert sum(len(split) == len(found) for split in valid) == 1
    for split in valid:
        assert all(any(each <= set(larger) for larger in split) for each in found)


@given(view_graphs())
def test_no_group_can_be_split_into_valid_ones(graph: ViewGraph) -> None:
    for group in partition_graph(graph).groups:
        for split in partitions(group.views):
            assert len(split) == 1 or not all(is_valid(graph, each) for each in split)


@given(view_graphs(views_max=10), st.randoms(use_true_random=False))
def test_any_order_of_insertion_gives_the_same_groups(graph: ViewGraph, random: Random) -> None:
    """Names decide the order of views within a level, and of bases."""
    names = [*graph.bases, *graph.views]
    renamed = dict(zip(names, random.sample(names, len(names)), strict=True))
    views = list(graph.views)
    random.shuffle(views)
    shuffled = ViewGraph(
        {
            renamed[view]: tuple(
                renamed[parent]
                for parent in random.sample(graph.parents[view], len(graph.parents[view]))
            )
            for view in views
        }
    )
    expected = {
        frozenset(renamed[view] for view in each) for each in views_of(partition_graph(graph))
    }
    assert views_of(partition_graph(shuffled)) == expected


@given(view_graphs(), st.data())
def test_what_is_wanted_together_gives_the_finest_partition_that_has_it(
    graph: ViewGraph, data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.sampled_from(graph.views), min_size=1, unique=True))
    valid = [
        split
        for split in partitions(graph.views)
        if all(is_valid(graph, each) for each in split)
        and any(set(wanted) <= set(each) for each in split)
    ]
    found = views_of(partition_graph(graph, together=[wanted]))
    (finest,) = [split for split in valid if len(split) == max(map(len, valid))]
    assert found == set(map(frozenset, finest))


@pytest.mark.parametrize("seed", SEEDS)
def test_figure_12_on_plain_sets_agrees(seed: int) -> None:
    random = Random(seed)
    graph = random_graph(random, random.randint(2, 12), random.randint(5, 40), 3)
    found = views_of(partition_graph(graph))
    assert found == figure_12(graph, as_defined)
    as_printed = figure_12(graph, as_lemma_6)
    assert all(any(each <= larger for larger in as_printed) for each in found)


@given(view_graphs(views_max=12, bases_max=6))
def test_the_bases_of_a_group_are_what_its_views_read_from_outside(graph: ViewGraph) -> None:
    found = partition_graph(graph)
    internal = [base for group in found.groups for base in group.internal]
    assert sorted(internal) == list(graph.bases), "every base is internal to exactly one group"
    assert sorted(view for group in found.groups for view in group.views) == sorted(graph.views)
    for group in found.groups:
        assert set(group.bases) == set(group_bases(graph, group.views))
        assert set(group.virtual) == set(group.external) & set(graph.views)
        for one, other in combinations(group.bases, 2):
            assert not is_dependent(graph, one, other)
