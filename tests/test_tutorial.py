"""The tutorial's commands, as they are on its page, print what the page says.

A private server has the database, and the files of the page are written where it says. Only the
installation is left out, and the address of the server is another one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from viewkeeper.testing.private_servers import PrivatePostgres, postgres_programs

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.S | re.M)
FILES: list[tuple[str, str]] = re.findall(r"`([\w./]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.S | re.M)
INSTALLATION = "make setup && . .venv/bin/activate\n"
ADDRESS = "127.0.0.1:5432"
MARK = "---- ended with"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivatePostgres]:
    """One of its own: the tutorial makes a role, which all databases of a server have."""
    server = PrivatePostgres(tmp_path / "server")
    server.start()
    with psycopg.connect(server.url_of(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    yield server
    server.stop()


def test_it_has_ten_commands_at_most() -> None:
    commands = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    assert 5 < len(commands) <= 10


def test_the_commands_print_what_the_tutorial_says(server: PrivatePostgres, tmp_path: Path) -> None:
    folder = tmp_path / "sales"
    write_files(folder, f"127.0.0.1:{server.port}")
    steps = [(kind, text.removeprefix(INSTALLATION)) for kind, text in BLOCKS]
    assert steps != BLOCKS
    script = "".join(f'{text}echo "{MARK} $?"\n' for kind, text in steps if kind == "sh")
    run = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment_of(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    outputs = iter(re.findall(rf"(.*?)^{MARK} (\d+)$\n", run.stdout, re.S | re.M))
    printed = ""
    for kind, text in steps:
        if kind == "sh":
            printed, status = next(outputs)
            assert status == "0", f"{text}\n{printed}"
        if kind == "text":
            assert is_like(text, printed), f"the tutorial has\n{text}\nprinted was\n{printed}"


def write_files(folder: Path, address: str) -> None:
    assert {"viewkeeper.yml", "views/city_sales.sql"} < {name for name, _ in FILES}
    assert any(ADDRESS in text for _, text in FILES)
    for name, text in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(ADDRESS, address))


def environment_of(server: PrivatePostgres) -> dict[str, str]:
    programs = [str(Path(sys.executable).parent), str(postgres_programs()), os.environ["PATH"]]
    reached = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}
    return {**os.environ, "PATH": os.pathsep.join(programs), **reached, "PGPASSWORD": "secret"}


def is_like(page: str, printed: str) -> bool:
    """Whether these lines were printed in this order, perhaps with others between them.

    `...` in a line of the page is anything, and blanks are equal.
    """
    lines = iter(printed.splitlines())
    return all(any(is_line(wanted, line) for line in lines) for wanted in page.splitlines())


def is_line(wanted: str, line: str) -> bool:
    pieces = (re.escape(" ".join(piece.split())) for piece in wanted.split("..."))
    return re.fullmatch(".*".join(pieces), " ".join(line.split())) is not None


def test_other_output_is_seen() -> None:
    assert is_like("2 rows, ...\nParis  1\n", "a note\n2 rows, 0.5 s\n\nParis 1 \n")
    assert not is_like("2 rows, ...\nParis  1\n", "2 rows, 0.5 s\nParis 2\n")
    assert not is_like("2 rows\nParis  1\n", "Paris 1\n2 rows\n")
