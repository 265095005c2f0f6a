"""`viewkeeper simulate --capacity`: which rates a machine keeps up with, and how fresh views are.

Without a rate, a table of rates, and the highest one whose changes are shown soon enough. What a
batch costs is estimated, or given: `batch`, whatever is in it, and `change`, for each in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import click

from viewkeeper.cli.format import duration_text
from viewkeeper.engine.settings.project_file import read_duration
from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.simulate.capacity import (
    CapacityFigures,
    CapacityWorld,
    MaintenanceCosts,
    find_ceiling,
    simulate_capacity,
)

RATES = (1, 10, 100, 1_000, 5_000, 10_000, 20_000, 50_000)
NUMBERS = ("rate", "views", "sources", "slots")
DURATIONS = ("latency", "p95", "batch", "change")
P95_SECONDS = 0.5
HEADER = (
    f"{'changes/s':>10} {'p50':>9} {'p95':>9} {'p99':>9} {'batches/s':>10} {'changes each':>13}  "
)


def run_capacity(words: str) -> int:
    """Print the table, or one rate; 1 if that is not kept up with."""
    given = read_words(words)
    p95 = given.pop("p95", P95_SECONDS)
    numbers = {key: int(given[key]) for key in ("views", "sources", "slots") if key in given}
    world = CapacityWorld(given.get("rate", 1.0), **numbers, latency=given.get("latency", 0.0))
    costs = _costs_of(given)
    if "batch" in given:
        click.echo(
            f"a batch takes {duration_text(costs.batch)}, and {1e6 * costs.read:g} us more for "
            "each change, as given"
        )
    else:
        click.echo(
            f"views: {world.views}, sources: {world.sources}, slots on Spark: {world.slots}, "
            f"a source answers after {duration_text(world.latency)}"
        )
    click.echo(HEADER)
    rates = (given["rate"],) if "rate" in given else RATES
    found = [simulate_capacity(replace(world, rate=rate), costs) for rate in rates]
    for figures in found:
        click.echo(_capacity_line(figures))
    ceiling = find_ceiling(world, costs, p95)
    click.echo(
        f"up to {ceiling:,.0f} changes/s, 95 of 100 are shown within {duration_text(p95)}"
        if ceiling
        else f"no rate shows 95 of 100 changes within {duration_text(p95)}"
    )
    return 0 if "rate" not in given or found[0].keeps_up else 1


def _costs_of(given: Mapping[str, float]) -> MaintenanceCosts:
    """Estimated costs, or measured ones, which have all that views and sources add in them."""
    if "batch" not in given:
        if "change" in given:
            raise click.BadParameter('"change" goes with "batch"', param_hint="--capacity")
        return MaintenanceCosts()
    if beside := [key for key in ("views", "sources", "latency") if key in given]:
        raise click.BadParameter(
            f'"batch" has what "{beside[0]}" adds in it: leave one out', param_hint="--capacity"
        )
    return MaintenanceCosts.from_measured(given["batch"], given.get("change", 0.0))


def read_words(words: str) -> dict[str, float]:
    """What `rate=5000,views=3,latency=2ms` says.

    >>> read_words("rate=5000,latency=2ms")
    {'rate': 5000.0, 'latency': 0.002}
    """
    found: dict[str, float] = {}
    for word in filter(None, words.split(",")):
        key, _, value = word.strip().partition("=")
        if key not in (*NUMBERS, *DURATIONS):
            nearest = suggest_nearest(key, (*NUMBERS, *DURATIONS))
            raise click.BadParameter(f'there is no "{key}"{nearest}', param_hint="--capacity")
        try:
            number = read_duration(value, key) if key in DURATIONS else float(value)
        except (ValueError, ProjectError) as wrong:
            raise click.BadParameter(f'"{word}": {wrong}', param_hint="--capacity") from wrong
        if not 0 < number < 1e9 and not (key in ("latency", "change") and number == 0):
            raise click.BadParameter(f'"{word}": out of range', param_hint="--capacity")
        if key in NUMBERS[1:] and number != int(number):
            raise click.BadParameter(f'"{word}": a whole number', param_hint="--capacity")
        found[key] = number
    return found


def _capacity_line(figures: CapacityFigures) -> str:
    rate = f"{figures.world.rate:>10,.0f}"
    if not figures.keeps_up:
        return f"{rate} is not kept up with: more comes than is maintained"
    ages = (figures.p50, figures.p95, figures.p99)
    where = "on Spark" if figures.share_on_spark > 0.5 else ""
    return (
        f"{rate} {' '.join(f'{duration_text(age):>9}' for age in ages)} {figures.batches:>10.1f}"
        f" {figures.changes:>13,.0f}  {where}"
    ).rstrip()
