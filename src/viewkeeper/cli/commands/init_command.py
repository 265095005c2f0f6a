"""`viewkeeper init`: a sample project that runs as it is, with databases to play with.

Nothing that is already there is overwritten: if any file of the sample exists, nothing is written.
The files themselves are in `viewkeeper.cli.commands.sample_project`.
"""

from __future__ import annotations

from pathlib import Path

import click

from viewkeeper.cli.commands.sample_project import DATABASES, sample_files
from viewkeeper.errors import ProjectError

EPILOG = """\b
Examples:
  viewkeeper init shop      a new folder "shop"
  viewkeeper init           the current folder"""


@click.command(epilog=EPILOG)
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Make a sample project that runs as it is.

    Writes viewkeeper.yml with every setting and its default, two views, and three small SQLite
    databases in WAL mode. Refuses to overwrite anything.
    """
    wanted = sample_files()
    _refuse_existing(folder, [*wanted, *DATABASES])
    for name, text in wanted.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ProjectError(f"{path}: cannot be written", detail=str(error)) from error
    for name, make in DATABASES.items():
        make(folder / name)
    _show_next_steps(folder, [*wanted, *DATABASES])


def _refuse_existing(folder: Path, names: list[str]) -> None:
    found = [name for name in names if (folder / name).exists()]
    if found:
        raise ProjectError(
            f'folder "{folder}": {", ".join(found)} is already there',
            hint="give another folder: `viewkeeper init FOLDER`; nothing was written",
        )


def _show_next_steps(folder: Path, names: list[str]) -> None:
    click.echo(f"Made a sample project in {folder}:")
    for name in names:
        click.echo(f"  {name}")
    click.echo("\nNext:")
    if folder != Path("."):
        click.echo(f"  cd {folder}")
    click.echo("  viewkeeper explain order_lines")
    click.echo("  viewkeeper run --once")
    click.echo('  viewkeeper query "SELECT * FROM order_lines"')
    click.echo(
        "  viewkeeper run          # keeps them fresh; change a database meanwhile, like this:"
    )
    click.echo(
        "  python -c \"import sqlite3; c = sqlite3.connect('shop.db');"
        " c.execute('INSERT INTO item VALUES (1, 3, 5)'); c.commit()\""
    )
