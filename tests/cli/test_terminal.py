"""How lines look on a terminal and in a pipe."""

from __future__ import annotations

import io
import os

import pytest

from viewkeeper.cli.terminal import print_line, show_error

HINT = "give the user the right to read it, then `viewkeeper refresh order_lines` helps"


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_lines_that_are_broken_at_words(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    show_error("source crm: " + "word " * 30, None, HINT)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    # No word is torn: joined again, the lines are what was said.
    assert " ".join(" ".join(lines).split()) == f"error: source crm: {'word ' * 30}hint: {HINT}"
    # A command can be copied as one piece.
    assert any("`viewkeeper refresh order_lines`" in line for line in lines)


def test_colours_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show_error("x" * 30 + " " + "y" * 22, None, None)
    assert screen.getvalue() == f"\x1b[31merror:\x1b[0m {'x' * 30} {'y' * 22}\n"


def test_a_pipe_gets_lines_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stdout", pipe)
    monkeypatch.setitem(os.environ, "COLUMNS", "60")
    print_line("word " * 40 + "end")
    assert pipe.getvalue() == "word " * 40 + "end\n"


def test_what_has_no_blanks_is_not_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "60")
    print_line(f"  see {'/long' * 30} for more")
    assert "/long" * 30 in screen.getvalue()
