"""What a rewriting did, one sentence for each step, for `viewkeeper history`.

The sentences name things as the SQL before had them, in the order in which a reader would ask: what
was followed, what stands in for what, what the view does without, what its stars took in.
"""

from __future__ import annotations

from collections.abc import Iterator

from viewkeeper.evolution.synchronization.part_choice import PartChoice
from viewkeeper.evolution.synchronization.parts_of_sql import Use, ViewParts
from viewkeeper.evolution.synchronization.star_items import StarText


def describe_steps(
    view: ViewParts, choice: PartChoice, stars: dict[int, StarText]
) -> tuple[str, ...]:
    """The sentences, each once."""
    found = [
        *_rename_sentences(view, choice),
        *_substitute_sentences(view, choice),
        *_loss_sentences(view, choice),
        *_star_sentences(view, stars),
    ]
    return tuple(dict.fromkeys(found))


def _rename_sentences(view: ViewParts, choice: PartChoice) -> Iterator[str]:
    for place, table in enumerate(view.tables):
        standing = choice.standings[place]
        if standing is None or place in choice.gone or standing.substitute is not None:
            continue
        if standing.recreated:
            yield f"{table.relation} is another table of the same name now, and is read anew"
        elif standing.relation != table.relation:
            yield f"{table.relation} is called {standing.relation} now"
        for name in view.columns_used(place):
            now = standing.column_now(name)
            if name.lower() in standing.anew:
                column = f"{table.relation}.{name}"
                yield f"{column} is another column of the same name now, and is read anew"
            elif now is not None and now.lower() != name.lower():
                yield f"{table.relation}.{name} is called {now} now"


def _substitute_sentences(view: ViewParts, choice: PartChoice) -> Iterator[str]:
    for place, standing in enumerate(choice.standings):
        if standing is not None and standing.substitute is not None and place not in choice.gone:
            extent = standing.substitute.extent.value
            relation = view.tables[place].relation
            yield f"{standing.relation} stands in for {relation}, extent {extent}"
    for stand_in in choice.used:
        extent = stand_in.substitute.extent.value
        yield (
            f"{stand_in.substitute} stands in for {_column_name(view, stand_in.use)}, extent "
            f"{extent}"
        )


def _loss_sentences(view: ViewParts, choice: PartChoice) -> Iterator[str]:
    for place in sorted(choice.gone):
        yield f"{view.tables[place].relation} is dispensed with"
    for index, condition in enumerate(view.conditions):
        if index not in choice.conditions:
            yield f"the condition {condition.written} is dispensed with"
    for index, shown in enumerate(view.shown):
        if index in choice.nulled:
            lost = ", ".join(_column_name(view, use) for use in sorted(choice.nulled[index]))
            yield f'the column "{shown.name}" has NULL for {lost}, which is gone'
        elif index not in choice.shown and shown.starred:
            yield f'the column "{shown.name}" goes, as the star has it no more'
        elif index not in choice.shown:
            yield f'the column "{shown.name}" is dispensed with'


def _star_sentences(view: ViewParts, stars: dict[int, StarText]) -> Iterator[str]:
    for written in stars.values():
        for place, name in written.taken:
            yield f"the star takes in {view.tables[place].relation}.{name}"
        if written.out and written.text:
            yield "the star is written out"


def _column_name(view: ViewParts, use: Use) -> str:
    return f"{view.tables[use[0]].relation}.{use[1]}"
