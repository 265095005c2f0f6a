"""The table of all algorithms: promised level, level found, lookups per update, quiet moments.

It is written from what campaigns found, into files between two markers, so that README and pages
say what was measured and nothing else. There are two forms: one line per algorithm, and one per
algorithm and kind of transactions. Which one a file has is in its markers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.errors import SimulationError
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.campaigns.algorithm_campaign import AlgorithmCell, CampaignTally

MARKED = "<!-- {form}:begin -->\n{text}\n<!-- {form}:end -->"
AS_OF = "¹"


@dataclass(frozen=True, slots=True)
class AlgorithmLine:
    """What is known of an algorithm under one kind of transactions."""

    name: str
    transactions: Transactions
    promised: Level
    found: Level
    seeds: int
    incomplete: int
    messages: float
    still: bool

    @property
    def level_text(self) -> str:
        """The level in one word, or in two where more was found than promised."""
        more = f" ({self.found.lower_name} found)" if self.found != self.promised else ""
        return f"{self.promised.lower_name}{self.as_of_mark}{more}"

    @property
    def as_of_mark(self) -> str:
        """Whether the level is over the states as of every ts."""
        return AS_OF if KINDS[self.name].as_of else ""


def line_of(tally: CampaignTally[AlgorithmCell], still: bool) -> AlgorithmLine:
    """A line from a campaign and the measurement of standstill."""
    cell = tally.cell
    return AlgorithmLine(
        cell.subject.name,
        cell.transactions,
        cell.promised_level,
        tally.lowest,
        tally.seeds,
        tally.incomplete,
        tally.messages_per_update,
        still,
    )


def brief_table(lines: Sequence[AlgorithmLine]) -> str:
    """One line per algorithm."""
    head = [
        "| algorithm | single updates | source-local transactions | global transactions "
        "| lookups per update | quiet moments |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    body = []
    for name in dict.fromkeys(line.name for line in lines):
        mine = {line.transactions: line for line in lines if line.name == name}
        levels = " | ".join(mine[t].level_text for t in Transactions)
        messages = " / ".join(f"{mine[t].messages:.1f}" for t in Transactions)
        still = "needed" if any(line.still for line in mine.values()) else "not needed"
        body.append(f"| `{name}` | {levels} | {messages} | {still} |")
    return "\n".join([*head, *body, "", _seeds_note(lines)])


def full_table(lines: Sequence[AlgorithmLine]) -> str:
    """One line per algorithm and kind of transactions."""
    head = [
        "| algorithm | transactions | promised | found | seeds not complete | lookups per update "
        "| quiet moments |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    body = [
        f"| `{line.name}` | {line.transactions.value} | "
        f"{line.promised.lower_name}{line.as_of_mark} "
        f"| {line.found.lower_name}{line.as_of_mark} | {line.incomplete:,} of {line.seeds:,} "
        f"| {line.messages:.2f} | {'needed' if line.still else 'not needed'} |"
        for line in lines
    ]
    return "\n".join([*head, *body, "", _seeds_note(lines)])


def _seeds_note(lines: Sequence[AlgorithmLine]) -> str:
    seeds = min((line.seeds for line in lines), default=0)
    return (
        f"Each level is promised, and is the lowest that was found in {seeds:,} random runs over "
        "views of one to four relations, with crashes, repeated and late messages; lookups are the "
        f"mean over them.{_as_of_note(lines)}"
    )


def _as_of_note(lines: Sequence[AlgorithmLine]) -> str:
    if not any(KINDS[line.name].as_of for line in lines):
        return ""
    names = ", ".join(dict.fromkeys(f"`{n.name}`" for n in lines if KINDS[n.name].as_of))
    return (
        f" {AS_OF} {names}: as of every ts; a reader of the newest state, which moves batch by "
        "batch, has strong consistency."
    )


FORMS: dict[str, Callable[[Sequence[AlgorithmLine]], str]] = {
    "algorithms": brief_table,
    "scenarios": full_table,
}


def insert_table(text: str, lines: Sequence[AlgorithmLine], path: str) -> str:
    """A file's text with the table between its markers."""
    return insert_marked(text, {form: write(lines) for form, write in FORMS.items()}, path)


def insert_marked(text: str, tables: Mapping[str, str], path: str) -> str:
    """A file's text with tables, each between the markers of its name; one must have a place."""
    found = False
    for form, table in tables.items():
        place = re.search(f"<!-- {form}:begin -->.*?<!-- {form}:end -->", text, re.S)
        if place is not None:
            found = True
            marked = MARKED.format(form=form, text=f"\n{table}\n")
            text = text[: place.start()] + marked + text[place.end() :]
    if not found:
        form = next(iter(tables))
        raise SimulationError(
            f"{path}: no place for the table",
            hint=f"put <!-- {form}:begin --> and <!-- {form}:end --> where it belongs",
        )
    return text
