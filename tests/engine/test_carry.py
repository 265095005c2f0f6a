"""Errors that come out of Spark tasks: exactly those that tasks of the job raised, and never code.

Spark quotes the values of rows in its errors, so the text that an error is found in can be written
by whoever writes rows. What they write must stay a text.
"""

from __future__ import annotations

import base64
import importlib
import json
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import viewkeeper
from viewkeeper.engine.spark.task_errors import DETAIL_LENGTH_MAX, KINDS, Courier
from viewkeeper.errors import (
    BarrierError,
    BrokenQueryError,
    DefinitionError,
    ExpressionError,
    GapError,
    HistoryError,
    RegistryError,
    SourceAwayError,
    StaleReporterError,
    ViewkeeperError,
)

SAMPLES = [
    GapError("shop", "gone", detail='said "so"\nand more', hint="wait"),
    DefinitionError("wrong", path="views/ä.sql", line=3, column=7),
    BarrierError("shop", "orders", 2**63 - 1),
    BrokenQueryError("shop", "orders", "column price is gone"),
    HistoryError("wrong", path="a.json", place="line 3"),
    StaleReporterError("http://there", "another one reports", hint="stop"),
    ViewkeeperError("\ud800 is a lone surrogate"),
]


def all_kinds(kind: type[ViewkeeperError] = ViewkeeperError) -> Iterator[type[ViewkeeperError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from all_kinds(inner)


def quoted_by_spark(text: str) -> str:
    return f"[CAST_INVALID_INPUT] The value '{text}' of the type \"STRING\" cannot be cast."


def test_every_error_of_ours_has_its_kind() -> None:
    for module in pkgutil.walk_packages(viewkeeper.__path__, "viewkeeper."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {kind for kind in all_kinds() if kind.__module__.startswith("viewkeeper.")}
    assert set(KINDS.values()) == ours


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_arrives_with_all_its_facts(error: ViewkeeperError) -> None:
    courier = Courier()
    found = courier.unpack_error(
        f"Traceback:\n RuntimeError: {courier.pack_error(error)}\n\tat java"
    )
    assert type(found) is type(error)
    assert vars(found) == vars(error)
    assert (str(found), found.args) == (str(error), error.args)


def test_an_error_of_a_source_that_we_do_not_know_is_its_nearest_kind() -> None:
    class _StrangeError(SourceAwayError):
        pass

    courier = Courier()
    found = courier.unpack_error(courier.pack_error(_StrangeError("shop", "away")))
    assert type(found) is SourceAwayError
    assert found.source == "shop"


class _Payload:
    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._target,)


def test_a_row_that_holds_a_pickle_is_only_a_row(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    packed = base64.b64encode(pickle.dumps(_Payload(planted))).decode()
    courier = Courier()
    for text in (f"viewkeeper-error:{packed}:", f"viewkeeper-error:{courier.secret}:{packed}:"):
        found = courier.unpack_error(quoted_by_spark(text))
        assert type(found) is ExpressionError
    assert not planted.exists()


def test_only_the_marker_of_this_job_counts() -> None:
    forged = Courier().pack_error(RegistryError("there", "you may stop"))
    courier = Courier()
    assert type(courier.unpack_error(quoted_by_spark(forged))) is ExpressionError
    assert courier.secret not in repr(courier)
    assert len({Courier().secret for _ in range(20)}) == 20


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[]", "null", "\udcff", '{"kind": "GapError"}', "[" * 100_000),
        '{"kind": "GapError", "facts": {}}',
        '{"kind": "GapError", "facts": {"message": 3}}',
        '{"kind": "GapError", "facts": {"message": "a", "hint": {"b": 1}}}',
        '{"kind": "SystemExit", "facts": {"message": "a"}}',
        '{"kind": ["GapError"], "facts": {"message": "a"}}',
    ],
    ids=lambda content: json.dumps(content)[:20],
)
def test_a_damaged_payload_is_an_ordinary_failure(content: str) -> None:
    courier = Courier()
    packed = base64.b64encode(content.encode("utf-8", "surrogateescape")).decode()
    found = courier.unpack_error(f"viewkeeper-error:{courier.secret}:{packed}:")
    assert type(found) is ExpressionError


def test_what_a_row_holds_is_shown_shortened_and_harmless() -> None:
    found = Courier().unpack_error(
        quoted_by_spark("\x1b]0;owned\x07 \u202e" + "x" * 10_000 + "\nsecond")
    )
    assert found.detail is not None
    assert found.detail.startswith("[CAST_INVALID_INPUT] The value")
    assert len(found.detail) <= DETAIL_LENGTH_MAX + 3
    assert found.detail.isprintable()
