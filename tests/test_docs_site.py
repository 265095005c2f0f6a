"""The documentation site builds, without a broken link, and loads nothing from elsewhere.

The build is MkDocs's own, by `mkdocs.yml`, in which a link or an anchor that leads nowhere, and a
page that the navigation does not have, are errors. Each of them is planted once in a small site
that takes the same settings.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path

import pytest

from viewkeeper.engine.settings.project_file import (
    BatchSettings,
    RegistrySettings,
    Settings,
    SparkSettings,
)

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "mkdocs.yml"


def build_site(settings: Path, site: Path) -> subprocess.CompletedProcess[str]:
    # With --quiet, MkDocs neither shows nor counts its warnings.
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(settings), "-d", str(site)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    built = build_site(SETTINGS, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class PageReader(HTMLParser):
    """What a page loads, and the lines of its paragraphs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.prose: list[str] = []
        self._tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tags.append(tag)
        for name, value in attrs:
            if value and (name in {"src", "srcset", "data", "poster"} or (tag, name) == LINKED):
                self.loaded.append(value)

    def handle_endtag(self, tag: str) -> None:
        while self._tags and self._tags.pop() != tag:
            # Tags without an end, as <img>, are left with the one around them.
            continue

    def handle_data(self, data: str) -> None:
        if {"p", "li"} & {*self._tags} and not {"pre", "code", "script"} & {*self._tags}:
            self.prose += data.splitlines()


LINKED = ("link", "href")
ELSEWHERE = re.compile(r"(https?:)?//", re.I)
UNREAD = re.compile(r"[-*+] |\d+\. |\| |```")
"""How a list, a table or a block begins that was taken for a line of a paragraph."""


def loads_from_elsewhere(page: str) -> Iterator[str]:
    return (address for address in PageReader(page).loaded if ELSEWHERE.match(address))


def unread_lines(page: str) -> Iterator[str]:
    _, begins, article = page.partition('itemprop="articleBody">')
    return (line for line in PageReader(article if begins else page).prose if UNREAD.match(line))


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))
    found = [
        f"{page.relative_to(site)}: {address}"
        for page in pages
        for address in loads_from_elsewhere(page.read_text())
    ]
    styles = [
        f"{style.relative_to(site)}: {address}"
        for style in site.rglob("*.css")
        for address in re.findall(
            r"(?:url\(|@import)\s*[\"']?((?:https?:)?//\S+)", style.read_text()
        )
    ]
    assert not found + styles, "\n".join(["", *found, *styles])


def test_lists_and_tables_are_read_as_such(site: Path) -> None:
    found = [
        f"{page.relative_to(site)}: {line[:100]}"
        for page in sorted(site.rglob("*.html"))
        for line in unread_lines(page.read_text())
    ]
    advice = "begin it after an empty line, and indent what belongs to a list by four blanks:"
    assert not found, "\n".join(["", advice, *found])


def test_the_python_page_has_all_that_is_public(site: Path) -> None:
    import viewkeeper

    page = (site / "python.html").read_text()
    missing = [name for name in viewkeeper.__all__ if f'id="viewkeeper.{name}"' not in page]
    assert not missing, f"docs/python.md lacks {missing}"


def test_the_settings_page_has_all_settings(site: Path) -> None:
    page = (site / "settings.html").read_text()
    names = {
        f"{kind.__name__}.{field.name}"
        for kind in (Settings, BatchSettings, SparkSettings, RegistrySettings)
        for field in fields(kind)
    }
    missing = sorted(name for name in names if f'.{name}"' not in page)
    found = ["Settings.file_name", "Settings.folder", "Settings.named_views"]
    assert missing == found, "what follows from the file itself is no setting"


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ("see [b](b.md)", "b.md"),
        ("see [the other](other.md#nowhere)", "#nowhere"),
        ("see [below](#nowhere)", "#nowhere"),
        ("see [the code](../src/a.py)", "../src/a.py"),
        ("see [a folder](../src)", "../src"),
    ],
)
def test_broken_links_are_errors(tmp_path: Path, planted: str, complaint: str) -> None:
    pages = {"index.md": f"# A\n\n{planted}\n", "other.md": "# Other\n"}
    built = build_small(tmp_path, pages, nav=["index.md", "other.md"])
    assert built.returncode != 0
    assert complaint in built.stderr


def test_pages_that_the_navigation_lacks_are_errors(tmp_path: Path) -> None:
    pages = {"index.md": "# A\n", "other.md": "# Other\n"}
    built = build_small(tmp_path, pages, nav=["index.md"])
    assert built.returncode != 0
    assert "other.md" in built.stderr


def test_a_small_site_is_built(tmp_path: Path) -> None:
    pages = {"index.md": "# A\n\n[so](other.md#a-run---once)\n", "other.md": "# A `run --once`\n"}
    built = build_small(tmp_path, pages, nav=["index.md", "other.md"])
    assert built.returncode == 0, built.stderr


def build_small(
    folder: Path, pages: dict[str, str], nav: list[str]
) -> subprocess.CompletedProcess[str]:
    """A site of these pages, with the settings of the project but for its pages and plugins."""
    (folder / "docs").mkdir()
    for name, text in pages.items():
        (folder / "docs" / name).write_text(text)
    settings = folder / "mkdocs.yml"
    listed = "".join(f"  - {name}\n" for name in nav)
    settings.write_text(f"INHERIT: {SETTINGS}\ndocs_dir: docs\nplugins: []\nnav:\n{listed}")
    return build_site(settings, folder / "site")


@pytest.mark.parametrize(
    "planted",
    [
        '<script src="https://cdn.test/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.test/a.css">',
        '<p>a <img src="http://images.test/a.png">',
    ],
)
def test_what_is_loaded_from_elsewhere_is_seen(planted: str) -> None:
    assert list(loads_from_elsewhere(planted))
    assert not list(loads_from_elsewhere('<a href="https://a.test"><img src="a.png"></a>'))


def test_lists_in_paragraphs_are_seen() -> None:
    assert list(unread_lines("<p>as follows:\n- one\n- <a>two</a></p>")) == ["- one", "- "]
    assert not list(unread_lines("<ul><li>one - two</li></ul><pre>- code</pre>"))
