"""`viewkeeper simulate --fleet`: many warehouses in random worlds, many seeds or one.

With an order every seed must be consistent, and one that is not is printed with the command that
replays it. Without one inconsistencies are expected: they are counted, and the first is explained.
"""

from __future__ import annotations

import random

import click

from viewkeeper.cli.commands.simulate.workers import run_campaign
from viewkeeper.cli.format import amount_text
from viewkeeper.simulate.campaigns.algorithm_campaign import CampaignTally
from viewkeeper.simulate.fleet.fleet_campaign import FleetCell, judge_fleet, play_fleet
from viewkeeper.simulate.fleet.fleet_world import FleetWorld


def run_fleets(ordered: bool, seeds: int, seed: int | None, jobs: int) -> int:
    """Run seeds of fleets; 1 if one with an order is not consistent, or one without raises."""
    cell = FleetCell(ordered)
    if seed is not None:
        return _replay_seed(cell, seed)
    (tally,) = run_campaign([cell], seeds, jobs)
    click.echo(_fleet_summary(tally))
    for outcome in tally.failed[:1]:
        count = amount_text(len(tally.failed), "seed")
        click.echo(f"\n{count} failed; seed {outcome.seed}: {outcome.error}")
        click.echo(f"  {cell.replay_command(outcome.seed)}")
    return 1 if tally.failed else 0


def _fleet_summary(tally: CampaignTally[FleetCell]) -> str:
    facts = tally.facts
    lines = [
        f"{amount_text(tally.seeds, 'seed')}: {amount_text(tally.updates, 'update')}, "
        f"{amount_text(facts['members'], 'member')} with {facts['states']:,} states; "
        f"{amount_text(facts['orders'], 'order')}, {facts['virtual']:,} of them over views of "
        f"others; {amount_text(facts['moves'], 'move')} to another group, "
        f"{amount_text(facts['crashes'], 'crash', 'crashes')}"
    ]
    found = {
        "not base consistent": facts["base"],
        "not view consistent": facts["view"],
        "wrong about where it stands": facts["claim"],
        "wrong in the end": facts["last"],
        "standing still": facts["stuck"],
        "not decided": facts["unknown"],
    }
    lines += [f"  {what}: {amount_text(count, 'seed')}" for what, count in found.items()]
    return "\n".join(lines)


def _replay_seed(cell: FleetCell, seed: int) -> int:
    """Run one seed, and tell what happened."""
    world = cell.make_world(seed)
    play_fleet(world, random.Random(f"{seed} pace"))
    for line in _fleet_lines(world):
        click.echo(line)
    wrong, _ = judge_fleet(world)
    click.echo(f"seed {seed}: {wrong or 'consistent'}")
    return 1 if wrong and cell.ordered else 0


def _fleet_lines(world: FleetWorld) -> list[str]:
    """The fleet, its orders, and every state with what it stands for."""
    lines = []
    for plan in world.scenario.members:
        reads = ", ".join(sorted(plan.facts.read_names))
        lines.append(f"{plan.name} reads {reads}; {amount_text(len(plan.views), 'view')}")
    for group in world.registry.groups:
        order = " ".join(str(each.id) for each in group.order)
        closed = ", closed" if group.closed else ""
        lines.append(f"{group.name} ({', '.join(group.facts)}{closed}): {order or 'no order'}")
    for name, warehouse in world.warehouses.items():
        for entry in warehouse.entries:
            stands = ", ".join(f"{s} {p}" for s, p in sorted(entry.positions.items()))
            hidden = "" if entry.shown else " (with the next)"
            after = f"after {entry.id} in {entry.group}{hidden}"
            lines.append(f"{name} ts {entry.ts} {after}: {stands}")
    return lines
