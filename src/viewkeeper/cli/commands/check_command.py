"""`viewkeeper check`: which consistency level a recorded history has, and why not a higher one.

The decision is in `viewkeeper.check.checker`, the words in `viewkeeper.check.explanation`. Only
what is proven counts: beyond the limit of its search the command says unknown, and ends as if it
were no.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from viewkeeper.check.levels import LADDERS, LIMIT, PVM, STROBE, CheckAnswer, Ladder
from viewkeeper.cli.format import amount_text, as_json
from viewkeeper.errors import HistoryError
from viewkeeper.maintain.algorithm_protocol import Level

if TYPE_CHECKING:
    from viewkeeper.check.checker import Verdict

EPILOG = """\b
Examples:
  viewkeeper check examples/histories/deletion_anomaly.json
  viewkeeper check examples/histories/global_halves.json --level strong
  viewkeeper check history.json --level complete --json

docs/levels.md says what the levels mean and how to write a history.

Exit codes: 0 at least the level, 1 below it or unknown, 2 the file is no history."""

LEVELS = [level.lower_name for level in Level if level is not Level.NONE]
STATES_MAX = 20


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default=Level.CONVERGENCE.lower_name,
    show_default=True,
    help="What the history must have, as the Strobe paper names it.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=LIMIT,
    show_default=True,
    help="How many vectors a search may visit.",
)
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON object.")
def check(file: Path, level: str, limit: int, wants_json: bool) -> int:
    """Decide which consistency level a recorded history has.

    A history is what the sources committed and which states the view showed. Says which of the four
    predicates hold, the level in the Strobe paper and in the PVM paper, and for what does not hold
    the states and rows that show it.
    """
    from viewkeeper.check.checker import check_history as decide
    from viewkeeper.check.history.history_file import read_history

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryError(f"cannot be read: {error}", path=str(file)) from None
    verdict = decide(read_history(text, str(file)), limit)
    wanted = Level[level.upper()]
    if wants_json:
        click.echo(as_json(_verdict_data(verdict, wanted), indent=2))
    else:
        _show_verdict(verdict, wanted)
    return 0 if verdict.has_level(wanted) is CheckAnswer.YES else 1


def _verdict_data(verdict: Verdict, wanted: Level) -> dict[str, object]:
    from viewkeeper.check.explanation import explain_verdict

    chain, schedule = verdict.chain, verdict.evidence.schedule
    return {
        "level": verdict.level.lower_name,
        "possible": verdict.possible_level.lower_name,
        "wanted": wanted.lower_name,
        "reached": verdict.has_level(wanted).value,
        "predicates": {p.value: answer.value for p, answer in verdict.answers.items()},
        "strobe": {name: answer.value for name, answer in verdict.ladder_answers(STROBE).items()},
        "pvm": {name: answer.value for name, answer in verdict.ladder_answers(PVM).items()},
        "stands_for": None if chain is None else [schedule.vector_of(point) for point in chain],
        "explanations": [{"about": e.about, "text": e.text} for e in explain_verdict(verdict)],
    }


def _show_verdict(verdict: Verdict, wanted: Level) -> None:
    from viewkeeper.check.explanation import explain_verdict

    history = verdict.history
    click.echo(
        f'view "{history.view.name}": {amount_text(len(history.transactions), "transaction")} at '
        f"{amount_text(len(history.sources), 'source')}, "
        f"{amount_text(len(history.states), 'state')}\n"
    )
    for predicate, answer in verdict.answers.items():
        click.echo(f"  {predicate.value:<11} {answer.value:<8} {predicate.meaning}")
    click.echo("")
    for ladder in LADDERS:
        click.echo(f"  {ladder.paper + ' paper:':<13} {_level_names(verdict, ladder)}")
    _show_vectors(verdict)
    for explanation in explain_verdict(verdict):
        click.echo(f"\n{explanation.text}")
    if (reached := verdict.has_level(wanted)) is not CheckAnswer.YES:
        below = "is below" if reached is CheckAnswer.NO else "is not known to be at least"
        click.echo(f"\nThe history {below} {wanted.lower_name}.")
    if CheckAnswer.UNKNOWN in verdict.answers.values():
        click.echo("A larger --limit may decide it.")


def _level_names(verdict: Verdict, ladder: Ladder) -> str:
    """The highest levels of a paper that the history has, and those that are unknown."""
    found = verdict.ladder_answers(ladder)
    unknown = [name for name, answer in found.items() if answer is CheckAnswer.UNKNOWN]
    text = " and ".join(ladder.highest_levels(verdict.answers)) or "none"
    return f"{text}; unknown: {', '.join(unknown)}" if unknown else text


def _show_vectors(verdict: Verdict) -> None:
    """What each state stands for, where there is an order."""
    from viewkeeper.check.history_words import Wording

    if verdict.chain is None:
        return
    words = Wording(verdict.history, verdict.evidence.schedule)
    click.echo("")
    for index, point in enumerate(verdict.chain[:STATES_MAX]):
        click.echo(f"  {words.state_text(index)} stands for {words.vector_text(point)}")
    if len(verdict.chain) > STATES_MAX:
        click.echo(f"  ... and {len(verdict.chain) - STATES_MAX} more; --json has them all")
