"""A server whose answers make no sense: an error of the source for whatever was asked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.sources.rogue_server import OK, RogueServer, greeting
from viewkeeper.errors import SourceAwayError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.settings import SourceSettings

# What comes in the place of an answer; all that follows is that all is well.
ANSWERS = {
    "no rows": OK,
    "a length that is none": b"\xff",
    "half an end": b"\xfe\x00",
    "an error without a number": b"\xff\x01",
}
ASKED: dict[str, Callable[[MariadbSource], object]] = {
    "schema": lambda source: source.describe_table("t"),
    "handle": lambda source: source.handle_of("t"),
    "follow": lambda source: source.follow_tables({"t": ["id"]}),
    "health": lambda source: source.read_health([]),
    "snapshots": lambda source: source.prepare_snapshots(0, {"t": ["id"]}).__enter__()(),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_makes_no_sense_is_an_error_of_the_source(
    answer: bytes, tmp_path: Path
) -> None:
    # Whoever connects is let in, and may set up its session, before the answer comes.
    script = [greeting(), OK, OK, OK, answer]
    for ask in ASKED.values():
        with RogueServer(script) as rogue:
            url = {"url": f"mariadb://keeper:word@127.0.0.1:{rogue.port}/crm"}
            settings = SourceSettings("crm", "mariadb", url, str(tmp_path), str(tmp_path / "home"))
            source = MariadbSource(settings, "test")
            with closing(source), pytest.raises(SourceAwayError):
                ask(source)


@pytest.mark.parametrize("first", [b"\x0a", b"\x0a5.5.5", b"\xff\x10\x04Too many"])
def test_a_greeting_that_makes_no_sense_is_an_error_of_the_source(
    first: bytes, tmp_path: Path
) -> None:
    with RogueServer([first, OK]) as rogue:
        url = {"url": f"mariadb://keeper:word@127.0.0.1:{rogue.port}/crm"}
        settings = SourceSettings("crm", "mariadb", url, str(tmp_path), str(tmp_path / "home"))
        with closing(MariadbSource(settings, "test")) as source:
            with pytest.raises(SourceAwayError):
                source.describe_table("t")
            assert [one.state for one in source.diagnose_source({})] == ["bad"]
