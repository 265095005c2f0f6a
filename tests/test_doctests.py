"""The examples in docstrings are equations that run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import viewkeeper

MODULES = [
    module.name
    for module in pkgutil.walk_packages(viewkeeper.__path__, "viewkeeper.")
    if not module.ispkg and not module.name.startswith("viewkeeper.cli")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    tried = [doctest.testmod(importlib.import_module(name)).attempted for name in MODULES]
    assert sum(tried) >= 10
