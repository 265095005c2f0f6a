"""The command line: which commands there are, and how every one of them ends.

Commands live in modules of their own and are imported when they are used, so `viewkeeper --help`
answers at once. A command returns its exit code, or raises; what it raises is turned into words and
a code here, for all commands alike:

    0    everything is as it should be
    1    it is not: a view waits or is stopped, a state differs from recomputation
    2    the command could not be carried out: usage, project, source or warehouse
    3    a defect of Viewkeeper; --debug shows where
    130  cancelled
    141  nobody reads the output any more
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import click.shell_completion

from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import show_causes, show_error, show_warning
from viewkeeper.errors import ViewkeeperError, suggest_nearest

DEFECT, CANCELLED, UNREAD = 3, 130, 141

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("viewkeeper.cli.commands.init_command", "Make a sample project that runs as it is."),
    "run": ("viewkeeper.cli.commands.run_command", "Keep the views fresh, continuously or once."),
    "plan": (
        "viewkeeper.cli.commands.project_files.plan_command",
        "Show what the project's files would change, and change nothing.",
    ),
    "reload": (
        "viewkeeper.cli.commands.project_files.reload_command",
        "Let a running maintainer take up the project's files now.",
    ),
    "refresh": (
        "viewkeeper.cli.commands.requests.refresh_command",
        "Load views again; their old state is shown until then.",
    ),
    "drop": (
        "viewkeeper.cli.commands.requests.drop_command",
        "Remove a view and what is stored of it.",
    ),
    "doctor": (
        "viewkeeper.cli.commands.doctor_command",
        "Check every source, view and Java, and say what mends them.",
    ),
    "status": ("viewkeeper.cli.commands.status_command", "Show how far every view and source is."),
    "query": ("viewkeeper.cli.commands.query_command", "Run one SELECT over the views."),
    "changes-feed": (
        "viewkeeper.cli.commands.readers.changes_feed_command",
        "Write the changes of a view as lines of JSON, for pipes.",
    ),
    "serve": (
        "viewkeeper.cli.commands.readers.serve_command",
        "Serve the views as tables to Spark Connect clients.",
    ),
    "explain": (
        "viewkeeper.cli.commands.explain_command",
        "Show how a view is maintained, and what that costs.",
    ),
    "partition": (
        "viewkeeper.cli.commands.partition_command",
        "Show which views share one order, and over which bases.",
    ),
    "verify": (
        "viewkeeper.cli.commands.verify_command",
        "Compare views with recomputation from the sources.",
    ),
    "history": (
        "viewkeeper.cli.commands.schema_change_commands",
        "Show what became of a view's definition.",
    ),
    "changes": (
        "viewkeeper.cli.commands.schema_change_commands",
        "Show schema changes that wait for approval.",
    ),
    "approve": (
        "viewkeeper.cli.commands.schema_change_commands",
        "Let a held view follow its schema changes.",
    ),
    "reject": (
        "viewkeeper.cli.commands.schema_change_commands",
        "Stop a held view instead of letting it follow.",
    ),
    "check": (
        "viewkeeper.cli.commands.check_command",
        "Decide which consistency level a recorded history has.",
    ),
    "simulate": (
        "viewkeeper.cli.commands.simulate.command",
        "Try an algorithm in random worlds, or run a script.",
    ),
    "publish": (
        "viewkeeper.cli.commands.maintenance_commands",
        "Write plain tables, rows only, for other tools.",
    ),
    "compact": (
        "viewkeeper.cli.commands.maintenance_commands",
        "Fold old states and merge small files.",
    ),
    "detach": (
        "viewkeeper.cli.commands.detach_command",
        "Remove the change capture from the sources.",
    ),
    "registry": (
        "viewkeeper.cli.commands.registry_command",
        "Serve one order to many warehouses, or show it.",
    ),
    "demo": (
        "viewkeeper.cli.commands.demo_command",
        "Watch views stay right while databases change.",
    ),
    "completion": (
        "viewkeeper.cli.commands.completion_command",
        "Let the shell complete commands and options.",
    ),
}
"""Every command: the module that has it under its own name, and its line in the list."""


class Commands(click.Group):
    """A group that imports a command when it is called, and maps every end to an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        if not any(parameter.name == "verbose" for parameter in command.params):
            command.params.append(click.Option(["-v", "--verbose"], **VERBOSE))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(
                f'there is no command "{args[0]}"{suggest_nearest(args[0], COMMANDS)}', ctx
            )
        return super().resolve_command(ctx, args)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The commands, which are not imported for that, and the options before them."""
        found = [
            click.shell_completion.CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Click would leave with 1, which means something else here.
            _discard_output()
            sys.exit(UNREAD)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and leave with its exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra.setdefault("obj", Invocation())
        try:
            code = super().main(
                arguments, prog_name or "viewkeeper", standalone_mode=False, **extra
            )
            sys.stdout.flush()
        except BaseException as error:  # noqa: BLE001 - every end gets its exit code here
            is_verbose = extra["obj"].verbose
            code = exit_code(error, debug="--debug" in arguments, is_verbose=is_verbose)
        sys.exit(code or 0)


def exit_code(error: BaseException, debug: bool, is_verbose: bool = False) -> int:
    """Say what happened, on stderr, and return the exit code for it."""
    is_ours = isinstance(error, ViewkeeperError | KeyboardInterrupt | BrokenPipeError | click.Abort)
    if (debug or (is_verbose and not is_ours)) and not isinstance(
        error, SystemExit | click.ClickException
    ):
        traceback.print_exception(error)
    match error:
        case SystemExit():
            return error.code if isinstance(error.code, int) else 2
        case KeyboardInterrupt() | click.Abort():
            show_warning("cancelled")
            return CANCELLED
        case BrokenPipeError():
            _discard_output()
            return UNREAD
        case click.ClickException():
            error.show()
            return 2
        case ViewkeeperError():
            show_error(error.message, error.detail, error.hint)
            if is_verbose:
                show_causes(error)
            return 2
        case _:
            what = str(error).split("\n")[0]
            show_error(
                f"unexpected {type(error).__name__}: {what}",
                None,
                None if debug or is_verbose else "--debug shows the traceback",
            )
            return DEFECT


def _discard_output() -> None:
    """What is still buffered would fail again when the interpreter flushes at its end."""
    with suppress(OSError, ValueError):
        output = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output)
        os.close(nowhere)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"viewkeeper {version('viewkeeper')}")
        ctx.exit()


def _take_verbose(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Whichever command, `-v` before or behind it says the same."""
    if not wanted or ctx.resilient_parsing:
        return
    invocation = ctx.ensure_object(Invocation)
    if invocation.verbose:
        return
    invocation.take_verbose()
    from viewkeeper.cli.log_output import stderr_handler, writing_log

    # A command that writes a log of its own has that in place of this one.
    ctx.find_root().with_resource(writing_log("debug", "text", stderr_handler()))


