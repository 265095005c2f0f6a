"""The examples in docstrings are equations that run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import viewkeeper

MODULES = [
    module.name
    for module in pkgutil.walk_packages(viewkeeper.__path__, "viewkeeper.")
    if not module.ispkg
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    files = Path(viewkeeper.__path__[0]).rglob("*.py")
    assert sum(file.read_text(encoding="utf-8").count(" >>> ") for file in files) >= 10


@pytest.mark.parametrize("name", ["Observer", "Project", "Report", "Verification", "View", "open"])
def test_what_is_public_has_examples(name: str) -> None:
    """In its own docstring, which the page on Python shows; that of its module is not shown."""
    text = getattr(viewkeeper, name).__doc__
    assert len(doctest.DocTestParser().get_examples(text)) >= 2
