"""What a project file may not be: endless, ambiguous, or of types that settings do not have."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from viewkeeper.engine.settings.project_file import Settings, read_settings
from viewkeeper.errors import ProjectError, SourceAwayError
from viewkeeper.sources.settings import BYTES_MAX
from viewkeeper.upstream.parent_project import ParentProject
from viewkeeper.warehouse.store import Store

SOURCES = "sources: {crm: {kind: sqlite, path: crm.db}}\n"
GOOD = f"warehouse: w\n{SOURCES}"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)

WRONG = {
    "an alias bomb": (BOMB + GOOD, "more than 100000 values"),
    "a bomb for a value": (BOMB + f"warehouse: *a11\n{SOURCES}", "more than 100000 values"),
    "a value that holds itself": (f"warehouse: &a [*a]\n{SOURCES}", "a value holds itself"),
    "deep lists": ("a: " + "[" * 50_000, "nested too deeply"),
    "deep mappings": ("{a: " * 50_000, "nested too deeply"),
    "a key twice": (GOOD + "warehouse: other\n", 'the key "warehouse" occurs twice'),
    "a source twice": (
        "warehouse: w\nsources:\n  crm: {kind: sqlite, path: a}\n  crm: {kind: sqlite, path: b}\n",
        'the key "crm" occurs twice',
    ),
    "code": ("warehouse: !!python/object/apply:os.system [id]\n" + SOURCES, "python/object"),
    "no day": (GOOD + "freshness: 2024-02-30\n", "not valid YAML"),
    "an odd tag": (GOOD + 'freshness: !!timestamp ""\n', "not valid YAML"),
    "a zero byte": ('warehouse: "a\\0b"\n' + SOURCES, "a zero byte"),
    "half a character": ('warehouse: "\\uD800"\n' + SOURCES, "half a character"),
    "thousands of digits": (GOOD + f"batch: {{rows: {'9' * 5000}}}\n", "not valid YAML"),
    "an unknown word": (GOOD + 'evolution: "é"\n', "policies: exception, evolve, try_evolve"),
    "a list": (GOOD + "evolution: [policy]\n", '"evolution" must be a mapping'),
    "false": (GOOD + "evolution: false\n", '"evolution" must be a mapping'),
    "a number for a key": (GOOD + "evolution: {7: evolve}\n", 'unknown key "7"'),
    "true for a number": (GOOD + "batch: {rows: true}\n", "must be a whole number"),
    "too large a number": (GOOD + f"batch: {{rows: {10**300}}}\n", "is too large"),
    "too long a time": (GOOD + f"freshness: {'9' * 400}s\n", "must be a duration"),
    "digits of another script": (GOOD + "freshness: ٣s\n", "must be a duration"),
    "no number": (GOOD + "freshness: .nan\n", "must be a duration"),
    "an infinite number": (
        "warehouse: w\nsources: {crm: {kind: sqlite, path: a, busy_seconds: .inf}}\n",
        "must be a number >= 0",
    ),
    "an empty name": ('warehouse: w\nsources: {"": {kind: sqlite, path: a}}\n', "plain word"),
    "an unknown address": (f"warehouse: ftp://host/path\n{SOURCES}", "a folder, or one of s3://"),
    "an address with one slash": (f"warehouse: S3:/bucket\n{SOURCES}", "is no address"),
    "no name": ("warehouse: w\nsources: {~: {kind: sqlite, path: a}}\n", "must be a plain word"),
    "a yes for a name": ("warehouse: w\nsources: {yes: {kind: sqlite, path: a}}\n", "plain word"),
    "a number for a view": (
        GOOD + "views: {7: {algorithm: sweep}}\n",
        "the name of a view must be",
    ),
    "a deep condition": (
        GOOD + f"views: {{v: {{evolution: {{dispensable: {{conditions: ['{'(' * 9000}']}}}}}}}}\n",
        "is no SQL condition",
    ),
}


def read(folder: Path, text: str) -> Settings:
    (folder / "viewkeeper.yml").write_text(text, encoding="utf-8")
    return read_settings(folder)


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_a_project_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ProjectError, match=r"viewkeeper\.yml|source") as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "viewkeeper.yml").open("w") as file:
        file.truncate(BYTES_MAX + 1)
    with pytest.raises(ProjectError, match="larger than 512 KB"):
        read_settings(tmp_path)


def test_anchors_and_merges_stay_allowed(tmp_path: Path) -> None:
    text = """\
warehouse: w
sources:
  a: &base {kind: sqlite, path: a.db, busy_seconds: 3}
  b: {<<: *base, path: b.db}
  c: {<<: *base, path: c.db}
"""
    found = read(tmp_path, text).sources
    assert [found[name].options["path"] for name in "abc"] == ["a.db", "b.db", "c.db"]
    assert found["c"].read_number("busy_seconds", 0) == 3


def test_a_parents_file_is_read_as_carefully(tmp_path: Path) -> None:
    (tmp_path / "viewkeeper.yml").write_text("a: " + "[" * 50_000)
    with pytest.raises(SourceAwayError, match=r"(?s)cannot be read.*nested too deeply"):
        ParentProject("orders", tmp_path).load_head()


def test_an_address_is_never_made_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("s3://bucket/w"), Path("gs://bucket"), Path("file:///data")):
        with pytest.raises(ProjectError, match=r"is not a folder"):
            Store.open(path, "test", time.time)
        with pytest.raises(ProjectError, match=r"is not a folder"):
            read_settings(path)
    (tmp_path / "viewkeeper.yml").write_text(f"warehouse: ftp://bucket/w\n{SOURCES}")
    with pytest.raises(SourceAwayError, match=r"has the scheme ftp"):
        ParentProject("orders", tmp_path).load_head()
    assert [path.name for path in tmp_path.iterdir()] == ["viewkeeper.yml"]