VERBOSE: dict[str, Any] = {
    "is_flag": True,
    "expose_value": False,
    "callback": _take_verbose,
    "help": "Show causes of errors, tracebacks of unexpected ones, debug lines of the log.",
}
"""The option `-v`, which every command has."""


EPILOG = """\b
Examples:
  viewkeeper init shop && cd shop
  viewkeeper run --once
  viewkeeper query "SELECT * FROM order_lines"
  viewkeeper status

Exit codes: 0 fine, 1 something is not (a view waits, a state differs), 2 the command could not be
carried out, 3 a defect of Viewkeeper, 130 cancelled."""


@click.command(
    cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--project",
    "-p",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The project's folder.  [default: the nearest folder upwards with a viewkeeper.yml]",
)
@click.option("--debug", is_flag=True, help="Show the traceback of every error.")
@click.option("-v", "--verbose", **VERBOSE)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and leave.",
)
@click.pass_obj
def cli(invocation: Invocation, project: Path | None, debug: bool) -> None:
    """Keep materialized views over many databases correct and fresh.

    A project is a folder with a viewkeeper.yml and views/*.sql. `viewkeeper init` makes one.
    """
    invocation.take_options(project, debug)


def main() -> None:
    """The entry point of the program."""
    cli.main()


if __name__ == "__main__":
    main()
