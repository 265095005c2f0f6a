"""The reference of all commands, written from their own help: `docs/commands.md`.

    python -m tests.cli.commands_page > docs/commands.md

A test compares the file with what this prints, so no command and no option is undocumented.
"""

from __future__ import annotations

import click

from viewkeeper.cli.main import COMMANDS, cli

HEADING = """\
# Commands

Written by `python -m tests.cli.commands_page > docs/commands.md`; a test keeps it current.
"""
WIDTH = 90


def commands_page() -> str:
    """The whole page."""
    parent = click.Context(cli, info_name="viewkeeper", **cli.context_settings)
    parts = [HEADING, _help_section("viewkeeper", parent)]
    for name in COMMANDS:
        command = cli.get_command(parent, name)
        if command is not None:
            context = click.Context(command, info_name=name, parent=parent)
            parts.append(_help_section(f"viewkeeper {name}", context))
            parts += _inner_sections(f"viewkeeper {name}", context)
    return "\n".join(parts)


def _inner_sections(title: str, context: click.Context) -> list[str]:
    """The commands of a command that has some."""
    if not isinstance(context.command, click.Group):
        return []
    commands = context.command.commands.items()
    contexts = ((name, click.Context(c, info_name=name, parent=context)) for name, c in commands)
    return [_help_section(f"{title} {name}", inner) for name, inner in contexts]


def _help_section(title: str, context: click.Context) -> str:
    context.terminal_width = context.max_content_width = WIDTH
    lines = "\n".join(line.rstrip() for line in context.get_help().splitlines())
    return f"## {title}\n\n```\n{lines}\n```\n"


if __name__ == "__main__":
    click.echo(commands_page(), nl=False)
