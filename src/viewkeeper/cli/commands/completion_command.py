"""`viewkeeper completion`: the script by which a shell completes commands and options.

The scripts are click's own. They call the program again, with what was typed in the environment, so
that they need not be made again for a newer version.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_VIEWKEEPER_COMPLETE"
LINES = {
    "bash": ("~/.bashrc", 'eval "$(viewkeeper completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(viewkeeper completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "viewkeeper completion fish | source"),
}
"""The file of each shell, and the line that belongs into it."""

EPILOG = """\b
Examples: one line for the file of your shell
  ~/.bashrc                   eval "$(viewkeeper completion bash)"
  ~/.zshrc                    eval "$(viewkeeper completion zsh)"
  ~/.config/fish/config.fish  viewkeeper completion fish | source

Exit codes: 0 printed, 2 no such shell."""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(list(LINES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Let the shell complete commands and options.

    Prints a script for bash (4.4 or newer), zsh or fish. It reads no project.
    """
    root = ctx.find_root()
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all three"
    script = kind(root.command, {}, "viewkeeper", VARIABLE)
    file, line = LINES[shell]
    click.echo(f"# In {file}:  {line}")
    # Their source() asks the bash of this machine for its version, which need not be the user's.
    click.echo(script.source_template % script.source_vars())
    return 0
