"""Sequence diagrams: texts do not cover each other, messages are where they were, figures current.

The geometry is read back from the SVG itself: every text with an estimate of its box.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.campaigns.algorithm_campaign import AlgorithmCell, replay_seed
from viewkeeper.simulate.scenario import AlgorithmSubject
from viewkeeper.simulate.scripts.script_reader import read_script
from viewkeeper.simulate.scripts.script_run import perform_run
from viewkeeper.simulate.sequence_diagram import draw_diagram, text_width
from viewkeeper.simulate.simulated_world import SimulatedWorld

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def boxes(root: ElementTree.Element) -> dict[Box, str]:
    found = {}
    for element in root.iter(f"{SVG}text"):
        text, size = element.text or "", {"title": 16, "head": 13}.get(element.get("class", ""), 12)
        x, y, wide = float(element.get("x", 0)), float(element.get("y", 0)), text_width(text, size)
        left = x - wide if element.get("text-anchor") == "end" else x
        found[(left, y - size, left + wide, y + 3)] = text
    return found


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def drawn(world: SimulatedWorld) -> ElementTree.Element:
    return ElementTree.fromstring(draw_diagram(world, "a title"))


@pytest.mark.parametrize("name", ["sweep", "strobe", "pvm", "eca", "recompute"])
@pytest.mark.parametrize("seed", range(6))
def test_no_text_covers_another_or_leaves_the_page(name: str, seed: int) -> None:
    root = drawn(replay_seed(AlgorithmCell(AlgorithmSubject(name), Transactions.GLOBAL), seed))
    texts = boxes(root)
    for one, other in combinations(texts, 2):
        assert not overlap(one, other), f"{texts[one]!r} and {texts[other]!r}"
    wide, high = (float(root.get(side, 0)) for side in ("width", "height"))
    for (left, top, right, bottom), text in texts.items():
        assert 0 <= left < right <= wide, text
        assert 0 <= top < bottom <= high, text


@pytest.mark.parametrize("seed", range(12))
def test_every_message_is_an_arrow_that_goes_down(seed: int) -> None:
    world = replay_seed(AlgorithmCell(AlgorithmSubject("sweep"), Transactions.LOCAL), seed)
    lines = list(drawn(world).iter(f"{SVG}line"))
    heads = [line for line in lines if line.get("marker-end") and line.get("class") != "store"]
    legend = 3
    happened = Counter(entry.what for entry in world.trace.entries)
    if not happened["crash"]:
        sent = happened["commit"] + happened["ask"] + happened["ask again"] + happened["evaluate"]
        assert len(heads) == sent + legend
        assert not [line for line in lines if line.get("class") == "lost"]
    slanted = [line for line in heads if line.get("y1") != line.get("y2")]
    assert len(slanted) == len(heads) - legend
    assert all(float(line.get("y2", 0)) > float(line.get("y1", 0)) for line in slanted)


def test_compensations_and_states_are_written() -> None:
    path = ROOT / "tests/specs/sweep-figure-5.txt"
    script = read_script(path.read_text(encoding="utf-8"))
    world = perform_run(script, script.runs[1]).world
    texts = list(boxes(drawn(world)).values())
    assert texts.count("compensates r1 +(3)") == 2
    for state in ("(7,8)[2]", "(5,6)[2] (7,8)[2]", "(5,6)[2]", "(5,6)"):
        assert state in texts


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FIGURES = re.findall(r"simulate (tests/specs/\S+) --run (\d) --diagram (\S+)", MAKEFILE)


@pytest.mark.parametrize(("spec", "number", "figure"), FIGURES)
def test_the_figures_are_current(spec: str, number: str, figure: str) -> None:
    script = read_script((ROOT / spec).read_text(encoding="utf-8"), spec)
    run = script.runs[int(number) - 1]
    expected = draw_diagram(perform_run(script, run).world, run.title)
    assert (ROOT / figure).read_text(encoding="utf-8") == expected, "run: make figures"


def test_there_are_figures_to_compare() -> None:
    assert len(FIGURES) == 2
