"""One word for several changes, and how a view's policy refines that of its project."""

from __future__ import annotations

import pytest

from viewkeeper.errors import ProjectError
from viewkeeper.evolution.policy import POLICIES, STRICTEST_FIRST, Policies, read_policies
from viewkeeper.updates.schema_change import SchemaChange

DROP = SchemaChange("drop_column", "orders", "note")
RENAME = SchemaChange("rename_column", "orders", "price", "cost")
ADD = SchemaChange("add_column", "orders", "new")


def test_every_policy_has_its_place_among_the_strict() -> None:
    assert set(STRICTEST_FIRST) == set(POLICIES)
    assert len(STRICTEST_FIRST) == len(POLICIES)


def test_the_strictest_counts() -> None:
    policies = Policies("evolve", {"drop_column": "lenient", "add_column": "ignore"})
    assert policies.policy_for([RENAME]) == "evolve"
    assert policies.policy_for([RENAME, DROP]) == "lenient"
    assert policies.policy_for([DROP, ADD, RENAME]) == "ignore"
    assert policies.policy_for([]) == "evolve"


def test_a_word_is_for_every_kind() -> None:
    project = Policies("evolve", {"drop_table": "exception"})
    assert read_policies("lenient", "policy", project) == Policies("lenient")


def test_a_mapping_changes_only_what_it_names() -> None:
    project = Policies("lenient", {"drop_table": "exception", "rewrite": "approve"})
    read = read_policies({"rewrite": "evolve"}, "policy", project)
    assert read == Policies("lenient", {"drop_table": "exception", "rewrite": "evolve"})
    read = read_policies({"default": "ignore"}, "policy", project)
    assert read == Policies("ignore", project.kinds)


def test_nothing_said_is_what_is_under_it() -> None:
    assert read_policies(None, "policy") == Policies("evolve")
    assert read_policies(None, "policy", Policies("ignore")) == Policies("ignore")


@pytest.mark.parametrize(
    ("raw", "message", "hint"),
    [
        ("evovle", 'p: unknown policy "evovle"', 'did you mean "evolve"'),
        ({"drop_colum": "evolve"}, 'unknown kind of change "drop_colum"', '"drop_column"'),
        ({"drop_column": "stop"}, 'p.drop_column: unknown policy "stop"', "policies: exception"),
        ({"drop_column": True}, 'unknown policy "True"', "policies"),
        (["evolve"], "must be a word or a mapping", "policy: evolve"),
        (7, "must be a word or a mapping", "drop_column: approve"),
    ],
)
def test_what_is_wrong_is_named_with_a_way_out(raw: object, message: str, hint: str) -> None:
    with pytest.raises(ProjectError) as caught:
        read_policies(raw, "p")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
